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
    /// Index of the frame's second segment in the burst's list of further segments.
    more: u16,
    /// Number of segments after the first.
    more_count: u16,
    /// Length in bytes.
    pub len: u32,
    /// First segment of the frame; usually the complete frame.
    pub head: Span<'a>,
}

impl Frame<'_> {
    /// True if the first segment holds the complete frame.
    #[inline]
    pub fn is_one_piece(&self) -> bool {
        self.more_count == 0
    }
}

/// Up to 64 frames, each in one or more segments of memory. A burst borrows the queue that owns the
/// memory, so that no frame can be released while the burst exists.
#[derive(Debug, Default)]
pub struct Burst<'a> {
    frames: ArrayVec<Frame<'a>, BURST_FRAMES>,
    more: ArrayVec<Span<'a>, BURST_MORE_PIECES>,
}

impl<'a> Burst<'a> {
    /// Creates an empty burst.
    #[inline]
    pub fn new() -> Self {
        Self { frames: ArrayVec::new_const(), more: ArrayVec::new_const() }
    }

    /// Appends a frame of `len` bytes in one segment.
    #[inline]
    pub fn push(&mut self, hdr: VnetHdr, len: u32, head: Span<'a>) {
        self.frames.push(Frame { hdr, more: 0, more_count: 0, len, head });
    }

    /// Appends a frame with the segment `head` and the further segments `more`. Returns false,
    /// without effect, if the burst has no space for the segments; the frame then begins the next
    /// burst.
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

    /// True if the burst has no space for another frame.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.frames.is_full()
    }

    /// Frames in order.
    #[inline]
    pub fn frames(&self) -> &[Frame<'a>] {
        &self.frames
    }

    /// Mutable frames, for queues that set the virtio headers after all frames are appended.
    #[inline]
    pub fn frames_mut(&mut self) -> &mut [Frame<'a>] {
        &mut self.frames
    }

    /// Segments of a frame after the first.
    #[inline]
    pub fn more(&self, frame: &Frame<'a>) -> &[Span<'a>] {
        &self.more[usize::from(frame.more)..usize::from(frame.more + frame.more_count)]
    }
}
