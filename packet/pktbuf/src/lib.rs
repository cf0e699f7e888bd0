//! Page pool: memory for frames if neither side of a queue has memory for them.
//!
//! A [`PagePool`] is owned by one thread. It allocates [`Page`]s and [`Frag`]ments (parts of a
//! page) from three tiers, fastest first:
//!
//! 1. a small LIFO array that fits into the owner's L1 cache;
//! 2. recycled pages: overflow of the array, and pages freed by other threads;
//! 3. unused pages of the arena, taken in bulk and untouched until then.
//!
//! Another thread frees pages through a [`Returner`], which collects a magazine and pushes it
//! as one batch. All accounting (fragment references, pages in flight, statistics) is plain memory
//! of the owner. A foreign buffer is accounted when the owner drains it, so the owner never
//! executes an atomic read-modify-write.
//!
//! Semantics and statistic names are those of the kernel's page pool.
//!
//! A page handle is a number, not a pointer, and carries the identity of its pool. Bytes are
//! reached through the pool or a returner, which check the identity. Dropping a handle leaks the
//! page until the process ends, and its pool can then never report zero pages in flight.

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

pub use arena::ArenaView;
pub use close::Detached;
pub use config::{Mapping, PoolConfig, PoolError};
pub use gauge::Gauge;
pub use page::{Frag, Page};
pub use pool::PagePool;
pub use returner::Returner;
pub use stats::{PoolCounter, PoolStats};
