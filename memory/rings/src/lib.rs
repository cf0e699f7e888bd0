//! Lock-free rings and their sleep/wake protocol.
//!
//! - [`cursor`]: index arithmetic of all rings.
//! - [`spsc`]: single producer, single consumer, in private memory.
//! - [`mpsc`]: many senders, one consumer, slots with fixed addresses; senders can wait for space.
//! - [`return_ring`]: many producers return entries to one owner, in batches.
//! - [`arm`]: the sleep/wake protocol, with which an idle side sleeps without missing an update.
//! - [`hand_over`]: cells in which one queue of a channel leaves a resource for the next.
//! - [`prefetch`]: prefetch of the lines of a burst.
//! - [`demote`]: cache-line demotion (CLDEMOTE).
//!
//! All atomics come from [`primitive`], so that loom checks the code of the program.

#![warn(missing_docs)]

pub mod arm;
pub mod cursor;
pub mod demote;
pub mod hand_over;
mod lines;
pub mod mpsc;
pub mod prefetch;
pub mod primitive;
pub mod return_ring;
pub mod spsc;

pub use arm::{Ringer, Waiter};
pub use cursor::{Cursor, IndexViolation};
