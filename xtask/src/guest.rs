//! `cargo xtask guest`: a virtual machine with the kernel of one's choice and mqnet in it.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use mqnet_guest::bench::{self, Settings};
use mqnet_guest::{Guest, Kernel, Store};

use crate::Result;

/// Boots a guest: a shell, or a command that runs in it.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Its kernel: 6.1, 6.12 or 7.3
    #[arg(long, default_value_t = Kernel::V6_1)]
    kernel: Kernel,
    /// Number of its CPUs
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// Its memory in MiB
    #[arg(long, default_value_t = 1024)]
    memory: u32,
    /// Seconds that a command may take, with the boot
    #[arg(long, default_value_t = 600)]
    limit: u64,
    /// Get the newest packages first
    #[arg(long)]
    update: bool,
    /// Measure instead: `tunnel` is TCP over a slow path, with a ring that drops and one that stops
    #[arg(long, value_enum, conflicts_with = "command")]
    bench: Option<Bench>,
    /// Rounds of the measurement
    #[arg(long, default_value_t = Settings::default().rounds, requires = "bench")]
    rounds: u32,
    /// Rate of the path in Mbit/s
    #[arg(long, default_value_t = Settings::default().rate, requires = "bench")]
    rate: u32,
    /// Delay of the path in ms, one way
    #[arg(long, default_value_t = Settings::default().delay, requires = "bench")]
    delay: u32,
    /// Packets in the ring of the tunnel's device
    #[arg(long, default_value_t = Settings::default().ring, requires = "bench")]
    ring: u32,
    /// Seconds of one run
    #[arg(long, default_value_t = Settings::default().seconds, requires = "bench")]
    seconds: u32,
    /// Command to run in it, with words as a shell sees them (an interactive shell when missing)
    #[arg(last = true)]
    command: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Bench {
    Tunnel,
}

/// The status is that of the command.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.update {
        Store::open()?.forget()?;
    }
    mqnet_guest::build()?;
    if let Some(Bench::Tunnel) = arguments.bench {
        let &Arguments { rounds, rate, delay, ring, seconds, .. } = arguments;
        let settings = Settings { rounds, rate, delay, ring, seconds, ..Settings::default() };
        let report = bench::tunnel(&settings)?;
        print!("{}", report.table());
        println!("{}/tunnel.{{json,svg,html}}", report.write()?.display());
        return Ok(ExitCode::SUCCESS);
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
