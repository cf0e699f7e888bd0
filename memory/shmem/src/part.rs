//! A region cut into parts, each with one owner.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::{Region, Sight, Span, SpanMut, Table, Window};

/// The right to write a range of a region: whoever holds it is the only one of this process that
/// makes `SpanMut`s of the range (a peer may write it at any time). It cannot be copied.
#[derive(Debug)]
pub struct Part {
    region: Arc<Region>,
    offset: usize,
    len: usize,
}

impl Part {
    /// All of a region, which nobody else has yet.
    pub fn whole(region: Region) -> Self {
        let len = region.len();
        Self { region: Arc::new(region), offset: 0, len }
    }

    /// The region, for whoever hands it to a peer, and the part itself.
    pub fn shared(self) -> (Arc<Region>, Self) {
        (self.region.clone(), self)
    }

    /// Takes `len` bytes from the start of the rest; `None` when there are not as many.
    pub fn take(&mut self, len: usize) -> Option<Self> {
        if len > self.len {
            return None;
        }
        let taken = Self { region: self.region.clone(), offset: self.offset, len };
        self.offset += len;
        self.len -= len;
        Some(taken)
    }

    /// Where in its region it begins.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The region that it is a part of.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// As a table of numbers.
    pub fn into_table(self) -> Table {
        // Inside by construction, so that there always is a table.
        let len = u32::try_from(self.len).unwrap_or(u32::MAX);
        match Table::new(self.region, self.offset, len) {
            Some(table) => table,
            None => unreachable!("a part is inside its region"),
        }
    }

    /// As frames' room, in whole units of 16 bytes.
    ///
    /// # Panics
    /// When it does not begin at a multiple of 16, or has 4 GiB or more.
    pub fn into_window(self) -> Window {
        assert!(self.len < 1 << 32, "a window of {} bytes", self.len);
        Window::new(self.region, self.offset, (self.len & !15) as u32)
    }

    /// Its bytes to look at, in whole units of 16, for somebody beside its owner.
    ///
    /// # Panics
    /// When it does not begin at a multiple of 16, or has 4 GiB or more.
    pub fn sight(&self) -> Sight {
        assert!(self.len < 1 << 32, "a sight of {} bytes", self.len);
        Sight::new(Window::new(self.region.clone(), self.offset, (self.len & !15) as u32))
    }

    /// `len` bytes from `offset` on.
    ///
    /// # Panics
    /// When the range is not within the part.
    #[inline]
    pub fn span(&self, offset: usize, len: usize) -> Span<'_> {
        // SAFETY: within the part, as `place` checks, and the region stays mapped.
        unsafe { Span::from_raw(self.place(offset, len), len) }
    }

    /// The part, for many looks in a row.
    #[inline]
    pub fn view(&self) -> PartView<'_> {
        PartView { base: self.place(0, self.len), len: self.len, memory: PhantomData }
    }

    /// `len` writable bytes from `offset` on.
    ///
    /// # Safety
    /// No other `SpanMut` made of this part may overlap the range during its lifetime.
    ///
    /// # Panics
    /// When the range is not within the part.
    #[inline]
    pub unsafe fn span_mut(&self, offset: usize, len: usize) -> SpanMut<'_> {
        // SAFETY: within the part, as `place` checks, and the region stays mapped; the caller's
        // promise within the part, and a part has one owner.
        unsafe { SpanMut::from_raw(self.place(offset, len), len) }
    }

    /// Where a range begins: one check, as every buffer of a receive queue asks.
    #[inline]
    fn place(&self, offset: usize, len: usize) -> *mut u8 {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(fits, "range {offset}+{len} leaves a part of {} bytes", self.len);
        // SAFETY: the part lies within its region by construction, and the range in the part.
        unsafe { self.region.start().add(self.offset + offset) }
    }
}

/// A [`Part`] that is looked at, by where it begins: nothing has to be looked up again.
#[derive(Clone, Copy, Debug)]
pub struct PartView<'a> {
    base: *const u8,
    len: usize,
    memory: PhantomData<&'a Part>,
}

impl<'a> PartView<'a> {
    /// `len` bytes from `offset` on.
    ///
    /// # Panics
    /// When the range is not within the part.
    #[inline(always)]
    pub fn span(&self, offset: usize, len: u32) -> Span<'a> {
        let last = self.len.checked_sub(len as usize);
        let fits = last.is_some_and(|last| offset <= last);
        assert!(fits, "range {offset}+{len} leaves a part of {} bytes", self.len);
        // SAFETY: within the part, as just checked, and the part, which is borrowed during 'a,
        // keeps its region mapped.
        unsafe { Span::from_raw(self.base.add(offset), len as usize) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: parts follow each other, keep to themselves, and end where the region ends.
    #[test]
    fn parts_are_disjoint() {
        let mut rest = Part::whole(Region::private(8192, false, None).unwrap());
        let (one, two) = (rest.take(4096).unwrap(), rest.take(4000).unwrap());
        assert_eq!((one.offset(), two.offset(), rest.len()), (0, 4096, 96));
        assert!(rest.take(97).is_none());
        // SAFETY: the only SpanMut of this part.
        unsafe { two.span_mut(0, 3) }.copy_from(Span::of(b"abc"));
        let mut read = [0; 3];
        two.span(0, 3).read_header(&mut read);
        assert_eq!(&read, b"abc");
        assert_eq!(one.into_table().len(), 4096);
    }

    // Goal: whoever has the sight of a part sees what its owner writes, nothing beyond it, and
    // keeps it mapped.
    #[test]
    fn a_sight_outlives_its_part() {
        let mut rest = Part::whole(Region::private(8192, false, None).unwrap());
        rest.take(4096).unwrap();
        let sight = rest.sight();
        // SAFETY: the only SpanMut of this part.
        unsafe { rest.span_mut(4000, 3) }.copy_from(Span::of(b"abc"));
        drop(rest);
        assert_eq!(sight.piece(4000, 3).unwrap().header::<3>().unwrap(), *b"abc");
        assert!(sight.piece(4000, 97).is_none() && sight.piece(u32::MAX, 2).is_none());
    }

    // Goal: a range beyond a part is a bug of ours, though the region goes on.
    #[test]
    #[should_panic(expected = "leaves a part")]
    fn ranges_are_checked() {
        let mut rest = Part::whole(Region::private(8192, false, None).unwrap());
        rest.take(4096).unwrap().span(4000, 97);
    }

    // Goal: a view shows the part's bytes and none beyond it.
    #[test]
    #[should_panic(expected = "leaves a part of 4096")]
    fn views_are_checked() {
        let mut rest = Part::whole(Region::private(8192, false, None).unwrap());
        let (_, two) = (rest.take(4096).unwrap(), rest.take(4096).unwrap());
        // SAFETY: the only SpanMut of this part.
        unsafe { two.span_mut(4094, 2) }.copy_from(Span::of(b"yz"));
        assert_eq!(two.view().span(4094, 2).header(), Some(*b"yz"));
        two.view().span(4095, 2);
    }
}
