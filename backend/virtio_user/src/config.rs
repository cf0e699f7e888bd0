//! How to reach a device.

use std::path::PathBuf;

use mqnet_sysio::listen::Access;
use mqnet_virtio::rxbuf::layout::Wish;

use crate::provided::ProvidedMemory;

/// How to reach a device, and what to take of what it offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtioUserConfig {
    /// The socket.
    pub path: PathBuf,
    /// Listen at the socket, instead of connecting to it.
    pub server: bool,
    /// Permissions of the socket that a server makes.
    pub access: Access,
    /// Most queue pairs; otherwise as many as the device has.
    pub queues: Option<u16>,
    /// Wanted MTU.
    pub mtu: Option<u32>,
    /// Take frames for this address and for groups only; the device must have a control queue.
    pub mac: Option<[u8; 6]>,
    /// Take packed rings where the device has them.
    pub packed: bool,
    /// Take buffers that come back in order where the device keeps it.
    pub in_order: bool,
    /// Agree on checksums that the device finishes, and with them on segmentation, where it does.
    pub csum: bool,
    /// Take mergeable buffers where the device has them.
    pub mergeable: bool,
    /// How RX buffers lie in pages.
    pub rx_buf_layout: Wish,
    /// Memory for them; otherwise the engine's own.
    pub rx_memory: Option<ProvidedMemory>,
}

impl VirtioUserConfig {
    /// Connects to `path` and takes split rings, their order and mergeable buffers.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            server: false,
            access: Access::default(),
            queues: None,
            mtu: None,
            mac: None,
            packed: false,
            in_order: true,
            csum: true,
            mergeable: true,
            rx_buf_layout: Wish::Frag,
            rx_memory: None,
        }
    }
}
