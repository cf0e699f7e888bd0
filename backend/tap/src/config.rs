//! How to open a TAP or a TUN.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

pub use mqnet_netdev::{Address, Io};
use mqnet_wire::Layer;

/// How to open a TAP or a TUN.
#[derive(Debug, Default)]
pub struct TapConfig {
    /// Name of the device, at most 15 bytes; may hold a `%d`.
    pub name: String,
    /// A TUN: IP packets, and no Ethernet header in front of them.
    pub tun: bool,
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
    /// How frames are written to it.
    pub io: Io,
}

impl TapConfig {
    /// What its frames begin with.
    pub fn layer(&self) -> Layer {
        if self.tun { Layer::Ip } else { Layer::Ethernet }
    }
}
