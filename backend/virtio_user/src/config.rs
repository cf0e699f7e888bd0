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
    /// Listens at the socket, instead of connecting to it.
    pub server: bool,
    /// Permissions of the socket file of a server.
    pub access: Access,
    /// Maximum number of queue pairs; by default that of the device.
    pub queues: Option<u16>,
    /// Required MTU.
    pub mtu: Option<u32>,
    /// Accepts only frames for this address and for groups; requires a control queue of the device.
    pub mac: Option<[u8; 6]>,
    /// Requires packed rings.
    pub packed: bool,
    /// Accepts `IN_ORDER` if the device offers it.
    pub in_order: bool,
    /// Accepts checksum offload by the device, and with it segmentation offload, if offered.
    pub csum: bool,
    /// Accepts mergeable receive buffers if the device offers them.
    pub mergeable: bool,
    /// Layout of RX buffers in pages.
    pub rx_buf_layout: RequestedLayout,
    /// Memory of the RX buffers; by default the engine's own.
    pub rx_memory: Option<ProvidedMemory>,
}

impl VirtioUserConfig {
    /// Connects to `path` and accepts split rings, `IN_ORDER` and mergeable buffers.
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
