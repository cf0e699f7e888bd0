//! Tail drop compared with backpressure for 1 to 8 senders: frame loss and cost.

use std::time::Duration;

use mqnet_engine::Full;

use super::pacer::Speed;
use super::world::{self, Flow, Outcome, Setup};
use super::{Line, Report, Result, Session, Unit, case, in_turn, median, promise, samples, stats};

/// Frames per second of the slow sink, far below the rate of the engine.
const SLOW: f64 = 200e3;
/// Bytes of the smallest and largest frames.
const SIZES: (usize, usize) = (64, 200);
/// Number of frames that a socket's buffer holds.
const SOCKET: u64 = 128;
/// Minimum throughput under backpressure, as a share of the throughput with tail drop.
const SHARE: f64 = 0.98;

/// Contender: name, discipline, behaviour of a full queue and of a sender, frames in flight.
struct Way {
    who: &'static str,
    qdisc: Option<&'static str>,
    full: Full,
    waits: bool,
    window: u64,
}

/// Index in [`WAYS`] of the baseline, a tail drop without spinning senders. Spinning senders take
/// CPU time from the sink, so that every other method seems fast.
const BASE: usize = 1;

const WAYS: [Way; 4] = [
    Way {
        who: "tail drop, spinning",
        qdisc: None,
        full: Full::Drop,
        waits: false,
        window: u64::MAX,
    },
    Way { who: "tail drop", qdisc: None, full: Full::Drop, waits: true, window: u64::MAX },
    Way { who: "backpressure", qdisc: None, full: Full::Stop, waits: true, window: u64::MAX },
    Way {
        who: "fq_codel, sockets",
        qdisc: Some("fq_codel"),
        full: Full::Stop,
        waits: true,
        window: SOCKET,
    },
];

pub(super) fn run(session: &Session, report: &mut Report) -> Result<()> {
    for (sink, speed) in [("200 kpps", Speed::Frames(SLOW)), ("any speed", Speed::Unpaced)] {
        for senders in [1, 2, 4, 8] {
            let name = format!("sink of {sink}, senders: {senders}");
            let series = in_turn(session, &name, WAYS.len(), |_, way| {
                slice(session, &WAYS[way], speed, senders)
            })?;
            tell(report, &name, &series);
        }
    }
    Ok(())
}

fn slice(session: &Session, way: &Way, speed: Speed, senders: u16) -> Result<Outcome> {
    let &Way { qdisc, full, waits, window, .. } = way;
    let warm_up = Duration::from_millis(20);
    let setup = Setup { qdisc, full, speed, warm_up, slice: session.slice };
    let flow = |n| Flow { port: 2000 + n, sizes: SIZES, window, waits, every: None };
    world::run(&setup, &(0..senders).map(flow).collect::<Vec<_>>())
}

fn tell(report: &mut Report, name: &str, series: &[Vec<Outcome>]) {
    let line = |way: usize, value: fn(&Outcome) -> f64| {
        Line::of(WAYS[way].who, samples(series[way].iter().map(value)))
    };
    let rates: Vec<Line> = (0..WAYS.len()).map(|way| line(way, |o| o.rate)).collect();
    let mut ratios = Vec::new();
    for (way, rate) in rates.iter().enumerate().skip(BASE + 1) {
        let ratio = stats::ratios(&rate.samples, &rates[BASE].samples);
        ratios.push(Line::of(&format!("{} / {}", rate.who, rates[BASE].who), ratio));
        let outcomes = &series[way];
        let lost: u64 = outcomes.iter().map(|o| o.lost).sum();
        let refused: u64 = outcomes.iter().map(|o| o.refused).sum();
        let drops: Vec<_> = outcomes.iter().flat_map(|o| &o.drops).collect();
        let share = ratios.last().map_or(f64::NAN, median);
        let what = format!("{name}: {}", rate.who);
        let measured = format!("lost {lost} {drops:?}, refused {refused}");
        report.notes.push(promise(lost == 0, &what, &measured, "0"));
        let (measured, promised) = (format!("{share:.3}"), format!(">= {SHARE} of tail drop"));
        report.notes.push(promise(share >= SHARE, &what, &measured, &promised));
    }
    let bytes = usize::midpoint(SIZES.0, SIZES.1);
    let unit = Unit::Frames { bytes };
    report.cases.push(super::Case { name: name.to_owned(), unit, lines: rates, ratios });
    let mut lost: Vec<Line> = (0..WAYS.len()).map(|way| line(way, |o| o.lost as f64)).collect();
    let refused = samples(series[0].iter().map(|o| o.refused as f64));
    lost.push(Line::of("spinning: not accepted", refused));
    report.cases.push(case("  lost of what was accepted".to_owned(), Unit::Count, lost));
}
