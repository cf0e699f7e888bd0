//! Fairness of eight flows, one of them greedy, over a slow sink.

use std::time::Duration;

use mqnet_engine::Full;

use super::figures::jain;
use super::latency::SLOW;
use super::pacer::Speed;
use super::world::{self, Flow, Setup};
use super::{Line, Report, Result, Session, Unit, case, in_turn, median, promise, samples};

const FLOWS: u16 = 8;
/// Frames in flight of a normal flow; the greedy flow has ten times this number.
const WINDOW: u64 = 200;
const WARM_UP: Duration = Duration::from_millis(150);
const SLICE: Duration = Duration::from_millis(500);
/// Promised minimum of Jain's index.
const INDEX: f64 = 0.98;

/// Queueing disciplines under test. Each limit exceeds the sum of all windows, so no frame is
/// dropped because of the limit: only the dequeue order affects the result.
const CONTENDERS: [&str; 2] = ["fq_codel", "pfifo limit 10000"];

pub(super) fn run(session: &Session, report: &mut Report) -> Result<()> {
    let name = "8 flows, one greedy, 100 Mbit/s";
    let series =
        in_turn(session, name, CONTENDERS.len(), |round, at| slice(CONTENDERS[at], round as u16))?;
    let lines = series.into_iter().zip(CONTENDERS);
    let lines: Vec<Line> = lines.map(|(values, who)| Line::of(who, samples(values))).collect();
    let (ours, pfifo) = (median(&lines[0]), median(&lines[1]));
    let measured = format!("{ours:.4} (pfifo: {pfifo:.4})");
    let promised = format!(">= {INDEX}");
    let what = "Jain's index of 8 flows, one greedy, with fq_codel";
    report.notes.push(promise(ours >= INDEX, what, &measured, &promised));
    report.cases.push(case(format!("{name}: Jain"), Unit::Index, lines));
    Ok(())
}

/// Jain's index of one round. Each round uses different UDP ports, so that two flows hash to the
/// same queue in some rounds only.
fn slice(qdisc: &'static str, round: u16) -> Result<f64> {
    let (full, speed) = (Full::Stop, Speed::Bits(SLOW));
    let setup = Setup { qdisc: Some(qdisc), full, speed, warm_up: WARM_UP, slice: SLICE };
    let flow = |n| Flow {
        port: 4000 + FLOWS * (round % 1000) + n,
        sizes: (1500, 1500),
        window: if n == 0 { 10 * WINDOW } else { WINDOW },
        waits: true,
        every: None,
    };
    let outcome = world::run(&setup, &(0..FLOWS).map(flow).collect::<Vec<_>>())?;
    Ok(jain(&outcome.bytes))
}
