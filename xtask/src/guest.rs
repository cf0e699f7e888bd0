//! `cargo xtask guest`: a virtual machine with a selected kernel and mqnet.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use mqnet_guest::bench::{self, Settings, bridge, ntb};
use mqnet_guest::{Guest, Kernel, Store, five};

use crate::{Result, kept, project};

/// Boot a guest with a shell, or with a command that runs in it
#[derive(Args)]
pub(crate) struct Arguments {
    /// Kernel: 6.1, 6.12 or 7.3
    #[arg(long, default_value_t = Kernel::V6_1)]
    kernel: Kernel,
    /// Number of CPUs
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// Memory in MiB
    #[arg(long, default_value_t = 1024)]
    memory: u32,
    /// Time limit of a command in seconds, including the boot
    #[arg(long, default_value_t = 600)]
    limit: u64,
    /// Update the packages of the guest first
    #[arg(long)]
    update: bool,
    /// Run a measurement instead: `tunnel` is TCP over a slow path, with a ring that drops and one
    /// that stops; `ivshmem` joins two guests by ivshmem, and by virtio-net devices and a bridge;
    /// `ntb` is one guest with `ntb_netdev`, vhost-user and ivshmem (both need root)
    #[arg(long, value_enum, conflicts_with = "command")]
    bench: Option<Bench>,
    /// Run a comparison instead: the kernel's implementations of the five systems with those of
    /// mqnet (kernel 7.3)
    #[arg(long, conflicts_with_all = ["command", "bench"])]
    compare: bool,
    /// Print the comparison as JSON
    #[arg(long, requires = "compare")]
    json: bool,
    /// Rounds of the measurement [default: 3 for tunnel, 5 for the others]
    #[arg(long, requires = "bench")]
    rounds: Option<u32>,
    /// Number of channels and queue pairs of ivshmem
    #[arg(long, default_value_t = bridge::Settings::default().channels, requires = "bench",
          value_parser = clap::value_parser!(u32).range(1..=8))]
    channels: u32,
    /// Rate of the path of tunnel in Mbit/s
    #[arg(long, default_value_t = Settings::default().rate, requires = "bench")]
    rate: u32,
    /// One-way delay of the path of tunnel in ms
    #[arg(long, default_value_t = Settings::default().delay, requires = "bench")]
    delay: u32,
    /// Number of packets in the ring of the tunnel's device
    #[arg(long, default_value_t = Settings::default().ring, requires = "bench")]
    ring: u32,
    /// Seconds of one run [default: 20 for tunnel, 5 for the others]
    #[arg(long, requires = "bench")]
    seconds: Option<u32>,
    /// Command to run in the guest, with words as in a shell [default: an interactive shell]
    #[arg(last = true)]
    command: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Bench {
    Tunnel,
    Ivshmem,
    Ntb,
}

fn measure(bench: Bench, arguments: &Arguments) -> Result<()> {
    let &Arguments { rate, delay, ring, channels, .. } = arguments;
    let (commit, is_tested) = (project::commit(), mqnet_guest::profile() == kept::PROFILE);
    match bench {
        Bench::Tunnel => {
            let usual = Settings::default();
            let rounds = arguments.rounds.unwrap_or(usual.rounds);
            let seconds = arguments.seconds.unwrap_or(usual.seconds);
            let settings = Settings { rounds, rate, delay, ring, seconds, ..usual };
            let report = bench::tunnel(&settings)?;
            print!("{}", report.table());
            println!("{}/tunnel.{{json,svg,html}}", report.write()?.display());
            // Store figures for the report only if they are comparable: measured with the profile
            // of tests, default settings, and at least the default number of rounds.
            let is_usual = Settings { rounds: usual.rounds, ..settings } == usual;
            if is_usual && is_tested && rounds >= usual.rounds {
                kept::keep(report.figures(), &commit)?;
            }
        }
        Bench::Ivshmem => {
            let usual = bridge::Settings::default();
            let rounds = arguments.rounds.unwrap_or(usual.rounds);
            let seconds = arguments.seconds.unwrap_or(usual.seconds);
            let settings = bridge::Settings { rounds, seconds, channels, queues: channels };
            let report = bridge::bridge(&settings)?;
            print!("{}", report.table());
            println!("{}", report.write()?.display());
            let is_usual = bridge::Settings { rounds: usual.rounds, ..settings } == usual;
            if is_usual && is_tested && rounds >= usual.rounds {
                kept::keep(report.figures(), &commit)?;
            }
        }
        Bench::Ntb => {
            let usual = ntb::Settings::default();
            let rounds = arguments.rounds.unwrap_or(usual.rounds);
            let seconds = arguments.seconds.unwrap_or(usual.seconds);
            let report = ntb::ntb(&ntb::Settings { rounds, seconds })?;
            print!("{}", report.table());
            println!("{}", report.write()?.display());
            if seconds == usual.seconds && is_tested && rounds >= usual.rounds {
                kept::keep(report.figures(), &commit)?;
            }
        }
    }
    Ok(())
}

/// Runs the command; returns the exit status of the process.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.update {
        Store::open()?.forget()?;
    }
    mqnet_guest::build()?;
    if let Some(bench) = arguments.bench {
        measure(bench, arguments)?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.compare {
        return compare(arguments.json);
    }
    let guest = Guest::new(arguments.kernel, "xtask")
        .cpus(arguments.cpus)
        .memory(arguments.memory)
        .limit(Duration::from_secs(arguments.limit));
    if arguments.command.is_empty() {
        return mqnet_guest::shell(guest);
    }
    let outcome = guest.script("command", &arguments.command.join(" ")).stream().run()?;
    let status = outcome.done.get("command").map_or(1, |done| done.status);
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(1)))
}

/// Compares the implementations of the kernel and of mqnet. Returns a failure if there are
/// unexplained differences.
fn compare(json: bool) -> Result<ExitCode> {
    let report = five::run("xtask")?;
    let tests = five::kernel_tests("xtask-selftests", "")?;
    if json {
        println!("{:#}", serde_json::json!([report.json(), tests.json()]));
    } else {
        print!("{}\n{}", report.table(), tests.table());
    }
    let complaints = [report.complaints(), tests.complaints()].concat();
    complaints.iter().for_each(|complaint| eprintln!("{complaint}"));
    Ok(if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
