//! Frames per second for increasing numbers of workers with a channel each, cost per frame for
//! increasing numbers of channels on one worker, and models fitted to both.
//!
//! Each worker is one thread on one CPU that has both ends of its channels, so that a machine with
//! two CPUs can have two workers. A frame is copied in and out, as between two processes.

mod extrapolate;
pub(super) mod lanes;
mod usl;

use std::sync::Barrier;

use mqnet_sysio::affinity;
use serde::Serialize;

use super::pingpong::{self, Slice};
use super::report::{Case, Line, Report, Unit};
use super::stats::{Class, Sample, median};
use super::{Result, Session, slices};
use lanes::{Link, Worker};
use usl::Usl;

/// Channels on one worker.
const CHANNELS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const SIZES: [usize; 2] = [64, 1514];

/// Arguments of `mqnet-bench scaling`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ScalingArgs {
    /// Print what the fitted laws say of up to 64 CPUs and a link of 400 Gb/s, and what they assume
    #[arg(long, conflicts_with = "json")]
    extrapolate: bool,
}

/// Fitted models for frames of one size.
#[derive(Clone, Debug, Serialize)]
struct Model {
    bytes: usize,
    /// Measured numbers of workers.
    workers: Vec<usize>,
    /// Scalability model, fitted to the median rate of one worker and the median gains of more
    /// workers in the same round.
    law: Usl,
    /// Serial share of the rounds: minimum, median, maximum.
    sigma: [f64; 3],
    /// Nanoseconds per frame with one channel, and per additional channel.
    channel_cost: [f64; 2],
}

/// Runs the measurement; returns the requested text if it replaces the report.
pub(super) fn run(
    session: &Session,
    report: &mut Report,
    args: &ScalingArgs,
) -> Result<Option<String>> {
    let cpus = affinity::allowed_cpus().map_err(|error| format!("sched_getaffinity: {error}"))?;
    let mut models = Vec::new();
    for bytes in SIZES {
        let workers = workers(session, bytes, &cpus)?;
        let channels = channels(session, bytes)?;
        models.push(model(bytes, &workers, &channels).ok_or("no law fits: nothing moved")?);
        let rates = rates(&channels, bytes);
        report.cases.extend([workers, channels, rates]);
    }
    report.notes.push("a worker has both ends of its channels on one CPU".to_owned());
    for model in &models {
        let Usl { lambda, sigma, kappa } = model.law;
        report.notes.push(format!(
            "{} B: one worker {:.2} Mpps; serial share {:.4}, cost of a pair {:.6} ({} numbers of \
             workers: {}); a frame {:.1} ns with one channel, and {:.3} ns more for each other",
            model.bytes,
            lambda / 1e6,
            sigma,
            kappa,
            model.workers.len(),
            if model.workers.len() < 3 { "too few for the second" } else { "enough for both" },
            model.channel_cost[0],
            model.channel_cost[1],
        ));
    }
    report.model = Some(serde_json::to_value(&models)?);
    if !args.extrapolate {
        return Ok(None);
    }
    let memory = extrapolate::memory(session)?;
    Ok(Some(extrapolate::text(&models, &cpus, memory)))
}

/// Runs rounds in which each contender has a turn; the first round warms up.
fn in_turn(
    session: &Session,
    name: &str,
    contenders: usize,
    mut turn: impl FnMut(usize) -> Result<f64>,
) -> Result<Vec<Vec<Sample>>> {
    let mut series = vec![Vec::new(); contenders];
    for pair in 0..=session.pairs {
        session.check()?;
        session.progress.show(&format!("{name}: pair {pair} of {}", session.pairs));
        for at in slices::order(contenders, pair) {
            let value = turn(at)?;
            if pair > 0 {
                // No frame goes from one CPU to another.
                series[at].push(Sample { value, class: Class::Single });
            }
        }
    }
    Ok(series)
}

/// Measures one link with as many channels as CPUs; the highest number of workers comes first.
fn workers(session: &Session, bytes: usize, cpus: &[usize]) -> Result<Case> {
    let name = format!("workers with a channel each, {bytes} B");
    let cpus = &cpus[..cpus.len().min(64)];
    let mut link = Link::new(bytes, cpus.len(), 1)?;
    let series = in_turn(session, &name, cpus.len(), |at| {
        together(session, &mut link.workers[..cpus.len() - at], cpus)
    })?;
    let lines = series.into_iter().enumerate().map(|(at, samples)| {
        let workers = cpus.len() - at;
        Line::of(&format!("{workers} workers"), samples)
    });
    Ok(Case::new(name, Unit::Frames { bytes }, lines.collect()))
}

/// Frames per second of all workers, which start at the same time.
fn together(session: &Session, workers: &mut [Worker], cpus: &[usize]) -> Result<f64> {
    let begin = Barrier::new(workers.len());
    std::thread::scope(|scope| {
        let start = |(worker, &cpu)| {
            let begin = &begin;
            scope.spawn(move || slice(worker, cpu, session, begin).map_err(|e| e.to_string()))
        };
        let running: Vec<_> = workers.iter_mut().zip(cpus).map(start).collect();
        let mut sum = 0.0;
        for worker in running {
            sum += worker.join().map_err(|_| "a worker failed")??.sample().value;
        }
        Ok(sum)
    })
}

