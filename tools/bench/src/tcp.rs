//! TCP from TAP over NTB to TAP, compared with a minimal relay between two TAPs and with a veth
//! pair.
//!
//! Each contender joins two network namespaces for the whole run. The contenders alternate, one
//! iperf3 stream at a time, in an order that changes with every round; the other contenders sleep.
//! Each round therefore gives one ratio for each peer.
//!
//! The congestion control is selected explicitly and does not depend on the machine's default. With
//! a congestion control that paces, timers limit the stream, and CPUs are idle over a veth pair.
//! Paced streams are therefore a separate case.

use super::child::{Child, RunFolder};
use super::cpu;
use super::hosts::remove_orphans;
use super::iperf::{Ends, Iperf, Stream};
use super::limits;
use super::report::{Case, Line, Report, Unit};
use super::stats::{self, Class, Sample};
use super::wires::{Wire, World};
use super::{Result, Session, others};

/// Default number of rounds; low, because rounds take long.
pub(super) const ROUNDS: u32 = 10;

/// Arguments of `mqnet-bench tcp`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct TcpArgs {
    /// Seconds of one stream
    #[arg(long, default_value_t = 2, value_name = "S",
          value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Run streams with this pacing only [default: both]
    #[arg(long, value_enum)]
    only: Option<Sending>,
    /// Additional arguments for both `mqnet link`, separated by spaces
    #[arg(long, default_value = "", value_name = "ARGS", hide = true, allow_hyphen_values = true)]
    link_args: String,
}

/// Pacing of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Sending {
    /// No pacing, as by default: only the congestion window limits the sender, so the path between
    /// the hosts is the bottleneck.
    Unpaced,
    /// Segments of 64 KiB, each sent when a timer expires.
    Paced,
}

impl Sending {
    /// Congestion control of this pacing. Every network namespace may set `reno`. `cubic`, also
    /// unpaced, is available only if the initial namespace permits it.
    pub(super) fn control(self) -> &'static str {
        match self {
            Self::Unpaced => "reno",
            Self::Paced => "bbr",
        }
    }
}

/// Contender, or the reason why it does not take part.
pub(super) struct Contender {
    pub(super) wire: Wire,
    pub(super) world: std::result::Result<(Iperf, World), String>,
    pub(super) streams: Streams,
}

/// Results of successive streams; the first stream warms up.
#[derive(Default)]
pub(super) struct Streams {
    /// Bits per second.
    pub(super) samples: Vec<Sample>,
    /// Gigabits received by each stream.
    pub(super) gigabits: Vec<f64>,
    /// Idle share of the CPUs' time during each stream.
    idle: Vec<f64>,
    /// CPU seconds of the machine during each stream.
    pub(super) machine: Vec<f64>,
    /// CPU seconds of the processes between the hosts during each stream.
    pub(super) between: Vec<f64>,
}

impl Contender {
    /// Line with `samples` of this contender, or with the reason why it does not take part.
    pub(super) fn line(&self, samples: &[Sample]) -> Line {
        match &self.world {
            // The first stream of each contender warms up and is not counted.
            Ok(_) => Line::of(self.wire.who(), samples.iter().skip(1).copied().collect()),
            Err(reason) => Line::skipped(self.wire.who(), reason.as_str()),
        }
    }
}

pub(super) fn run(session: &Session, report: &mut Report, args: &TcpArgs) -> Result<()> {
    remove_orphans();
    report.slice_ms = args.seconds * 1000;
    let folder = RunFolder::new()?;
    let wires = [Wire::Mqnet, Wire::Relay, Wire::Veth];
    let mut contenders = start_all(session, &folder, &wires, &args.link_args)?;
    let [here, there] = session.cpus;
    report.notes.push(format!(
        "one iperf3 stream of {} s a run, its ends on CPU {here} and {there}, MTU 1500, GSO; \
         unpaced is {}, paced {}, qdisc {}; of what is between only mqnet link pins its threads",
        args.seconds,
        Sending::Unpaced.control(),
        Sending::Paced.control(),
        qdisc()
    ));
    let cpus = std::thread::available_parallelism()?.get();
    let ways = [Sending::Unpaced, Sending::Paced];
    for sending in ways.into_iter().filter(|&sending| args.only.is_none_or(|o| o == sending)) {
        match sending {
            Sending::Unpaced => unpaced(session, report, &mut contenders, args.seconds, cpus)?,
            Sending::Paced => paced(session, report, &mut contenders, args.seconds)?,
        }
    }
    for contender in contenders {
        if let (Wire::Mqnet, Ok((_, mut world))) = (contender.wire, contender.world) {
            report.notes.push(match world.kicks() {
                Ok([tx, rx]) => format!(
                    "mqnet: kicks per frame {tx:.4} at the client's end, {rx:.4} at the server's, \
                     of all streams"
                ),
                Err(error) => format!("mqnet: kicks per frame unknown: {error}"),
            });
        }
    }
    Ok(())
}

