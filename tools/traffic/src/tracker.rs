//! Statistics of numbered datagrams at the receiver.

use serde::{Deserialize, Serialize};

/// Largest plausible distance of a number from the highest number before it.
const AHEAD: u64 = 1 << 22;

/// Counts of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Distinct valid datagrams received.
    pub received: u64,
    /// Datagrams received again.
    pub duplicated: u64,
    /// Datagrams received after one with a higher number.
    pub reordered: u64,
    /// Datagrams with wrong contents or an implausible number.
    pub corrupt: u64,
    /// Bytes of the received datagrams.
    pub bytes: u64,
}

impl Tally {
    /// Number of `sent` datagrams that were not received.
    pub fn lost_of(&self, sent: u64) -> u64 {
        sent.saturating_sub(self.received)
    }

    /// Adds the counts of another flow.
    pub fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.corrupt += other.corrupt;
        self.bytes += other.bytes;
    }
}

/// Record of every number of one flow, with one bit each, so that the counts are exact.
#[derive(Debug, Default)]
pub struct Tracker {
    seen: Vec<u64>,
    next: u64,
    tally: Tally,
}

impl Tracker {
    /// Records a datagram of `bytes` bytes; `sound` is true if its contents are correct.
    pub fn note(&mut self, number: u64, bytes: u64, sound: bool) {
        if !sound || number >= self.next.saturating_add(AHEAD) {
            self.tally.corrupt += 1;
            return;
        }
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if word >= self.seen.len() {
            self.seen.resize(word + 1, 0);
        }
        if self.seen[word] & bit != 0 {
            self.tally.duplicated += 1;
            return;
        }
        self.seen[word] |= bit;
        self.tally.received += 1;
        self.tally.bytes += bytes;
        if number < self.next {
            self.tally.reordered += 1;
        }
        self.next = self.next.max(number + 1);
    }

    /// Highest number so far, plus one.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Counts so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        // Goal: for any sequence of arrivals, loss, duplicates, reordering and corruption are
        // counted exactly as defined over the whole history.
        #[test]
        fn counts_match_the_definitions(
            arrivals in prop::collection::vec((0..200u64, prop::bool::weighted(0.9)), 0..300),
        ) {
            let mut tracker = Tracker::default();
            for &(number, sound) in &arrivals {
                tracker.note(number, 10, sound);
            }
            let sound: Vec<u64> = arrivals.iter().filter(|a| a.1).map(|a| a.0).collect();
            let first = |i: usize| !sound[..i].contains(&sound[i]);
            let late = |i: usize| sound[..i].iter().any(|&n| n > sound[i]);
            let of = |f: &dyn Fn(usize) -> bool| (0..sound.len()).filter(|&i| f(i)).count() as u64;
            let tally = tracker.tally();
            prop_assert_eq!(tally.received, of(&first));
            prop_assert_eq!(tally.bytes, 10 * of(&first));
            prop_assert_eq!(tally.duplicated, of(&|i| !first(i)));
            prop_assert_eq!(tally.reordered, of(&|i| first(i) && late(i)));
            prop_assert_eq!(tally.corrupt, arrivals.iter().filter(|a| !a.1).count() as u64);
            let missing = (0..200).filter(|n| !sound.contains(n)).count() as u64;
            prop_assert_eq!(tally.lost_of(200), missing);
        }

        // Goal: an implausible number is counted as corrupt only and allocates no memory.
        #[test]
        fn absurd_numbers_are_corrupt(number in AHEAD..) {
            let mut tracker = Tracker::default();
            tracker.note(number, 10, true);
            prop_assert_eq!(tracker.tally(), Tally { corrupt: 1, ..Tally::default() });
            prop_assert!(tracker.seen.is_empty());
        }
    }
}
