//! TCP between two hosts through everything that is at hand to join them, and what a gigabit costs.

use super::child::RunFolder;
use super::hosts::remove_orphans;
use super::report::{Case, Line, Report, Unit};
use super::stats::{Class, Sample};
use super::tcp::{self, Contender, Sending};
use super::wires::Wire;
use super::{Result, Session};

const WIRES: [Wire; 8] = [
    Wire::MqnetDirect,
    Wire::Veth,
    Wire::Bridge,
    Wire::Relay,
    Wire::Socat,
    Wire::Vde,
    Wire::OvsDpdk,
    Wire::TestpmdTap,
];

pub(super) fn run(session: &Session, report: &mut Report, seconds: u64) -> Result<()> {
    remove_orphans();
    report.slice_ms = seconds * 1000;
    let folder = RunFolder::new()?;
    let mut contenders = tcp::start_all(session, &folder, &WIRES, "")?;
    tcp::measure(session, &mut contenders, seconds, Sending::Unpaced)?;
    report.notes.push("mqnet: TAP to TAP in one process, as the relays are".to_owned());
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
