//! Cost of a wake-up on this machine without mqnet: two threads and two eventfds.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::{clock, poll};

use super::super::histogram::Histogram;
use super::super::{Result, pingpong};

/// Time limit of a wait for a notification that is sent immediately.
const LOST: Duration = Duration::from_secs(1);

/// Measures round trips: one thread signals and sleeps, the other thread wakes and signals back.
pub(super) fn turn(cpus: [usize; 2], length: Duration, gap: Duration) -> Result<Histogram> {
    let [there, back] = [EventFd::new()?, EventFd::new()?];
    let stop = AtomicBool::new(false);
    let asks = || -> std::io::Result<Histogram> {
        let mut seen = Histogram::default();
        let end = clock::monotonic() + length;
        while clock::monotonic() < end {
            poll::pause(gap);
            let rung = clock::monotonic();
            there.ring()?;
            poll::wait_readable(&[back.as_fd()], LOST)?;
            back.drain();
            seen.add((clock::monotonic() - rung).as_nanos() as u64);
        }
        stop.store(true, Ordering::Relaxed);
        there.ring()?;
        Ok(seen)
    };
    let answers = || -> std::io::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            poll::wait_readable(&[there.as_fd()], LOST)?;
            there.drain();
            back.ring()?;
        }
        Ok(())
    };
    // The calling thread must not stay pinned, so a separate thread measures.
    std::thread::scope(|scope| {
        let both = scope.spawn(|| pingpong::on_two_cpus(cpus, asks, answers).map_err(text));
        let (seen, answered) = both.join().map_err(|_| "a thread failed")??;
        answered?;
        Ok(seen?)
    })
}

fn text(error: Box<dyn std::error::Error>) -> String {
    error.to_string()
}
