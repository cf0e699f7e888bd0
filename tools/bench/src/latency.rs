//! Response times: bare frames over a link and over a veth pair, a link with sleeping workers, and
//! TCP. The CPU time of an idle link is measured too.

mod floor;
mod packet;
mod ping;
mod rr;

use std::time::Duration;

use super::child::RunFolder;
use super::histogram::{self, Histogram};
use super::hosts::remove_orphans;
use super::report::{Case, Line, Report, Unit};
use super::stats::{Class, Sample};
use super::tcp::Sending;
use super::wires::{Wire, World};
use super::{Result, Session, cpu, pingpong, slices};

pub(crate) use ping::{PingArgs, ping};
use rr::Round;
pub(crate) use rr::{RrArgs, rr};

/// Part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Part {
    /// Bare frames over an mqnet link, one after the other, with and without a bulk flow
    Link,
    /// Wake-up of a sleeping link, with several poll windows, and the CPU time of each
    Wake,
    /// One-byte requests over TCP, with and without a bulk flow, compared with veth and relays
    Tcp,
    /// CPU time of an idle link
    Idle,
}

const PERCENTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];
/// Poll windows under test, in microseconds; the first is the default.
const WINDOWS: [u64; 4] = [1000, 0, 50, 5000];
/// Pauses between a response and the next request, in microseconds.
const GAPS: [u64; 2] = [200, 3000];
/// Divisor of the slice for bare frames, which have far more round trips than needed.
const SHORT: u32 = 2;
/// Label of the kernel's own path without TCP.
const VETH: &str = "veth, packet sockets";
/// Length of one measurement of an idle link.
const WATCHED: Duration = Duration::from_millis(500);

/// Latencies of one contender, one entry per round.
type Rounds = Vec<(Histogram, Class)>;

pub(super) fn run(session: &Session, report: &mut Report, only: Option<Part>) -> Result<()> {
    let wanted = |part| only.is_none_or(|only| only == part);
    let folder = RunFolder::new()?;
    if wanted(Part::Link) {
        link(session, report, &folder)?;
    }
    if wanted(Part::Wake) {
        wake(session, report, &folder)?;
    }
    if wanted(Part::Tcp) || wanted(Part::Idle) {
        remove_orphans();
        let mut worlds = worlds(session, &folder)?;
        if wanted(Part::Tcp) {
            tcp(session, report, &mut worlds)?;
        }
        if wanted(Part::Idle) {
            idle(session, report, &worlds)?;
        }
    }
    Ok(())
}

/// Runs all rounds and returns the latencies of each contender. `turn` measures the contender with
/// the given index. The first round warms up and is not counted.
fn rounds(
    session: &Session,
    name: &str,
    contenders: usize,
    mut turn: impl FnMut(usize) -> Result<Histogram>,
) -> Result<Vec<Rounds>> {
    let mut series: Vec<Rounds> = vec![Vec::new(); contenders];
    for round in 0..=session.pairs {
        session.progress.show(&format!("{name}: round {round} of {}", session.pairs));
        let mut before = distance(session)?;
        for at in slices::order(contenders, round) {
            session.check()?;
            let seen = turn(at)?;
            let after = distance(session)?;
            if round > 0 {
                series[at].push((seen, Class::of(&[before, after])));
            }
            before = after;
        }
    }
    Ok(series)
}

/// Distance of the two CPUs. A separate thread measures, because it stays pinned, and processes
/// that are started later inherit the affinity.
fn distance(session: &Session) -> Result<f64> {
    std::thread::scope(|scope| {
        let cpus = session.cpus;
        let aside = scope.spawn(move || pingpong::distance(cpus).map_err(|e| e.to_string()));
        Ok(aside.join().map_err(|_| "a thread failed")??)
    })
}

/// Cases with one percentile each.
fn cases(name: &str, who: &[&str], series: &[Rounds]) -> Vec<Case> {
    let case = |&(percentile, share): &(&str, f64)| {
        let lines = who.iter().zip(series).map(|(who, rounds)| histogram::line(who, rounds, share));
        Case::new(format!("{name}, {percentile}"), Unit::Latency, lines.collect())
    };
    PERCENTILES.iter().map(case).collect()
}

/// Measures a link with workers that do not sleep, because each response arrives within the poll
/// window.
fn link(session: &Session, report: &mut Report, folder: &RunFolder) -> Result<()> {
    let window = Duration::from_micros(WINDOWS[0]);
    let mut alone = ping::Pair::start(session.cpus, folder, window, false)?;
    let mut loaded = ping::Pair::start(session.cpus, folder, window, true)?;
    let mut veth = packet::Veth::start(session.cpus, folder).map_err(|error| error.to_string());
    session.check()?;
    let name = "64 B there and back over a link";
    let length = session.slice / SHORT;
    let series = rounds(session, name, 4, |at| match at {
        0 => alone.turn(length, Duration::ZERO),
        1 => loaded.turn(length, Duration::ZERO),
        2 => veth.as_mut().map_or_else(|_| Ok(Histogram::default()), |veth| veth.turn(length)),
        _ => cache_line(session),
    })?;
    let who = ["mqnet", "mqnet beside a bulk of 1514 B", VETH, "a cache line"];
    for mut case in cases(name, &who, &series) {
        if let Err(reason) = &veth {
            let lines = case.lines.iter_mut().filter(|line| line.who == VETH);
            lines.for_each(|line| *line = Line::skipped(VETH, reason.as_str()));
        }
        report.cases.push(Case::new(case.name, case.unit, case.lines));
    }
    Ok(())
}

