//! `mqnet-bench`: parts of mqnet and their peers, measured in the same run.
//!
//! Single figures mean little on a shared machine. Therefore mqnet and the peer take turns of some
//! milliseconds, and each pair of turns gives a ratio. The result is the median of the ratios, also
//! separately for near and far CPUs.

#![forbid(unsafe_code)]

mod afxdp;
mod child;
mod cli;
mod control;
mod cpu;
mod group;
mod histogram;
mod hosts;
mod hugepages;
mod instr;
mod iperf;
mod latency;
mod limit;
mod limits;
mod link;
mod ntb_ends;
mod ntb_transport;
mod others;
mod ovs;
mod peers;
mod pingpong;
mod pool;
mod profile;
mod queueing;
mod relays;
mod report;
mod ring;
mod rxbuf;
mod scaling;
mod section;
mod slices;
mod stats;
mod tap;
mod tcp;
mod testpmd;
mod traffic;
mod vhost;
mod virtio_ends;
mod waiting;
mod wires;
mod xdp;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use mqnet_sysio::signal::{self, StopSignals};
use mqnet_sysio::{affinity, process};

use hugepages::HugePages;
use peers::Peer;
use pingpong::Slice;
use report::{Case, Line, Progress, Report, Unit};
use slices::End;

/// Errors are for people: each names the failed operation and the remedy.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Arguments of `mqnet-bench`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: What,
    /// Print JSON instead of a table
    #[arg(short, long, global = true)]
    json: bool,
    /// Pairs of slices (rounds for a link or tcp), each of which gives one ratio [default: 20; tcp,
    /// relays and rxbuf: 10]
    #[arg(long, global = true, value_name = "N",
          value_parser = clap::value_parser!(u32).range(10..=10_000))]
    pairs: Option<u32>,
    /// Length of a slice [default: 20 to 150, as the section needs]
    #[arg(long, global = true, value_name = "MS",
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    slice_ms: Option<u64>,
    /// The two CPUs, sender first [default: the first two allowed]
    #[arg(long, global = true, value_name = "A,B", value_delimiter = ',')]
    cpus: Vec<usize>,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum What {
    /// One hop through the ring, against DPDK's rte_ring
    Ring,
    /// The page pool, freed on the same and on another thread, against DPDK's rte_mempool
    Pool,
    /// An NTB link between two processes, against DPDK's memif and the memory limit
    Link {
        /// Bytes of a frame
        #[arg(long = "size", value_name = "BYTES", default_values_t = [64, 1514, 9000],
              value_delimiter = ',')]
        sizes: Vec<usize>,
    },
    /// TCP from TAP to NTB to TAP, against a minimal relay and a veth pair (root, iperf3)
    Tcp(tcp::TcpArgs),
    /// UDP of 1500 B without offloads to a TAP: many frames a system call against one (root)
    Tap,
    /// Our link with 64 channels against itself with one: the same load on one worker
    Channels {
        /// Bytes of a frame
        #[arg(long = "size", value_name = "BYTES", default_values_t = [64, 1514],
              value_delimiter = ',')]
        sizes: Vec<usize>,
    },
    /// A channel of a group against the same channel alone: instructions and frames
    Group {
        /// Bytes of a frame
        #[arg(long = "size", value_name = "BYTES", default_values_t = [64, 1514],
              value_delimiter = ',')]
        sizes: Vec<usize>,
    },
    /// Instructions per frame and per object, counted by callgrind
    Instr(instr::RunArgs),
    /// What this machine can do at all: copies, cache lines, system calls, wake-ups
    Limits,
    /// Virtio over vhost-user, as the device and as the driver, against DPDK's
    Vhost(vhost::VhostArgs),
    /// From veth to veth through two xdp: ports, against DPDK's af_xdp and a packet relay (root)
    Afxdp {
        /// Bytes of a frame, 60 to 1514
        #[arg(long = "size", value_name = "BYTES", default_values_t = [60, 1514],
              value_delimiter = ',')]
        sizes: Vec<usize>,
    },
    /// How long an answer takes: bare frames, TCP (through one process and two, alone and beside a
    /// bulk, with pinned ends and without), and a link that sleeps; the CPU of an idle link
    Latency {
        /// One of the four parts
        #[arg(long, value_name = "PART")]
        only: Option<latency::Part>,
    },
    /// Frames a second with more and more workers, and what a frame costs with more and more
    /// channels
    Scaling,
    /// TCP through our link (one process, and two with a bridge), veth, a bridge, a minimal relay,
    /// socat, vde2, OVS-DPDK and testpmd's TAPs (root, iperf3), with the CPU time that a gigabit
    /// costs; the fastest once more with ends that are pinned
    Relays {
        /// Seconds of one stream
        #[arg(long, default_value_t = 1, value_name = "S",
              value_parser = clap::value_parser!(u64).range(1..=60))]
        seconds: u64,
    },
    /// How long a link with 64 channels takes to answer questions, idle and while TCP saturates it
    /// (root, iperf3)
    Control,
    /// RX buffers: parts of pages against whole ones, the page pool against plain allocation
    Rxbuf,
    /// Backpressure and disciplines: loss, throughput, latency, fairness, the cost of an empty one
    Queueing {
        /// One of the four parts
        #[arg(long, value_name = "PART")]
        only: Option<queueing::Part>,
    },
}

