//! Two threads on two CPUs: start, pinning, and the current distance between their caches.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use mqnet_counters::Padded;
use mqnet_sysio::{affinity, clock};

use super::Result;
use super::stats;

/// Number of chunks of one measurement. The median of the chunks counts, because a hypervisor may
/// preempt a CPU during one chunk.
const CHUNKS: u64 = 9;
const TRIPS: u64 = 40;

/// Cache line that two threads transfer to each other. Both threads must call their functions the
/// same number of times.
#[derive(Debug, Default)]
pub(super) struct Line {
    word: Padded<AtomicU64>,
}

impl Line {
    /// Measures on one thread; returns the nanoseconds of a one-way transfer.
    pub(super) fn measure(&self) -> f64 {
        let base = self.word.load(Ordering::Acquire);
        let mut chunks = [0.0; CHUNKS as usize];
        let mut at = base;
        for chunk in &mut chunks {
            let start = clock::monotonic();
            for _ in 0..TRIPS {
                self.word.store(at + 1, Ordering::Release);
                at += 2;
                while self.word.load(Ordering::Acquire) != at {}
            }
            let elapsed = clock::monotonic() - start;
            *chunk = elapsed.as_nanos() as f64 / (2 * TRIPS) as f64;
        }
        stats::median(&chunks).unwrap_or_default()
    }

    /// Responds on the other thread. `turn` is the number of earlier measurements.
    pub(super) fn answer(&self, turn: u64) {
        let mut at = turn * 2 * CHUNKS * TRIPS;
        for _ in 0..CHUNKS * TRIPS {
            while self.word.load(Ordering::Acquire) != at + 1 {}
            at += 2;
            self.word.store(at, Ordering::Release);
        }
    }
}

/// Runs `here` on the first CPU and `there`, on another thread, on the second CPU.
pub(super) fn on_two_cpus<A, B: Send>(
    cpus: [usize; 2],
    here: impl FnOnce() -> A,
    there: impl FnOnce() -> B + Send,
) -> Result<(A, B)> {
    pin(cpus[0])?;
    std::thread::scope(|scope| {
        let (ready, is_ready) = mpsc::channel();
        let other = scope.spawn(move || {
            let pinned = affinity::pin_current_thread(cpus[1]);
            let fine = pinned.is_ok();
            // The receiver waits below, so the send does not fail.
            let _ = ready.send(pinned);
            fine.then(there)
        });
        let pinned = is_ready.recv().map_err(|_| "the second thread did not start")?;
        pinned.map_err(|error| cannot_pin(cpus[1], &error))?;
        let a = here();
        match other.join() {
            Ok(Some(b)) => Ok((a, b)),
            _ => Err("the thread on the second CPU failed".into()),
        }
    })
}

/// Pins the calling thread.
pub(super) fn pin(cpu: usize) -> Result<()> {
    affinity::pin_current_thread(cpu).map_err(|error| cannot_pin(cpu, &error).into())
}

fn cannot_pin(cpu: usize, error: &std::io::Error) -> String {
    format!("cannot run on CPU {cpu}: {error} (choose others with --cpus A,B)")
}

/// Measures the distance between two CPUs, in nanoseconds. Both CPUs should be idle otherwise.
pub(super) fn distance(cpus: [usize; 2]) -> Result<f64> {
    let line = Line::default();
    let (ns, ()) = on_two_cpus(cpus, || line.measure(), || line.answer(0))?;
    Ok(ns)
}

/// Result of one time slice.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    pub(super) objects: u64,
    pub(super) seconds: f64,
    /// Distances measured before and after the slice; empty for a slice on one CPU.
    pub(super) distances: Vec<f64>,
}

impl Slice {
    /// Sample in objects per second.
    pub(super) fn sample(&self) -> stats::Sample {
        let value = self.objects as f64 / self.seconds;
        stats::Sample { value, class: stats::Class::of(&self.distances) }
    }
}

/// Bursts between two checks of the clock or of the stop flag, because each check takes time.
const BURSTS: usize = 64;

/// Runs one slice on one CPU. `burst` returns the number of objects that it moved.
pub(super) fn one_cpu_slice(
    cpu: usize,
    length: Duration,
    mut burst: impl FnMut() -> usize,
) -> Result<Slice> {
    pin(cpu)?;
    let start = clock::monotonic();
    let mut objects = 0;
    loop {
        for _ in 0..BURSTS {
            objects += burst() as u64;
        }
        let elapsed = clock::monotonic() - start;
        if elapsed >= length {
            let seconds = elapsed.as_secs_f64();
            return Ok(Slice { objects, seconds, distances: Vec::new() });
        }
    }
}

/// Runs one slice on two CPUs: `produce` on the first, `consume` on the second. `consume` returns
/// the number of objects that it took. The result has these objects and the consumer's time.
pub(super) fn two_cpu_slice(
    cpus: [usize; 2],
    length: Duration,
    mut produce: impl FnMut(),
    mut consume: impl FnMut() -> usize + Send,
) -> Result<Slice> {
    let line = Line::default();
    let stop = Padded(AtomicBool::new(false));
    let producer = || {
        let before = line.measure();
        let start = clock::monotonic();
        while clock::monotonic() - start < length {
            for _ in 0..BURSTS {
                produce();
            }
        }
        stop.store(true, Ordering::Relaxed);
        [before, line.measure()]
    };
    let consumer = || {
        line.answer(0);
        let start = clock::monotonic();
        let mut objects = 0;
        while !stop.load(Ordering::Relaxed) {
            objects += consume() as u64;
        }
        let seconds = (clock::monotonic() - start).as_secs_f64();
        line.answer(1);
        (objects, seconds)
    };
    let (distances, (objects, seconds)) = on_two_cpus(cpus, producer, consumer)?;
    Ok(Slice { objects, seconds, distances: distances.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: both threads complete two measurements in a row, and the results are positive.
    #[test]
    fn two_measurements_meet() {
        let line = Line::default();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..2).for_each(|turn| line.answer(turn)));
            assert!(line.measure() > 0.0);
            assert!(line.measure() > 0.0);
        });
    }

    // Goal: a missing CPU is an error that names the option, and no thread hangs.
    #[test]
    fn a_missing_cpu_is_an_error() {
        let cpus = affinity::allowed_cpus().unwrap();
        let refused = on_two_cpus([cpus[0], 1023], || (), || ());
        assert!(refused.unwrap_err().to_string().contains("--cpus"));
    }
}
