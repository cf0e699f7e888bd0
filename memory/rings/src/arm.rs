//! Arming: one side of a ring can sleep without missing an update of the other side.
//!
//! The *waiter* is the side without work: a consumer of an empty ring, or a producer of a full one.
//! The other side is the *ringer*. The waiter writes a word that the ringer reads:
//!
//! ```text
//!   waiter                              ringer
//!   arm():  word = count + 1            publish its ring index
//!           full barrier      <------>  due(): full barrier
//!           re-check the ring                  read word; changed since last time? ring once
//!           nothing? sleep
//! ```
//!
//! The two barriers exclude the store-buffering outcome, in which the waiter reads the old index
//! *and* the ringer reads the old word. The waiter therefore finds the work or receives a doorbell.
//!
//! The word has a counter, not a flag, so that each arming causes exactly one doorbell and needs no
//! reset. (Rejected: a flag that the waiter clears when it wakes. Over a bridge, the clear is
//! another posted write, and every burst sends a doorbell until the clear arrives.) The word also
//! has the number of units that the waiter needs, so that a producer of large frames is not woken
//! too early. A stopped queue is woken when half of the ring is free, or more if the producer
//! requests more.

use crate::primitive::sync::atomic::{AtomicU64, Ordering, fence};

/// Packs the generation of the link (upper 16 bits), the arming count (next 16 bits), and the
/// requested units.
fn pack(generation: u16, count: u16, want: u32) -> u64 {
    u64::from(generation) << 48 | u64::from(count) << 32 | u64::from(want)
}

/// Waiter: the side that sleeps.
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

    /// Requests a doorbell as soon as `want` units are available. The caller must check the ring
    /// once more before it sleeps.
    #[inline]
    pub fn arm(&mut self, word: &AtomicU64, want: u32) {
        self.count = self.count.wrapping_add(1);
        word.store(pack(self.generation, self.count, want).to_le(), Ordering::Release);
        // Pairs with the fence in `Ringer::due`: the word is visible before the second check of the
        // ring, or the ringer's index is visible to that check.
        fence(Ordering::SeqCst);
    }
}

/// Ringer: the side that wakes the waiter.
#[derive(Debug)]
pub struct Ringer {
    generation: u16,
    served: u16,
}

impl Ringer {
    /// Creates a ringer for a waiter that has not armed.
    pub fn new(generation: u16) -> Self {
        Self { generation, served: 0 }
    }

    /// True if a doorbell is due; called after each publication. `have` is the number of units that
    /// are now available to the waiter. A word of another generation is ignored, because it belongs
    /// to another session.
    #[inline]
    pub fn due(&mut self, word: &AtomicU64, have: u32) -> bool {
        // Pairs with the fence in `Waiter::arm`: the index is visible to the waiter's second check
        // of the ring, or the word is visible to this load.
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

/// Number of free units at which a stopped producer is woken: the larger of half of `size` and
/// `need`, at most `size`.
pub fn wake_threshold(size: u32, need: u32) -> u32 {
    (size / 2).max(need).min(size)
}

#[cfg(test)]
mod tests;
