//! Byte ranges that may change at any time.

mod batch;
mod sum;

use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;

use mqnet_rings::prefetch;
use mqnet_sysio::vectored::{self, RawRange};

use crate::{Streaming, stream};

pub use batch::BatchWriter;

/// Readable byte range. A peer may write the range concurrently; a read returns any bytes that are
/// present.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    ptr: *const u8,
    len: u32,
    memory: PhantomData<&'a [u8]>,
}

/// Writable byte range with no other writer in this process during `'a`.
#[derive(Debug)]
pub struct SpanMut<'a> {
    ptr: *mut u8,
    len: u32,
    memory: PhantomData<&'a mut [u8]>,
}

/// Number of payload copies made by this thread (a frame copied in two segments counts twice). The
/// feature `count-copies` enables counting: tests use it to verify the memory rule, and the data
/// path is not slowed down.
pub mod copies {
    #[cfg(feature = "count-copies")]
    thread_local! {
        static COUNT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
        static BYTES: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    /// Number of payload copies by this thread so far, or 0 without the feature.
    pub fn made() -> u64 {
        #[cfg(feature = "count-copies")]
        return COUNT.with(std::cell::Cell::get);
        #[cfg(not(feature = "count-copies"))]
        0
    }

    /// Number of payload bytes copied by this thread so far, or 0 without the feature.
    pub fn bytes() -> u64 {
        #[cfg(feature = "count-copies")]
        return BYTES.with(std::cell::Cell::get);
        #[cfg(not(feature = "count-copies"))]
        0
    }

    #[inline(always)]
    pub(crate) fn count(_bytes: usize) {
        #[cfg(feature = "count-copies")]
        {
            COUNT.with(|c| c.set(c.get() + 1));
            BYTES.with(|b| b.set(b.get() + _bytes as u64));
        }
    }
}

/// Maximum length of one `memcpy`. Above about 4 KiB the C library uses `rep movsb`. On some AMD
/// CPUs `rep movsb` is very slow if the destination is 1 to 31 bytes after the source modulo 4096.
/// The CPU then mistakes the loads of the copy for loads of data that was just stored (4K
/// aliasing). Records of a ring are multiples of 16 bytes, so this happens often.
const PIECE: usize = 2048;

/// # Safety
/// Both ranges must hold `n` bytes and not overlap.
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, n: usize) {
    if n <= PIECE {
        // SAFETY: required of the caller.
        return unsafe { std::ptr::copy_nonoverlapping(from, to, n) };
    }
    // SAFETY: required of the caller.
    unsafe { copy_in_pieces(from, to, n) };
}

/// Copies out of line: otherwise every small copy saves and restores the registers of the loop.
///
/// # Safety
/// Both ranges must hold `n` bytes and not overlap.
#[inline(never)]
unsafe fn copy_in_pieces(from: *const u8, to: *mut u8, n: usize) {
    for at in (0..n).step_by(PIECE) {
        let piece = PIECE.min(n - at);
        // SAFETY: at + piece <= n; the rest is required of the caller.
        unsafe { std::ptr::copy_nonoverlapping(from.add(at), to.add(at), piece) };
    }
}

impl<'a> Span<'a> {
    /// Empty range.
    pub const EMPTY: Self =
        Self { ptr: std::ptr::NonNull::dangling().as_ptr(), len: 0, memory: PhantomData };

    /// # Safety
    /// `ptr..ptr + len` must stay mapped and readable during `'a`.
    #[inline]
    pub(crate) unsafe fn from_raw(ptr: *const u8, len: usize) -> Self {
        Self { ptr, len: len as u32, memory: PhantomData }
    }

    /// Prefetches the first two cache lines, for a header and a small frame. This hint has no
    /// effect on memory.
    #[inline(always)]
    pub fn prefetch(self) {
        prefetch::for_reading(self.ptr);
        prefetch::for_reading(self.ptr.wrapping_add(64));
    }

