//! Slices that begin at a cache line.
//!
//! An allocator aligns a slice only for its entries. Batches of a power of two would then end
//! inside a line in which the next batch begins, and a producer would write that line while the
//! owner reads it.

use std::ops::Deref;

/// Alignment in bytes: a cache line and the adjacent line that the prefetcher fetches with it.
const ALIGN: usize = 128;

/// Slice that begins at the start of a line, if the size of the entries allows that.
#[derive(Debug)]
pub(crate) struct Lines<T> {
    all: Box<[T]>,
    /// Number of unused entries before the first one, for alignment.
    first: usize,
    len: usize,
}

impl<T> Lines<T> {
    /// Creates `len` entries by calls of `make`.
    pub(crate) fn new(len: usize, make: impl FnMut() -> T) -> Self {
        let spare = ALIGN.checked_div(size_of::<T>()).unwrap_or(0);
        let all: Box<[T]> = std::iter::repeat_with(make).take(len + spare).collect();
        let first = all.as_ptr().align_offset(ALIGN);
        Self { all, first: if first > spare { 0 } else { first }, len }
    }
}

impl<T> Deref for Lines<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.all[self.first..][..self.len]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    // Goal: for any heap address, entries whose size divides a line begin at a line, and their
    // number is as requested.
    #[test]
    fn entries_begin_with_a_line() {
        let mut kept = Vec::new();
        for len in 0..200 {
            kept.push((Lines::new(len, || 7u32), Lines::new(len, || 7u64)));
        }
        for (len, (words, longs)) in kept.iter().enumerate() {
            assert_eq!((words.len(), longs.len()), (len, len));
            assert_eq!((words.as_ptr().addr() % ALIGN, longs.as_ptr().addr() % ALIGN), (0, 0));
            assert!(words.iter().all(|word| *word == 7) && longs.iter().all(|long| *long == 7));
        }
    }

    // Goal: entries of other sizes are complete.
    #[test]
    fn other_entry_sizes_are_complete() {
        assert_eq!(Lines::new(5, || [1u8; 24]).iter().flatten().count(), 120);
        assert_eq!(Lines::new(5, || [1u8; 300]).len(), 5);
        assert_eq!(Lines::new(5, || ()).len(), 5);
    }
}
