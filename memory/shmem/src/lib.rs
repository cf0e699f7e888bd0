//! The mapping room: what a piece of memory is, who may write it, and how it is touched.
//!
//! - [`Region`] is one mapping. A *shared* region is written by a peer at any time: it is never
//!   seen as `&[u8]`, only as [`Span`]s (copied, or handed to a system call) and as atomic words.
//! - [`MemoryMap`] is a peer's address space, made of regions; [`Table`] and [`Column`] the numbers
//!   in a ring; [`Lent`] is what one queue writes of it.
//! - [`Part`] is a range of a region with one owner.
//! - [`Span`] and [`SpanMut`] are ranges of bytes in *some* memory, ours or a peer's, with the
//!   lifetime of the queue that brought it. All payload in the engine moves through
//!   [`SpanMut::copy_from`] (a counted copy), past the cache where [`Stores`] say so, or through
//!   [`read_into`], [`write_from`] or a [`BatchWriter`] (a system call).

#![warn(missing_docs)]

pub mod code;
mod column;
mod lent;
mod map;
mod part;
mod region;
mod span;
mod stores;
mod stream;
mod window;

pub use column::Column;
pub use lent::Lent;
pub use map::{Area, BadMap, MemoryMap, Table};
pub use part::{Part, PartView};
pub use region::{Error, PEER_MEMORY_DEFAULT, PageKind, Region, set_peer_memory};
pub use span::{BatchWriter, Scatter, Segments, Span, SpanMut, copies, read_into, write_from};
pub use stores::{Manner, Preference, Stores, Watch, prefer};
pub use stream::Streaming;
pub use window::{Sight, Window};
