//! Arming: lets one side of a ring sleep without missing an update of the other side.
//!
//! The side without work (a consumer of an empty ring, a producer of a full one) is the *waiter*;
//! the other side is the *ringer*. The waiter writes a word that the ringer reads:
//!
//! ```text
//!   waiter                              ringer
//!   arm():  word = count + 1            publish its ring index
//!           full barrier      <------>  due(): full barrier
//!           re-check the ring                  read word; changed since last time? ring once
//!           nothing? sleep
//! ```
//!
//! The two barriers exclude the store-buffering outcome (the waiter reads the old index *and* the
//! ringer reads the old word). So the waiter finds the work or receives a doorbell.
//!
//! The word is a counter, not a flag: each arming causes exactly one doorbell and needs no reset.
//! (Rejected: a flag that the waiter clears on waking. Over a bridge the clear is one more posted
//! write, and every burst rings until it arrives.) The word also carries the number of units that
//! the waiter needs, so that a producer of large frames is not woken for too little room. A stopped
//! queue is woken when half of the ring is free, or more if the producer requests more.

use crate::primitive::sync::atomic::{AtomicU64, Ordering, fence};

/// Packs the link's generation (upper 16 bits), the count (next 16), and the wanted units.
fn pack(generation: u16, count: u16, want: u32) -> u64 {
    u64::from(generation) << 48 | u64::from(count) << 32 | u64::from(want)
}

/// Sleeping side of a ring.
#[derive(Debug)]
pub struct Waiter {
    generation: u16,
    count: u16,
}

impl Waiter {
    /// Creates a waiter. `generation` distinguishes this session of the link from the previous one.
    pub fn new(generation: u16) -> Self {
        Self { generation, count: 0 }
    }

    /// Announces that this side will sleep until `want` units are available. The caller must check
    /// the ring once more before it sleeps.
    #[inline]
    pub fn arm(&mut self, word: &AtomicU64, want: u32) {
        self.count = self.count.wrapping_add(1);
        word.store(pack(self.generation, self.count, want).to_le(), Ordering::Release);
        // Pairs with the fence in Ringer::due: orders this word before the re-check of the ring,
        // against the other side's index before its load of the word.
        fence(Ordering::SeqCst);
    }
}

/// Waking side of a ring.
#[derive(Debug)]
pub struct Ringer {
    generation: u16,
    served: u16,
}

impl Ringer {
    /// Creates a ringer; the waiter has not armed yet.
    pub fn new(generation: u16) -> Self {
        Self { generation, served: 0 }
    }

    /// True if a doorbell is due, to be called after each publication. `have` is the number of
    /// units now available to the waiter. A word with another generation is ignored: it is from
    /// another session.
    #[inline]
    pub fn due(&mut self, word: &AtomicU64, have: u32) -> bool {
        // Pairs with the fence in Waiter::arm: orders the published index before the load of the
        // word, against the word before the other side's re-check of the ring.
        fence(Ordering::SeqCst);
        let word = u64::from_le(word.load(Ordering::Acquire));
        let count = (word >> 32) as u16;
        if count == self.served {
            return false;
        }
        self.answer((word >> 48) as u16, count, word as u32, have)
    }

    #[cold]
    fn answer(&mut self, generation: u16, count: u16, want: u32, have: u32) -> bool {
        if generation != self.generation || have < want {
            return false;
        }
        self.served = count;
        true
    }
}

/// Number of free units at which a stopped producer is woken: half of `size`, or `need` if larger
/// (a frame that needs an emptier ring), at most `size`.
pub fn wake_threshold(size: u32, need: u32) -> u32 {
    (size / 2).max(need).min(size)
}

#[cfg(test)]
mod tests;
