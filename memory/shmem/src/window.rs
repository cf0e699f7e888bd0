//! Byte ring in a shared region, for its writer or its reader.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mqnet_rings::{demote, prefetch};

use crate::{Region, Segments, Span, SpanMut, Streaming, copies, stream};

/// Range of `len` bytes of a region in which ring positions wrap. A window keeps its region alive.
///
/// At most one `Window` of this process may write a given range: the transport creates one per
/// queue pair and direction.
#[derive(Debug)]
pub struct Window {
    /// Start of the range, resolved once, because every frame uses it.
    base: NonNull<u8>,
    len: u32,
    _region: Arc<Region>,
}

// SAFETY: a Window exposes only Spans and atomic words of a region that is Send and Sync.
unsafe impl Send for Window {}

impl Window {
    /// Creates a window on the range `base..base + len` of `region`.
    ///
    /// # Panics
    /// If the range is not within the region, or does not consist of whole 16-byte units.
    pub fn new(region: Arc<Region>, base: usize, len: u32) -> Self {
        let whole = base.is_multiple_of(16) && len.is_multiple_of(16);
        assert!(whole, "window {base}+{len} is not made of 16 B units");
        let base = region.pointer(base, len as usize);
        Self { base, len, _region: region }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// True if the length is 0.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Length of the first segment of `len` bytes at `at`.
    ///
    /// # Panics
    /// If the range exceeds the window. (Positions are local, and lengths were checked against the
    /// cursor.)
    #[inline]
    fn first_piece(&self, at: u32, len: u32) -> u32 {
        assert!(at < self.len && len <= self.len);
        len.min(self.len - at)
    }

    /// Returns `len` readable bytes at ring position `at`, in one or two segments.
    #[inline]
    pub fn read(&self, at: u32, len: u32) -> (Span<'_>, Span<'_>) {
        let first = self.first_piece(at, len);
        // SAFETY: first_piece keeps both segments within the range, which the region keeps mapped.
        unsafe {
            let head = Span::from_raw(self.base.as_ptr().add(at as usize), first as usize);
            if first == len {
                return (head, Span::EMPTY);
            }
            (head, Span::from_raw(self.base.as_ptr(), (len - first) as usize))
        }
    }

    /// Returns `len` writable bytes at ring position `at`, in one or two segments.
    #[inline]
    pub fn write(&mut self, at: u32, len: u32) -> Segments<'_> {
        let first = self.first_piece(at, len);
        // SAFETY: in range as in read. `&mut self` and one Window per written range make the
        // segments exclusive. They do not overlap each other because len <= self.len.
        unsafe {
            let head = SpanMut::from_raw(self.base.as_ptr().add(at as usize), first as usize);
            if first == len {
                return Segments::new(head, SpanMut::empty());
            }
            let tail = SpanMut::from_raw(self.base.as_ptr(), (len - first) as usize);
            Segments::new(head, tail)
        }
    }

