//! Frames per second by number of workers with one channel each, and cost per frame by number of
//! channels on one worker.
//!
//! Each worker is one thread on one CPU with both ends of its channels. A machine with two CPUs can
//! therefore have two workers. A frame is copied into the link and out of it, as between two
//! processes.

pub(super) mod lanes;

use std::sync::Barrier;

use mqnet_sysio::affinity;

use super::pingpong::{self, Slice};
use super::report::{Case, Line, Report, Unit};
use super::stats::{Class, Sample};
use super::{Result, Session, slices};
use lanes::{Link, Worker};

/// Numbers of channels on one worker.
const CHANNELS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const SIZES: [usize; 2] = [64, 1514];

/// Runs the measurement.
pub(super) fn run(session: &Session, report: &mut Report) -> Result<()> {
    let cpus = affinity::allowed_cpus().map_err(|error| format!("sched_getaffinity: {error}"))?;
    for bytes in SIZES {
        let workers = workers(session, bytes, &cpus)?;
        let channels = channels(session, bytes)?;
        let rates = rates(&channels, bytes);
        report.cases.extend([workers, channels, rates]);
    }
    report.notes.push("a worker has both ends of its channels on one CPU".to_owned());
    Ok(())
}

/// Runs rounds in which each contender is measured once; the first round warms up and is not
/// counted.
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
                // Class of a sample on one CPU: no frame is transferred between CPUs.
                series[at].push(Sample { value, class: Class::Single });
            }
        }
    }
    Ok(series)
}

/// Measures a link with one channel per CPU, for each number of workers in descending order.
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
    // Each worker warms up its CPU, which is slower for a while after idle time. An error is
    // returned after the barrier only, because every worker must reach the barrier.
    let warm = turn();
    begin.wait();
    warm?;
    turn()
}

/// Measures one link with one worker for each number of channels, in nanoseconds per frame.
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

/// Case with the values of `channels` (nanoseconds per frame) as frames per second.
fn rates(channels: &Case, bytes: usize) -> Case {
    let rate = |line: &Line| {
        let of = |sample: &Sample| Sample { value: 1e9 / sample.value, ..*sample };
        Line::of(&line.who, line.samples.iter().map(of).collect())
    };
    let name = format!("frames a second through channels on one worker, {bytes} B");
    Case::new(name, Unit::Frames { bytes }, channels.lines.iter().map(rate).collect())
}
