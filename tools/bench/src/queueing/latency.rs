//! Delay of a ping flow over a slow sink, with and without a parallel bulk flow.

use std::time::Duration;

use mqnet_engine::Full;

use super::figures::percentile;
use super::pacer::Speed;
use super::world::{self, Flow, Outcome, Setup};
use super::{Line, Report, Result, Session, Unit, case, in_turn, promise, samples};

/// Bits per second of the slow sink.
pub(super) const SLOW: f64 = 100e6;
/// Frames in flight of the bulk flow.
const WINDOW: u64 = 2000;
const PING_EVERY: Duration = Duration::from_millis(5);
/// Time in which the pfifo becomes full; exceeds the service time of 1000 frames of 120 us each.
const WARM_UP: Duration = Duration::from_millis(250);
/// Length of a round: 120 pings.
const SLICE: Duration = Duration::from_millis(600);
/// `CoDel`'s target, in nanoseconds.
const TARGET: f64 = 5e6;

/// Contenders: name, attached discipline, presence of a bulk flow.
const CONTENDERS: [(&str, Option<&str>, bool); 3] = [
    ("idle", Some("fq_codel"), false),
    ("pfifo limit 1000", Some("pfifo limit 1000"), true),
    ("fq_codel", Some("fq_codel"), true),
];

pub(super) fn run(session: &Session, report: &mut Report) -> Result<()> {
    let name = "ping beside a bulk, 100 Mbit/s";
    let series = in_turn(session, name, CONTENDERS.len(), |round, at| {
        let (_, qdisc, bulk) = CONTENDERS[at];
        slice(qdisc, bulk, round as u16)
    })?;
    for (what, share) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
        let delay = |o: &Outcome| percentile(&o.delays, share).map_or(f64::NAN, |ns| ns as f64);
        let lines = series.iter().zip(CONTENDERS).map(|(outcomes, (who, ..))| {
            Line::of(who, samples(outcomes.iter().map(delay).filter(|ns| ns.is_finite())))
        });
        report.cases.push(case(format!("{name}: {what}"), Unit::Delay, lines.collect()));
    }
    // Percentile of the pings of all rounds: one round has too few pings for a stable 99th
    // percentile.
    let p99 = series.iter().map(|outcomes| {
        let all: Vec<u64> = outcomes.iter().flat_map(|o| &o.delays).copied().collect();
        (all.len(), percentile(&all, 0.99).map_or(f64::NAN, |ns| ns as f64))
    });
    let p99: Vec<_> = p99.collect();
    let ((pings, idle), (_, pfifo), (_, fq)) = (p99[0], p99[1], p99[2]);
    let ms = |ns: f64| format!("{:.3} ms", ns / 1e6);
    let what = format!("p99 of {pings} pings beside a bulk with fq_codel");
    let promised = format!("< 1/10 of pfifo's {}", ms(pfifo));
    report.notes.push(promise(fq < pfifo / 10.0, &what, &ms(fq), &promised));
    let promised = format!("<= {}, 2 x idle ({}) + 5 ms", ms(2.0 * idle + TARGET), ms(idle));
    report.notes.push(promise(fq <= 2.0 * idle + TARGET, &what, &ms(fq), &promised));
    Ok(())
}

fn slice(qdisc: Option<&'static str>, bulk: bool, round: u16) -> Result<Outcome> {
    let (full, speed) = (Full::Stop, Speed::Bits(SLOW));
    let setup = Setup { qdisc, full, speed, warm_up: WARM_UP, slice: SLICE };
    let port = 3000 + 2 * (round % 1000);
    let flow =
        |port, len, window, every| Flow { port, sizes: (len, len), window, waits: true, every };
    let mut flows = vec![flow(port, 64, u64::MAX, Some(PING_EVERY))];
    if bulk {
        flows.push(flow(port + 1, 1500, WINDOW, None));
    }
    world::run(&setup, &flows)
}
