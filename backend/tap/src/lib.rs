//! A TAP or TUN device of the running kernel as a network function
//! (Documentation/networking/tuntap.rst).
//!
//! `readv` and `writev` copy a frame directly between the kernel and the buffers of the other queue
//! of the lane. The kernel prefixes each frame with a `virtio_net_hdr`, so GSO frames and frames
//! with partial checksums pass unchanged.
//!
//! A TUN carries IP packets without an Ethernet header: [`TapConfig::tun`].
//!
//! With io_uring, one system call writes a whole burst to the kernel ([`Io`]).
//!
//! Each queue is one descriptor. Unused queues are detached, so `ethtool -l` shows the channels
//! in use. The carrier of the device follows the link.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod batching;
mod config;
mod fallback;
mod follow;
mod function;
mod location;
mod netlink;
mod open;
mod origin;
mod queue;
mod queues;
mod reattach;
mod restore;
pub mod steering;
mod view;

pub use config::{InterfaceAddress, Io, TapConfig};
pub use function::{TapError, TapFunction};
pub use open::wait_until_active;
