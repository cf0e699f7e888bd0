//! Network function over a kernel interface, taken over by AF_XDP sockets
//! (Documentation/networking/af_xdp.rst).
//!
//! Every RX queue of the interface has one socket. All sockets share one UMEM. Each socket uses a
//! separate part of it, so that no queue needs a lock. Received frames are read in place.
//! Transmitted frames are copied once, into a chunk.
//!
//! A queue can have only one socket. During a channel change, old and new channels pass the two
//! sides of the socket on through a [`cell`].

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod cell;
mod config;
mod errors;
mod function;
mod location;
mod pages;
mod ring;
mod rss;
mod rx;
mod session;
mod shared;
mod side;
mod spread;
mod tx;
mod watch;

pub use config::{AfXdpConfig, RequestedMode, ZeroCopy};
pub use function::AfXdpFunction;
