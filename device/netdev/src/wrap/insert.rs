//! Order of the frames that a wrapper inserts, relative to those of its inner queue.

/// Positions of inserted frames in a burst. Frames that were peeked and not released must come
/// first in the next [`peek`](crate::OwningRx::peek). Some segments of the first frame may be sent
/// already, and would be sent twice if another frame came first. Peeked and unreleased frames of
/// the queue therefore precede the inserted frames.
#[derive(Debug, Default)]
pub struct Insert {
    /// Number of unreleased frames of the queue before the inserted ones.
    lead: usize,
    /// Number of unreleased inserted frames.
    own: usize,
    /// Number of unreleased frames of the queue after the inserted ones.
    rest: usize,
}

impl Insert {
    /// Number of frames of the queue that must precede the inserted frames.
    pub fn lead(&self) -> usize {
        match (self.lead, self.own) {
            (0, 0) => self.rest,
            (lead, _) => lead,
        }
    }

    /// True if the first unreleased frame is an inserted one.
    pub fn own_waits(&self) -> bool {
        self.lead == 0 && self.own > 0
    }

    /// Records the peeked frames: `lead` of the queue, `own` inserted, `rest` of the queue.
    pub fn show(&mut self, lead: usize, own: usize, rest: usize) {
        *self = Self { lead, own, rest };
    }

    /// Releases the first `frames` peeked frames. Returns how many of them are frames of the queue,
    /// and how many are inserted frames.
    pub fn release(&mut self, frames: usize) -> (usize, usize) {
        let lead = frames.min(self.lead);
        let own = (frames - lead).min(self.own);
        let rest = (frames - lead - own).min(self.rest);
        *self = Self { lead: self.lead - lead, own: self.own - own, rest: self.rest - rest };
        (lead + rest, own)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        // Goal: for any arrivals and releases, a peek begins with the first unreleased frame, and
        // no released frame is peeked again. The queue's frames and the inserted frames each keep
        // their order.
        #[test]
        fn unreleased_frames_stay_first(
            rounds in prop::collection::vec((0..4usize, 0..4usize, 1..6usize, 0..7usize), 1..60),
        ) {
            let (mut queue, mut own) = (VecDeque::new(), VecDeque::new());
            let (mut insert, mut number, mut first) = (Insert::default(), 0, None);
            let mut taken: Vec<(bool, usize)> = Vec::new();
            for (comes, own_comes, budget, takes) in rounds {
                for is_own in [vec![false; comes], vec![true; own_comes]].concat() {
                    number += 1;
                    if is_own { &mut own } else { &mut queue }.push_back((is_own, number));
                }
                let lead = if own.is_empty() { 0 } else { insert.lead().min(budget) };
                let ours = own.len().min(budget - lead);
                let rest = (budget - lead - ours).min(queue.len() - lead);
                let mut shown: Vec<_> = queue.iter().take(lead).copied().collect();
                shown.extend(own.iter().take(ours));
                shown.extend(queue.iter().skip(lead).take(rest));
                insert.show(lead, ours, rest);
                if let Some(first) = first {
                    prop_assert!(shown.is_empty() || shown[0] == first, "{shown:?} {first:?}");
                }
                let takes = takes.min(shown.len());
                let (of_queue, of_own) = insert.release(takes);
                prop_assert_eq!(of_queue + of_own, takes);
                let mut gone: Vec<_> = queue.drain(..of_queue).chain(own.drain(..of_own)).collect();
                let mut expected = shown[..takes].to_vec();
                gone.sort_unstable();
                expected.sort_unstable();
                prop_assert_eq!(gone, expected);
                taken.extend(&shown[..takes]);
                first = shown.get(takes).copied();
            }
            for side in [false, true] {
                let numbers: Vec<_> = taken.iter().filter(|(of, _)| *of == side).collect();
                prop_assert!(numbers.is_sorted());
            }
        }
    }
}
