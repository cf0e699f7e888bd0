//! Rate at which a forwarder drains a backlog. Frames are first sent while the forwarder is
//! stopped, then forwarded while no sender runs. The sender therefore does not limit the rate, and
//! two workers have two CPUs.
//!
//! The stopped forwarder's sockets hold the backlog. The rate is computed from reads of the receive
//! counter within the backlog. The wake-up time and the time after the last frame are excluded.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use mqnet_sysio::affinity::Urgent;
use mqnet_sysio::process;

use super::super::pingpong;
use super::super::stats::{Class, Sample};
use super::{
    ALL, Case, Child, Devices, Forwarder, HugePages, Line, Process, Result, RunFolder, SOON,
    Session, Unit, child, peers, read_counters, slices, start_ours,
};

/// Frames of a backlog per pair, fewer than the ring of any forwarder holds.
const FRAMES: u64 = 1800;
/// Frames of a backlog for the largest ring; draining them takes several counter reads.
const MANY: u64 = 8000;
const LARGEST_RING: &str = "ring=8192";
/// Time without a frame after which the backlog is regarded as drained.
const OVER: Duration = Duration::from_millis(100);
/// Time between two counter reads when every CPU has a worker.
const SELDOM: Duration = Duration::from_micros(500);
/// Minimum number of counter reads within a backlog for a valid sample.
const LOOKS: usize = 3;
/// Attempts for one sample.
const TRIES: usize = 5;

/// One forwarder with one or more veth pairs on either side.
struct Bench {
    program: PathBuf,
    forwarder: Process,
    devices: Vec<Devices>,
    bytes: String,
    cpu: String,
    /// Pause between two counter reads.
    pause: Duration,
}

impl Bench {
    fn of(
        session: &Session,
        folder: &RunFolder,
        pages: &HugePages,
        who: Forwarder,
        bytes: usize,
    ) -> Result<Self> {
        peers::needs("ip", "iproute2")?;
        let program = peers::build_plain(folder, "packet", super::SOURCE)?;
        let devices = Devices::create(&format!("{}-b", who.word()))?;
        let [cpu, worker] = session.cpus;
        let forwarder = Process::start(folder, pages, who, &program, &devices, worker)?;
        let (devices, pause) = (vec![devices], Duration::ZERO);
        let (bytes, cpu) = (bytes.to_string(), cpu.to_string());
        Ok(Self { program, forwarder, devices, bytes, cpu, pause })
    }

    /// Creates a link between two groups of two functions, with one worker on each CPU.
    fn of_two(session: &Session, folder: &RunFolder, bytes: usize) -> Result<Self> {
        let program = peers::build_plain(folder, "packet", super::SOURCE)?;
        let devices = ["one", "two"].map(Devices::create);
        let devices = devices.into_iter().collect::<Result<Vec<_>>>()?;
        let group = |at: usize| {
            let member = |pair: &Devices| format!("xdp:{},{LARGEST_RING}", pair.names[at]);
            devices.iter().map(member).collect::<Vec<_>>().join("+")
        };
        let forwarder = start_ours(folder, &[group(1), group(2)], &session.cpus)?;
        let forwarder = Process::Other(forwarder);
        let (bytes, cpu, pause) = (bytes.to_string(), session.cpus[0].to_string(), SELDOM);
        Ok(Self { program, forwarder, devices, bytes, cpu, pause })
    }

    /// Sends a backlog into one pair.
    fn send(&self, devices: &Devices, frames: u64) -> Result<()> {
        let mut command = child::guarded(&self.program)?;
        let frames = frames.to_string();
        command.args(["burst", &devices.names[0], &self.bytes, &self.cpu, &frames]);
        let mut sender = Child::spawn("the sender", command, Stdio::null())?;
        let (status, output) = sender.finish(SOON)?;
        if status.success() { Ok(()) } else { Err(format!("the sender: {output}").into()) }
    }

    fn arrived(&self) -> Result<u64> {
        // Read both counters from one snapshot: each snapshot takes CPU time from a worker.
        Ok(match &self.devices[..] {
            [one, two] => read_counters([one.arrived(), two.arrived()])?.iter().sum(),
            [one, ..] => read_counters([one.arrived()])?[0],
            [] => 0,
        })
    }

    /// Frames per second while a backlog of `frames` in each of the first `pairs` pairs is drained.
    /// Returns `None` if there were too few counter reads within the backlog.
    fn drain(&self, pairs: usize, frames: u64) -> Result<Option<f64>> {
        let pid = self.forwarder.pid();
        slices::freeze(&[pid])?;
        let sent = self.devices[..pairs].iter().try_for_each(|pair| self.send(pair, frames));
        let before = sent.and_then(|()| self.arrived());
        // Give this thread priority over a worker on its CPU. The worker would otherwise forward
        // half of the backlog before the first counter read.
        let _urgent = Urgent::begin();
        process::thaw(pid)?;
        let before = before?;
        let mut seen = vec![(Instant::now(), before)];
        loop {
            let (now, count) = (Instant::now(), self.arrived()?);
            let (since, last) = seen[seen.len() - 1];
            if count > last {
                seen.push((now, count));
            } else if now - since > OVER {
                break;
            }
            if count >= before + frames * pairs as u64 {
                break;
            }
            std::thread::sleep(self.pause);
        }
        Ok(rate(&seen))
    }