    /// Range of private memory.
    #[inline]
    pub fn of(bytes: &'a [u8]) -> Self {
        Self { ptr: bytes.as_ptr(), len: bytes.len() as u32, memory: PhantomData }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True if the length is 0.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// First `n` bytes, or all if the range is shorter.
    #[inline]
    pub fn first(self, n: usize) -> Self {
        Self { len: n.min(self.len()) as u32, ..self }
    }

    /// All bytes after the first `n`; empty if the range is shorter.
    #[inline]
    pub fn skip(self, n: usize) -> Self {
        let n = n.min(self.len()) as u32;
        // SAFETY: n <= len, so the result is within the range or one past its end.
        Self { ptr: unsafe { self.ptr.add(n as usize) }, len: self.len - n, memory: PhantomData }
    }

    /// Copies the start of the range to private memory for parsing, and returns the number of
    /// bytes. Intended for headers (at most 128 B), and not counted as a payload copy.
    #[inline]
    pub fn read_header(&self, into: &mut [u8]) -> usize {
        let n = into.len().min(self.len as usize);
        // SAFETY: both ranges hold n bytes; `into` is borrowed mutably, so they cannot overlap.
        unsafe { std::ptr::copy_nonoverlapping(self.ptr, into.as_mut_ptr(), n) };
        n
    }

    /// Reads a header of constant length, without a call of `memcpy`. Returns `None` if the range
    /// is shorter.
    #[inline]
    pub fn header<const N: usize>(&self) -> Option<[u8; N]> {
        if self.len() < N {
            return None;
        }
        let mut out = [0; N];
        // SAFETY: both ranges hold N bytes; `out` is a local, so they cannot overlap.
        unsafe { std::ptr::copy_nonoverlapping(self.ptr, out.as_mut_ptr(), N) };
        Some(out)
    }

    /// Reads a header as [`header`](Self::header) does, and returns it with the bytes after it.
    #[inline(always)]
    pub fn split_header<const N: usize>(self) -> Option<([u8; N], Span<'a>)> {
        let header = self.header()?;
        // SAFETY: the range holds the header, so the rest is within the range too.
        Some((header, unsafe { Self::from_raw(self.ptr.add(N), self.len() - N) }))
    }

    #[inline]
    pub(crate) fn start(&self) -> *const u8 {
        self.ptr
    }

    #[inline]
    fn raw(&self) -> RawRange {
        RawRange::new(self.ptr.cast_mut(), self.len as usize)
    }
}

impl<'a> SpanMut<'a> {
    /// # Safety
    /// `ptr..ptr + len` must stay mapped and writable during `'a`, and no `SpanMut` or reference of
    /// this process may overlap it. (A peer may write it too, at its own risk.)
    #[inline]
    pub(crate) unsafe fn from_raw(ptr: *mut u8, len: usize) -> Self {
        Self { ptr, len: len as u32, memory: PhantomData }
    }

    /// Empty range.
    #[inline]
    pub fn empty() -> Self {
        Self { ptr: std::ptr::NonNull::dangling().as_ptr(), len: 0, memory: PhantomData }
    }

    /// Range of private memory.
    #[inline]
    pub fn of(bytes: &'a mut [u8]) -> Self {
        Self { ptr: bytes.as_mut_ptr(), len: bytes.len() as u32, memory: PhantomData }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True if the length is 0.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Splits the range into its first `n` bytes and the rest.
    #[inline]
    pub fn split_at(self, n: usize) -> (SpanMut<'a>, SpanMut<'a>) {
        let n = n.min(self.len()) as u32;
        // SAFETY: n <= len: the halves are disjoint and within the range.
        let rest = unsafe { self.ptr.add(n as usize) };
        (
            Self { ptr: self.ptr, len: n, memory: PhantomData },
            Self { ptr: rest, len: self.len - n, memory: PhantomData },
        )
    }

    /// Payload copy: fills the start of this range from `from`, and returns the number of bytes
    /// (the shorter length). Payload is copied in no other way, except with non-temporal stores
    /// ([`store`](Self::store), `Window::stream`, `GuestMemoryView::stream`) and in system calls.
    ///
    /// The copy is a plain `memcpy`, although a peer may write either range at the same time. In
    /// Rust's memory model this is a data race. As in other implementations of shared rings, the
    /// copy is assumed to be an opaque byte copy whose *values* are never trusted. (Rejected:
    /// byte-wise volatile accesses, which are much slower, and small frames inline in 16-byte
    /// blocks, which need more instructions than the call.)
    #[inline]
    pub fn copy_from(&mut self, from: Span<'_>) -> usize {
        let n = self.len.min(from.len) as usize;
        // SAFETY: both ranges hold n bytes; a source and a sink never overlap, because a SpanMut is
        // exclusive in this process.
        unsafe { copy(from.ptr, self.ptr, n) };
        copies::count(n);
        n
    }

    /// Copies as [`copy_from`](Self::copy_from) does. With a [`Streaming`], whole lines use
    /// non-temporal stores.
    #[inline]
    pub fn store(&mut self, from: Span<'_>, streaming: Option<&Streaming>) -> usize {
        if streaming.is_none() {
            return self.copy_from(from);
        }
        let n = self.len.min(from.len) as usize;
        // SAFETY: as in copy_from.
        unsafe { stream::copy_lines(from.ptr, self.ptr, n) };
        copies::count(n);
        n
    }

    /// Writes a header (at most 128 B) to the start of this range, and returns the number of bytes.
    /// Not counted as a payload copy.
    #[inline]
    pub fn write_header(&mut self, bytes: &[u8]) -> usize {
        let n = bytes.len();
        if n > self.len as usize {
            return self.write_header(&bytes[..self.len as usize]);
        }
        // SAFETY: both ranges hold n bytes, which is often a compile-time constant. `self` is
        // exclusive, so the ranges cannot overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.ptr, n) };
        n
    }

    /// Readable view of the range.
    #[inline]
    pub fn as_span(&self) -> Span<'_> {
        Span { ptr: self.ptr, len: self.len, memory: PhantomData }
    }