fn slice(worker: &mut Worker, cpu: usize, session: &Session, begin: &Barrier) -> Result<Slice> {
    let mut turn = || pingpong::one_cpu_slice(cpu, session.slice, || worker.burst());
    // A CPU runs slower for a while after an idle time; therefore each worker warms up its CPU. The
    // result is checked after the barrier, because every worker must reach the barrier.
    let warm = turn();
    begin.wait();
    warm?;
    turn()
}

/// Measures links of increasing numbers of channels, each on one worker.
fn channels(session: &Session, bytes: usize) -> Result<Case> {
    let name = format!("channels on one worker, {bytes} B");
    let links: Result<Vec<Link>> =
        CHANNELS.iter().map(|&channels| Link::new(bytes, 1, channels)).collect();
    let mut links = links?;
    let cpu = &session.cpus[..1];
    let series = in_turn(session, &name, links.len(), |at| {
        Ok(1e9 / together(session, &mut links[at].workers, cpu)?)
    })?;
    let lines = CHANNELS.iter().zip(series);
    let lines = lines.map(|(channels, samples)| Line::of(&format!("{channels} channels"), samples));
    Ok(Case::new(name, Unit::Nanoseconds, lines.collect()))
}

/// The same values as frames per second.
fn rates(channels: &Case, bytes: usize) -> Case {
    let rate = |line: &Line| {
        let of = |sample: &Sample| Sample { value: 1e9 / sample.value, ..*sample };
        Line::of(&line.who, line.samples.iter().map(of).collect())
    };
    let name = format!("frames a second through channels on one worker, {bytes} B");
    Case::new(name, Unit::Frames { bytes }, channels.lines.iter().map(rate).collect())
}

fn values(line: &Line) -> Vec<f64> {
    line.samples.iter().map(|sample| sample.value).collect()
}

fn model(bytes: usize, workers: &Case, channels: &Case) -> Option<Model> {
    let all = workers.lines.len();
    let count = |at: usize| all - at;
    let rates: Vec<Vec<f64>> = workers.lines.iter().map(values).collect();
    let points = |of: &dyn Fn(&[f64]) -> Option<f64>| -> Option<Vec<(f64, f64)>> {
        let all = rates.iter().enumerate();
        all.map(|(at, rates)| Some((count(at) as f64, of(rates)?))).collect()
    };
    // Gain over one worker per round: a drift between rounds affects both and cancels.
    let alone = rates.last()?;
    let one = median(alone)?;
    let together = |rates: &[f64]| {
        let gains: Vec<f64> = rates.iter().zip(alone).map(|(all, one)| all / one).collect();
        Some(one * median(&gains)?)
    };
    let law = Usl::fit(&points(&together)?)?;
    let rounds = rates.iter().map(Vec::len).min()?;
    let of_round =
        |round: usize| Some(Usl::fit(&points(&|rates| rates.get(round).copied())?)?.sigma);
    let mut sigma: Vec<f64> = (0..rounds).filter_map(of_round).collect();
    sigma.sort_by(f64::total_cmp);
    let rows: Vec<Vec<f64>> = CHANNELS.iter().map(|&n| vec![1.0, (n - 1) as f64]).collect();
    let costs: Option<Vec<f64>> = channels.lines.iter().map(|line| median(&values(line))).collect();
    let cost = usl::least_squares(&rows, &costs?)?;
    Some(Model {
        bytes,
        workers: (1..=all).collect(),
        law,
        sigma: [*sigma.first()?, median(&sigma)?, *sigma.last()?],
        channel_cost: [cost[0], cost[1]],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(values: &[f64]) -> Case {
        let lines = values
            .iter()
            .map(|&value| Line::of("x", vec![Sample { value, class: Class::Single }; 3]));
        Case::new("x", Unit::Index, lines.collect())
    }

    // Goal: the highest number of workers comes first in a case, and the model assigns each line to
    // its number of workers.
    #[test]
    fn the_law_knows_who_is_who() {
        let law = Usl { lambda: 100.0, sigma: 0.1, kappa: 0.0 };
        let workers = case(&[law.at(3.0), law.at(2.0), law.at(1.0)]);
        let channels = case(&CHANNELS.map(|n| 50.0 + 0.5 * (n - 1) as f64));
        let model = model(64, &workers, &channels).unwrap();
        assert!((model.law.lambda - 100.0).abs() < 1e-6, "{model:?}");
        assert!((model.sigma[1] - 0.1).abs() < 1e-6, "{model:?}");
        assert!((model.channel_cost[0] - 50.0).abs() < 1e-6, "{model:?}");
        assert!((model.channel_cost[1] - 0.5).abs() < 1e-6, "{model:?}");
        assert!(super::model(64, &case(&[]), &channels).is_none());
    }
}
