//! Traffic that is verified byte by byte: TCP streams and numbered datagrams.

#![forbid(unsafe_code)]

mod pattern;
mod stream;
mod tracker;

pub use pattern::{BLOCK, Pattern, scatter};
pub use stream::{ReceivedStream, SendOrder, SentStream, receive, send};
pub use tracker::{Tally, Tracker};