    #[inline]
    fn raw(&self) -> RawRange {
        RawRange::new(self.ptr, self.len as usize)
    }
}

/// Writable space for one frame: one segment, two if a ring wraps, or any number of a peer's
/// buffers.
#[derive(Debug)]
pub struct Segments<'a> {
    /// First segment.
    pub head: SpanMut<'a>,
    /// Second segment; empty without a wrap.
    pub tail: SpanMut<'a>,
    /// Further segments, valid and exclusive during `'a`.
    more: &'a [RawRange],
}

impl<'a> Segments<'a> {
    /// Creates the space from one or two segments.
    #[inline]
    pub fn new(head: SpanMut<'a>, tail: SpanMut<'a>) -> Self {
        Self { head, tail, more: &[] }
    }

    /// Total length of all segments.
    #[inline]
    pub fn len(&self) -> usize {
        let more = self.more.iter().map(RawRange::len).sum::<usize>();
        self.head.len() + self.tail.len() + more
    }

    /// True if the total length is 0.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All non-empty segments, readable.
    pub fn pieces(&self) -> impl Iterator<Item = Span<'_>> {
        // SAFETY: Scatter::room stored these from SpanMut<'a>s.
        let more = self.more.iter().map(|r| unsafe { Span::from_raw(r.start(), r.len()) });
        let two = [self.head.as_span(), self.tail.as_span()];
        two.into_iter().chain(more).filter(|piece| !piece.is_empty())
    }

    /// Segments after the first two.
    pub fn more(&mut self) -> impl Iterator<Item = SpanMut<'_>> {
        // SAFETY: Scatter::room stored these from SpanMut<'a>s, and `&mut self` excludes a second
        // SpanMut of a segment.
        self.more.iter().map(|range| unsafe { SpanMut::from_raw(range.start(), range.len()) })
    }
}

/// Reused buffer for the segments of a frame's space, to avoid allocation.
#[derive(Debug, Default)]
pub struct Scatter(Vec<RawRange>);

// SAFETY: the stored ranges are only used through the Segments of the call that stored them.
unsafe impl Send for Scatter {}

impl Scatter {
    /// Maximum number of segments per frame: a 64 KiB frame in buffers of 1.5 KiB has 44.
    pub const PIECES_MAX: usize = 64;

    /// Creates the space from these segments, in order. Segments beyond
    /// [`PIECES_MAX`](Self::PIECES_MAX) are ignored.
    pub fn room<'a>(&'a mut self, mut pieces: impl Iterator<Item = SpanMut<'a>>) -> Segments<'a> {
        let head = pieces.next().unwrap_or_else(SpanMut::empty);
        let tail = pieces.next().unwrap_or_else(SpanMut::empty);
        self.0.clear();
        self.0.extend(pieces.take(Self::PIECES_MAX - 2).map(|piece| piece.raw()));
        Segments { head, tail, more: &self.0 }
    }
}