/// Programs that the benchmarks start: hidden subcommands of ours.
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum Helper {
    /// One process of the memory limit
    #[command(name = "bench-limit", hide = true)]
    Limit(limit::LimitArgs),
    /// What runs under callgrind
    #[command(name = "bench-instr", hide = true)]
    Instr(instr::InstrArgs),
    /// One end of our link
    #[command(name = "bench-end", hide = true)]
    End(ntb_ends::EndArgs),
    /// One end of a link on which bare frames go there and back
    #[command(name = "bench-ping", hide = true)]
    Ping(latency::PingArgs),
    /// One end of a TCP connection on which single bytes go there and back
    #[command(name = "bench-rr", hide = true)]
    Rr(latency::RrArgs),
    /// Runs a command that ends with whoever started it
    #[command(name = "bench-exec", hide = true)]
    Exec {
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
}

/// Parameters of a pair of link processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkSetup {
    /// Length of every frame.
    pub(crate) bytes: usize,
    /// CPU of the sender.
    pub(crate) tx_cpu: usize,
    /// CPU of the receiver.
    pub(crate) rx_cpu: usize,
    /// Number of channels, all busy, all on one worker per end.
    pub(crate) channels: u16,
}

/// Moves a bulk of frames from one end of a link to the other; returns the number of received
/// frames.
pub(crate) type Burst = Box<dyn FnMut() -> usize>;

/// Entry points of the link benchmark, implemented elsewhere in this program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkPlug {
    /// Starts two processes that send frames at the maximum rate; returns after the first frames
    /// have arrived and both processes are frozen.
    pub(crate) start: fn(&LinkSetup) -> Result<Box<dyn End>>,
    /// Creates both ends of a link for frames of this length on the calling thread, with an
    /// optional queueing discipline in front of the link.
    pub(crate) burst: fn(usize, Option<&str>) -> Result<Burst>,
}

/// State shared by all benchmarks of a run.
struct Session {
    cpus: [usize; 2],
    pairs: usize,
    slice: Duration,
    progress: Progress,
    stop: StopSignals,
}

