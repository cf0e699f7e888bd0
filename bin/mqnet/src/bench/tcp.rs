//! TCP from TAP to NTB to TAP, against a minimal relay between two TAPs and against a veth pair.
//!
//! Each contender joins two network namespaces of its own, which live through the whole run. They
//! take turns, one iperf3 stream at a time, in an order that changes with every round; the others
//! sleep meanwhile. So each round gives one ratio against each rival.

use super::child::{Child, RunFolder};
use super::cpu;
use super::hosts::remove_orphans;
use super::iperf::{Iperf, Stream};
use super::limits;
use super::report::{Case, Line, Report, Unit};
use super::stats::{self, Class, Sample};
use super::wires::{Wire, World};
use super::{Result, Session};

/// Rounds unless somebody asks for another number: they are long.
pub(super) const ROUNDS: u32 = 10;

/// Arguments of `mqnet bench tcp`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct TcpArgs {
    /// Seconds of one stream
    #[arg(long, default_value_t = 2, value_name = "S",
          value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// More arguments for both `mqnet link`, separated by spaces
    #[arg(long, default_value = "", value_name = "ARGS", hide = true, allow_hyphen_values = true)]
    link_args: String,
}

/// One who takes part, or why not.
pub(super) struct Contender {
    pub(super) wire: Wire,
    pub(super) world: std::result::Result<(Iperf, World), String>,
    /// Bits a second of each stream. The first one warms up.
    pub(super) samples: Vec<Sample>,
    /// What each stream brought over.
    pub(super) gigabits: Vec<f64>,
    /// By what congestion control.
    pub(super) congestion: String,
    /// CPU seconds of the machine meanwhile.
    pub(super) machine: Vec<f64>,
    /// CPU seconds of the processes between the hosts.
    pub(super) between: Vec<f64>,
}

impl Contender {
    /// What became of it: a series of its own, or why there is none.
    pub(super) fn line(&self, samples: &[Sample]) -> Line {
        match &self.world {
            // The first turn of each warms up and is not counted.
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
    let cpus = std::thread::available_parallelism()?.get();
    let mut contenders = start_all(session, &folder, &wires, &args.link_args)?;
    measure(session, &mut contenders, args.seconds)?;
    let [here, there] = session.cpus;
    report.notes.push(format!(
        "one iperf3 stream of {} s a run, its ends on CPU {here} and {there}, MTU 1500, GSO, {}; \
         of what is between only mqnet link pins its threads",
        args.seconds,
        congestion(&contenders)
    ));
    let (limits, note) = limits_of_forwarders(session, &contenders, cpus)?;
    report.notes.push(note);
    let mut lines = Vec::new();
    for contender in contenders {
        lines.push(contender.line(&contender.samples));
        if let (Wire::Mqnet, Ok((_, mut world))) = (contender.wire, contender.world) {
            report.notes.push(match world.kicks() {
                Ok([tx, rx]) => format!(
                    "mqnet: kicks per frame {tx:.4} at the client's end, {rx:.4} at the server's"
                ),
                Err(error) => format!("mqnet: kicks per frame unknown: {error}"),
            });
        }
    }
    lines.extend(limits);
    report.cases.push(Case::new("tcp 1 stream", Unit::Bits, lines));
    Ok(())
}

/// The congestion control of the streams: bbr paces them by its own idea of the link.
pub(super) fn congestion(contenders: &[Contender]) -> &str {
    let said = contenders.iter().map(|contender| contender.congestion.as_str());
    said.into_iter().find(|name| !name.is_empty()).unwrap_or("unknown congestion control")
}

/// What forwarders between two TAPs could reach, from what a gigabit costs others: as many as all
/// CPUs have time for, busy with nothing else.
///
/// One makes no system call and never waits: two copies of each byte are left, out of the kernel
/// and into it, as fast as this machine copies at all. The rest is as with veth, which makes
/// neither. Whoever is real is below that. The other costs what the relay costs, its waking and
/// sleeping included, and has it spread over all CPUs.
pub(super) fn limits_of_forwarders(
    session: &Session,
    contenders: &[Contender],
    cpus: usize,
) -> Result<(Vec<Line>, String)> {
    let rate = limits::cached_copy(session)?;
    let copies = 2.0 * 1e9 / 8.0 / rate;
    let limit = |who: &str, wire: Wire, more: f64| {
        let found = contenders.iter().find(|contender| contender.wire == wire);
        let Some(of) = found.filter(|contender| contender.world.is_ok()) else {
            return (Line::skipped(who, "it did not take part"), f64::NAN);
        };
        let costs: Vec<f64> =
            of.machine.iter().zip(&of.gigabits).skip(1).map(|(cpu, gbit)| cpu / gbit).collect();
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

/// Those who can take part, and why the others cannot.
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
        // Ctrl-C ends our children as well: that is no reason to skip them.
        session.check()?;
        let (samples, gigabits, machine, between) = Default::default();
        let congestion = String::new();
        contenders.push(Contender { wire, world, samples, gigabits, congestion, machine, between });
    }
    Ok(contenders)
}

fn start(wire: Wire, folder: &RunFolder, link_args: &str) -> Result<(Iperf, World)> {
    let world = World::start(wire, folder, link_args)?;
    Ok((Iperf::listen(&world.hosts[1])?, world))
}

/// All rounds. Who fails is out, with the reason: what it had reached says little.
pub(super) fn measure(session: &Session, contenders: &mut [Contender], seconds: u64) -> Result<()> {
    for round in 0..=session.pairs {
        for at in 0..contenders.len() {
            session.check()?;
            let turn = (round + at) % contenders.len();
            let contender = &mut contenders[turn];
            let Ok((iperf, running)) = &mut contender.world else { continue };
            let who = contender.wire.who();
            session.progress.show(&format!("tcp: round {round} of {}: {who}", session.pairs));
            let pids: Vec<u32> = running.wire.iter().map(Child::pid).collect();
            let cpu = || [cpu::machine().unwrap_or(f64::NAN), cpu::of(&pids).unwrap_or(f64::NAN)];
            running.wake()?;
            let before = cpu();
            let streamed = iperf.stream(session, &running.hosts[0], seconds)?;
            let after = cpu();
            running.sleep()?;
            match streamed {
                // Far too long for the two CPUs to keep their distance.
                Ok(Stream { rate: value, gigabits, congestion }) => {
                    contender.samples.push(Sample { value, class: Class::Mixed });
                    contender.gigabits.push(gigabits);
                    contender.congestion = congestion;
                    contender.machine.push(after[0] - before[0]);
                    contender.between.push(after[1] - before[1]);
                }
                Err(error) => {
                    // Ctrl-C ends our children as well: that is no failure of theirs.
                    session.check()?;
                    contender.world = Err(format!("failed in round {round}: {error}"));
                }
            }
        }
    }
    Ok(())
}
