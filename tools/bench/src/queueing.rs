//! Backpressure and queueing disciplines on the real engine: frame loss and cost.
//!
//! All contenders are links of mqnet in one process. A link has two ports: senders feed one port,
//! and a slow sink reads the other. The contenders alternate, with a new link each time.

mod bypass;
mod fairness;
mod figures;
mod frame;
mod latency;
mod pacer;
mod table;
mod window;
mod world;

use super::report::{Case, Line, Report, Unit};
use super::stats::{self, Class, Sample};
use super::{LinkPlug, Result, Session, slices};

/// Part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Part {
    /// Lost frames and frames per second: tail drop compared with backpressure, 1 to 8 senders
    Table,
    /// Ping in parallel to a bulk flow over a slow sink
    Latency,
    /// Fairness of seven normal flows and a greedy one
    Fairness,
    /// Cost of an attached but empty discipline
    Bypass,
}

pub(super) fn run(
    session: &Session,
    report: &mut Report,
    plug: Option<&LinkPlug>,
    only: Option<Part>,
) -> Result<()> {
    let wanted = |part| only.is_none_or(|only| only == part);
    if wanted(Part::Bypass) {
        // The benchmark pins its thread, so it runs on a separate thread.
        std::thread::scope(|scope| {
            let alone = scope.spawn(|| bypass::run(session, plug).map_err(|e| e.to_string()));
            let (cases, notes) = alone.join().map_err(|_| "a thread failed")??;
            report.cases.extend(cases);
            report.notes.extend(notes);
            Ok::<(), Box<dyn std::error::Error>>(())
        })?;
    }
    if wanted(Part::Table) {
        table::run(session, report)?;
    }
    if wanted(Part::Latency) {
        latency::run(session, report)?;
    }
    if wanted(Part::Fairness) {
        fairness::run(session, report)?;
    }
    Ok(())
}

/// Runs rounds with all contenders, in an order that changes; `turn` gets the round and the index
/// of the contender. Returns a list of outcomes for each contender.
fn in_turn<T>(
    session: &Session,
    name: &str,
    contenders: usize,
    mut turn: impl FnMut(usize, usize) -> Result<T>,
) -> Result<Vec<Vec<T>>> {
    let mut series: Vec<Vec<T>> = (0..contenders).map(|_| Vec::new()).collect();
    for round in 0..session.pairs {
        for at in slices::order(contenders, round) {
            session.check()?;
            session.progress.show(&format!("{name}: round {} of {}", round + 1, session.pairs));
            series[at].push(turn(round, at)?);
        }
    }
    Ok(series)
}

/// Samples without a distance: the threads run on CPUs chosen by the scheduler.
fn samples(values: impl IntoIterator<Item = f64>) -> Vec<Sample> {
    values.into_iter().map(|value| Sample { value, class: Class::Mixed }).collect()
}

fn median(line: &Line) -> f64 {
    line.summary.map_or(f64::NAN, |summary| summary.median)
}

/// Case without ratios.
fn case(name: String, unit: Unit, lines: Vec<Line>) -> Case {
    Case { name, unit, lines, ratios: Vec::new() }
}

/// Text of a promise with its verdict, the measured value and the promised value.
fn promise(kept: bool, what: &str, measured: &str, promised: &str) -> String {
    let verdict = if kept { "kept" } else { "MISSED" };
    format!("{verdict}: {what}: {measured} (promised: {promised})")
}