/// Runs a benchmark and prints its results.
pub(crate) fn run(args: &BenchArgs, plug: Option<&LinkPlug>) -> Result<()> {
    let stop = StopSignals::take().map_err(|error| format!("cannot watch signals: {error}"))?;
    let (name, length, pairs) = match args.what {
        What::Ring => ("ring", 20, 20),
        What::Pool => ("pool", 20, 20),
        What::Link { .. } => ("link", 25, 20),
        What::Tap => ("tap", 20, 20),
        // The streams have a duration of their own.
        What::Tcp(_) => ("tcp", 0, tcp::ROUNDS),
        What::Channels { .. } => ("channels", 25, 20),
        What::Group { .. } => ("group", 25, 20),
        What::Instr(_) => ("instr", 0, 20),
        What::Limits => ("limits", 20, 20),
        What::Vhost(_) => ("vhost", 25, 20),
        What::Afxdp { .. } => ("afxdp", 25, 20),
        What::Latency { .. } => ("latency", 100, 20),
        What::Scaling => ("scaling", 20, 20),
        // The streams have a duration of their own, too.
        What::Relays { .. } => ("relays", 0, tcp::ROUNDS),
        What::Control => ("control", 150, 20),
        What::Rxbuf => ("rxbuf", 25, 10),
        What::Queueing { .. } => ("queueing", 100, 20),
    };
    let slice_ms = args.slice_ms.unwrap_or(length);
    let session = Session {
        cpus: choose_cpus(&args.cpus)?,
        pairs: args.pairs.unwrap_or(pairs) as usize,
        slice: Duration::from_millis(slice_ms),
        progress: Progress::new(),
        stop,
    };
    let benchmark = name.to_owned();
    let mut report = Report { benchmark, cpus: session.cpus, slice_ms, ..Report::default() };
    let busy_before = others::share();
    match &args.what {
        What::Ring => ring::run(&session, &mut report)?,
        What::Pool => pool::run(&session, &mut report)?,
        What::Link { sizes } => link::run(&session, &mut report, plug, sizes)?,
        What::Channels { sizes } => link::run_channels(&session, &mut report, plug, sizes)?,
        What::Tap => tap::run(&session, &mut report)?,
        What::Tcp(args) => tcp::run(&session, &mut report, args)?,
        What::Group { sizes } => group::run(&session, &mut report, sizes)?,
        What::Instr(args) => instr::run(&session, &mut report, plug, args)?,
        What::Limits => limits::run(&session, &mut report)?,
        What::Vhost(args) => vhost::run(&session, &mut report, args)?,
        What::Afxdp { sizes } => afxdp::run(&session, &mut report, sizes)?,
        What::Latency { only } => latency::run(&session, &mut report, *only)?,
        What::Scaling => scaling::run(&session, &mut report)?,
        What::Relays { seconds } => relays::run(&session, &mut report, *seconds)?,
        What::Control => control::run(&session, &mut report)?,
        What::Rxbuf => rxbuf::run(&session, &mut report)?,
        What::Queueing { only } => queueing::run(&session, &mut report, plug, *only)?,
    }
    // Instruction counts do not depend on the load of the machine.
    if !matches!(args.what, What::Instr(_)) {
        report.notes.extend(others::note(busy_before, others::share()));
    }
    if cfg!(debug_assertions) {
        report.notes.push("NOT A RELEASE BUILD: these figures mean nothing".to_owned());
    }
    drop(session);
    print!("{}", report.render(args.json)?);
    Ok(())
}

/// Runs one of the hidden commands.
pub(crate) fn run_helper(helper: &Helper, plug: Option<&LinkPlug>) -> Result<()> {
    match helper {
        Helper::Limit(args) => limit::run(args),
        Helper::Instr(args) => instr::run_section(args, plug),
        Helper::End(args) => ntb_ends::run(args),
        Helper::Ping(args) => latency::ping(args),
        Helper::Rr(args) => latency::rr(args),
        Helper::Exec { command } => {
            // The benchmark blocks the stop signals to clean up; its children must not.
            signal::unblock_all();
            process::die_with_parent().map_err(|error| format!("prctl: {error}"))?;
            let Some((program, args)) = command.split_first() else {
                return Err("no command to run".into());
            };
            let error = Command::new(program).args(args).exec();
            Err(format!("cannot run {}: {error}", program.display()).into())
        }
    }
}

