//! Lock-free rings and their sleep/wake protocol.
//!
//! - [`cursor`]: the index arithmetic under every ring, in one place.
//! - [`spsc`]: one producer, one consumer, in private memory.
//! - [`mpsc`]: many senders, one consumer, slots that stay in place; senders that must wait can.
//! - [`return_ring`]: many producers hand entries back to one owner, a batch at a time.
//! - [`arm`]: how a side that found nothing to do goes to sleep without missing the other side's
//!   next move, and how the other side learns that a doorbell is due.
//! - [`prefetch`]: what will be used, asked for.
//! - [`demote`]: what was written, handed on to the cache that all CPUs share.
//!
//! Every atomic comes from [`primitive`], so that loom checks the very algorithm that runs.

#![warn(missing_docs)]

pub mod arm;
pub mod cursor;
pub mod demote;
mod lines;
pub mod mpsc;
pub mod prefetch;
pub mod primitive;
pub mod return_ring;
pub mod spsc;

pub use arm::{Ringer, Waiter};
pub use cursor::{Cursor, IndexViolation};
