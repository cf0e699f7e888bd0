//! TCP between two hosts over all available forwarders, and their CPU cost per gigabit.

use super::child::RunFolder;
use super::hosts::{remove_orphans, run_short};
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

/// Fastest contenders, which are also measured with pinned ends.
const AMONG_PINNED: [Wire; 4] = [Wire::MqnetDirect, Wire::Mqnet, Wire::Veth, Wire::Relay];
/// Contenders that are also measured with their processes on the receiver's CPU and with pinned
/// ends.
const AT_RECEIVER: [Wire; 2] = [Wire::MqnetDirect, Wire::Relay];

pub(super) fn run(session: &Session, report: &mut Report, seconds: u64) -> Result<()> {
    remove_orphans();
    report.slice_ms = seconds * 1000;
    let folder = RunFolder::new()?;
    let mut contenders = tcp::start_all(session, &folder, &WIRES, "")?;
    let [_, there] = session.cpus;
    let mut at_receiver =
        tcp::start_all(session, &folder, &AT_RECEIVER, &format!("--cpus {there}"))?;
    keep_on(there, &at_receiver)?;
    tcp::measure(session, &mut contenders, seconds, Sending::Unpaced, Ends::Placed)?;
    report.notes.push(format!(
        "one process of ours is from TAP to TAP, as the relays are, mqnet two and a bridge; the \
         scheduler decides where the ends of a stream run and where the relay does, but for pinned \
         ends, and what is at the receiver, on CPU {there}"
    ));
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
    // The scheduler would move unpinned ends away from the CPU of a pinned worker. The ends are
    // pinned so that one of them shares that CPU with the worker.
    contenders.retain(|contender| AMONG_PINNED.contains(&contender.wire));
    let placed = contenders.len();
    contenders.append(&mut at_receiver);
    tcp::measure(session, &mut contenders, seconds, Sending::Unpaced, Ends::Pinned)?;
    let mut pinned: Vec<Line> = contenders.iter().map(|c| c.line(&c.streams.samples)).collect();
    pinned[placed..].iter_mut().for_each(|line| line.who += " at the receiver");
    report.cases.push(Case::new("pinned ends, goodput", Unit::Bits, pinned));
    Ok(())
}

/// Pins all threads of the forwarding processes to a CPU.
fn keep_on(cpu: usize, contenders: &[Contender]) -> Result<()> {
    let worlds = contenders.iter().filter_map(|contender| contender.world.as_ref().ok());
    for child in worlds.flat_map(|(_, world)| &world.wire) {
        let (cpu, pid) = (cpu.to_string(), child.pid().to_string());
        run_short("taskset", &["--all-tasks", "--cpu-list", "--pid", &cpu, &pid])?;
    }
    Ok(())
}

/// Case with CPU seconds per gigabit; `of` returns the CPU seconds of each stream. A contender with
/// no process is skipped.
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
