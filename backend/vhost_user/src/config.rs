//! Options of a vhost-user function.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use mqnet_sysio::listen::Access;

/// Method to get a connection to the VMM.
#[derive(Debug)]
pub enum Meet {
    /// Listens at the path; the VMM connects, any number of times.
    Listen(PathBuf),
    /// Listens like `Listen`, with the given permissions of the socket file.
    ListenAs(PathBuf, Access),
    /// Connects to a VMM that listens at the path; failed attempts are repeated.
    Connect(PathBuf),
    /// Descriptor inherited from the parent process: a listening socket, or one connection.
    Inherited(OwnedFd),
}

/// Options of a vhost-user function.
#[derive(Debug)]
pub struct VhostUserConfig {
    /// Name of the function, for messages.
    pub name: String,
    /// Method to get a connection.
    pub meet: Meet,
    /// Ethernet address for drivers that read it from the device (QEMU provides its own).
    pub mac: Option<[u8; 6]>,
    /// MTU that is offered and required.
    pub mtu: Option<u32>,
    /// Largest number of queue pairs, 1 to 64.
    pub queues: u16,
    /// True to offer packed rings.
    pub packed: bool,
    /// True to offer a control queue, for peers that are drivers or forward a driver's commands.
    pub ctrl: bool,
}
