//! Guest memory view of one queue: the only place that creates writable ranges of a peer's memory.

use std::cell::Cell;
use std::sync::Arc;

use mqnet_rings::prefetch;

use crate::stream::{self, LINE};
use crate::{MemoryMap, Span, SpanMut, Streaming, copies};

/// Range of guest addresses and its mapping.
#[derive(Clone, Copy, Debug)]
struct Range {
    start: u64,
    len: u64,
    base: *mut u8,
}

impl Range {
    const NONE: Self = Self { start: 0, len: 0, base: std::ptr::null_mut() };

    /// Pointer to `len` bytes at address `at`, or `None` unless all of them are in the range.
    #[inline(always)]
    fn find(&self, at: u64, len: u64) -> Option<*mut u8> {
        let offset = at.wrapping_sub(self.start);
        if offset >= self.len || len > self.len - offset {
            return None;
        }
        // SAFETY: offset < len, and the whole range is mapped.
        Some(unsafe { self.base.add(offset as usize) })
    }
}

/// Guest memory view: a peer's memory as seen by one queue, by the addresses in the peer's buffers.
///
/// A write takes `&mut self`, so a queue cannot hold the same range twice by accident. A peer can
/// still place one range in two buffers, or in buffers of two queues. Then two copies of this
/// process overlap in the peer's memory, as they can with the peer's writes. Only the peer's data
/// is affected; nothing in this process depends on it.
#[derive(Debug)]
pub struct GuestMemoryView {
    map: Arc<MemoryMap>,
    /// Range of the last lookup. A guest has few ranges, and its buffers are usually in one of
    /// them. The range belongs to `map`, which keeps it mapped.
    last: Cell<Range>,
}

// SAFETY: the pointer refers to a region of `map`, which is Send and Sync and is held by `map`.
unsafe impl Send for GuestMemoryView {}

impl GuestMemoryView {
    /// Creates the view of this address space for one queue.
    pub fn new(map: Arc<MemoryMap>) -> Self {
        Self { map, last: Cell::new(Range::NONE) }
    }

    /// Address space of the view.
    #[inline]
    pub fn map(&self) -> &MemoryMap {
        &self.map
    }

    /// Pointer to `len` bytes at address `at`, or `None` unless all of them are memory.
    #[inline(always)]
    fn find(&self, at: u64, len: u64) -> Option<*mut u8> {
        match self.last.get().find(at, len) {
            None => self.find_in_map(at, len),
            found => found,
        }
    }

    #[cold]
    #[inline(never)]
    fn find_in_map(&self, at: u64, len: u64) -> Option<*mut u8> {
        let (start, bytes, base) = self.map.range_of(at, len)?;
        let range = Range { start, len: bytes, base: base.as_ptr() };
        self.last.set(range);
        range.find(at, len)
    }

