//! Memory mappings: regions, access rights, and copies.
//!
//! - [`Region`] is one mapping. A peer may write a *shared* region at any time, so a region is
//!   never exposed as `&[u8]`, only as [`Span`]s (copied, or passed to a system call) and as atomic
//!   words.
//! - [`MemoryMap`] is a peer's address space, made of regions. [`AtomicTable`] and [`Column`] are
//!   the numbers in a ring. [`GuestMemoryView`] is one queue's view of the address space.
//! - [`RegionPart`] is a range of a region with one owner.
//! - [`Span`] and [`SpanMut`] are byte ranges in private or shared memory, with the lifetime of the
//!   queue that provides it. All payload moves through [`SpanMut::copy_from`] (a counted copy),
//!   with non-temporal stores if [`Stores`] selects them, or through [`read_into`], [`write_from`]
//!   or a [`BatchWriter`] (a system call).

#![warn(missing_docs)]

pub mod code;
mod column;
mod guest_view;
mod map;
mod part;
mod region;
mod span;
mod stores;
mod stream;
mod window;

pub use column::Column;
pub use guest_view::GuestMemoryView;
pub use map::{Area, AtomicTable, BadMap, MemoryMap};
pub use part::{PartView, RegionPart};
pub use region::{Error, PEER_MEMORY_DEFAULT, PageKind, Region, set_peer_memory};
pub use span::{BatchWriter, Scatter, Segments, Span, SpanMut, copies, read_into, write_from};
pub use stores::{Preference, StoreMode, Stores, Watch, prefer};
pub use stream::Streaming;
pub use window::{ReadView, Window};
