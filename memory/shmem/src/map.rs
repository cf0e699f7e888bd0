//! Address space of a peer: ranges of regions, by the peer's addresses (guest-physical, or virtual
//! addresses of its process).

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use crate::{Region, Span, SpanMut};

/// Range of a peer's addresses.
#[derive(Clone, Debug)]
pub struct Area {
    /// First address.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
    /// Region with the bytes.
    pub region: Arc<Region>,
    /// Offset of the first byte in the region.
    pub offset: usize,
}

/// Reason why ranges do not form an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMap {
    /// Two ranges overlap.
    #[error("the range at {0:#x} overlaps the one before it")]
    Overlap(u64),
    /// A range exceeds its region or the address space.
    #[error("the range at {0:#x} is longer than its memory")]
    TooLong(u64),
}

/// Address space of a peer, used to resolve every address that the peer supplies. A buffer must be
/// entirely within one range.
#[derive(Clone, Debug, Default)]
pub struct MemoryMap {
    areas: Vec<Area>,
}

impl MemoryMap {
    /// Creates the address space from ranges in any order. Fails if two ranges overlap, or if one
    /// exceeds its region or the address space.
    pub fn new(mut areas: Vec<Area>) -> Result<Self, BadMap> {
        areas.sort_by_key(|area| area.start);
        let mut free = 0;
        for area in &areas {
            if area.start < free {
                return Err(BadMap::Overlap(area.start));
            }
            let inside = usize::try_from(area.len)
                .ok()
                .and_then(|len| area.offset.checked_add(len))
                .is_some_and(|end| end <= area.region.len());
            free = match area.start.checked_add(area.len) {
                Some(end) if inside => end,
                _ => return Err(BadMap::TooLong(area.start)),
            };
        }
        Ok(Self { areas })
    }

    /// Ranges, sorted by address.
    pub fn areas(&self) -> &[Area] {
        &self.areas
    }

    /// Returns the range with `len` bytes at `at` and their offset in its region, or `None` if no
    /// range has all of them.
    #[inline]
    fn find(&self, at: u64, len: u64) -> Option<(&Area, usize)> {
        let inside = |area: &&Area| {
            at.wrapping_sub(area.start) < area.len && len <= area.len - (at - area.start)
        };
        // A guest has one to four ranges, so linear search is faster than binary search.
        let area = self.areas.iter().find(inside)?;
        Some((area, area.offset + (at - area.start) as usize))
    }

    /// Start, length and mapping of the range with `len` bytes at `at`.
    pub(crate) fn range_of(&self, at: u64, len: u64) -> Option<(u64, u64, NonNull<u8>)> {
        let (area, _) = self.find(at, len)?;
        Some((area.start, area.len, area.region.pointer(area.offset, area.len as usize)))
    }

    /// Returns `len` bytes at address `at`, or `None` unless all of them are memory.
    #[inline]
    pub fn span(&self, at: u64, len: u32) -> Option<Span<'_>> {
        self.find(at, len.into()).map(|(area, offset)| area.region.span(offset, len as usize))
    }

    /// Returns `len` writable bytes at address `at`, or `None` unless all of them are memory.
    ///
    /// # Safety
    /// No other `SpanMut` of this process may overlap the range during its lifetime.
    #[inline]
    pub unsafe fn span_mut(&self, at: u64, len: u32) -> Option<SpanMut<'_>> {
        let (area, offset) = self.find(at, len.into())?;
        // SAFETY: required of the caller.
        Some(unsafe { area.region.span_mut(offset, len as usize) })
    }

    /// Returns `len` bytes at address `at` as a table. Returns `None` unless all of them are
    /// memory, and their mapping is aligned to `align`.
    pub fn table(&self, at: u64, len: u32, align: usize) -> Option<AtomicTable> {
        let (area, offset) = self.find(at, len.into())?;
        AtomicTable::new(area.region.clone(), offset, len)
            .filter(|t| t.base.addr().get() % align == 0)
    }
}

/// Table of numbers in memory with other writers; every access is one atomic operation.
///
/// A table keeps its region alive.
#[derive(Debug)]
pub struct AtomicTable {
    base: NonNull<u8>,
    len: u32,
    region: Arc<Region>,
}

// SAFETY: a Table gives access only to atomics of a region that is Send and Sync.
unsafe impl Send for AtomicTable {}
// SAFETY: see Send.
unsafe impl Sync for AtomicTable {}

/// Defines the access to a number of one width at byte `at`.
macro_rules! number {
    ($name:ident, $atomic:ty, $what:literal) => {
        #[doc = concat!("The ", $what, " number at byte `at`.")]
        ///
        /// Panics if the number is not within the table, or not aligned. (Callers compute the
        /// offset, and never read it from a peer.)
        #[inline]
        pub fn $name(&self, at: u32) -> &$atomic {
            let size = size_of::<$atomic>();
            assert!(at as usize + size <= self.len as usize, "{at} is beyond {}", self.len);
            // SAFETY: within the range, as checked above, which the region keeps mapped.
            let place = unsafe { self.base.add(at as usize) };
            assert!(place.addr().get() % size == 0, "{at} is not aligned");
            // SAFETY: aligned, as checked above; atomics allow any other writer.
            unsafe { place.cast::<$atomic>().as_ref() }
        }
    };
}

