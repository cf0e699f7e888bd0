//! How to open a TAP.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

pub use mqnet_netdev::Address;

/// How to open a TAP.
#[derive(Debug, Default)]
pub struct TapConfig {
    /// Name of the device, at most 15 bytes; may hold a `%d`.
    pub name: String,
    /// Network namespace to work in (a file such as `/run/netns/NAME`).
    pub netns: Option<PathBuf>,
    /// Ethernet address to set.
    pub mac: Option<[u8; 6]>,
    /// MTU to set, and to want from the other side.
    pub mtu: Option<u32>,
    /// Addresses to add. With any, the device is also set up.
    pub addresses: Vec<Address>,
    /// Keep the device after this process.
    pub persist: bool,
    /// Descriptors of queues that are attached already; the device is then taken as it is.
    pub fds: Vec<OwnedFd>,
}
