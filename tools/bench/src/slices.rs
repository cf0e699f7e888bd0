//! Comparison of pairs of processes on the same two CPUs. Only one pair runs at a time, for about
//! 25 ms. SIGCONT and SIGSTOP switch between pairs, so that all are measured under the same
//! conditions. As root, the thread that switches has a higher priority than all pairs. Otherwise a
//! resumed sender could occupy its CPU while its receiver is still stopped or another pair still
//! runs.
//!
//! Frame counts are read between rounds, while the pair runs; the time of the read counts as time
//! of the pair. A round of several slices gives one sample.

use std::time::{Duration, Instant};

use mqnet_sysio::affinity::Urgent;
use mqnet_sysio::process;

use super::pingpong;
use super::report::Progress;
use super::stats::{Class, Sample};
use super::{Result, Session};

/// Contender: processes that move frames from one CPU to another. Dropping the contender must end
/// its processes, even if they are stopped.
pub(crate) trait End {
    /// All processes of the contender, the receiver first.
    fn pids(&self) -> Vec<u32>;

    /// Number of frames that the receiver has taken since the start. Called while the processes
    /// run.
    fn frames_received(&mut self) -> Result<u64>;
}

/// Waits for the first frame, then stops the pair, which would otherwise take CPU time from pairs
/// that start later. Returns false if no frame arrives in 10 s.
pub(super) fn moves_frames(end: &mut dyn End) -> Result<bool> {
    for _ in 0..500 {
        if end.frames_received()? > 0 {
            freeze(&end.pids())?;
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(false)
}

/// Division of a comparison into rounds and slices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) rounds: usize,
    pub(super) slices: usize,
    pub(super) slice: Duration,
}

/// Minimum number of slices per contender. With fewer slices, repeated results of one pair differ
/// by more than 3 %.
const SLICES_MIN: usize = 160;

impl Plan {
    pub(super) fn new(rounds: usize, slice: Duration) -> Self {
        Self { rounds, slices: SLICES_MIN.div_ceil(rounds), slice }
    }
}

struct Turn<'a> {
    end: &'a mut dyn End,
    awake: Duration,
    frames: u64,
    distances: Vec<f64>,
    samples: Vec<Sample>,
}

impl<'a> Turn<'a> {
    fn new(end: &'a mut dyn End) -> Result<Self> {
        let mut turn = Self {
            end,
            awake: Duration::ZERO,
            frames: 0,
            distances: Vec::new(),
            samples: Vec::new(),
        };
        turn.freeze()?;
        Ok(turn)
    }

    fn freeze(&mut self) -> Result<()> {
        freeze(&self.end.pids())
    }

    fn thaw(&mut self) -> Result<()> {
        thaw(&self.end.pids())
    }

    /// Lets the pair run for one slice.
    fn slice(&mut self, length: Duration) -> Result<()> {
        let _urgent = Urgent::begin();
        let start = Instant::now();
        self.thaw()?;
        std::thread::sleep(length);
        self.freeze()?;
        self.awake += start.elapsed();
        Ok(())
    }

    /// Ends one round and starts the next. Returns the frames per second of running time since the
    /// last call.
    fn mark(&mut self) -> Result<f64> {
        let _urgent = Urgent::begin();
        let start = Instant::now();
        self.thaw()?;
        let frames = self.end.frames_received()?;
        let answered = Instant::now();
        let awake = self.awake + (answered - start);
        // A counter that decreases belongs to a replaced receiver; the rate of the round is then 0.
        let rate = frames.saturating_sub(self.frames) as f64 / awake.as_secs_f64();
        self.frames = frames;
        self.freeze()?;
        self.awake = answered.elapsed();
        Ok(rate)
    }

    fn end_round(&mut self) -> Result<()> {
        let value = self.mark()?;
        let class = Class::of_round(&std::mem::take(&mut self.distances));
        self.samples.push(Sample { value, class });
        Ok(())
    }
}

