//! Cost for the lanes of 64 channels if all counters are read.
//!
//! One CPU runs both ends of every channel and no other work. A thread on the other CPU reads the
//! counters that the control threads of both processes of a link read, every [`EVERY`] or never.
//! The other work of the control threads (JSON, sockets) touches no cache line that a lane writes;
//! that work is measured as CPU time.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mqnet_netdev::{LaneSums, QueuePairStats};

use super::super::report::{Case, Line, Report, Unit};
use super::super::scaling::lanes::Link;
use super::super::stats::{Class, Sample};
use super::super::{Result, Session, pingpong, slices};
use super::{CHANNELS, EVERY};

const BYTES: usize = 64;
/// Slices of a sample. Single slices vary by more than the expected difference, so a sample is the
/// mean of several.
const SLICES: usize = 8;

pub(super) fn run(session: &Session, report: &mut Report) -> Result<()> {
    let mut link = Link::new(BYTES, 1, CHANNELS)?;
    let counters = link.counters();
    let mut series = [Vec::new(), Vec::new()];
    for pair in 0..=session.pairs {
        session.progress.show(&format!("data path: pair {pair} of {}", session.pairs));
        let mut sums = [0.0; 2];
        for at in (0..SLICES).flat_map(|slice| slices::order(2, slice)) {
            session.check()?;
            sums[at] += turn(session, &mut link, &counters, at == 0)? / SLICES as f64;
        }
        // The first pair warms up.
        for (series, value) in series.iter_mut().zip(sums).filter(|_| pair > 0) {
            series.push(Sample { value, class: Class::Single });
        }
    }
    let [read, unread] = series;
    let every = EVERY.as_millis();
    report.cases.push(Case::new(
        format!("{CHANNELS} channels on one CPU, their counters read on the other, {BYTES} B"),
        Unit::Frames { bytes: BYTES },
        vec![Line::of(&format!("every {every} ms"), read), Line::of("never", unread)],
    ));
    Ok(())
}

/// Frames per second of one slice; `reads` enables the reader.
fn turn(session: &Session, link: &mut Link, counters: &[Counters], reads: bool) -> Result<f64> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let pinned = pingpong::pin(session.cpus[1]).map_err(|e| e.to_string());
            while !stop.load(Ordering::Relaxed) {
                if reads {
                    read(counters);
                }
                std::thread::park_timeout(EVERY);
            }
            pinned
        });
        let worker = &mut link.workers[0];
        // The caller starts processes later and must not be pinned, so the worker runs on a
        // separate thread.
        let worker = scope.spawn(move || {
            let slice = pingpong::one_cpu_slice(session.cpus[0], session.slice, || worker.burst());
            slice.map_err(|e| e.to_string())
        });
        let slice = worker.join();
        stop.store(true, Ordering::Relaxed);
        reader.thread().unpark();
        reader.join().map_err(|_| "the reader failed")??;
        Ok(slice.map_err(|_| "the worker failed")??.sample().value)
    })
}

/// Counters of a channel, as returned by [`Link::counters`]: those of both functions at each end.
type Counters = [[Arc<QueuePairStats>; 2]; 2];

/// Reads the counters that `GET /v1/links/NAME/stats` reads at either end.
fn read(counters: &[Counters]) {
    for [a, b] in counters.iter().flatten() {
        black_box([LaneSums::of(a, b), LaneSums::of(b, a)]);
    }
}
