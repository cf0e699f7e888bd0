//! Arrays of atomics in shared memory.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use crate::{AtomicTable, Region};

mod sealed {
    /// # Safety
    /// Allowed only for atomics and arrays of atomics: any bytes are a valid value, and any party
    /// may write them.
    pub unsafe trait Cell {}
}

pub(crate) use sealed::Cell;

// SAFETY: an atomic.
unsafe impl Cell for AtomicU16 {}
// SAFETY: an atomic.
unsafe impl Cell for AtomicU64 {}
// SAFETY: two atomics without a gap.
unsafe impl Cell for [AtomicU32; 2] {}
// SAFETY: two atomics without a gap.
unsafe impl Cell for [AtomicU64; 2] {}

/// Array of equal entries in an [`AtomicTable`], in memory with other writers. Bounds and alignment
/// are checked once, at creation, so an access needs one comparison.
///
/// A column keeps its region alive.
#[derive(Debug)]
pub struct Column<T> {
    base: NonNull<T>,
    /// Index of the last entry.
    last: usize,
    _region: Arc<Region>,
}

// SAFETY: a Column gives access only to atomics of a region that is Send and Sync.
unsafe impl<T: Cell> Send for Column<T> {}
// SAFETY: see Send.
unsafe impl<T: Cell> Sync for Column<T> {}

impl<T: Cell> Column<T> {
    /// Creates a column of `len` entries, at least one, at byte `at` of `table`. Returns `None` if
    /// the table is too short, or if the entries are not aligned.
    pub fn new(table: &AtomicTable, at: u32, len: u16) -> Option<Self> {
        let bytes = u32::from(len) * size_of::<T>() as u32;
        let place = table.place(at, bytes)?;
        let aligned = place.addr().get().is_multiple_of(align_of::<T>());
        let (base, last) = (place.cast(), usize::from(len).checked_sub(1)?);
        aligned.then(|| Self { base, last, _region: table.region() })
    }

    /// Entry `number`.
    ///
    /// # Panics
    /// If there is no such entry. (Callers compute the index, and never read it from a peer.)
    #[inline(always)]
    pub fn at(&self, number: u16) -> &T {
        let number = usize::from(number);
        assert!(number <= self.last, "entry {number} of {}", self.last + 1);
        // SAFETY: within the range, as checked above.
        unsafe { self.entry(number) }
    }

    /// All entries.
    #[inline(always)]
    pub fn entries(&self) -> &[T] {
        // SAFETY: that many aligned entries exist, as checked in `new`. They are atomics, which may
        // change at any time, in a region that lives as long as `self`.
        unsafe { NonNull::slice_from_raw_parts(self.base, self.last + 1).as_ref() }
    }

    /// Entry `number`, for an index that a peer supplied. Returns `None` if there is no such entry.
    #[inline(always)]
    pub fn get(&self, number: u16) -> Option<&T> {
        let number = usize::from(number);
        // SAFETY: within the range, as checked before the closure is called.
        (number <= self.last).then(|| unsafe { self.entry(number) })
    }

    /// Entry at a free-running position, for a column with a power-of-two length. (For other
    /// lengths the result is an arbitrary entry.) The masked index cannot exceed the last entry, so
    /// no comparison is needed.
    #[inline(always)]
    pub fn round(&self, position: u16) -> &T {
        // SAFETY: n & last <= last.
        unsafe { self.entry(usize::from(position) & self.last) }
    }

    /// # Safety
    /// Entry `number` must exist.
    #[inline(always)]
    unsafe fn entry(&self, number: usize) -> &T {
        // SAFETY: within the range, as required of the caller. The range was checked and is
        // aligned, and the region keeps it mapped; atomics allow any other writer.
        unsafe { self.base.add(number).as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    fn table(len: u32) -> AtomicTable {
        let region = Arc::new(Region::private(4096, false, None).unwrap());
        AtomicTable::new(region, 0, len).unwrap()
    }

    // Goal: entries are the numbers of the table, and only complete, aligned entries form a column.
    #[test]
    fn entries_are_table_numbers() {
        let table = table(36);
        table.double(24).store(7, Relaxed);
        let column = Column::<[AtomicU64; 2]>::new(&table, 0, 2).unwrap();
        assert_eq!(column.at(1)[1].load(Relaxed), 7);
        let pairs = Column::<[AtomicU32; 2]>::new(&table, 4, 4).unwrap();
        assert_eq!(pairs.at(2)[1].load(Relaxed), 7);
        assert!(Column::<[AtomicU64; 2]>::new(&table, 0, 3).is_none(), "longer than the table");
        assert!(Column::<AtomicU64>::new(&table, 4, 1).is_none(), "not aligned");
        assert!(Column::<AtomicU16>::new(&table, 36, 1).is_none());
        assert!(Column::<AtomicU16>::new(&table, u32::MAX, 2).is_none());
        assert!(Column::<AtomicU16>::new(&table, 0, 0).is_none(), "no entry");
    }

    // Goal: positions wrap, and never exceed the end, for every length.
    #[test]
    fn positions_wrap() {
        let table = table(32);
        (0..16u16).for_each(|n| table.half(2 * u32::from(n)).store(n, Relaxed));
        for len in 1..=16 {
            let column = Column::<AtomicU16>::new(&table, 0, len).unwrap();
            for position in (0..100).chain(u16::MAX - 9..=u16::MAX) {
                let entry = column.round(position).load(Relaxed);
                assert!(entry < len);
                assert!(!len.is_power_of_two() || entry == position % len);
                let got = column.get(position).map(|entry| entry.load(Relaxed));
                assert_eq!(got, (position < len).then_some(position));
            }
        }
    }

    // Goal: an index out of range is a bug in this program and panics.
    #[test]
    #[should_panic(expected = "entry 2 of 2")]
    fn numbers_are_checked() {
        Column::<AtomicU16>::new(&table(64), 0, 2).unwrap().at(2);
    }
}
