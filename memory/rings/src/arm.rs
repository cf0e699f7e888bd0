//! Arming: how one side sleeps without missing the other side's next move.
//!
//! The side that has nothing to do (a consumer of an empty ring, a producer of a full one) is the
//! *waiter*; the other is the *ringer*. The waiter writes a word that the ringer reads:
//!
//! ```text
//!   waiter                              ringer
//!   arm():  word = count + 1            publish its ring index
//!           full barrier      <------>  due(): full barrier
//!           re-check the ring                  read word; changed since last time? ring once
//!           nothing? sleep
//! ```
//!
//! The two barriers make the store-buffering outcome (the waiter sees the old index *and* the
//! ringer sees the old word) impossible, so either the waiter finds the work or it is rung.
//!
//! The word is a counter, not a flag: one arming is worth exactly one doorbell, and nobody has to
//! take it back. (Rejected: a flag that the waiter clears on waking. Over a bridge the clear is one
//! more posted write, and until it lands every burst rings.) With the count goes what the waiter
//! wants, so that a producer of large frames is not woken for room that does not help it: a queue
//! stops when full and is woken when half is free, or more if it asked for more.

use crate::primitive::sync::atomic::{AtomicU64, Ordering, fence};

/// Generation of the link in the upper 16 bits, count in the next 16, wanted units in the rest.
fn pack(generation: u16, count: u16, want: u32) -> u64 {
    u64::from(generation) << 48 | u64::from(count) << 32 | u64::from(want)
}

/// The side that sleeps.
#[derive(Debug)]
pub struct Waiter {
    generation: u16,
    count: u16,
}

impl Waiter {
    /// A waiter that has never armed. `generation` tells this life of the link from the last.
    pub fn new(generation: u16) -> Self {
        Self { generation, count: 0 }
    }

    /// Announces that this side is about to sleep until `want` units are there. The caller must
    /// look at the ring once more before it sleeps.
    #[inline]
    pub fn arm(&mut self, word: &AtomicU64, want: u32) {
        self.count = self.count.wrapping_add(1);
        word.store(pack(self.generation, self.count, want).to_le(), Ordering::Release);
        // Pairs with the fence in Ringer::due: our word before our second look at the ring,
        // against its index before its look at our word.
        fence(Ordering::SeqCst);
    }
}

/// The side that rings.
#[derive(Debug)]
pub struct Ringer {
    generation: u16,
    served: u16,
}

impl Ringer {
    /// A ringer whose waiter has never armed.
    pub fn new(generation: u16) -> Self {
        Self { generation, served: 0 }
    }

    /// After publishing: is a doorbell due? `have` is what the waiter will find. A word of another
    /// generation is not from this link's waiter and never answered.
    #[inline]
    pub fn due(&mut self, word: &AtomicU64, have: u32) -> bool {
        // Pairs with the fence in Waiter::arm: our index before our look at the word, against its
        // word before its second look at the ring.
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

/// Free units at which a stopped producer of a ring of `size` units wants to be woken: half, or
/// `need` if that is more (a frame that fits only an emptier ring), never more than all.
pub fn wake_threshold(size: u32, need: u32) -> u32 {
    (size / 2).max(need).min(size)
}

#[cfg(test)]
mod tests;
