//! A TAP or TUN device of the running kernel as a network function
//! (Documentation/networking/tuntap.rst).
//!
//! A TAP queue *borrows* memory: `readv` and `writev` move a frame straight into, or out of, the
//! memory that the other queue of the lane brought. In front of each frame the kernel puts a
//! `virtio_net_hdr`, so that large and unfinished frames cross whole.
//!
//! A TUN is the same without the Ethernet header: [`TapConfig::tun`].
//!
//! Towards the kernel a burst of frames is one system call where io_uring is to be had ([`Io`]).
//!
//! Each queue is one descriptor, and only attached queues count: stock `ethtool -l` shows the
//! channels that run. The carrier of the device follows the link.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod batching;
mod comeback;
mod config;
mod fallback;
mod follow;
mod function;
mod netlink;
mod open;
mod queue;
mod queues;
mod restore;
pub mod steering;

pub use config::{Address, Io, TapConfig};
pub use function::{TapError, TapFunction};
pub use open::wait_until_active;
