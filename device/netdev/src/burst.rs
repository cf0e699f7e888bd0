//! A burst of frames that lie in somebody's memory.

use arrayvec::ArrayVec;
use mqnet_shmem::Span;
use mqnet_wire::VnetHdr;

use crate::limits::{BURST_FRAMES, BURST_MORE_PIECES};

/// One frame of a [`Burst`].
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// What is unfinished about it.
    pub hdr: VnetHdr,
    more: u16,
    more_count: u16,
    /// Length in bytes.
    pub len: u32,
    /// Where it begins; all of it, in the usual case.
    pub head: Span<'a>,
}

impl Frame<'_> {
    /// True when the whole frame lies in its head.
    #[inline]
    pub fn is_one_piece(&self) -> bool {
        self.more_count == 0
    }
}

/// Up to 64 frames, each in one or more pieces. It borrows the queue that brought the memory, so
/// that nothing can be released while somebody still looks at it.
#[derive(Debug, Default)]
pub struct Burst<'a> {
    frames: ArrayVec<Frame<'a>, BURST_FRAMES>,
    more: ArrayVec<Span<'a>, BURST_MORE_PIECES>,
}

impl<'a> Burst<'a> {
    /// An empty burst.
    #[inline]
    pub fn new() -> Self {
        Self { frames: ArrayVec::new_const(), more: ArrayVec::new_const() }
    }

    /// Appends a frame of `len` bytes that lies in one piece.
    #[inline]
    pub fn push(&mut self, hdr: VnetHdr, len: u32, head: Span<'a>) {
        self.frames.push(Frame { hdr, more: 0, more_count: 0, len, head });
    }

    /// Appends a frame that begins in `head` and goes on in `more`. False when it has more pieces
    /// than the burst has room for: it comes first in the next one.
    pub fn push_pieces(
        &mut self,
        hdr: VnetHdr,
        len: u32,
        head: Span<'a>,
        more: &[Span<'a>],
    ) -> bool {
        let first = self.more.len() as u16;
        if self.more.try_extend_from_slice(more).is_err() {
            return false;
        }
        self.frames.push(Frame { hdr, more: first, more_count: more.len() as u16, len, head });
        true
    }

    /// Keeps only the first `frames` frames.
    pub fn truncate(&mut self, frames: usize) {
        self.frames.truncate(frames);
    }

    /// True when a further frame does not fit.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.frames.is_full()
    }

    /// The frames, in order.
    #[inline]
    pub fn frames(&self) -> &[Frame<'a>] {
        &self.frames
    }

    /// The frames, for who finds out in a second look what is unfinished about them.
    #[inline]
    pub fn frames_mut(&mut self) -> &mut [Frame<'a>] {
        &mut self.frames
    }

    /// Where a frame goes on after its head.
    #[inline]
    pub fn more(&self, frame: &Frame<'a>) -> &[Span<'a>] {
        &self.more[usize::from(frame.more)..usize::from(frame.more + frame.more_count)]
    }
}