/// Lower bound of any response: the transfer of a cache line there and back.
fn cache_line(session: &Session) -> Result<Histogram> {
    let mut seen = Histogram::default();
    for _ in 0..20 {
        seen.add((2.0 * distance(session)?) as u64);
    }
    Ok(seen)
}

/// Measures pings with pauses, after which the workers sleep or still poll, by poll window.
fn wake(session: &Session, report: &mut Report, folder: &RunFolder) -> Result<()> {
    let mut pairs = Vec::new();
    for window in WINDOWS {
        session.check()?;
        let window = Duration::from_micros(window);
        pairs.push(ping::Pair::start(session.cpus, folder, window, false)?);
    }
    let labels = WINDOWS.map(|us| format!("mqnet, window {us} us"));
    for gap_us in GAPS {
        let gap = Duration::from_micros(gap_us);
        let name = format!("64 B there and back, {gap_us} us after the last");
        let mut used = vec![Vec::new(); pairs.len()];
        let series = rounds(session, &name, 1 + pairs.len(), |at| {
            let Some(pair) = pairs.get_mut(at) else {
                return floor::turn(session.cpus, session.slice, gap);
            };
            let before = cpu::of(&pair.pids());
            let seen = pair.turn(session.slice, gap)?;
            if let (Some(before), Some(after)) = (before, cpu::of(&pair.pids())) {
                used[at].push(percent(after - before, session.slice));
            }
            Ok(seen)
        })?;
        let mut who: Vec<&str> = labels.iter().map(String::as_str).collect();
        who.push("two eventfds");
        report.cases.extend(cases(&name, &who, &series));
        let lines = who.iter().zip(used).map(|(who, used)| Line::of(who, used)).collect();
        report.cases.push(Case::new(format!("{name}: CPU of both ends"), Unit::Percent, lines));
    }
    Ok(())
}

fn percent(seconds: f64, of: Duration) -> Sample {
    Sample { value: 100.0 * seconds / of.as_secs_f64(), class: Class::Mixed }
}

type Contender = (Wire, std::result::Result<rr::Hosts, String>);

fn worlds(session: &Session, folder: &RunFolder) -> Result<Vec<Contender>> {
    let mut worlds = Vec::new();
    for wire in [Wire::Mqnet, Wire::MqnetDirect, Wire::Veth, Wire::Relay, Wire::Socat] {
        session.progress.show(&format!("latency: starting {}", wire.who()));
        let control = Sending::Unpaced.control();
        let hosts = World::start(wire, folder, "")
            .and_then(|world| rr::Hosts::start(world, session.cpus, control));
        session.check()?;
        worlds.push((wire, hosts.map_err(|error| error.to_string())));
    }
    Ok(worlds)
}

/// Measures one-byte requests and responses over TCP.
fn tcp(session: &Session, report: &mut Report, worlds: &mut [Contender]) -> Result<()> {
    let [here, there] = session.cpus;
    report.notes.push(format!(
        "TCP_RR: who asks, and the bulk flow, on CPU {here}; who answers on CPU {there}; ends \
         not pinned: where the scheduler puts them; the bulk is sent by {} with at most 1 MiB on \
         its way",
        Sending::Unpaced.control()
    ));
    let rounds_of = [
        ("TCP_RR", Round { loaded: false, pinned: true }),
        ("TCP_RR beside a bulk", Round { loaded: true, pinned: true }),
        ("TCP_RR beside a bulk, ends not pinned", Round { loaded: true, pinned: false }),
    ];
    for (name, round) in rounds_of {
        let series = rounds(session, name, worlds.len(), |at| {
            let (_, hosts) = &mut worlds[at];
            let Ok(running) = hosts else { return Ok(Histogram::default()) };
            let turn = running.turn(session.slice, round);
            session.check()?;
            Ok(turn.unwrap_or_else(|error| {
                *hosts = Err(error.to_string());
                Histogram::default()
            }))
        })?;
        let who: Vec<&str> = worlds.iter().map(|(wire, _)| wire.who()).collect();
        for mut case in cases(name, &who, &series) {
            for (line, (_, hosts)) in case.lines.iter_mut().zip(&*worlds) {
                if let Err(reason) = hosts {
                    *line = Line::skipped(&line.who, reason.as_str());
                }
            }
            report.cases.push(Case::new(case.name, case.unit, case.lines));
        }
    }
    Ok(())
}

/// Measures the CPU time of both ends of TAP, link, TAP without traffic.
fn idle(session: &Session, report: &mut Report, worlds: &[Contender]) -> Result<()> {
    let mut lines = Vec::new();
    for (wire, hosts) in worlds.iter().filter(|(wire, _)| *wire != Wire::Veth) {
        let pids: Vec<u32> = match hosts {
            Ok(hosts) => hosts.world.wire.iter().map(super::child::Child::pid).collect(),
            Err(reason) => {
                lines.push(Line::skipped(wire.who(), reason.as_str()));
                continue;
            }
        };
        let mut used = Vec::new();
        for round in 0..session.pairs {
            session.check()?;
            session.progress.show(&format!("idle: round {} of {}", round + 1, session.pairs));
            let before = cpu::of(&pids);
            std::thread::sleep(WATCHED);
            if let (Some(before), Some(after)) = (before, cpu::of(&pids)) {
                used.push(percent(after - before, WATCHED));
            }
        }
        lines.push(Line::of(wire.who(), used));
    }
    // A ratio of two values near zero has no meaning.
    let ratios = Vec::new();
    report.cases.push(Case { name: "an idle link".into(), unit: Unit::Percent, lines, ratios });
    Ok(())
}
