//! Backpressure and queueing disciplines on the real engine: frame loss and cost.
//!
//! All contenders are links of mqnet in one process. A link has two ports: senders feed one, and a
//! slow sink reads the other. The contenders take turns, and each turn has a new link.

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

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Part {
    /// Frames lost, and frames a second: tail drop against backpressure, 1 to 8 senders
    Table,
    /// A ping beside a bulk flow over a slow sink
    Latency,
    /// Seven modest flows and a greedy one
    Fairness,
    /// What an attached but empty discipline costs
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
        // The benchmark pins its thread and therefore gets a thread of its own.
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

/// Runs rounds with each contender in turn; `turn` gets the round and the index of the contender.
/// Returns a list of outcomes for each contender.
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

/// Samples without a distance: several threads ran on CPUs of the scheduler's choice.
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

/// Text of a promise, its verdict, and both numbers.
fn promise(kept: bool, what: &str, measured: &str, promised: &str) -> String {
    let verdict = if kept { "kept" } else { "MISSED" };
    format!("{verdict}: {what}: {measured} (promised: {promised})")
}
