//! Offload emulation: segmentation and checksums in software, for frames with offloads that a queue
//! does not perform.
//!
//! Headers are created in private memory and the payload stays in place, so that emulation adds no
//! copy. The wrapper is added if one end of a link sends frames with offloads that it cannot
//! disable. A lane that needs no emulation has no wrapper; a frame that needs no emulation passes
//! with one branch.
//!
//! A frame counts as accepted when all of its segments are accepted. If the queue has space for
//! only some segments, the progress is recorded. Sending resumes at the next segment when the same
//! frame is submitted again.

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

/// Properties of the frames that a queue accepts.
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
    /// True if the queue accepts a frame without emulation.
    #[inline]
    fn passes(&self, hdr: VnetHdr, len: u32) -> bool {
        len <= self.frame_max && (hdr.is_finished() || self.takes.covers(hdr))
    }
}

/// GSO progress of a wrapper, shared with the lane. The lane reads the progress to decide whether
/// the lane may end.
#[derive(Clone, Debug, Default)]
pub struct GsoProgress(Arc<AtomicU8>);

/// Bit: a frame is partly sent.
const PARTIAL: u8 = 1;
/// Bit: a received frame is staged in the wrapper.
const STAGED: u8 = 2;
/// Bit: the staged frame must be discarded.
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

    /// Discards the progress of a partly sent frame, which the lane has dropped.
    pub fn give_up(&self) {
        self.set(PARTIAL, false);
    }

    /// Requests that the wrapper discards the rest of its staged frame at the next call, so that
    /// its lane does not wait for the sink. Has no effect if no frame is staged.
    pub fn drop_the_kept(&self) {
        if self.has_a_frame() {
            self.set(DISCARD, true);
        }
    }

    fn is_discarded(&self) -> bool {
        self.0.load(Ordering::Relaxed) & DISCARD != 0
    }

    /// True if a frame is staged: it was received from the source, and the sink has no space for
    /// it.
    pub fn has_a_frame(&self) -> bool {
        self.0.load(Ordering::Relaxed) & STAGED != 0
    }
}

/// Adds offload emulation to a queue. `stats` are the statistics of the queue's channel. `room` is
/// the initial size in bytes of the staging buffer, which receives frames of a system-call source.
pub fn wrap_tx(tx: Tx, how: Finish, stats: Arc<QueuePairStats>, room: u32) -> (Tx, GsoProgress) {
    let finisher = Finisher::new(how, stats);
    let in_hand = finisher.in_hand();
    let tx = match tx {
        Tx::Owning(inner) => Tx::Owning(Box::new(owning::OwningQueue::new(inner, finisher, room))),
        Tx::Syscall(inner) => Tx::Syscall(Box::new(syscall::SyscallQueue { inner, finisher })),
    };
    (tx, in_hand)
}
