//! Slots that begin where a cache line does.
//!
//! An allocator gives a slice the alignment of its entries. Batches of a power of two of them then
//! end within a line in which the next batch begins, which its producer writes while the owner
//! still reads there.

use std::ops::Deref;

/// A cache line and the one that the adjacent-line prefetcher brings with it.
const ALIGN: usize = 128;

/// A slice whose first entry is at the begin of a line, as far as the size of entries allows it.
#[derive(Debug)]
pub(crate) struct Lines<T> {
    all: Box<[T]>,
    /// Entries in front, for the sake of alignment alone.
    first: usize,
    len: usize,
}

impl<T> Lines<T> {
    /// So many entries, each made by `make`.
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

    // Goal: wherever the heap puts them, entries of a size that divides a line begin with one, and
    // there are as many as were asked for.
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

    // Goal: entries of any other size are all there, too.
    #[test]
    fn any_entry_will_do() {
        assert_eq!(Lines::new(5, || [1u8; 24]).iter().flatten().count(), 120);
        assert_eq!(Lines::new(5, || [1u8; 300]).len(), 5);
        assert_eq!(Lines::new(5, || ()).len(), 5);
    }
}
