//! Division of a region into parts with one owner each.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::{AtomicTable, ReadView, Region, Span, SpanMut, Window};

/// Exclusive right to write a range of a region. Within this process, only the holder creates
/// `SpanMut`s of the range, although a peer may write it at any time. A part cannot be copied.
#[derive(Debug)]
pub struct RegionPart {
    region: Arc<Region>,
    offset: usize,
    len: usize,
}

impl RegionPart {
    /// Creates the part of a whole region, which has no other owner yet.
    pub fn whole(region: Region) -> Self {
        let len = region.len();
        Self { region: Arc::new(region), offset: 0, len }
    }

    /// Returns a shared reference to the region, to be passed to a peer, and the part.
    pub fn shared(self) -> (Arc<Region>, Self) {
        (self.region.clone(), self)
    }

    /// Splits `len` bytes off the start. Returns `None` if the part is shorter.
    pub fn take(&mut self, len: usize) -> Option<Self> {
        if len > self.len {
            return None;
        }
        let taken = Self { region: self.region.clone(), offset: self.offset, len };
        self.offset += len;
        self.len -= len;
        Some(taken)
    }

    /// Offset in the region.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Region that contains the part.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Converts the part to a table of numbers.
    pub fn into_table(self) -> AtomicTable {
        // A part is inside its region by construction, so the table always exists.
        let len = u32::try_from(self.len).unwrap_or(u32::MAX);
        match AtomicTable::new(self.region, self.offset, len) {
            Some(table) => table,
            None => unreachable!("a part is inside its region"),
        }
    }

    /// Converts the part to a window for frames, in whole units of 16 bytes.
    ///
    /// # Panics
    /// If the start is not a multiple of 16, or the length is 4 GiB or more.
    pub fn into_window(self) -> Window {
        assert!(self.len < 1 << 32, "a window of {} bytes", self.len);
        Window::new(self.region, self.offset, (self.len & !15) as u32)
    }

    /// Returns read access to the bytes, in whole units of 16, for another holder than the owner.
    ///
    /// # Panics
    /// If the start is not a multiple of 16, or the length is 4 GiB or more.
    pub fn sight(&self) -> ReadView {
        assert!(self.len < 1 << 32, "a view of {} bytes", self.len);
        ReadView::new(Window::new(self.region.clone(), self.offset, (self.len & !15) as u32))
    }

    /// Returns `len` bytes at `offset`.
    ///
    /// # Panics
    /// If the range is not within the part.
    #[inline]
    pub fn span(&self, offset: usize, len: usize) -> Span<'_> {
        // SAFETY: within the part, as `place` checks, and the region stays mapped.
        unsafe { Span::from_raw(self.place(offset, len), len) }
    }

    /// Returns a view for many reads in a row.
    #[inline]
    pub fn view(&self) -> PartView<'_> {
        PartView { base: self.place(0, self.len), len: self.len, memory: PhantomData }
    }

    /// Returns `len` writable bytes at `offset`.
    ///
    /// # Safety
    /// No other `SpanMut` made of this part may overlap the range during its lifetime.
    ///
    /// # Panics
    /// If the range is not within the part.
    #[inline]
    pub unsafe fn span_mut(&self, offset: usize, len: usize) -> SpanMut<'_> {
        // SAFETY: within the part, as `place` checks, and the region stays mapped. Exclusive within
        // the part, as required of the caller, and a part has one owner.
        unsafe { SpanMut::from_raw(self.place(offset, len), len) }
    }

    /// Pointer to a range, with a single check: a receive queue calls this for every buffer.
    #[inline]
    fn place(&self, offset: usize, len: usize) -> *mut u8 {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(fits, "range {offset}+{len} leaves a part of {} bytes", self.len);
        // SAFETY: the part is within its region by construction, and the range within the part.
        unsafe { self.region.start().add(self.offset + offset) }
    }
}

/// Borrowed view of a [`RegionPart`] with its start already resolved.
#[derive(Clone, Copy, Debug)]
pub struct PartView<'a> {
    base: *const u8,
    len: usize,
    memory: PhantomData<&'a RegionPart>,
}

impl<'a> PartView<'a> {
    /// Returns `len` bytes at `offset`.
    ///
    /// # Panics
    /// If the range is not within the part.
    #[inline(always)]
    pub fn span(&self, offset: usize, len: u32) -> Span<'a> {
        let last = self.len.checked_sub(len as usize);
        let fits = last.is_some_and(|last| offset <= last);
        assert!(fits, "range {offset}+{len} leaves a part of {} bytes", self.len);
        // SAFETY: within the part, as checked above; the part is borrowed during 'a and keeps its
        // region mapped.
        unsafe { Span::from_raw(self.base.add(offset), len as usize) }
    }
}

#[cfg(test)]
mod tests {
    use mqnet_sysio::memory::SMALL_PAGE_MAX;

    use super::*;

    /// Length of each half of the tests' regions. A region has no rest of a page then, for each
    /// size of pages.
    const HALF: usize = SMALL_PAGE_MAX;

    fn region() -> Region {
        Region::private(2 * HALF, false, None).unwrap()
    }

    // Goal: parts are consecutive and disjoint, and end with the region.
    #[test]
    fn parts_are_disjoint() {
        let mut rest = RegionPart::whole(region());
        let (one, two) = (rest.take(HALF).unwrap(), rest.take(HALF - 96).unwrap());
        assert_eq!((one.offset(), two.offset(), rest.len()), (0, HALF, 96));
        assert!(rest.take(97).is_none());
        // SAFETY: the only SpanMut of this part.
        unsafe { two.span_mut(0, 3) }.copy_from(Span::of(b"abc"));
        let mut read = [0; 3];
        two.span(0, 3).read_header(&mut read);
        assert_eq!(&read, b"abc");
        assert_eq!(one.into_table().len() as usize, HALF);
    }

    // Goal: read access shows the writes of the part's owner and nothing beyond the part. The
    // access keeps the region mapped.
    #[test]
    fn sight_outlives_its_part() {
        let mut rest = RegionPart::whole(region());
        rest.take(HALF).unwrap();
        let at = HALF as u32 - 96;
        let sight = rest.sight();
        // SAFETY: the only SpanMut of this part.
        unsafe { rest.span_mut(at as usize, 3) }.copy_from(Span::of(b"abc"));
        drop(rest);
        assert_eq!(sight.piece(at, 3).unwrap().header::<3>().unwrap(), *b"abc");
        assert!(sight.piece(at, 97).is_none() && sight.piece(u32::MAX, 2).is_none());
    }

    // Goal: a range beyond a part is a bug in this program and panics, although the region
    // continues.
    #[test]
    #[should_panic(expected = "leaves a part")]
    fn ranges_are_checked() {
        let mut rest = RegionPart::whole(region());
        rest.take(HALF).unwrap().span(HALF - 96, 97);
    }

    // Goal: a view gives access to all bytes of the part and none beyond them.
    #[test]
    #[should_panic(expected = "leaves a part of 4096")]
    fn views_are_checked() {
        let mut rest = RegionPart::whole(region());
        let (_, two) = (rest.take(4096).unwrap(), rest.take(4096).unwrap());
        // SAFETY: the only SpanMut of this part.
        unsafe { two.span_mut(4094, 2) }.copy_from(Span::of(b"yz"));
        assert_eq!(two.view().span(4094, 2).header(), Some(*b"yz"));
        two.view().span(4095, 2);
    }
}