/// Executes one `readv` into `header`, the segments, and `beyond`, and returns the bytes read. A
/// TAP silently truncates a frame that exceeds the buffers; bytes in `beyond` reveal such a frame.
#[inline]
pub fn read_into(
    fd: BorrowedFd<'_>,
    header: &mut [u8],
    room: &mut Segments<'_>,
    beyond: &mut [u8],
) -> io::Result<usize> {
    let header = RawRange::new(header.as_mut_ptr(), header.len());
    let beyond = RawRange::new(beyond.as_mut_ptr(), beyond.len());
    if room.more.is_empty() {
        let ranges = [header, room.head.raw(), room.tail.raw(), beyond];
        if !beyond.is_empty() {
            // SAFETY: `header`, the segments and `beyond` are exclusive writable ranges during the
            // call.
            return unsafe { vectored::read(fd, &ranges) };
        }
        let used = if room.tail.is_empty() { 2 } else { 3 };
        // SAFETY: as above.
        return unsafe { vectored::read(fd, &ranges[..used]) };
    }
    let mut ranges = [RawRange::EMPTY; Scatter::PIECES_MAX + 2];
    let more = room.more.len();
    ranges[..3].copy_from_slice(&[header, room.head.raw(), room.tail.raw()]);
    ranges[3..3 + more].copy_from_slice(room.more);
    ranges[3 + more] = beyond;
    // SAFETY: as above; Scatter::room has stored no more segments than fit.
    unsafe { vectored::read(fd, &ranges[..4 + more]) }
}

/// Maximum number of segments after the first in [`write_from`] (a 64 KiB frame in buffers of 1.5
/// KiB has 43).
const MORE_MAX: usize = 64;

