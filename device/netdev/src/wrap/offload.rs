//! Frames that a queue does not take as they are, finished on their way to it.
//!
//! Large frames are cut, and missing checksums filled in: headers are made in private memory, the
//! payload goes from where it lies, so that it is copied as often as it would be without. It is
//! put on where an end of a link sends unfinished what it cannot be told to finish; a lane that
//! needs none of it has no wrapper, a frame that needs none passes with one branch.
//!
//! A frame counts as taken when all of its segments are. What was sent of one for which there was
//! not room enough is remembered, and it goes on from there when it is shown again.

mod borrows;
mod brings;
mod finisher;
mod parts;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use mqnet_wire::{Layer, VnetHdr};

use crate::{ChannelStats, Offloads, Tx};
use finisher::Finisher;
pub use parts::Parts;

/// What a queue takes.
#[derive(Clone, Copy, Debug)]
pub struct Finish {
    /// What the first byte of a frame begins.
    pub layer: Layer,
    /// How frames may be unfinished.
    pub takes: Offloads,
    /// Its largest frame.
    pub frame_max: u32,
}

impl Finish {
    /// True for a frame that the queue takes as it is.
    #[inline]
    fn passes(&self, hdr: VnetHdr, len: u32) -> bool {
        len <= self.frame_max && (hdr.is_finished() || self.takes.covers(hdr))
    }
}

/// What a wrapper has in hand, for whoever decides when its lane may go.
#[derive(Clone, Debug, Default)]
pub struct InHand(Arc<AtomicU8>);

/// Some of a frame's segments are sent.
const BEGUN: u8 = 1;
/// A frame that was received lies in the wrapper.
const KEPT: u8 = 2;
/// It is to be dropped.
const UNWANTED: u8 = 4;

impl InHand {
    fn set(&self, what: u8, on: bool) {
        let now = self.0.load(Ordering::Relaxed);
        self.0.store(if on { now | what } else { now & !what }, Ordering::Relaxed);
    }

    /// Nothing: no frame is with it, or partly sent.
    pub fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Some of a frame's segments are sent.
    pub fn is_begun(&self) -> bool {
        self.0.load(Ordering::Relaxed) & BEGUN != 0
    }

    /// The frame that is partly sent was dropped: it does not go on.
    pub fn give_up(&self) {
        self.set(BEGUN, false);
    }

    /// What is left of the frame that lies in the wrapper is dropped as soon as that is asked for
    /// anything: its lane waits for no sink.
    pub fn drop_the_kept(&self) {
        if self.has_a_frame() {
            self.set(UNWANTED, true);
        }
    }

    fn is_unwanted(&self) -> bool {
        self.0.load(Ordering::Relaxed) & UNWANTED != 0
    }

    /// A frame that its source has given away, and for which there was no room.
    pub fn has_a_frame(&self) -> bool {
        self.0.load(Ordering::Relaxed) & KEPT != 0
    }
}

/// Puts a wrapper around a queue whose channel counts in `stats`. For frames that a source without
/// memory is to receive into it, it has `room` bytes.
pub fn wrap_tx(tx: Tx, how: Finish, stats: Arc<ChannelStats>, room: u32) -> (Tx, InHand) {
    let finisher = Finisher::new(how, stats);
    let in_hand = finisher.in_hand();
    let tx = match tx {
        Tx::Brings(inner) => Tx::Brings(Box::new(brings::Brings::new(inner, finisher, room))),
        Tx::Borrows(inner) => Tx::Borrows(Box::new(borrows::Borrows { inner, finisher })),
    };
    (tx, in_hand)
}
