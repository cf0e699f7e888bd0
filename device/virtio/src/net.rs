//! The network device: frame header, config space (virtio 1.3, 5.1.4, 5.1.6), and the commands of
//! the control queue.

pub mod ctrl;
pub mod filter;
pub mod rss;

/// Bytes of the frame header with VERSION_1 or MRG_RXBUF.
pub const HDR_LEN: u32 = 12;

/// Bytes of the frame header with hash reports (`HASH_REPORT`).
pub const HDR_LEN_HASH: u32 = 20;

/// Virtqueue number of the receiveq of queue pair `pair` (even; the driver receives from this
/// queue).
pub const fn rx_queue(pair: u16) -> u16 {
    2 * pair
}

/// Virtqueue number of the transmitq of queue pair `pair` (odd; the driver transmits to this
/// queue).
pub const fn tx_queue(pair: u16) -> u16 {
    2 * pair + 1
}

/// Bit of `status`: the link is up.
pub const STATUS_LINK_UP: u16 = 1;

/// Bit of `status`: the driver should announce its addresses.
pub const STATUS_ANNOUNCE: u16 = 2;

/// Virtqueue number of the control queue of a device with `pairs` queue pairs.
pub const fn ctrl_queue(pairs: u16) -> u16 {
    2 * pairs
}

/// Bytes of the config space up to and including the MTU.
pub const CONFIG_LEN: usize = 12;

/// Config space up to the MTU: mac, status, max_virtqueue_pairs, mtu.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// MAC address (`MAC`).
    pub mac: [u8; 6],
    /// Link status (`STATUS`).
    pub status: u16,
    /// Maximum number of queue pairs (`MQ`, `RSS`).
    pub pairs: u16,
    /// Largest MTU that the driver may use (`MTU`).
    pub mtu: u16,
}

impl Config {
    /// Encodes the config space.
    pub fn to_bytes(self) -> [u8; CONFIG_LEN] {
        let mut out = [0; CONFIG_LEN];
        out[..6].copy_from_slice(&self.mac);
        out[6..8].copy_from_slice(&self.status.to_le_bytes());
        out[8..10].copy_from_slice(&self.pairs.to_le_bytes());
        out[10..12].copy_from_slice(&self.mtu.to_le_bytes());
        out
    }

    /// Decodes the config space.
    pub fn from_bytes(bytes: &[u8; CONFIG_LEN]) -> Self {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let [a, b, c, d, e, f, ..] = *bytes;
        Self { mac: [a, b, c, d, e, f], status: half(6), pairs: half(8), mtu: half(10) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: every field of the config space has the offset of the specification.
    #[test]
    fn config_has_its_layout() {
        let config = Config { mac: [1, 2, 3, 4, 5, 6], status: 1, pairs: 0x0208, mtu: 9000 };
        let bytes = config.to_bytes();
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 1, 0, 8, 2, 0x28, 0x23]);
        assert_eq!(Config::from_bytes(&bytes), config);
    }
}
