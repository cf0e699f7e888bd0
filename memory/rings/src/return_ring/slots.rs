//! The words of a return ring, and who may touch them when.
//!
//! ```text
//! bit 31      parity of the lap in which the word was written
//! bits 30-21  in the first word of a batch: how many follow it
//! bits 20-0   the entry
//! ```
//!
//! The owner asks the *first* word of the next batch alone, and only that one is ever read while
//! a producer may be writing it. Batches follow each other without gaps, so the owner's index,
//! when nothing is left of a batch, is where the next one begins, whoever brings it. All the other
//! words are handed over by the first one: the owner reads them as plain memory, in steps of
//! the machine's widest, and so does their producer write them.
//!
//! Every word carries the parity, not only first ones: what is a first word in this lap may have
//! been any other one in the last.

use std::ops::Range;

use crate::demote;
use crate::lines::Lines;
use crate::prefetch;
use crate::primitive::sync::atomic::{AtomicU32, Ordering};

/// Entries are below this: the other bits of a word are the ring's.
pub const ENTRY_LIMIT: u32 = 1 << LENGTH_SHIFT;
/// Most entries that one batch takes.
pub const BATCH_MAX: usize = 1 << (31 - LENGTH_SHIFT);

const LENGTH_SHIFT: u32 = 21;
/// A larger entry is a bug, and must not become one of the ring: a wrong length would have the
/// owner read what nobody has published.
const ENTRY_MASK: u32 = ENTRY_LIMIT - 1;
const PARITY: u32 = 1 << 31;

const WORDS_OF_A_LINE: usize = prefetch::LINE / size_of::<u32>();

#[derive(Debug)]
pub(super) struct Slots {
    words: Lines<AtomicU32>,
    /// What is published is handed on.
    demotes: bool,
}

