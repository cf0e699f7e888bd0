//! Traffic that is verified byte by byte: TCP streams and numbered datagrams.

#![forbid(unsafe_code)]

mod pattern;
mod stream;
mod tracker;

pub use pattern::{BLOCK, Pattern, scatter};
pub use stream::{Received, SendOrder, Sent, receive, send};
pub use tracker::{Tally, Tracker};