    /// Writable ranges of `len` bytes at ascending positions, for a frame of many segments.
    ///
    /// # Panics
    /// If two ranges overlap, or if one exceeds the window. (Callers compute the positions.)
    pub fn rooms<'a>(
        &'a mut self,
        at: impl Iterator<Item = u32> + 'a,
        len: u32,
    ) -> impl Iterator<Item = SpanMut<'a>> + 'a {
        let mut end = 0;
        at.map(move |at| {
            assert!(at >= end && len <= self.len && at <= self.len - len, "room {at}+{len}");
            end = at + len;
            // SAFETY: in range and after all previous ones, as checked above; exclusive as in
            // write.
            unsafe { SpanMut::from_raw(self.base.as_ptr().add(at as usize), len as usize) }
        })
    }

    /// Returns `len` readable bytes at ring position `at`, or `None` unless they are contiguous
    /// (fast path).
    #[inline]
    pub fn piece(&self, at: u32, len: u32) -> Option<Span<'_>> {
        // One addition and one comparison, because this runs for every frame.
        if u64::from(at) + u64::from(len) > u64::from(self.len) {
            return None;
        }
        // SAFETY: in range, as checked above; the region keeps it mapped.
        Some(unsafe { Span::from_raw(self.base.as_ptr().add(at as usize), len as usize) })
    }

    /// Prefetches, for reading, the cache lines of up to `len` bytes at ring position `at`.
    #[inline]
    pub fn prefetch(&self, at: u32, len: u32) {
        for line in (at..self.len.min(at.saturating_add(len))).step_by(64) {
            // SAFETY: in range by the loop's bound.
            prefetch::for_reading(unsafe { self.base.as_ptr().add(line as usize) });
        }
    }

    /// Prefetches, for reading, the cache line at ring position `at`.
    #[inline(always)]
    pub fn prefetch_line(&self, at: u32) {
        prefetch::for_reading(self.base.as_ptr().wrapping_add(at as usize));
    }

    /// Prefetches, for writing, the cache lines of up to `len` bytes at ring position `at`.
    #[inline(always)]
    pub fn prefetch_for_writing(&self, at: u32, len: u32) {
        let mut line = self.base.as_ptr().wrapping_add(at as usize);
        let end = line.wrapping_add(len as usize);
        // Use no iterator, which would need twice the instructions for every frame.
        while line < end {
            prefetch::for_writing(line);
            line = line.wrapping_add(64);
        }
    }

    /// Prefetches, for writing, two lines at each of `count` positions: `at`, then every `stride`
    /// bytes.
    #[inline(always)]
    pub fn prefetch_pairs_for_writing(&self, at: u32, stride: u32, count: usize) {
        let mut line = self.base.as_ptr().wrapping_add(at as usize);
        for _ in 0..count {
            prefetch::for_writing(line);
            prefetch::for_writing(line.wrapping_add(64));
            line = line.wrapping_add(stride as usize);
        }
    }

    /// Demotes the lines of `len` written bytes at ring position `at`. Allowed only if
    /// [`StoreMode`](crate::StoreMode) permits demotion.
    #[inline(always)]
    pub fn demote(&self, at: u32, len: u32) {
        demote::lines(self.base.as_ptr().wrapping_add(at as usize), len as usize);
    }

    /// Reads the 16 bytes at ring position `at` once. (Positions are multiples of 16; lower bits
    /// are ignored.)
    #[inline]
    pub fn load_unit(&self, at: u32) -> [u64; 2] {
        let [low, high] = self.unit(at);
        [u64::from_le(low.load(Ordering::Relaxed)), u64::from_le(high.load(Ordering::Relaxed))]
    }

    /// Writes the 16 bytes at ring position `at`.
    #[inline]
    pub fn store_unit(&mut self, at: u32, unit: [u64; 2]) {
        let [low, high] = self.unit(at);
        low.store(unit[0].to_le(), Ordering::Relaxed);
        high.store(unit[1].to_le(), Ordering::Relaxed);
    }

    #[inline]
    fn unit(&self, at: u32) -> &[AtomicU64; 2] {
        assert!(at < self.len);
        let at = at as usize & !15;
        // SAFETY: base and len are multiples of 16, so the whole unit is in range and aligned;
        // atomics allow any writer.
        unsafe { &*self.base.as_ptr().add(at).cast() }
    }

    /// Copies a header and the bytes after it to ring position `at` (fast path). Returns false and
    /// writes nothing unless the destination is contiguous.
    #[inline]
    pub fn place(&mut self, at: u32, unit: [u64; 2], bytes: Span<'_>) -> bool {
        if u64::from(at) + 16 + bytes.len() as u64 > u64::from(self.len) {
            return false;
        }
        let at = at as usize & !15;
        // SAFETY: in range, as checked above (and rounded down); exclusive as in write.
        let (header, mut room) = unsafe {
            let header = self.base.as_ptr().add(at);
            (header, SpanMut::from_raw(header.add(16), bytes.len()))
        };
        // SAFETY: base and `at` are multiples of 16, so the unit is aligned; atomics allow any
        // other writer.
        let [low, high]: &[AtomicU64; 2] = unsafe { &*header.cast() };
        low.store(unit[0].to_le(), Ordering::Relaxed);
        high.store(unit[1].to_le(), Ordering::Relaxed);
        room.copy_from(bytes);
        true
    }

    /// Writes as [`place`](Self::place) does, with non-temporal stores, in whole units of 16 bytes.
    /// The padding of the last unit is written too, and must fit.
    #[inline]
    pub fn stream(
        &mut self,
        at: u32,
        unit: [u64; 2],
        bytes: Span<'_>,
        _streaming: &Streaming,
    ) -> bool {
        let room = bytes.len().next_multiple_of(stream::UNIT);
        if u64::from(at) + 16 + room as u64 > u64::from(self.len) {
            return false;
        }
        let [low, high] = unit.map(u64::to_le_bytes);
        let mut header = [0; stream::UNIT];
        header[..8].copy_from_slice(&low);
        header[8..].copy_from_slice(&high);
        let at = at as usize & !15;
        // SAFETY: in range, as checked above (and rounded down). `base` and `at` are multiples of
        // the unit; exclusive as in write, so `bytes` does not overlap.
        unsafe {
            let place = self.base.as_ptr().add(at);
            stream::unit(place, header);
            stream::copy(bytes.start(), place.add(16), bytes.len());
        }
        copies::count(bytes.len());
        true
    }
}

