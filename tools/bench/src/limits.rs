//! Limits of this machine, the reference for all other results.

use std::hint::black_box;
use std::os::fd::AsFd;
use std::time::Duration;

use mqnet_sysio::clock;
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::poll;

use super::pingpong::{self, one_cpu_slice};
use super::report::{Case, Line, Report, Unit};
use super::stats::{Class, Sample};
use super::{Result, Session};

/// Bytes of source and destination together: both fit a second-level cache and leave space for the
/// data of the copy loop.
const IN_CACHE: usize = 96 << 10;
/// Bytes of source and destination together: more than the last-level cache of a socket, or the
/// part that a guest gets.
const IN_MEMORY: usize = 256 << 20;
/// Bytes of one copy: short enough for the loop to end in time.
const CHUNK: usize = 1 << 20;
/// Number of system calls of one sample.
const CALLS: u32 = 10_000;
const WAKES: u32 = 50;
/// Duration of a sample of copies in benchmarks without slices.
const COPIED: Duration = Duration::from_millis(20);
/// Time after which a wake-up counts as lost.
const LOST: Duration = Duration::from_secs(5);

/// Limit of the machine: name, unit, and a function that takes one sample.
struct Limit<'a> {
    name: &'static str,
    unit: Unit,
    sample: Box<dyn FnMut() -> Result<Sample> + 'a>,
}

pub(super) fn run(session: &Session, report: &mut Report) -> Result<()> {
    let cpus = session.cpus;
    let (name, unit) = ("memory copy within the second-level cache", Unit::Bytes);
    let cached = Limit { name, unit, sample: copy(cpus[0], session.slice, IN_CACHE) };
    let name = "memory copy, larger than all caches";
    let large = Limit { name, unit, sample: copy(cpus[0], session.slice, IN_MEMORY) };
    let (name, unit) = ("cache line from CPU to CPU, one way", Unit::Nanoseconds);
    let line = Limit { name, unit, sample: Box::new(move || cache_line(cpus)) };
    let name = "system call (getppid)";
    let call = Limit { name, unit, sample: Box::new(move || system_call(cpus[0])) };
    let name = "wake-up from CPU to CPU (eventfd), one way";
    let wake = Limit { name, unit, sample: Box::new(move || wake_up(cpus)) };
    let mut limits = [cached, large, line, call, wake];
    let mut series = vec![Vec::new(); limits.len()];
    // The first sample of each limit warms caches and page tables and is not counted.
    for round in 0..=session.pairs {
        session.check()?;
        session.progress.show(&format!("limits: round {round} of {}", session.pairs));
        for (limit, samples) in limits.iter_mut().zip(&mut series) {
            let sample = (limit.sample)()?;
            if round > 0 {
                samples.push(sample);
            }
        }
    }
    let cases = limits.into_iter().zip(series);
    report.cases.extend(cases.map(|(limit, samples)| {
        Case::new(limit.name, limit.unit, vec![Line::of("this machine", samples)])
    }));
    Ok(())
}

/// Fastest copy rate of one CPU over a few samples.
pub(super) fn cached_copy(session: &Session) -> Result<f64> {
    let mut sample = copy(session.cpus[0], COPIED, IN_CACHE);
    let mut best: f64 = 0.0;
    for _ in 0..10 {
        session.check()?;
        best = best.max(sample()?.value);
    }
    Ok(best)
}

/// Bytes per second that one CPU copies between two buffers of `bytes / 2` each.
fn copy(cpu: usize, length: Duration, bytes: usize) -> Box<dyn FnMut() -> Result<Sample>> {
    let half = bytes / 2;
    // Fill with values other than 0: all unwritten pages of zeroed memory map to one kernel page.
    let (from, mut to) = (vec![0x5a_u8; half], vec![0xa5_u8; half]);
    let chunk = half.min(CHUNK);
    let mut at = 0;
    Box::new(move || {
        let burst = || {
            let part = at..at + chunk;
            to[part.clone()].copy_from_slice(black_box(&from[part]));
            black_box(&mut to);
            at = if at + 2 * chunk <= half { at + chunk } else { 0 };
            chunk
        };
        Ok(one_cpu_slice(cpu, length, burst)?.sample())
    })
}

fn cache_line(cpus: [usize; 2]) -> Result<Sample> {
    let value = pingpong::distance(cpus)?;
    Ok(Sample { value, class: Class::of(&[value]) })
}

/// Time of a system call that the C library does not answer in user space: `getppid`.
fn system_call(cpu: usize) -> Result<Sample> {
    pingpong::pin(cpu)?;
    let start = clock::monotonic();
    for _ in 0..CALLS {
        black_box(std::os::unix::process::parent_id());
    }
    let value = (clock::monotonic() - start).as_nanos() as f64 / f64::from(CALLS);
    Ok(Sample { value, class: Class::Single })
}

/// Half of a round trip between two threads that sleep until the other thread signals. The time
/// includes the calls for signalling and sleeping.
fn wake_up(cpus: [usize; 2]) -> Result<Sample> {
    let before = pingpong::distance(cpus)?;
    let bells = [EventFd::new()?, EventFd::new()?];
    let side = |own: usize| -> std::io::Result<Duration> {
        let start = clock::monotonic();
        for turn in 0..2 * WAKES {
            if turn as usize % 2 == own {
                bells[1 - own].ring()?;
            } else {
                sleep_until_rung(&bells[own])?;
            }
        }
        Ok(clock::monotonic() - start)
    };
    let (here, there) = pingpong::on_two_cpus(cpus, || side(0), || side(1))?;
    there?;
    let value = here?.as_nanos() as f64 / f64::from(2 * WAKES);
    let class = Class::of(&[before, pingpong::distance(cpus)?]);
    Ok(Sample { value, class })
}

fn sleep_until_rung(bell: &EventFd) -> std::io::Result<()> {
    poll::wait_readable(&[bell.as_fd()], LOST)?;
    if !poll::is_readable(bell.as_fd())? {
        return Err(std::io::Error::other("a wake-up was lost"));
    }
    bell.drain();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mqnet_sysio::affinity;

    // Goal: two threads wake each other as often as they sleep, and the result is a positive time.
    #[test]
    fn wake_ups_meet() {
        if let &[a, b, ..] = affinity::allowed_cpus().unwrap().as_slice() {
            assert!(wake_up([a, b]).unwrap().value > 0.0);
            assert!(cache_line([a, b]).unwrap().value > 0.0);
        }
    }

    // Goal: the time of a system call is positive and finite.
    #[test]
    fn a_call_takes_time() {
        let cpu = affinity::allowed_cpus().unwrap()[0];
        let ns = system_call(cpu).unwrap().value;
        assert!(ns > 0.0 && ns.is_finite());
    }
}
