//! Offload emulation: frames with offloads that a queue does not perform are segmented and
//! completed before it.
//!
//! Large frames are segmented, and checksums filled in. Headers are made in private memory and the
//! payload stays in place, so that emulation adds no copy. The wrapper is added where one end of a
//! link sends frames that need offloads and cannot be notified to stop. A lane that needs no
//! emulation has no wrapper; a frame that needs none passes with one branch.
//!
//! A frame counts as taken when all of its segments are. If the queue has room for only some
//! segments, the progress is recorded, and sending resumes there when the same frame is submitted
//! again.

mod finisher;
mod owning;
mod parts;
mod syscall;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use mqnet_wire::{Layer, VnetHdr};

use crate::{Offloads, QueuePairStats, Tx};
use finisher::Finisher;
pub use parts::Parts;

/// Frames that a queue accepts.
#[derive(Clone, Copy, Debug)]
pub struct Finish {
    /// Layer at which frames begin.
    pub layer: Layer,
    /// Offloads that the queue performs.
    pub takes: Offloads,
    /// Largest frame.
    pub frame_max: u32,
}

impl Finish {
    /// True for a frame that needs no emulation.
    #[inline]
    fn passes(&self, hdr: VnetHdr, len: u32) -> bool {
        len <= self.frame_max && (hdr.is_finished() || self.takes.covers(hdr))
    }
}

/// GSO progress of a wrapper, for the lane that decides whether it may stop.
#[derive(Clone, Debug, Default)]
pub struct GsoProgress(Arc<AtomicU8>);

/// A frame is partly sent.
const PARTIAL: u8 = 1;
/// A received frame is staged in the wrapper.
const STAGED: u8 = 2;
/// The staged frame is to be discarded.
const DISCARD: u8 = 4;

impl GsoProgress {
    fn set(&self, what: u8, on: bool) {
        let now = self.0.load(Ordering::Relaxed);
        self.0.store(if on { now | what } else { now & !what }, Ordering::Relaxed);
    }

    /// True if no frame is staged or partly sent.
    pub fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// True if a frame is partly sent.
    pub fn is_begun(&self) -> bool {
        self.0.load(Ordering::Relaxed) & PARTIAL != 0
    }

    /// Discards the progress of a partly sent frame, because the lane dropped it.
    pub fn give_up(&self) {
        self.set(PARTIAL, false);
    }

    /// Requests that the wrapper discards the rest of its staged frame at the next call, so that
    /// its lane does not wait for the sink.
    pub fn drop_the_kept(&self) {
        if self.has_a_frame() {
            self.set(DISCARD, true);
        }
    }

    fn is_discarded(&self) -> bool {
        self.0.load(Ordering::Relaxed) & DISCARD != 0
    }

    /// True if a frame is staged: consumed from its source, without room in the sink.
    pub fn has_a_frame(&self) -> bool {
        self.0.load(Ordering::Relaxed) & STAGED != 0
    }
}

/// Adds offload emulation to a queue whose channel counts in `stats`. The staging buffer, for
/// frames received from a source without memory, has `room` bytes.
pub fn wrap_tx(tx: Tx, how: Finish, stats: Arc<QueuePairStats>, room: u32) -> (Tx, GsoProgress) {
    let finisher = Finisher::new(how, stats);
    let in_hand = finisher.in_hand();
    let tx = match tx {
        Tx::Owning(inner) => Tx::Owning(Box::new(owning::OwningQueue::new(inner, finisher, room))),
        Tx::Syscall(inner) => Tx::Syscall(Box::new(syscall::SyscallQueue { inner, finisher })),
    };
    (tx, in_hand)
}
