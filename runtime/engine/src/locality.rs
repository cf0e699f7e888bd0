//! When a bucket of flows goes to another queue, because whoever takes them sends there.
//!
//! Buckets and not flows: they are few, a program in the kernel knows them already, both directions
//! of a flow have the same one, and a table of them is moved in order by what there is. What it
//! costs: flows that share a bucket share a queue.
//!
//! A bucket moves after [`STEADY`] looks in a row in which it was seen on one other channel,
//! clearly more often than on all others together. Looks in which it was not seen count for
//! nothing. Then it stays for a while, twice as long each time that it moves again soon. Two ends
//! of a bridge that follow each other would swap their channels for ever; so the one that does not
//! lead waits for longer, and finds that nothing is left to do.

use std::time::Duration;

/// Time between two looks.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// Looks in a row.
const STEADY: u8 = 3;

/// Buckets that move after one look, all to the same queue: it is not read meanwhile.
const MOVES: usize = 16;

const HOLD_LEAST: Duration = Duration::from_millis(500);
const HOLD_MOST: Duration = Duration::from_secs(64);

/// Where a bucket was seen since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    Nowhere,
    /// On several channels, none of them clearly more than the others.
    Mixed,
    On(u16),
}

impl Sight {
    /// From how often it was seen on each channel.
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

/// Frames after which a hash that a driver claims is believed, or not.
const JUDGED: u64 = 64;

/// Whether a table has the buckets that we compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// Not enough has arrived yet.
    Unknown,
    True,
    False {
        strays: u64,
        of: u64,
    },
}

/// Compares where frames arrive with where they should. Drivers do not tell all: some hash
/// symmetrically, some hash what is in a tunnel, and rules come before any table.
#[derive(Debug, Default)]
pub(crate) struct Trial {
    /// The table at the last look.
    before: Vec<u16>,
    arrived: u64,
    strays: u64,
    is_believed: bool,
}

impl Trial {
    /// The next table is a new one.
    pub(crate) fn overlook(&mut self) {
        self.before.clear();
        (self.arrived, self.strays) = (0, 0);
    }

    /// How often each bucket arrived on each channel since the last look, and the table now. One in
    /// eight may stray: of queues there are at least two, so that by chance it would be a half.
    pub(crate) fn hear(&mut self, table: &[u16], news: &[Vec<u64>]) -> Judgement {
        // What has moved since arrived here and there.
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
    /// Where it was seen last, if that is not where its flows come.
    candidate: Option<u16>,
    looks: u8,
    /// When it moved last, and how long it stays from then on.
    moved: Duration,
    hold: Duration,
}

impl Bucket {
    fn note(&mut self, sight: Sight, queue: u16) {
        let on = match sight {
            Sight::Nowhere => return,
            Sight::On(on) if on != queue => Some(on),
            Sight::On(_) | Sight::Mixed => None,
        };
        let again = on.is_some() && on == self.candidate;
        self.looks = if again { self.looks.saturating_add(1) } else { u8::from(on.is_some()) };
        self.candidate = on;
    }

    fn moves(&mut self, now: Duration) {
        let soon = now.saturating_sub(self.moved) < self.hold * 4;
        self.hold = if soon { (self.hold * 2).min(HOLD_MOST) } else { HOLD_LEAST };
        (self.moved, self.looks, self.candidate) = (now, 0, None);
    }
}

/// What was seen of all buckets of a table, and when they moved.
#[derive(Debug)]
pub(crate) struct Policy {
    buckets: Vec<Bucket>,
    /// Where the next look begins, so that every queue has its turn.
    begin: usize,
}

/// Buckets that are to go to a queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Moves {
    pub(crate) queue: u16,
    pub(crate) buckets: Vec<usize>,
}

impl Policy {
    pub(crate) fn new(buckets: usize) -> Self {
        Self { buckets: vec![Bucket::default(); buckets], begin: 0 }
    }

    /// There are so many queues now: a bucket that was to go to one that is gone begins anew.
    pub(crate) fn keep_to(&mut self, queues: u16) {
        for bucket in &mut self.buckets {
            if bucket.candidate.is_some_and(|queue| queue >= queues) {
                (bucket.candidate, bucket.looks) = (None, 0);
            }
        }
    }

    /// What is to move now. `table` is the queue of each bucket, `sights` where each was seen.
    pub(crate) fn look(
        &mut self,
        now: Duration,
        leads: bool,
        table: &[u16],
        sights: &[Sight],
    ) -> Option<Moves> {
        let steady = if leads { STEADY } else { 2 * STEADY };
        for ((bucket, &sight), &queue) in self.buckets.iter_mut().zip(sights).zip(table) {
            if now >= bucket.moved + bucket.hold {
                bucket.note(sight, queue);
            }
        }
        let ripe = |at: &usize| self.buckets[*at].looks >= steady;
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
