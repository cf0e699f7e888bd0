//! `mqnet-bench`: parts of mqnet and their peers, measured in the same run.
//!
//! Single results mean little on a shared machine. Therefore mqnet and the peer alternate in time
//! slices of some milliseconds, and each pair of slices gives a ratio. The result is the median of
//! the ratios, also separately for near and far CPUs.

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

/// Result with an error text for users, which names the failed operation and the remedy.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Arguments of `mqnet-bench`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: What,
    /// Print JSON instead of a table
    #[arg(short, long, global = true)]
    json: bool,
    /// Number of pairs of slices (rounds for a link or tcp), each of which gives one ratio
    /// [default: 20; tcp, relays and rxbuf: 10]
    #[arg(long, global = true, value_name = "N",
          value_parser = clap::value_parser!(u32).range(10..=10_000))]
    pairs: Option<u32>,
    /// Length of a slice [default: 20 to 150, depending on the benchmark]
    #[arg(long, global = true, value_name = "MS",
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    slice_ms: Option<u64>,
    /// The two CPUs, sender first [default: the first two allowed]
    #[arg(long, global = true, value_name = "A,B", value_delimiter = ',')]
    cpus: Vec<usize>,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum What {
    /// One hop through the ring, compared with DPDK's rte_ring
    Ring,
    /// The page pool, freed on the same and on another thread, compared with DPDK's rte_mempool
    Pool,
    /// An NTB link between two processes, compared with DPDK's memif and the memory limit
    Link {
        /// Bytes of a frame
        #[arg(long = "size", value_name = "BYTES", default_values_t = [64, 1514, 9000],
              value_delimiter = ',')]
        sizes: Vec<usize>,
    },
    /// TCP from TAP to NTB to TAP, compared with a minimal relay and a veth pair (root, iperf3)
    Tcp(tcp::TcpArgs),
    /// UDP of 1500 B without offloads to a TAP: many frames per system call compared with one
    /// (root)
    Tap,
    /// A link with 64 channels compared with a link with one channel: the same load on one worker
    Channels {
        /// Bytes of a frame
        #[arg(long = "size", value_name = "BYTES", default_values_t = [64, 1514],
              value_delimiter = ',')]
        sizes: Vec<usize>,
    },
    /// A channel of a group compared with the same channel without a group: instructions and frames
    Group {
        /// Bytes of a frame
        #[arg(long = "size", value_name = "BYTES", default_values_t = [64, 1514],
              value_delimiter = ',')]
        sizes: Vec<usize>,
    },
    /// Instructions per frame and per object, counted by callgrind
    Instr(instr::RunArgs),
    /// Limits of this machine: copies, cache lines, system calls, wake-ups
    Limits,
    /// Virtio over vhost-user, as device and as driver, compared with DPDK
    Vhost(vhost::VhostArgs),
    /// Forwarding from veth to veth through two xdp: ports, compared with DPDK's af_xdp and a
    /// packet relay (root)
    Afxdp {
        /// Bytes of a frame, 60 to 1514
        #[arg(long = "size", value_name = "BYTES", default_values_t = [60, 1514],
              value_delimiter = ',')]
        sizes: Vec<usize>,
    },
    /// Response times: bare frames, TCP (one and two processes, with and without a bulk flow,
    /// pinned and not), a sleeping link; the CPU time of an idle link
    Latency {
        /// Run one of the four parts only
        #[arg(long, value_name = "PART")]
        only: Option<latency::Part>,
    },
    /// Frames per second by number of workers, and the cost of a frame by number of channels
    Scaling,
    /// TCP through mqnet (one process, and two with a bridge), veth, a bridge, a minimal relay,
    /// socat, vde2, OVS-DPDK and testpmd's TAPs (root, iperf3), with the CPU time per gigabit; the
    /// fastest ones again with pinned ends
    Relays {
        /// Seconds of one stream
        #[arg(long, default_value_t = 1, value_name = "S",
              value_parser = clap::value_parser!(u64).range(1..=60))]
        seconds: u64,
    },
    /// Response time of the control socket of a link with 64 channels, idle and saturated by TCP
    /// (root, iperf3)
    Control,
    /// RX buffers: page fragments compared with full pages, the page pool compared with plain
    /// allocation
    Rxbuf,
    /// Backpressure and disciplines: loss, throughput, latency, fairness, the cost of an empty
    /// discipline
    Queueing {
        /// Run one of the four parts only
        #[arg(long, value_name = "PART")]
        only: Option<queueing::Part>,
    },
}

