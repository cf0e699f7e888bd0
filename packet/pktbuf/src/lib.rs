//! The page pool: memory for frames when neither side of a queue brings its own.
//!
//! A [`PagePool`] belongs to one thread. It hands out [`Page`]s and [`Frag`]ments (parts of a
//! page) and takes them back through three tiers, fastest first:
//!
//! 1. a small array, last in first out, that fits into the L1 cache of its owner;
//! 2. pages that came back: what the array could not hold, and what other threads returned;
//! 3. pages of the arena that nobody has used yet, a bulk at a time, untouched until then.
//!
//! Another thread gives back through its own [`Returner`], which collects a magazine and hands it
//! over as one batch. All accounting (references of fragments, in flight, statistics) is plain
//! memory of the owner: a page or fragment freed elsewhere travels home first and is accounted
//! there, so that the owner never executes an atomic read-modify-write on the way.
//!
//! The semantics and the names of the statistics are those of the kernel's page pool.
//!
//! A page handle is a number, not a pointer, and carries the identity of its pool: bytes are
//! reached through the pool or a returner, which check it. Dropping a handle loses the page until
//! the process ends, and its pool can then never report that nothing is in flight.

#![warn(missing_docs)]

mod arena;
mod close;
mod config;
mod gauge;
mod ledger;
mod page;
mod pool;
mod returner;
mod stats;
mod steps;

pub use arena::Look;
pub use close::Detached;
pub use config::{Mapping, PoolConfig, PoolError};
pub use gauge::Gauge;
pub use page::{Frag, Page};
pub use pool::PagePool;
pub use returner::Returner;
pub use stats::PoolStats;
