//! What the user asked for.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use mqnet_sysio::listen::Access;

/// How the socket comes to be.
#[derive(Debug)]
pub enum Meet {
    /// We listen; the VMM connects, as often as it likes.
    Listen(PathBuf),
    /// The same, with permissions of the socket.
    ListenAs(PathBuf, Access),
    /// The VMM listens; we connect until it does.
    Connect(PathBuf),
    /// A parent process left it open: a listening socket, or one connection.
    Inherited(OwnedFd),
}

/// How to open a device.
#[derive(Debug)]
pub struct VhostUserConfig {
    /// Name of the function, for messages.
    pub name: String,
    /// Where the peer is met.
    pub meet: Meet,
    /// Ethernet address for drivers that ask us (QEMU has its own).
    pub mac: Option<[u8; 6]>,
    /// MTU to offer and to insist on.
    pub mtu: Option<u32>,
    /// Most queue pairs of the link, 1..=64.
    pub queues: u16,
    /// Offer packed rings.
    pub packed: bool,
    /// Offer a control queue, for peers that are the driver themselves or pass its commands on.
    pub ctrl: bool,
}
