//! Bursts of frames in the memory of a queue or of a pool.

use arrayvec::ArrayVec;
use mqnet_shmem::Span;
use mqnet_wire::VnetHdr;

use crate::limits::{BURST_FRAMES, BURST_MORE_PIECES};

/// One frame of a [`Burst`].
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Virtio header: pending checksum and segmentation of the frame.
    pub hdr: VnetHdr,
    more: u16,
    more_count: u16,
    /// Length in bytes.
    pub len: u32,
    /// First piece of the frame; usually the whole frame.
    pub head: Span<'a>,
}

impl Frame<'_> {
    /// True if the head holds the whole frame.
    #[inline]
    pub fn is_one_piece(&self) -> bool {
        self.more_count == 0
    }
}

/// Up to 64 frames, each in one or more pieces. A burst borrows the queue that owns the memory, so
/// that no frame can be released while it is in use.
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

    /// Appends a frame of `len` bytes in one piece.
    #[inline]
    pub fn push(&mut self, hdr: VnetHdr, len: u32, head: Span<'a>) {
        self.frames.push(Frame { hdr, more: 0, more_count: 0, len, head });
    }

    /// Appends a frame that begins in `head` and continues in `more`. False when the burst has no
    /// room for the pieces: the frame then begins the next burst.
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

    /// Removes all but the first `frames` frames.
    pub fn truncate(&mut self, frames: usize) {
        self.frames.truncate(frames);
    }

    /// True if the burst has room for no further frame.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.frames.is_full()
    }

    /// The frames, in order.
    #[inline]
    pub fn frames(&self) -> &[Frame<'a>] {
        &self.frames
    }

    /// Mutable frames, for queues that determine the virtio headers after the frames.
    #[inline]
    pub fn frames_mut(&mut self) -> &mut [Frame<'a>] {
        &mut self.frames
    }

    /// Pieces of a frame after its head.
    #[inline]
    pub fn more(&self, frame: &Frame<'a>) -> &[Span<'a>] {
        &self.more[usize::from(frame.more)..usize::from(frame.more + frame.more_count)]
    }
}
