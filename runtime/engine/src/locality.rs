//! RX locality policy: decides when a bucket of flows moves to the queue on which its opposite
//! direction is sent.
//!
//! The policy moves buckets, not flows. Buckets are few, and the kernel's steering programs already
//! use them. Both directions of a flow have the same bucket, and resteering moves a table of
//! buckets in order. The cost is that flows of one bucket share a queue.
//!
//! A bucket moves after [`STEADY`] consecutive samples on one other channel. A sample counts if
//! that channel has at least three quarters of the frames; samples without traffic are skipped.
//! After a move the bucket stays for a hold time, which doubles with each further move soon after.
//! Two ends of a bridge that follow each other would swap their channels forever. Therefore the end
//! that does not lead waits twice as long. The leader has moved its buckets by then, so both ends
//! agree.

use std::time::Duration;

/// Sampling interval.
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// Number of consecutive samples before a move.
const STEADY: u8 = 3;

/// Largest number of buckets that move after one sample, all to one queue. The limit exists because
/// the queue is not read during the move.
const MOVES: usize = 16;

const HOLD_LEAST: Duration = Duration::from_millis(500);
const HOLD_MOST: Duration = Duration::from_secs(64);

/// Channel on which the frames of a bucket were sent since the last sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sample {
    Nowhere,
    /// Several channels, none with three quarters of the frames.
    Mixed,
    On(u16),
}

impl Sample {
    /// Evaluates the numbers of frames of a bucket on each channel.
    pub(crate) fn of(counts: impl Iterator<Item = u64>) -> Self {
        let (mut sum, mut most, mut at) = (0u64, 0, 0);
        for (channel, count) in (0..).zip(counts) {
            sum = sum.saturating_add(count);
            if count > most {
                (most, at) = (count, channel);
            }
        }
        match sum {
            0 => Self::Nowhere,
            sum if most >= sum - sum / 4 => Self::On(at),
            _ => Self::Mixed,
        }
    }
}

/// Number of frames after which a driver's statement about its hash is checked.
const JUDGED: u64 = 64;

/// Result of a check: whether frames arrive on the queues that the driver's hash and table imply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// Too few frames have arrived.
    Unknown,
    True,
    False {
        strays: u64,
        of: u64,
    },
}

/// Comparison of the queues on which frames arrive with the queues of the table. Drivers do not
/// report everything: some hash symmetrically, some hash the inner packet of a tunnel, and flow
/// rules precede any table.
#[derive(Debug, Default)]
pub(crate) struct Trial {
    /// Table at the last sample.
    before: Vec<u16>,
    arrived: u64,
    strays: u64,
    is_believed: bool,
}

impl Trial {
    /// Restarts the comparison, because the next table is a new one. An earlier positive result
    /// stays.
    pub(crate) fn restart(&mut self) {
        self.before.clear();
        (self.arrived, self.strays) = (0, 0);
    }

    /// Compares the queues of the frames since the last sample with the current table; `news` has
    /// the frames of each bucket on each channel. After at least [`JUDGED`] frames, returns `False`
    /// if more than one frame in eight arrived on another queue. With two or more queues, a random
    /// assignment would send at least half there. Returns `Unknown` before the first result.
    pub(crate) fn compare(&mut self, table: &[u16], news: &[Vec<u64>]) -> Judgement {
        // Skip buckets that have just moved: their frames may have arrived on either queue.
        let stayed = |bucket: &usize| self.before.get(*bucket) == table.get(*bucket);
        for bucket in (0..table.len()).filter(stayed) {
            for (channel, counts) in (0..).zip(news) {
                let count = counts.get(bucket).copied().unwrap_or(0);
                self.arrived += count;
                self.strays += if table[bucket] == channel { 0 } else { count };
            }
        }
        self.before = table.to_vec();
        if self.arrived >= JUDGED {
            let (strays, of) = (self.strays, self.arrived);
            (self.arrived, self.strays) = (0, 0);
            if strays > of / 8 {
                return Judgement::False { strays, of };
            }
            self.is_believed = true;
        }
        if self.is_believed { Judgement::True } else { Judgement::Unknown }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// Channel of the last sample; `None` if that channel is the bucket's current queue, or if the
    /// sample was mixed.
    candidate: Option<u16>,
    samples: u8,
    /// Time of the last move. The bucket then stays for the time `hold`.
    moved: Duration,
    hold: Duration,
}

impl Bucket {
    fn note(&mut self, sample: Sample, queue: u16) {
        let on = match sample {
            Sample::Nowhere => return,
            Sample::On(on) if on != queue => Some(on),
            Sample::On(_) | Sample::Mixed => None,
        };
        let again = on.is_some() && on == self.candidate;
        self.samples = if again { self.samples.saturating_add(1) } else { u8::from(on.is_some()) };
        self.candidate = on;
    }

    fn moves(&mut self, now: Duration) {
        let soon = now.saturating_sub(self.moved) < self.hold * 4;
        self.hold = if soon { (self.hold * 2).min(HOLD_MOST) } else { HOLD_LEAST };
        (self.moved, self.samples, self.candidate) = (now, 0, None);
    }
}

/// Samples and moves of all buckets of a table.
#[derive(Debug)]
pub(crate) struct Policy {
    buckets: Vec<Bucket>,
    /// Bucket at which the next search begins, so that every queue gets its turn.
    begin: usize,
}

/// Buckets to move to one queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Moves {
    pub(crate) queue: u16,
    pub(crate) buckets: Vec<usize>,
}

impl Policy {
    pub(crate) fn new(buckets: usize) -> Self {
        Self { buckets: vec![Bucket::default(); buckets], begin: 0 }
    }

    /// Removes candidates that do not exist any more, after the number of queues became `queues`.
    pub(crate) fn limit_queues(&mut self, queues: u16) {
        for bucket in &mut self.buckets {
            if bucket.candidate.is_some_and(|queue| queue >= queues) {
                (bucket.candidate, bucket.samples) = (None, 0);
            }
        }
    }

    /// Returns the buckets to move now; `None` if no bucket moves. `table` contains the queue of
    /// each bucket, and `samples` the sample of each bucket.
    pub(crate) fn decide(
        &mut self,
        now: Duration,
        leads: bool,
        table: &[u16],
        samples: &[Sample],
    ) -> Option<Moves> {
        let steady = if leads { STEADY } else { 2 * STEADY };
        for ((bucket, &sample), &queue) in self.buckets.iter_mut().zip(samples).zip(table) {
            if now >= bucket.moved + bucket.hold {
                bucket.note(sample, queue);
            }
        }
        let ripe = |at: &usize| self.buckets[*at].samples >= steady;
        let in_turn = (self.begin..self.buckets.len()).chain(0..self.begin);
        let ripe: Vec<usize> = in_turn.filter(ripe).collect();
        let queue = self.buckets[*ripe.first()?].candidate?;
        let same = ripe.into_iter().filter(|&at| self.buckets[at].candidate == Some(queue));
        let buckets: Vec<usize> = same.take(MOVES).collect();
        for &at in &buckets {
            self.buckets[at].moves(now);
            self.begin = (at + 1) % self.buckets.len();
        }
        Some(Moves { queue, buckets })
    }
}

#[cfg(test)]
mod tests;