/// Read-only access to a range of a region, which another holder may write.
#[derive(Debug)]
pub struct ReadView(Window);

impl ReadView {
    /// Creates the read-only access. Writes to the range use another window.
    pub(crate) fn new(window: Window) -> Self {
        Self(window)
    }

    /// Returns `len` bytes at `at`, or `None` if they exceed the range.
    #[inline]
    pub fn piece(&self, at: u32, len: u32) -> Option<Span<'_>> {
        self.0.piece(at, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> Window {
        Window::new(Arc::new(Region::private(4096, false, None).unwrap()), 0, 4096)
    }

    // Goal: writable ranges are at the requested positions, and end with the window.
    #[test]
    fn rooms_are_at_requested_positions() {
        let mut window = window();
        for (room, byte) in window.rooms([0, 2048, 4032].into_iter(), 64).zip(b"abc") {
            let mut room = room;
            room.copy_from(Span::of(&[*byte; 64]));
        }
        for (at, byte) in [(0, b'a'), (2048, b'b'), (4032, b'c')] {
            assert_eq!(window.piece(at, 64).unwrap().header::<64>(), Some([byte; 64]));
        }
    }

    // Goal: two writable ranges never share a byte.
    #[test]
    #[should_panic(expected = "room 32+64")]
    fn rooms_do_not_overlap() {
        window().rooms([0, 32].into_iter(), 64).count();
    }

    // Goal: a range beyond the window is a bug in this program and panics.
    #[test]
    #[should_panic(expected = "room 4033+64")]
    fn rooms_do_not_exceed_the_window() {
        window().rooms([4033].into_iter(), 64).count();
    }

    // Goal: a header and a frame of any length are streamed to their position, padded to a unit,
    // without other writes. A frame that does not fit with its padding is not written at all.
    #[test]
    fn frames_are_streamed_in_units() {
        let mut window = window();
        let frame: Vec<u8> = (0..300).map(|n| n as u8 | 1).collect();
        for (len, at) in (0..=300).flat_map(|len| [0, 16, 48, 64].map(|at| (len, at))) {
            window.write(0, 512).head.copy_from(Span::of(&[7; 512]));
            let streaming = Streaming::new();
            assert!(window.stream(at, [!1, !2], Span::of(&frame[..len]), &streaming));
            drop(streaming);
            let mut expected = [7; 512];
            let (at, end) = (at as usize, at as usize + 16 + len);
            expected[at..end.next_multiple_of(16)].fill(0);
            expected[at..at + 8].copy_from_slice(&u64::to_le_bytes(!1));
            expected[at + 8..at + 16].copy_from_slice(&u64::to_le_bytes(!2));
            expected[at + 16..end].copy_from_slice(&frame[..len]);
            let read = window.piece(0, 512).and_then(|piece| piece.header::<512>());
            assert!(read == Some(expected), "{len} bytes at {at}");
        }
        let (streaming, end) = (Streaming::new(), window.len());
        assert!(window.stream(end - 32, [1, 2], Span::of(&frame[..16]), &streaming));
        assert!(!window.stream(end - 32, [3, 4], Span::of(&frame[..17]), &streaming));
        assert!(!window.stream(end - 16, [3, 4], Span::of(&frame[..1]), &streaming));
        assert_eq!(window.load_unit(end - 32), [1, 2]);
        assert_eq!(window.load_unit(end - 16)[0].to_le_bytes()[..], frame[..8]);
    }
}
