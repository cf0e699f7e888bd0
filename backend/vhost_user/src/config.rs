//! Options of a vhost-user function.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use mqnet_sysio::listen::Access;

/// Origin of the connection to the VMM.
#[derive(Debug)]
pub enum Meet {
    /// Listens at the path; the VMM connects, any number of times.
    Listen(PathBuf),
    /// Like `Listen`, with the given permissions of the socket file.
    ListenAs(PathBuf, Access),
    /// Connects to the path, where the VMM listens; retries until it succeeds.
    Connect(PathBuf),
    /// Descriptor inherited from the parent process: a listening socket, or one connection.
    Inherited(OwnedFd),
}

/// Options of a vhost-user function.
#[derive(Debug)]
pub struct VhostUserConfig {
    /// Name of the function, for messages.
    pub name: String,
    /// Origin of the connection.
    pub meet: Meet,
    /// Ethernet address for drivers that read it from the device (QEMU provides its own).
    pub mac: Option<[u8; 6]>,
    /// MTU that is offered and required.
    pub mtu: Option<u32>,
    /// Maximum number of queue pairs, 1..=64.
    pub queues: u16,
    /// Offers packed rings.
    pub packed: bool,
    /// Offers a control queue, for peers that are the driver themselves or forward its commands.
    pub ctrl: bool,
}
