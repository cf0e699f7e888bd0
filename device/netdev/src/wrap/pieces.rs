//! Access to frames in several memory segments.

use arrayvec::ArrayVec;
use mqnet_shmem::Span;

use crate::Frame;
use crate::limits::BURST_MORE_PIECES;

/// Payload of a frame in memory segments.
pub(crate) type Pieces<'a> = ArrayVec<Span<'a>, BURST_MORE_PIECES>;

/// Copies up to `N` bytes from the start of a frame. Returns the bytes and their number.
pub(crate) fn read_head<const N: usize>(frame: &Frame<'_>, more: &[Span<'_>]) -> ([u8; N], usize) {
    let mut head = [0; N];
    let mut n = frame.head.read_header(&mut head);
    for piece in more {
        if n == head.len() {
            break;
        }
        n += piece.read_header(&mut head[n..]);
    }
    (head, n)
}

/// Memory segments with `len` bytes of a frame from offset `at` on; `None` if they exceed the limit
/// of segments.
pub(crate) fn payload<'a>(
    head: Span<'a>,
    more: &[Span<'a>],
    mut at: usize,
    mut len: usize,
) -> Option<Pieces<'a>> {
    let mut pieces = Pieces::new();
    for piece in std::iter::once(&head).chain(more) {
        let part = piece.skip(at).first(len);
        at = at.saturating_sub(piece.len());
        len -= part.len();
        if !part.is_empty() {
            pieces.try_push(part).ok()?;
        }
    }
    Some(pieces)
}

/// Partial sum (RFC 1071) and length of each memory segment.
pub(crate) fn sums<'a>(pieces: &[Span<'a>]) -> impl Iterator<Item = (u64, usize)> {
    pieces.iter().map(|piece| (piece.sum(), piece.len()))
}
