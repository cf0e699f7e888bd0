//! Slots of a return ring, and ownership of the slots.
//!
//! ```text
//! bit 31      parity of the lap in which the word was written
//! bits 30-21  in the first word of a batch: number of words that follow it
//! bits 20-0   the entry
//! ```
//!
//! The owner checks only the *first* word of the next batch, so that only this word is read while a
//! producer may write it. Batches are contiguous: if no entry of a batch is left, the owner's index
//! is the start of the next batch of any producer. The first word publishes all other words. The
//! owner therefore reads them, and their producer writes them, as plain memory with the widest
//! loads and stores.
//!
//! Every word has the parity, because the first word of a batch may have been any other word in the
//! previous lap.

use std::ops::Range;

use crate::demote;
use crate::lines::Lines;
use crate::prefetch;
use crate::primitive::sync::atomic::{AtomicU32, Ordering};

/// Exclusive upper limit of entries; the other bits of a word belong to the ring.
pub const ENTRY_LIMIT: u32 = 1 << LENGTH_SHIFT;
/// Maximum number of entries per batch.
pub const BATCH_MAX: usize = 1 << (31 - LENGTH_SHIFT);

const LENGTH_SHIFT: u32 = 21;
/// Mask that limits the effect of a larger entry, which is a bug: with a wrong length the owner
/// would read unpublished slots.
const ENTRY_MASK: u32 = ENTRY_LIMIT - 1;
const PARITY: u32 = 1 << 31;

const WORDS_OF_A_LINE: usize = prefetch::LINE / size_of::<u32>();

#[derive(Debug)]
pub(super) struct Slots {
    words: Lines<AtomicU32>,
    /// True if the lines of published batches are demoted.
    demotes: bool,
}

impl Slots {
    /// Creates `size` empty slots; `size` is a power of two.
    pub(super) fn new(size: u32) -> Self {
        debug_assert!(size.is_power_of_two());
        // Initialize with zeros, which mean "not written": the parity of the first lap is 1.
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

    /// Parity bit of the words of the lap that contains `index`.
    #[inline]
    fn parity(&self, index: u64) -> u32 {
        if index & self.len() as u64 == 0 { PARITY } else { 0 }
    }

    /// Writes a batch of 1 to [`BATCH_MAX`] entries at `index`, and publishes it.
    ///
    /// # Safety
    /// The caller has reserved these slots, and the owner has read their previous entries.
    #[inline]
    pub(super) unsafe fn publish(&self, index: u64, entries: &[u32]) {
        let (at, parity) = (self.position(index), self.parity(index));
        let slots: &[AtomicU32] = &self.words;
        let (one, two) = entries.split_at(entries.len().min(slots.len() - at));
        // Prefetch all lines (at most 16) before the first store: the owner has read them, and
        // stores complete in order.
        let room = (&slots[at..at + one.len()], &slots[..two.len()]);
        prefetch::burst(room.0, room.1, prefetch::for_writing);
        // SAFETY: the caller has reserved these slots, and the owner reads none of them before the
        // first slot is published.
        unsafe {
            // Write the first few entries separately, and the rest with the alignment of the batch:
            // a load that spans two recent stores waits until both have completed.
            let few = one.len().min(4);
            write(&slots[at + 1..at + few], &one[1..few], parity);
            write(&slots[at + few..at + one.len()], &one[few..], parity);
            write(&slots[..two.len()], two, parity ^ PARITY);
        }
        debug_assert!(one[0] < ENTRY_LIMIT, "entry {:#x}", one[0]);
        let follow = (entries.len() - 1) as u32;
        debug_assert!((follow as usize) < BATCH_MAX);
        // Pairs with the acquire load in `published`: the other words of the batch are visible, and
        // the producer's accesses to the returned objects are complete.
        let first = one[0] & ENTRY_MASK;
        slots[at].store(first | follow << LENGTH_SHIFT | parity, Ordering::Release);
        if self.demotes && entries.len() >= WORDS_OF_A_LINE {
            // Demote all lines except the last, in which the next batch continues. The owner
            // usually runs on another CPU; otherwise the producer would free the entries directly.
            for lines in [whole_lines(at, one.len()), whole_lines(0, two.len())] {
                let lines = &slots[lines];
                demote::lines(lines.as_ptr().cast(), size_of_val(lines));
            }
        }
    }

    /// Number of entries of the batch at `index`; 0 if it is not published.
    #[inline]
    pub(super) fn published(&self, index: u64) -> usize {
        // Pairs with the release store in `publish`: the batch is visible, and its producer's
        // earlier accesses are complete.
        let first = self.words[self.position(index)].load(Ordering::Acquire);
        if first & PARITY != self.parity(index) {
            return 0;
        }
        ((first & !PARITY) >> LENGTH_SHIFT) as usize + 1
    }

    /// Reads entries from `index` on.
    ///
    /// # Safety
    /// The caller is the owner, and the entries belong to a batch reported by
    /// [`published`](Self::published).
    #[inline]
    pub(super) unsafe fn read(&self, index: u64, out: &mut [u32]) {
        let slots: &[AtomicU32] = &self.words;
        let (at, n) = (self.position(index), out.len());
        let (one, two) = out.split_at_mut(n.min(slots.len() - at));
        // SAFETY: the slots are published, and no producer writes them before the owner's index
        // passes them.
        unsafe {
            read(&slots[at..at + one.len()], one);
            read(&slots[..two.len()], two);
        }
    }
}

/// Range of all slots in the lines that `n` slots from `at` on touch, except a last line that is
/// not full.
#[inline]
fn whole_lines(at: usize, n: usize) -> Range<usize> {
    let first = at / WORDS_OF_A_LINE * WORDS_OF_A_LINE;
    first..((at + n) / WORDS_OF_A_LINE * WORDS_OF_A_LINE).max(first)
}

/// # Safety
/// No other thread may read or write these slots during the call.
#[inline]
unsafe fn write(slots: &[AtomicU32], entries: &[u32], parity: u32) {
    for (slot, &entry) in slots.iter().zip(entries) {
        debug_assert!(entry < ENTRY_LIMIT, "entry {entry:#x}");
        // SAFETY: required of the caller. A relaxed atomic store would suffice, but compilers do
        // not vectorize such stores.
        #[cfg(not(loom))]
        unsafe {
            slot.as_ptr().write(entry & ENTRY_MASK | parity);
        }
        // Relaxed: the first word publishes this one.
        #[cfg(loom)]
        slot.store(entry & ENTRY_MASK | parity, Ordering::Relaxed);
    }
}

/// # Safety
/// No other thread may write these slots during the call (loom checks this).
#[inline]
unsafe fn read(slots: &[AtomicU32], out: &mut [u32]) {
    for (slot, out) in slots.iter().zip(out) {
        // SAFETY: required of the caller.
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

    // Goal: full lines are demoted, including lines that an earlier batch began. Partial lines are
    // not demoted.
    #[test]
    fn only_full_lines_are_demoted() {
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
