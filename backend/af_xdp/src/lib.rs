//! A network interface of the kernel, taken over by AF_XDP sockets
//! (Documentation/networking/af_xdp.rst).
//!
//! Every RX queue of the interface has a socket. All sockets share one memory, in chunks; each has
//! its own part of it, so that a queue needs no lock. What arrives is shown where it lies; what is
//! sent is copied once, into a chunk.
//!
//! A queue can have one socket only, so the halves of two sets of channels hand it over through a
//! [`cell`].

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod cell;
mod config;
mod function;
mod pages;
mod place;
mod ring;
mod rss;
mod rx;
mod session;
mod side;
mod spread;
mod tx;
mod watch;
mod words;

pub use config::{AfXdpConfig, ModeWish, ZeroCopy};
pub use function::AfXdpFunction;