fn choose_cpus(asked: &[usize]) -> Result<[usize; 2]> {
    let allowed =
        affinity::allowed_cpus().map_err(|error| format!("sched_getaffinity: {error}"))?;
    match (asked, allowed.as_slice()) {
        (&[a, b], _) if a == b => Err("--cpus A,B: two different CPUs are needed".into()),
        (&[a, b], _) => Ok([a, b]),
        ([], &[a, b, ..]) => Ok([a, b]),
        ([], _) => Err("two CPUs are needed: allow more (taskset, cpuset), or use another \
                        machine"
            .into()),
        _ => Err("--cpus takes two numbers: A,B".into()),
    }
}

impl Session {
    /// Fails after a stop request; the unwinding then returns borrowed resources.
    fn check(&self) -> Result<()> {
        if self.stop.pending() { Err("interrupted".into()) } else { Ok(()) }
    }

    /// Runs slices of mqnet and of the DPDK peer's equivalent, in turn. The contenders of mqnet
    /// after the first one are its limits.
    fn versus(
        &self,
        peers: &mut Peers,
        name: &str,
        rivals: &[Rival],
        ours: &mut [Own<'_>],
    ) -> Result<Case> {
        let mut series = vec![Vec::new(); ours.len() + rivals.len()];
        // The first turn of each warms caches and page tables and is not counted.
        for pair in 0..=self.pairs {
            self.check()?;
            self.progress.show(&format!("{name}: pair {pair} of {}", self.pairs));
            for turn in slices::order(series.len(), pair) {
                let slice = match (turn.checked_sub(ours.len()), &mut peers.peer) {
                    (None, _) => (ours[turn].1)()?,
                    (Some(rival), Ok(peer)) => peer.slice(rivals[rival].verb, self.slice)?,
                    (Some(_), Err(_)) => continue,
                };
                series[turn].push(slice.sample());
            }
        }
        let mut series = series.into_iter().map(|samples| samples.into_iter().skip(1).collect());
        let mut own: Vec<Line> = ours
            .iter()
            .zip(&mut series)
            .map(|((who, _), samples)| Line::of(who, samples))
            .collect();
        let limits = own.split_off(1);
        own.extend(rivals.iter().zip(series).map(|(rival, samples)| match &peers.peer {
            Ok(_) => Line::of(rival.who, samples),
            Err(reason) => Line::skipped(rival.who, reason.as_str()),
        }));
        own.extend(limits);
        Ok(Case::new(name, Unit::Objects, own))
    }
}

/// Contender of this process, with the function that runs a slice.
type Own<'a> = (&'static str, &'a mut dyn FnMut() -> Result<Slice>);

/// Peer of a comparison, and the command word that selects its operation.
struct Rival {
    who: &'static str,
    verb: &'static str,
}

/// The DPDK process of a run, or the reason of its absence, and the memory reserved for it.
struct Peers {
    peer: std::result::Result<Peer, String>,
    // Dropped after the process that uses the pages.
    pages: HugePages,
}

impl Peers {
    fn start(session: &Session) -> Self {
        session.progress.show("starting the DPDK peer");
        let pages = HugePages::reserve(96);
        let peer = Peer::start(session.cpus, &pages).map_err(|error| error.to_string());
        Self { peer, pages }
    }

    fn note(&self, report: &mut Report) {
        if self.peer.is_ok() {
            report.notes.push(self.pages.note().to_owned());
            report.notes.push(peers::COMPILED.to_owned());
        }
    }
}

fn main() -> ExitCode {
    cli::main()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: two different CPUs, or an error that names the option.
    #[test]
    fn cpus_are_two_different_ones() {
        assert_eq!(choose_cpus(&[5, 3]).unwrap(), [5, 3]);
        for wrong in [&[1][..], &[2, 2], &[1, 2, 3]] {
            assert!(choose_cpus(wrong).unwrap_err().to_string().contains("--cpus"));
        }
    }
}