/// Stops processes; returns when all of them have stopped.
pub(super) fn freeze(pids: &[u32]) -> Result<()> {
    let failed = |pid: u32, error| format!("cannot freeze process {pid}: {error}");
    for &pid in pids {
        process::freeze(pid).map_err(|error| failed(pid, error))?;
    }
    for &pid in pids {
        process::wait_until_frozen(pid).map_err(|error| failed(pid, error))?;
    }
    Ok(())
}

pub(super) fn thaw(pids: &[u32]) -> Result<()> {
    for &pid in pids {
        process::thaw(pid).map_err(|error| format!("cannot thaw process {pid}: {error}"))?;
    }
    Ok(())
}

/// Measures the contenders in alternating slices. Returns for each contender the frames per second
/// of each round.
pub(super) fn compare(
    session: &Session,
    name: &str,
    ends: &mut [Box<dyn End>],
    plan: Plan,
) -> Result<Vec<Vec<Sample>>> {
    let mut turns = Vec::new();
    for end in ends {
        turns.push(Turn::new(end.as_mut())?);
    }
    for turn in &mut turns {
        turn.mark()?;
    }
    for round in 0..plan.rounds {
        show(&session.progress, name, round, plan.rounds);
        let mut before = pingpong::distance(session.cpus)?;
        for slice in 0..plan.slices {
            session.check()?;
            for at in order(turns.len(), slice) {
                turns[at].slice(plan.slice)?;
                let after = pingpong::distance(session.cpus)?;
                turns[at].distances.extend([before, after]);
                before = after;
            }
        }
        for turn in &mut turns {
            turn.end_round()?;
        }
    }
    Ok(turns.into_iter().map(|turn| turn.samples).collect())
}

pub(super) fn show(progress: &Progress, name: &str, round: usize, rounds: usize) {
    progress.show(&format!("{name}: round {} of {rounds}", round + 1));
}

/// Order of `n` contenders, ascending and descending in alternation, so that a drift affects all
/// contenders equally.
pub(super) fn order(n: usize, slice: usize) -> impl Iterator<Item = usize> {
    (0..n).map(move |at| if slice.is_multiple_of(2) { at } else { n - 1 - at })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: for any number of rounds, each contender gets at least [`SLICES_MIN`] slices.
    #[test]
    fn plans_have_enough_slices() {
        for rounds in [10, 12, 20, 160, 1000] {
            let plan = Plan::new(rounds, Duration::from_millis(25));
            assert!(plan.rounds * plan.slices >= SLICES_MIN, "{rounds}");
            assert!(plan.slices >= 1);
        }
    }

    // Goal: the order of a slice names each contender once, and alternates between ascending and
    // descending.
    #[test]
    fn the_order_alternates() {
        assert_eq!(order(3, 0).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(order(3, 1).collect::<Vec<_>>(), [2, 1, 0]);
    }

    struct Sleeper(super::super::child::Child, u64);

    impl End for Sleeper {
        fn pids(&self) -> Vec<u32> {
            vec![self.0.pid()]
        }

        fn frames_received(&mut self) -> Result<u64> {
            self.1 += 1000;
            Ok(self.1)
        }
    }

    // Goal: the rate is the number of frames divided by the running time; time in which the process
    // is stopped does not count.
    #[test]
    fn frozen_time_does_not_count() {
        let mut command = std::process::Command::new("sleep");
        command.arg("60");
        let stdin = std::process::Stdio::null();
        let child = super::super::child::Child::spawn("sleep", command, stdin).unwrap();
        let mut end = Sleeper(child, 0);
        let mut turn = Turn::new(&mut end).unwrap();
        turn.mark().unwrap();
        turn.slice(Duration::from_millis(20)).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        let rate = turn.mark().unwrap();
        assert!(rate > 1000.0 / 0.150 && rate <= 1000.0 / 0.020, "{rate}");
    }
}
