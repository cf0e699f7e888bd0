//! Options of a virtio-user function.

use std::path::PathBuf;

use mqnet_sysio::listen::Access;
use mqnet_virtio::rxbuf::layout::RequestedLayout;

use crate::provided::ProvidedMemory;

/// Options of a virtio-user function: the socket, and the features to accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtioUserConfig {
    /// Path of the socket.
    pub path: PathBuf,
    /// True to listen at the socket, false to connect to it.
    pub server: bool,
    /// Permissions of the socket file of a server.
    pub access: Access,
    /// Largest number of queue pairs; by default that of the device.
    pub queues: Option<u16>,
    /// Required MTU.
    pub mtu: Option<u32>,
    /// Address of the driver. Only frames to this address and to groups are accepted. Needs a
    /// control queue.
    pub mac: Option<[u8; 6]>,
    /// True to require packed rings.
    pub packed: bool,
    /// True to accept `IN_ORDER` if the device offers it.
    pub in_order: bool,
    /// True to accept the device's checksum and segmentation offloads, as far as offered.
    pub csum: bool,
    /// True to accept mergeable receive buffers if the device offers them.
    pub mergeable: bool,
    /// Layout of RX buffers in pages.
    pub rx_buf_layout: RequestedLayout,
    /// Memory of the RX buffers; by default memory of this process.
    pub rx_memory: Option<ProvidedMemory>,
}

impl VirtioUserConfig {
    /// Options with defaults: connects to `path`, and accepts split rings, `IN_ORDER`, all
    /// offloads and mergeable buffers.
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
            rx_buf_layout: RequestedLayout::Frag,
            rx_memory: None,
        }
    }
}