impl Slots {
    /// So many empty slots, a power of two.
    pub(super) fn new(size: u32) -> Self {
        debug_assert!(size.is_power_of_two());
        // The parity of the first lap is 1: these zeros are "not yet written".
        let words = Lines::new(size as usize, || AtomicU32::new(0));
        Self { words, demotes: demote::is_possible() }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    #[inline]
    fn position(&self, index: u64) -> usize {
        index as usize & (self.len() - 1)
    }

    /// The top bit of the words of this lap.
    #[inline]
    fn parity(&self, index: u64) -> u32 {
        if index & self.len() as u64 == 0 { PARITY } else { 0 }
    }

    /// Writes a batch of 1 to [`BATCH_MAX`] entries that begins at `index`, and publishes it.
    ///
    /// # Safety
    /// The caller has reserved these slots, and the owner has read what was in them before.
    #[inline]
    pub(super) unsafe fn publish(&self, index: u64, entries: &[u32]) {
        let (at, parity) = (self.position(index), self.parity(index));
        let slots: &[AtomicU32] = &self.words;
        let (one, two) = entries.split_at(entries.len().min(slots.len() - at));
        // The lines (of a long batch the first 16) are on the way before the first store: the
        // owner has read them, and stores leave a core in order.
        let room = (&slots[at..at + one.len()], &slots[..two.len()]);
        prefetch::burst(room.0, room.1, prefetch::for_writing);
        // SAFETY: ours by the caller's word, and the owner looks at none of them before the first.
        unsafe {
            // The first few by themselves, the rest as it lies in the batch: a load that takes
            // parts of two of the stores that made it waits until both have left the core.
            let few = one.len().min(4);
            write(&slots[at + 1..at + few], &one[1..few], parity);
            write(&slots[at + few..at + one.len()], &one[few..], parity);
            write(&slots[..two.len()], two, parity ^ PARITY);
        }
        debug_assert!(one[0] < ENTRY_LIMIT, "entry {:#x}", one[0]);
        let follow = (entries.len() - 1) as u32;
        debug_assert!((follow as usize) < BATCH_MAX);
        // Pairs with the Acquire load in `published`: the batch's other words, and what we did
        // with the things that the entries name, come first.
        let first = one[0] & ENTRY_MASK;
        slots[at].store(first | follow << LENGTH_SHIFT | parity, Ordering::Release);
        if self.demotes && entries.len() >= WORDS_OF_A_LINE {
            // Most owners are on another CPU, or would have freed them themselves. Not the last
            // line, which the next batch goes on in.
            for lines in [whole_lines(at, one.len()), whole_lines(0, two.len())] {
                let lines = &slots[lines];
                demote::lines(lines.as_ptr().cast(), size_of_val(lines));
            }
        }
    }

    /// Entries of the batch that begins at `index`; 0 while there is none.
    #[inline]
    pub(super) fn published(&self, index: u64) -> usize {
        // Pairs with the Release store in `publish`: the whole batch and what its producer did
        // before.
        let first = self.words[self.position(index)].load(Ordering::Acquire);
        if first & PARITY != self.parity(index) {
            return 0;
        }
        ((first & !PARITY) >> LENGTH_SHIFT) as usize + 1
    }

    /// Reads entries from `index` on.
    ///
    /// # Safety
    /// The caller is the owner, and they are of a batch that [`published`](Self::published) told.
    #[inline]
    pub(super) unsafe fn read(&self, index: u64, out: &mut [u32]) {
        let slots: &[AtomicU32] = &self.words;
        let (at, n) = (self.position(index), out.len());
        let (one, two) = out.split_at_mut(n.min(slots.len() - at));
        // SAFETY: published, and nobody writes them before the owner's index has passed them.
        unsafe {
            read(&slots[at..at + one.len()], one);
            read(&slots[..two.len()], two);
        }
    }
}

/// The slots of the lines that `n` slots from `at` on have a part in, without a last one that they
/// do not fill.
#[inline]
fn whole_lines(at: usize, n: usize) -> Range<usize> {
    let first = at / WORDS_OF_A_LINE * WORDS_OF_A_LINE;
    first..((at + n) / WORDS_OF_A_LINE * WORDS_OF_A_LINE).max(first)
}

/// # Safety
/// Nobody else reads or writes these slots meanwhile.
#[inline]
unsafe fn write(slots: &[AtomicU32], entries: &[u32], parity: u32) {
    for (slot, &entry) in slots.iter().zip(entries) {
        debug_assert!(entry < ENTRY_LIMIT, "entry {entry:#x}");
        // SAFETY: the caller's word. A relaxed store would do, but compilers write those one by
        // one.
        #[cfg(not(loom))]
        unsafe {
            slot.as_ptr().write(entry & ENTRY_MASK | parity);
        }
        // Relaxed: the first word publishes it.
        #[cfg(loom)]
        slot.store(entry & ENTRY_MASK | parity, Ordering::Relaxed);
    }
}

/// # Safety
/// Nobody writes these slots meanwhile (loom checks it).
#[inline]
unsafe fn read(slots: &[AtomicU32], out: &mut [u32]) {
    for (slot, out) in slots.iter().zip(out) {
        // SAFETY: the caller's word.
        #[cfg(not(loom))]
        let word = unsafe { slot.as_ptr().read() };
        // SAFETY: as above.
        #[cfg(loom)]
        let word = unsafe { slot.unsync_load() };
        *out = word & ENTRY_MASK;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    // Goal: lines that are full, or were begun by an earlier batch; never one that goes on.
    #[test]
    fn only_full_lines_are_handed_on() {
        for (at, n, lines) in [
            (0, 16, 0..16),
            (0, 15, 0..0),
            (0, 63, 0..48),
            (5, 16, 0..16),
            (5, 11, 0..16),
            (5, 10, 0..0),
            (31, 1, 16..32),
            (33, 64, 32..96),
            (48, 0, 48..48),
            (50, 0, 48..48),
        ] {
            assert_eq!(whole_lines(at, n), lines, "{n} from {at}");
        }
    }
}