/// Executes one `writev` from `header`, `head`, and `more`. Fails with `EMSGSIZE` if `more` has
/// more than 64 segments.
#[inline]
pub fn write_from(
    fd: BorrowedFd<'_>,
    header: &[u8],
    head: Span<'_>,
    more: &[Span<'_>],
) -> io::Result<usize> {
    let header = RawRange::new(header.as_ptr().cast_mut(), header.len());
    if more.is_empty() {
        // SAFETY: `header` and `head` are readable during the call.
        return unsafe { vectored::write(fd, &[header, head.raw()]) };
    }
    if more.len() > MORE_MAX {
        return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
    }
    let mut ranges = [RawRange::EMPTY; MORE_MAX + 2];
    ranges[0] = header;
    ranges[1] = head.raw();
    for (range, piece) in ranges[2..].iter_mut().zip(more) {
        *range = piece.raw();
    }
    // SAFETY: `header` and every segment are readable during the call.
    unsafe { vectored::write(fd, &ranges[..2 + more.len()]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a copy moves exactly the shorter length and does not change the rest.
    #[test]
    fn copy_moves_the_shorter_length() {
        let mut to = [0u8; 8];
        assert_eq!(SpanMut::of(&mut to).copy_from(Span::of(&[1, 2, 3])), 3);
        assert_eq!(to, [1, 2, 3, 0, 0, 0, 0, 0]);
        assert_eq!(SpanMut::of(&mut to[..2]).copy_from(Span::of(&[9; 5])), 2);
        assert_eq!(to, [9, 9, 3, 0, 0, 0, 0, 0]);
    }

    // Goal: every length is copied exactly.
    #[test]
    fn every_length_is_exact() {
        let from: Vec<u8> = (0..5000).map(|i| (i % 251) as u8).collect();
        for n in (0..=200).chain([2047, 2048, 2049, 4096, 4097, 4999, 5000]) {
            let mut to = [0xffu8; 5001];
            assert_eq!(SpanMut::of(&mut to).copy_from(Span::of(&from[..n])), n);
            assert_eq!(&to[..n], &from[..n]);
            assert!(to[n..].iter().all(|&b| b == 0xff), "{n}");
        }
    }

    // Goal: a sub-range never exceeds its span, for any arguments.
    #[test]
    fn sub_ranges_are_clamped() {
        let bytes = [1u8, 2, 3, 4];
        let span = Span::of(&bytes);
        assert_eq!(span.skip(9).len(), 0);
        assert_eq!(span.first(9).len(), 4);
        let mut out = [0u8; 4];
        assert_eq!(span.skip(1).first(2).read_header(&mut out), 2);
        assert_eq!(out, [2, 3, 0, 0]);
        let mut own = bytes;
        let (a, b) = SpanMut::of(&mut own).split_at(100);
        assert_eq!((a.len(), b.len()), (4, 0));
    }

    // Goal: counts above 2^32 are clamped, not truncated.
    #[cfg(target_pointer_width = "64")]
    #[test]
    fn counts_above_32_bits_are_clamped() {
        let mut bytes = [1u8, 2, 3, 4];
        let n = (1 << 32) + 1;
        assert_eq!(Span::of(&bytes).skip(n).len(), 0);
        assert_eq!(Span::of(&bytes).first(n).len(), 4);
        let (a, b) = SpanMut::of(&mut bytes).split_at(n);
        assert_eq!((a.len(), b.len()), (4, 0));
    }

    // Goal: headers are read and written exactly, limited by the available bytes.
    #[test]
    fn headers_are_exact() {
        let bytes = [1u8, 2, 3, 4];
        assert_eq!(Span::of(&bytes).header::<3>(), Some([1, 2, 3]));
        assert_eq!(Span::of(&bytes).header::<4>(), Some(bytes));
        assert_eq!(Span::of(&bytes).header::<5>(), None);
        for room in 0..=5 {
            let mut to = [0u8; 6];
            let n = SpanMut::of(&mut to[..room]).write_header(&bytes);
            assert_eq!((n, &to[..n]), (room.min(4), &bytes[..n]));
            assert!(to[n..].iter().all(|&b| b == 0));
        }
    }

    // Goal: both system calls process the segments in order, through a real pipe.
    #[test]
    fn vectored_calls_keep_order() {
        use std::os::fd::AsFd;
        let (reader, writer) = std::io::pipe().unwrap();
        let more = [Span::of(b"efg")];
        assert_eq!(write_from(writer.as_fd(), b"ab", Span::of(b"cd"), &more).unwrap(), 7);
        let (mut header, mut one, mut two) = ([0u8; 3], [0u8; 2], [0u8; 8]);
        let mut room = Segments::new(SpanMut::of(&mut one), SpanMut::of(&mut two));
        assert_eq!(read_into(reader.as_fd(), &mut header, &mut room, &mut []).unwrap(), 7);
        assert_eq!((&header, &one, &two[..2]), (b"abc", b"de", &b"fg"[..]));
    }

    // Goal: bytes that exceed the segments arrive in `beyond`, for any number of segments.
    #[test]
    fn excess_bytes_arrive_in_beyond() {
        use std::os::fd::AsFd;
        let mut scatter = Scatter::default();
        for (pieces, room_len) in [(1, 3), (2, 6), (4, 12)] {
            let (reader, writer) = std::io::pipe().unwrap();
            let bytes: Vec<u8> = (0..20).collect();
            write_from(writer.as_fd(), &[], Span::of(&bytes), &[]).unwrap();
            let (mut header, mut own, mut beyond) = ([0u8; 2], [0u8; 12], [0u8; 4]);
            let mut room = scatter.room(own.chunks_mut(3).take(pieces).map(SpanMut::of));
            assert_eq!(room.len(), room_len);
            let n = read_into(reader.as_fd(), &mut header, &mut room, &mut beyond).unwrap();
            assert_eq!(n, 2 + room_len + 4);
            assert_eq!((&header[..], &own[..room_len]), (&bytes[..2], &bytes[2..2 + room_len]));
            assert_eq!(&beyond[..], &bytes[2 + room_len..n]);
        }
    }

    // Goal: the space of many segments is filled in order. A second frame in the same buffer
    // contains nothing of the first.
    #[test]
    fn rooms_of_many_pieces_are_filled_in_order() {
        use std::os::fd::AsFd;
        let mut scatter = Scatter::default();
        for text in [&b"abcdefghij"[..], b"0123456"] {
            let (reader, writer) = std::io::pipe().unwrap();
            write_from(writer.as_fd(), &[], Span::of(text), &[]).unwrap();
            let mut bytes = [0u8; 12];
            let mut room = scatter.room(bytes.chunks_mut(2).map(SpanMut::of));
            assert_eq!((room.len(), room.more().count()), (12, 4));
            let mut header = [0u8; 1];
            let n = read_into(reader.as_fd(), &mut header, &mut room, &mut []).unwrap();
            assert_eq!(n, text.len());
            let seen: usize = room.pieces().map(|piece| piece.len()).sum();
            assert_eq!((seen, room.pieces().count()), (12, 6));
            assert_eq!((&header[..], &bytes[..n - 1]), text.split_at(1));
        }
    }
}