    /// Adds a sample. A failure is returned as the inner error and ends this row only. A stop
    /// signal is the outer error.
    fn sample(
        &self,
        session: &Session,
        (pairs, frames): (usize, u64),
        samples: &mut Vec<Sample>,
    ) -> Result<std::result::Result<(), String>> {
        for _ in 0..TRIES {
            session.check()?;
            let first = pingpong::distance(session.cpus)?;
            let value = match self.drain(pairs, frames) {
                Ok(value) => value,
                Err(error) => {
                    // Ctrl-C also ends the child processes; the resulting failure must not end the
                    // row only.
                    session.check()?;
                    return Ok(Err(error.to_string()));
                }
            };
            let distances = [first, pingpong::distance(session.cpus)?];
            if let Some(value) = value {
                samples.push(Sample { value, class: Class::of_round(&distances) });
                return Ok(Ok(()));
            }
        }
        let tail = self.forwarder.tail();
        let what = format!("fewer than {LOOKS} looks saw a part of a backlog of {frames} frames");
        Ok(Err(format!("{what}; forwarder: {tail}")))
    }
}

/// Rate between the first and the last read within a backlog; none if there are too few reads.
fn rate(seen: &[(Instant, u64)]) -> Option<f64> {
    let part = &seen[1..seen.len().max(2) - 1];
    let ((from, first), (to, last)) = (part.first()?, part.last()?);
    let is_enough = part.len() >= LOOKS;
    is_enough.then(|| (last - first) as f64 / (*to - *from).as_secs_f64())
}

/// Compares mqnet, DPDK and the relay. Their order changes from round to round.
pub(super) fn peers(
    session: &Session,
    folder: &RunFolder,
    pages: &HugePages,
    bytes: usize,
) -> Result<Case> {
    let name = format!("veth to veth, a backlog, {bytes} B");
    session.progress.show(&format!("{name}: starting the processes"));
    let mut benches =
        ALL.map(|who| (who, Bench::of(session, folder, pages, who, bytes), Vec::new()));
    for round in 0..session.pairs {
        slices::show(&session.progress, &name, round, session.pairs);
        for at in slices::order(benches.len(), round) {
            let (_, bench, samples) = &mut benches[at];
            let Ok(whole) = bench else { continue };
            if let Err(error) = whole.sample(session, (1, FRAMES), samples)? {
                *bench = Err(error.into());
            }
        }
    }
    let lines = benches.map(|(who, bench, samples)| match bench {
        Ok(_) => Line::of(who.who(), samples),
        Err(error) => Line::skipped(who.who(), error.to_string()),
    });
    Ok(Case::new(name, Unit::Frames { bytes }, lines.into()))
}

/// Compares two functions of a group on two workers with one function on one worker.
pub(super) fn workers(session: &Session, folder: &RunFolder, bytes: usize) -> Result<Case> {
    let name = format!("a backlog in front of a group, {bytes} B");
    let all = [("2 functions, 2 workers", 2), ("1 function, 1 worker", 1)];
    let bench = match Bench::of_two(session, folder, bytes) {
        Ok(bench) => bench,
        Err(error) => {
            let lines = all.map(|(who, _)| Line::skipped(who, error.to_string()));
            return Ok(Case::new(name, Unit::Frames { bytes }, lines.into()));
        }
    };
    let (mut outcome, mut samples) = (Ok(()), [Vec::new(), Vec::new()]);
    for round in 0..session.pairs {
        slices::show(&session.progress, &name, round, session.pairs);
        for at in slices::order(all.len(), round) {
            // Both rows share one forwarder: after a failure neither row continues.
            if outcome.is_ok() {
                outcome = bench.sample(session, (all[at].1, MANY), &mut samples[at])?;
            }
        }
    }
    let lines = all.iter().zip(samples).map(|((who, _), samples)| match &outcome {
        Ok(()) => Line::of(who, samples),
        Err(error) => Line::skipped(who, error.as_str()),
    });
    Ok(Case::new(name, Unit::Frames { bytes }, lines.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the rate is the rate within the backlog. The times before the first and after the last
    // frame are excluded, and too few reads give no rate.
    #[test]
    fn the_rate_is_that_within_the_backlog() {
        let start = Instant::now();
        let at = |ms: u64, count: u64| (start + Duration::from_millis(ms), count);
        let seen = [at(0, 0), at(50, 100), at(51, 200), at(52, 300), at(99, 400)];
        let found = rate(&seen).unwrap();
        assert!((found - 100_000.0).abs() < 1.0, "{found}");
        assert_eq!(rate(&seen[..4]), None);
        assert_eq!(rate(&seen[..1]), None);
    }
}