/// Name of the default qdisc of a TAP (a veth pair has none): `fq` would pace every stream.
fn qdisc() -> String {
    let output = std::fs::read_to_string("/proc/sys/net/core/default_qdisc");
    output.map_or("unknown".to_owned(), |name| name.trim().to_owned())
}

fn lines(contenders: &[Contender]) -> Vec<Line> {
    contenders.iter().map(|contender| contender.line(&contender.streams.samples)).collect()
}

fn unpaced(
    session: &Session,
    report: &mut Report,
    contenders: &mut [Contender],
    seconds: u64,
    cpus: usize,
) -> Result<()> {
    measure(session, contenders, seconds, Sending::Unpaced, Ends::Pinned)?;
    let (limits, note) = limits_of_forwarders(session, contenders, cpus)?;
    report.notes.push(note);
    let lines = lines(contenders).into_iter().chain(limits).collect();
    report.cases.push(Case::new("tcp 1 stream", Unit::Bits, lines));
    Ok(())
}

/// Measures paced streams, or skips them if the kernel lacks the congestion control. A note lists
/// the idle share of the CPUs. If CPUs are idle over veth, timers limit the stream.
fn paced(
    session: &Session,
    report: &mut Report,
    contenders: &mut [Contender],
    seconds: u64,
) -> Result<()> {
    let name = "tcp 1 stream, paced";
    let first = contenders.iter().find_map(|contender| contender.world.as_ref().ok());
    let lacks = first.and_then(|(_, world)| world.hosts[0].control(Sending::Paced.control()).err());
    if let Some(why) = lacks {
        let skipped = |c: &Contender| Line::skipped(c.wire.who(), why.to_string());
        let lines = contenders.iter().map(skipped).collect();
        report.cases.push(Case::new(name, Unit::Bits, lines));
        return Ok(());
    }
    measure(session, contenders, seconds, Sending::Paced, Ends::Pinned)?;
    report.cases.push(Case::new(name, Unit::Bits, lines(contenders)));
    let took_part = contenders.iter().filter(|contender| contender.world.is_ok());
    // The first stream of each contender warms up and is not counted.
    let idle = |c: &Contender| stats::median(c.streams.idle.get(1..)?);
    let idle: Vec<String> =
        took_part.map(|c| format!("{} {:.2}", c.wire.who(), idle(c).unwrap_or(f64::NAN))).collect();
    if !idle.is_empty() {
        report.notes.push(format!("share of idle CPU time in paced streams: {}", idle.join(", ")));
    }
    Ok(())
}

/// Upper bounds of forwarders between two TAPs, derived from the CPU cost per gigabit of other
/// contenders, under the assumption that all CPUs are fully used.
///
/// The first bound assumes a forwarder without system calls and waits. Two copies per byte remain,
/// out of the kernel and into it, at the maximum copy rate of this machine. All other work is
/// assumed to cost as much as veth, which makes neither copy. Every real forwarder is slower. The
/// second bound has the cost of the relay, including sleep and wake-up, divided among all CPUs.
pub(super) fn limits_of_forwarders(
    session: &Session,
    contenders: &[Contender],
    cpus: usize,
) -> Result<(Vec<Line>, String)> {
    // The measurement pins its thread, so it runs on a separate thread.
    let copy = || limits::cached_copy(session).map_err(|error| error.to_string());
    let copied = std::thread::scope(|scope| scope.spawn(copy).join());
    let rate = copied.map_err(|_| "a thread failed")??;
    let copies = 2.0 * 1e9 / 8.0 / rate;
    let limit = |who: &str, wire: Wire, more: f64| {
        let found = contenders.iter().find(|contender| contender.wire == wire);
        let Some(of) = found.filter(|contender| contender.world.is_ok()) else {
            return (Line::skipped(who, "it did not take part"), f64::NAN);
        };
        let Streams { machine, gigabits, .. } = &of.streams;
        let costs: Vec<f64> =
            machine.iter().zip(gigabits).skip(1).map(|(cpu, gbit)| cpu / gbit).collect();
        let bits =
            |cost: &f64| Sample { value: cpus as f64 / (cost + more) * 1e9, class: Class::Mixed };
        let line = Line::of(who, costs.iter().map(bits).collect());
        (line, stats::median(&costs).unwrap_or(f64::NAN))
    };
    let (copying, veth) = limit("veth and two copies", Wire::Veth, copies);
    let (reading, relay) = limit("relay on all CPUs", Wire::Relay, 0.0);
    let note = format!(
        "CPU s a gigabit: veth {veth:.3}, relay {relay:.3}, two copies {copies:.3} (at {:.1} GB/s, \
         in the cache); the limits are what {cpus} CPUs have time for",
        rate / 1e9
    );
    Ok((vec![copying, reading], note))
}