/// Hidden subcommands that the benchmarks start as processes.
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum Helper {
    /// One process of the memory limit
    #[command(name = "bench-limit", hide = true)]
    Limit(limit::LimitArgs),
    /// Section that runs under callgrind
    #[command(name = "bench-instr", hide = true)]
    Instr(instr::InstrArgs),
    /// One end of an mqnet link
    #[command(name = "bench-end", hide = true)]
    End(ntb_ends::EndArgs),
    /// One end of a link that carries single request and response frames
    #[command(name = "bench-ping", hide = true)]
    Ping(latency::PingArgs),
    /// One end of a TCP connection that carries one-byte requests and responses
    #[command(name = "bench-rr", hide = true)]
    Rr(latency::RrArgs),
    /// Run a command that ends with its parent
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
    /// Number of channels; all carry frames and share one worker per end.
    pub(crate) channels: u16,
}

/// Moves a bulk of frames from one end of a link to the other; returns the number of received
/// frames.
pub(crate) type Burst = Box<dyn FnMut() -> usize>;

/// Entry points of the link benchmark, implemented elsewhere in this program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkPlug {
    /// Starts two processes that send frames at the maximum rate. Returns after the first frames
    /// have arrived and both processes are stopped.
    pub(crate) start: fn(&LinkSetup) -> Result<Box<dyn End>>,
    /// Creates both ends of a link for frames of this length on the calling thread. An optional
    /// queueing discipline holds the frames before the link.
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
        // The option --seconds sets the duration of the streams.
        What::Tcp(_) => ("tcp", 0, tcp::ROUNDS),
        What::Channels { .. } => ("channels", 25, 20),
        What::Group { .. } => ("group", 25, 20),
        What::Instr(_) => ("instr", 0, 20),
        What::Limits => ("limits", 20, 20),
        What::Vhost(_) => ("vhost", 25, 20),
        What::Afxdp { .. } => ("afxdp", 25, 20),
        What::Latency { .. } => ("latency", 100, 20),
        What::Scaling => ("scaling", 20, 20),
        // The option --seconds sets the duration of the streams.
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
            // The benchmark blocks the stop signals for its cleanup; a child process must not.
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
    /// Fails after a stop signal. The callers then return, which releases reserved resources.
    fn check(&self) -> Result<()> {
        if self.stop.pending() { Err("interrupted".into()) } else { Ok(()) }
    }

    /// Compares mqnet with the same operation of the DPDK peer in alternating slices. Entries of
    /// `ours` after the first one are limits of mqnet.
    fn versus(
        &self,
        peers: &mut Peers,
        name: &str,
        rivals: &[Rival],
        ours: &mut [Own<'_>],
    ) -> Result<Case> {
        let mut series = vec![Vec::new(); ours.len() + rivals.len()];
        // The first slice of each contender warms caches and page tables and is not counted.
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

/// Contender in this process: name, and the function that runs a slice.
type Own<'a> = (&'static str, &'a mut dyn FnMut() -> Result<Slice>);

/// Contender in the peer process: name, and the command for a slice.
struct Rival {
    who: &'static str,
    verb: &'static str,
}

/// The DPDK process of a run, or the reason why there is none, and its reserved memory.
struct Peers {
    peer: std::result::Result<Peer, String>,
    // Fields are dropped in order: the pages after the process that uses them.
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

    // Goal: two different CPUs are accepted; any other list is an error that names the option.
    #[test]
    fn cpus_are_two_different_ones() {
        assert_eq!(choose_cpus(&[5, 3]).unwrap(), [5, 3]);
        for wrong in [&[1][..], &[2, 2], &[1, 2, 3]] {
            assert!(choose_cpus(wrong).unwrap_err().to_string().contains("--cpus"));
        }
    }
}