impl AtomicTable {
    /// Creates a table of `len` bytes of `region` at `offset`. Returns `None` if the region is too
    /// short.
    pub fn new(region: Arc<Region>, offset: usize, len: u32) -> Option<Self> {
        let inside = offset.checked_add(len as usize).is_some_and(|end| end <= region.len());
        inside.then(|| {
            let base = region.pointer(offset, len as usize);
            Self { base, len, region }
        })
    }

    /// Length in bytes.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// True if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True if the mapping of the table is aligned to `align`. Numbers of that width can then be
    /// accessed.
    pub fn is_aligned(&self, align: usize) -> bool {
        self.base.addr().get().is_multiple_of(align)
    }

    /// Pointer to `len` bytes at byte `at`, or `None` if the table is too short.
    pub(crate) fn place(&self, at: u32, len: u32) -> Option<NonNull<u8>> {
        let inside = at.checked_add(len).is_some_and(|end| end <= self.len);
        // SAFETY: within the range, as checked above, or at its end.
        inside.then(|| unsafe { self.base.add(at as usize) })
    }

    pub(crate) fn region(&self) -> Arc<Region> {
        self.region.clone()
    }

    number!(byte, AtomicU8, "8-bit");
    number!(half, AtomicU16, "16-bit");
    number!(word, AtomicU32, "32-bit");
    number!(double, AtomicU64, "64-bit");
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use mqnet_sysio::memory::SMALL_PAGE_MAX;

    use super::*;

    fn area(start: u64, len: u64, offset: usize, region: &Arc<Region>) -> Area {
        Area { start, len, region: region.clone(), offset }
    }

    fn region(len: usize) -> Arc<Region> {
        Arc::new(Region::private(len, false, None).unwrap())
    }

    // Goal: an address resolves to the bytes of its range and to nothing beyond it, also for
    // adjacent ranges and overflowing lengths.
    #[test]
    fn addresses_resolve_within_their_range() {
        let (one, two) = (region(8192), region(4096));
        let map = MemoryMap::new(vec![area(0x3000, 4096, 0, &two), area(0x1000, 8192, 0, &one)]);
        let map = map.unwrap();
        // SAFETY: the only SpanMut of this range.
        unsafe { map.span_mut(0x3000, 4) }.unwrap().copy_from(Span::of(b"abcd"));
        let mut read = [0; 4];
        two.span(0, 4).read_header(&mut read);
        assert_eq!(&read, b"abcd");
        assert!(map.span(0x1000, 8192).is_some());
        assert!(map.span(0x2fff, 2).is_none(), "a frame in two ranges is not in one");
        assert!(map.span(0xfff, 1).is_none());
        assert!(map.span(0x4000, 0).is_none());
        assert!(map.span(0x3fff, u32::MAX).is_none());
        assert!(map.span(u64::MAX, u32::MAX).is_none());
    }

    // Goal: ranges that overlap, or exceed their region, are rejected.
    #[test]
    fn invalid_ranges_are_rejected() {
        // A region of this length has no rest of a page, for each size of pages.
        let len = SMALL_PAGE_MAX as u64;
        let one = region(SMALL_PAGE_MAX);
        let two = |a, b| MemoryMap::new(vec![a, b]).map(|_| ());
        let overlap = two(area(0x1000, 4096, 0, &one), area(0x1fff, 1, 0, &one));
        assert_eq!(overlap, Err(BadMap::Overlap(0x1fff)));
        let long = |a| MemoryMap::new(vec![a]).map(|_| ());
        assert_eq!(long(area(0, len + 1, 0, &one)), Err(BadMap::TooLong(0)));
        assert_eq!(long(area(0, 1, SMALL_PAGE_MAX, &one)), Err(BadMap::TooLong(0)));
        assert_eq!(long(area(0, u64::MAX, 1, &one)), Err(BadMap::TooLong(0)));
        let wraps = area(u64::MAX, 2, 0, &one);
        assert_eq!(long(wraps), Err(BadMap::TooLong(u64::MAX)));
    }

    // Goal: a table is found by its address, and its numbers are those in memory.
    #[test]
    fn table_numbers_are_those_in_memory() {
        let one = region(4096);
        let map = MemoryMap::new(vec![area(0x1000, 4096, 0, &one)]).unwrap();
        let table = map.table(0x1010, 16, 16).unwrap();
        table.half(2).store(0x1234, Relaxed);
        assert_eq!(one.word(16).load(Relaxed), 0x1234_0000);
        assert_eq!(table.double(0).load(Relaxed), 0x1234_0000);
        assert!(map.table(0x1008, 16, 16).is_none(), "not aligned");
        assert!(map.table(0x1ff0, 32, 16).is_none(), "not all memory");
    }

    // Goal: an offset out of range is a bug in this program and panics.
    #[test]
    #[should_panic(expected = "beyond")]
    fn positions_in_tables_are_checked() {
        AtomicTable::new(region(4096), 0, 8).unwrap().double(1);
    }
}
