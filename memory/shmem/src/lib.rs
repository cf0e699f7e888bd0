//! The mapping room: what a piece of memory is, who may write it, and how it is touched.
//!
//! - [`Region`] is one mapping. A *shared* region is written by a peer at any time: it is never
//!   seen as `&[u8]`, only as [`Span`]s (copied, or handed to a system call) and as atomic words.
//! - [`Span`] and [`SpanMut`] are ranges of bytes in *some* memory, ours or a peer's, with the
//!   lifetime of the queue that brought it. All payload in the engine moves through
//!   [`SpanMut::copy_from`] (a counted copy) or through [`read_into`] / [`write_from`] (a system
//!   call).

#![warn(missing_docs)]

mod region;
mod span;
mod window;

pub use region::{Error, PageKind, Region};
pub use span::{Segments, Span, SpanMut, copies, read_into, write_from};
pub use window::Window;
