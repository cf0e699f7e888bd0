//! TCP between two hosts through everything that is at hand to join them, and what a gigabit costs.

use super::child::RunFolder;
use super::hosts::remove_orphans;
use super::iperf::Ends;
use super::report::{Case, Line, Report, Unit};
use super::stats::{Class, Sample};
use super::tcp::{self, Contender, Sending};
use super::wires::Wire;
use super::{Result, Session};

const WIRES: [Wire; 9] = [
    Wire::MqnetDirect,
    Wire::Mqnet,
    Wire::Veth,
    Wire::Bridge,
    Wire::Relay,
    Wire::Socat,
    Wire::Vde,
    Wire::OvsDpdk,
    Wire::TestpmdTap,
];

/// Of those, the ones that are also measured with pinned ends.
const AMONG_PINNED: [Wire; 4] = [Wire::MqnetDirect, Wire::Mqnet, Wire::Veth, Wire::Relay];

pub(super) fn run(session: &Session, report: &mut Report, seconds: u64) -> Result<()> {
    remove_orphans();
    report.slice_ms = seconds * 1000;
    let folder = RunFolder::new()?;
    let mut contenders = tcp::start_all(session, &folder, &WIRES, "")?;
    let [_, there] = session.cpus;
    let beside = format!("one process, --cpus {there}");
    let mut at_server =
        tcp::start_all(session, &folder, &[Wire::MqnetDirect], &format!("--cpus {there}"))?;
    tcp::measure(session, &mut contenders, seconds, Sending::Unpaced, Ends::Placed)?;
    report.notes.push(
        "one process of ours is from TAP to TAP, as the relays are, mqnet two and a bridge; the \
         scheduler decides where the ends of a stream run, but for the case of pinned ends"
            .to_owned(),
    );
    report.notes.push(format!(
        "one iperf3 stream of {seconds} s a run, MTU 1500, {}; socat, vde2, OVS and testpmd know \
         no offloads, the others pass segments of 64 KiB",
        Sending::Unpaced.control()
    ));
    report.notes.push(
        "the CPU time of the machine has that of both iperf3 and of all others in it; that of the \
         processes has what the kernel does in their system calls"
            .to_owned(),
    );
    let cpus = std::thread::available_parallelism()?.get();
    let (limits, note) = tcp::limits_of_forwarders(session, &contenders, cpus)?;
    report.notes.push(note);
    let mut goodput: Vec<Line> = contenders.iter().map(|c| c.line(&c.streams.samples)).collect();
    goodput.extend(limits);
    report.cases.push(Case::new("goodput", Unit::Bits, goodput));
    let name = "CPU of the machine";
    report.cases.push(cost(name, &contenders, |c| &c.streams.machine));
    let name = "CPU of the processes between";
    report.cases.push(cost(name, &contenders, |c| &c.streams.between));
    // Two CPUs for three programs of which two may not move: what is between has to.
    contenders.retain(|contender| AMONG_PINNED.contains(&contender.wire));
    contenders.append(&mut at_server);
    tcp::measure(session, &mut contenders, seconds, Sending::Unpaced, Ends::Pinned)?;
    let mut pinned: Vec<Line> = contenders.iter().map(|c| c.line(&c.streams.samples)).collect();
    if let Some(line) = pinned.last_mut() {
        line.who = beside;
    }
    report.cases.push(Case::new("with pinned ends", Unit::Bits, pinned));
    Ok(())
}

/// CPU seconds for a gigabit; `of` tells the seconds of each stream.
fn cost(name: &str, contenders: &[Contender], of: fn(&Contender) -> &[f64]) -> Case {
    let line = |contender: &Contender| -> Line {
        let all = of(contender).iter().zip(&contender.streams.gigabits);
        let samples: Vec<Sample> = all
            .map(|(cpu, gigabits)| Sample { value: cpu / gigabits, class: Class::Mixed })
            .collect();
        if contender.world.is_ok() && samples.iter().all(|sample| sample.value == 0.0) {
            return Line::skipped(contender.wire.who(), "there is no process");
        }
        contender.line(&samples)
    };
    Case::new(name, Unit::CpuPerGigabit, contenders.iter().map(line).collect())
}