    /// Returns `len` bytes at address `at`, or `None` unless all of them are memory.
    #[inline]
    pub fn span(&self, at: u64, len: u32) -> Option<Span<'_>> {
        // SAFETY: the bytes are in a range of the map, which stays mapped as long as `self` holds
        // it.
        self.find(at, len.into()).map(|place| unsafe { Span::from_raw(place, len as usize) })
    }

    /// Returns `len` writable bytes at address `at`, or `None` unless all of them are memory.
    #[inline]
    pub fn room(&mut self, at: u64, len: u32) -> Option<SpanMut<'_>> {
        let place = self.find(at, len.into())?;
        // SAFETY: mapped as in `span`. Through `&mut self` this is the only SpanMut of this queue.
        // A SpanMut of another queue overlaps it only if the peer placed the range in both. That
        // queue then counts as a foreign writer: copies are opaque, and their values are never
        // trusted.
        Some(unsafe { SpanMut::from_raw(place, len as usize) })
    }

    /// Prefetches, for writing, the first line after a header of `header` bytes at address `at`.
    /// This hint has no effect on memory. A line that will be streamed is not prefetched.
    #[inline(always)]
    pub fn prefetch_for_write(&self, at: u64, header: u64, is_streamed: bool) {
        if let Some(place) = self.find(at.wrapping_add(header), 1)
            && !(is_streamed && place.addr().is_multiple_of(LINE))
        {
            prefetch::for_writing(place);
        }
    }

    /// Copies a header and the bytes after it to address `at` (fast path). Returns false and writes
    /// nothing unless the whole range is memory.
    ///
    /// If `bytes` begins at a cache line, a header that is already present is not written, and its
    /// line stays in the peer's cache. In other cases the line is written anyway, and a comparison
    /// would fetch it twice.
    #[inline(always)]
    pub fn place<const N: usize>(&mut self, at: u64, header: &[u8; N], bytes: Span<'_>) -> bool {
        let Some(place) = self.find(at, (N + bytes.len()) as u64) else { return false };
        // SAFETY: mapped, and exclusive as in `room`.
        let mut room = unsafe {
            put_header(place, header);
            SpanMut::from_raw(place.add(N), bytes.len())
        };
        room.copy_from(bytes);
        true
    }

    /// Writes as [`place`](Self::place) does, with non-temporal stores for the bytes that fill
    /// whole lines.
    #[inline(always)]
    pub fn stream<const N: usize>(
        &mut self,
        at: u64,
        header: &[u8; N],
        bytes: Span<'_>,
        _streaming: &Streaming,
    ) -> bool {
        let Some(place) = self.find(at, (N + bytes.len()) as u64) else { return false };
        // SAFETY: mapped, and exclusive as in `room`, so `bytes` does not overlap.
        unsafe {
            put_header(place, header);
            stream::copy_lines(bytes.start(), place.add(N), bytes.len());
        }
        copies::count(bytes.len());
        true
    }

    /// Writable ranges of these segments, in order. Segments that are not memory are skipped.
    pub fn rooms<'a>(
        &'a mut self,
        pieces: impl Iterator<Item = (u64, u32)>,
    ) -> impl Iterator<Item = SpanMut<'a>> {
        // SAFETY: as in `room`; the segments overlap each other only if the peer placed them so.
        pieces.filter_map(|(at, len)| unsafe { self.map.span_mut(at, len) })
    }
}