/// Starts all contenders; a contender that fails to start has the reason in place of its processes.
pub(super) fn start_all(
    session: &Session,
    folder: &RunFolder,
    wires: &[Wire],
    link_args: &str,
) -> Result<Vec<Contender>> {
    let mut contenders = Vec::new();
    for &wire in wires {
        session.progress.show(&format!("tcp: starting {}", wire.who()));
        let world = start(wire, folder, link_args).map_err(|error| error.to_string());
        // Ctrl-C also ends the child processes. The run then ends here, instead of reporting the
        // contender as failed.
        session.check()?;
        contenders.push(Contender { wire, world, streams: Streams::default() });
    }
    Ok(contenders)
}

fn start(wire: Wire, folder: &RunFolder, link_args: &str) -> Result<(Iperf, World)> {
    let world = World::start(wire, folder, link_args)?;
    Ok((Iperf::listen(&world.hosts[1])?, world))
}

/// Runs all rounds; the results replace earlier ones. The partial results of a failed contender
/// have no meaning and are replaced by the reason.
pub(super) fn measure(
    session: &Session,
    contenders: &mut [Contender],
    seconds: u64,
    sending: Sending,
    ends: Ends,
) -> Result<()> {
    for contender in &mut *contenders {
        contender.streams = Streams::default();
        let Ok((_, world)) = &contender.world else { continue };
        let chosen = world.hosts.iter().try_for_each(|host| host.control(sending.control()));
        if let Err(error) = chosen {
            contender.world = Err(error.to_string());
        }
    }
    for round in 0..=session.pairs {
        for at in 0..contenders.len() {
            session.check()?;
            let turn = (round + at) % contenders.len();
            let contender = &mut contenders[turn];
            let Ok((iperf, running)) = &mut contender.world else { continue };
            let who = contender.wire.who();
            session.progress.show(&format!(
                "tcp by {}: round {round} of {}: {who}",
                sending.control(),
                session.pairs
            ));
            let pids: Vec<u32> = running.wire.iter().map(Child::pid).collect();
            let cpu = || [cpu::machine().unwrap_or(f64::NAN), cpu::of(&pids).unwrap_or(f64::NAN)];
            running.wake()?;
            let (before, all) = (cpu(), others::look());
            let streamed = iperf.stream(session, &running.hosts[0], seconds, ends)?;
            let (after, idle) = (cpu(), idle_since(all));
            running.sleep()?;
            match streamed.and_then(|stream| by(stream, sending)) {
                // Mixed, because the distance of two CPUs does not stay constant during a stream.
                Ok(Stream { rate: value, gigabits, .. }) => {
                    let streams = &mut contender.streams;
                    streams.samples.push(Sample { value, class: Class::Mixed });
                    streams.gigabits.push(gigabits);
                    streams.idle.push(idle.unwrap_or(f64::NAN));
                    streams.machine.push(after[0] - before[0]);
                    streams.between.push(after[1] - before[1]);
                }
                Err(error) => {
                    // Ctrl-C also ends the child processes. The run then ends here, instead of
                    // reporting the contender as failed.
                    session.check()?;
                    contender.world = Err(format!("failed in round {round}: {error}"));
                }
            }
        }
    }
    Ok(())
}

fn idle_since(before: Option<[u64; 2]>) -> Option<f64> {
    others::share_of(before?, others::look()?).map(|used| 1.0 - used)
}

/// Returns a finished stream, or an error if it used another congestion control.
fn by(stream: Stream, sending: Sending) -> std::result::Result<Stream, String> {
    if stream.congestion == sending.control() {
        return Ok(stream);
    }
    Err(format!("iperf3 sent by {}, not by {}", stream.congestion, sending.control()))
}
