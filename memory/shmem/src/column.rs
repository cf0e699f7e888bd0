//! Numbers of one kind, one after another.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use crate::{Region, Table};

mod sealed {
    /// # Safety
    /// For atomics only, and arrays of them: any bytes are one, and anybody may write them.
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

/// A part of a [`Table`] that is made of equal entries, in memory that others write too. Where it
/// lies is checked when it is made, so that a look costs one comparison.
///
/// It holds its region alive.
#[derive(Debug)]
pub struct Column<T> {
    base: NonNull<T>,
    /// Number of the last entry.
    last: usize,
    _region: Arc<Region>,
}

// SAFETY: a Column hands out only atomics of a region that is Send and Sync.
unsafe impl<T: Cell> Send for Column<T> {}
// SAFETY: see Send.
unsafe impl<T: Cell> Sync for Column<T> {}

impl<T: Cell> Column<T> {
    /// `len` entries, at least one, from byte `at` of `table` on; `None` when there are not as
    /// many, or they are not aligned.
    pub fn new(table: &Table, at: u32, len: u16) -> Option<Self> {
        let bytes = u32::from(len) * size_of::<T>() as u32;
        let place = table.place(at, bytes)?;
        let aligned = place.addr().get().is_multiple_of(align_of::<T>());
        let (base, last) = (place.cast(), usize::from(len).checked_sub(1)?);
        aligned.then(|| Self { base, last, _region: table.region() })
    }

    /// The entry with this number.
    ///
    /// # Panics
    /// When there is none: positions are ours.
    #[inline(always)]
    pub fn at(&self, number: u16) -> &T {
        let number = usize::from(number);
        assert!(number <= self.last, "entry {number} of {}", self.last + 1);
        // SAFETY: within the range, as just checked.
        unsafe { self.entry(number) }
    }

    /// All entries.
    #[inline(always)]
    pub fn entries(&self) -> &[T] {
        // SAFETY: so many are there, aligned, as checked when it was made; they are atomics, which
        // may change at any time, in a region that lives as long as `self`.
        unsafe { NonNull::slice_from_raw_parts(self.base, self.last + 1).as_ref() }
    }

    /// The same for a number that somebody else says.
    #[inline(always)]
    pub fn get(&self, number: u16) -> Option<&T> {
        let number = usize::from(number);
        // SAFETY: within the range, as checked before it is called.
        (number <= self.last).then(|| unsafe { self.entry(number) })
    }

    /// The entry of a position that goes round and round, in a column whose length is a power of
    /// two. (In others it is some entry.) No comparison: what is masked is never beyond the last.
    #[inline(always)]
    pub fn round(&self, position: u16) -> &T {
        // SAFETY: n & last <= last.
        unsafe { self.entry(usize::from(position) & self.last) }
    }

    /// # Safety
    /// There must be an entry of this number.
    #[inline(always)]
    unsafe fn entry(&self, number: usize) -> &T {
        // SAFETY: within the range, by the caller's promise, which was checked and is aligned, and
        // which the region keeps mapped; atomics allow any other writer.
        unsafe { self.base.add(number).as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    fn table(len: u32) -> Table {
        let region = Arc::new(Region::private(4096, false, None).unwrap());
        Table::new(region, 0, len).unwrap()
    }

    // Goal: entries are the numbers of the table, and only whole and aligned ones make a column.
    #[test]
    fn entries_are_those_of_the_table() {
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

    // Goal: positions go round, and never beyond the end, whatever the length.
    #[test]
    fn positions_go_round() {
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

    // Goal: a number outside is a bug of ours and stops at once.
    #[test]
    #[should_panic(expected = "entry 2 of 2")]
    fn numbers_are_checked() {
        Column::<AtomicU16>::new(&table(64), 0, 2).unwrap().at(2);
    }
}