/// Writes a header, unless it is already present and the bytes after it begin at a cache line.
///
/// # Safety
/// `place` must be mapped for `N` bytes, and exclusive as in `GuestMemoryView::room`.
#[inline(always)]
unsafe fn put_header<const N: usize>(place: *mut u8, header: &[u8; N]) {
    let ends_at_line = (place.addr() + N).is_multiple_of(LINE);
    // SAFETY: required of the caller; `header` is private and does not overlap. The peer may change
    // the bytes during the comparison, which affects only the peer's header.
    unsafe {
        if !(ends_at_line && place.cast::<[u8; N]>().read() == *header) {
            std::ptr::copy_nonoverlapping(header.as_ptr(), place, N);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Area, Region};

    fn lent() -> GuestMemoryView {
        let region = Arc::new(Region::private(8192, false, None).unwrap());
        let area = Area { start: 0x1000, len: 8192, region, offset: 0 };
        GuestMemoryView::new(Arc::new(MemoryMap::new(vec![area]).unwrap()))
    }

    // Goal: the cached range is only an optimisation: other ranges are found too, and no lookup
    // succeeds beyond the end of a range.
    #[test]
    fn cached_range_is_only_an_optimisation() {
        let area = |start| {
            let region = Arc::new(Region::private(4096, false, None).unwrap());
            Area { start, len: 4096, region, offset: 0 }
        };
        let map = MemoryMap::new(vec![area(0x1000), area(0x8000), area(0x9000)]).unwrap();
        let mut lent = GuestMemoryView::new(Arc::new(map));
        for (at, value) in [(0x1000, b"a"), (0x8fff, b"b"), (0x9000, b"c"), (0x1000, b"d")] {
            lent.room(at, 1).unwrap().copy_from(Span::of(value));
            let mut read = [0];
            lent.map().span(at, 1).unwrap().read_header(&mut read);
            assert_eq!(&read, value);
            for wrong in [0xfff, 0x2000, 0x7fff, 0xa000, u64::MAX] {
                assert!(lent.span(wrong, 1).is_none());
            }
            assert!(lent.span(0x8fff, 2).is_none(), "a buffer in two ranges is in none");
            assert!(lent.span(0x9000, u32::MAX).is_none());
        }
    }

    // Goal: a header and its bytes are written at their address, and nothing is written if they do
    // not fit.
    #[test]
    fn headers_and_bytes_are_placed() {
        let mut lent = lent();
        assert!(lent.place(0x1100, b"head", Span::of(b"bytes")));
        assert!(lent.place(0x3000 - 9, b"head", Span::of(b"bytes")));
        assert!(!lent.place(0x3000 - 8, b"HEAD", Span::of(b"bytes")));
        assert!(!lent.place(0x5000, b"head", Span::EMPTY));
        for at in [0x1100, 0x3000 - 9] {
            assert_eq!(lent.span(at, 9).unwrap().header(), Some(*b"headbytes"));
        }
    }

    // Goal: bytes written to ranges of several segments are found at their addresses, and no range
    // exists outside memory.
    #[test]
    fn rooms_are_at_their_addresses() {
        let mut lent = lent();
        assert!(lent.room(0xfff, 2).is_none());
        assert!(lent.room(0x2fff, 2).is_none());
        lent.room(0x2ffe, 2).unwrap().copy_from(Span::of(b"yz"));
        let places = [(0x1000, 2), (0x9000, 2), (0x1008, 1)];
        let lens: Vec<usize> = lent.rooms(places.into_iter()).map(|room| room.len()).collect();
        assert_eq!(lens, [2, 1]);
        let mut read = [0; 2];
        lent.span(0x2ffe, 2).unwrap().read_header(&mut read);
        assert_eq!(&read, b"yz");
    }

    // Goal: for a header at any position relative to a line, present or not, the placed bytes are
    // correct. Bytes around them are unchanged, and an identical header changes nothing.
    #[test]
    fn headers_are_placed_at_any_alignment() {
        let mut lent = lent();
        for (turn, header) in [*b"aaaa", *b"aaaa", *b"baaa", *b"aaab"].iter().enumerate() {
            for at in [0x1000, 0x1000 + 60, 0x1000 + 61, 0x1000 + 64] {
                lent.room(0x1000, 256).unwrap().copy_from(Span::of(&[turn as u8; 256]));
                for header in [header, header] {
                    lent.prefetch_for_write(at, 4, false);
                    assert!(lent.place(at, header, Span::of(b"frame")));
                }
                let mut read = [0; 256];
                lent.span(0x1000, 256).unwrap().read_header(&mut read);
                let place = (at - 0x1000) as usize;
                let mut expected = [turn as u8; 256];
                expected[place..place + 4].copy_from_slice(header);
                expected[place + 4..place + 9].copy_from_slice(b"frame");
                assert_eq!(read, expected);
            }
        }
        lent.prefetch_for_write(u64::MAX, 12, false);
        assert!(!lent.place(0x2fff, b"head", Span::of(b"")));
    }

    // Goal: streamed bytes are exact, for every position in a line and every length around whole
    // lines. Bytes around them are unchanged.
    #[test]
    fn frames_are_streamed_at_any_alignment() {
        const ROOM: usize = 512;
        let mut lent = lent();
        let frame: Vec<u8> = (0..300).map(|n| n as u8 | 1).collect();
        let lens = (0..20).chain(44..84).chain(108..148).chain([200, 256, 300]);
        for (len, place) in lens.flat_map(|len| (0..128).map(move |place| (len, place))) {
            lent.room(0x1000, ROOM as u32).unwrap().copy_from(Span::of(&[0; ROOM]));
            let streaming = Streaming::new();
            lent.prefetch_for_write(0x1000 + place as u64, 4, true);
            let bytes = Span::of(&frame[..len]);
            assert!(lent.stream(0x1000 + place as u64, b"head", bytes, &streaming));
            drop(streaming);
            let mut read = [0; ROOM];
            lent.span(0x1000, ROOM as u32).unwrap().read_header(&mut read);
            let mut expected = [0; ROOM];
            expected[place..place + 4].copy_from_slice(b"head");
            expected[place + 4..][..len].copy_from_slice(&frame[..len]);
            assert!(read == expected, "{len} bytes at {place}");
        }
        let streaming = Streaming::new();
        assert!(lent.stream(0x3000 - 9, b"head", Span::of(b"bytes"), &streaming));
        assert!(!lent.stream(0x3000 - 8, b"HEAD", Span::of(b"bytes"), &streaming));
        assert!(!lent.stream(0x5000, b"head", Span::EMPTY, &streaming));
        assert_eq!(lent.span(0x3000 - 9, 9).unwrap().header(), Some(*b"headbytes"));
    }
}
