//! Options of a TAP or TUN.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

pub use mqnet_netdev::{InterfaceAddress, Io};
use mqnet_wire::Layer;

/// Options of a TAP or TUN.
#[derive(Debug, Default)]
pub struct TapConfig {
    /// Name of the device, at most 15 bytes. The kernel replaces `%d` by a number.
    pub name: String,
    /// True for TUN mode: IP packets without an Ethernet header.
    pub tun: bool,
    /// Network namespace of the device, as a file such as `/run/netns/NAME`; `None` for that of
    /// this process.
    pub netns: Option<PathBuf>,
    /// Ethernet address to set; `None` leaves it unchanged.
    pub mac: Option<[u8; 6]>,
    /// MTU to set, and to request for the link; `None` for no request.
    pub mtu: Option<u32>,
    /// Addresses to add. A device with addresses is also set up.
    pub addresses: Vec<InterfaceAddress>,
    /// True to keep the device when this process ends.
    pub persist: bool,
    /// Descriptors of queues that another process has attached. The device is then used with its
    /// present settings.
    pub fds: Vec<OwnedFd>,
    /// Method of writing frames.
    pub io: Io,
}

impl TapConfig {
    /// Layer of the frames: Ethernet for a TAP, IP for a TUN.
    pub fn layer(&self) -> Layer {
        if self.tun { Layer::Ip } else { Layer::Ethernet }
    }
}
