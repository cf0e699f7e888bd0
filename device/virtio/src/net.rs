//! The network device: the header in front of each frame, the config space (5.1.4, 5.1.6), and what
//! its control queue can ask for.

pub mod ctrl;
pub mod filter;
pub mod rss;

/// Bytes of the header in front of a frame: 12, as VERSION_1 or MRG_RXBUF have it.
pub const HDR_LEN: u32 = 12;

/// Bytes of the header when hashes are reported (`HASH_REPORT`).
pub const HDR_LEN_HASH: u32 = 20;

/// Number of the receive queue of a pair, as the driver counts: even ones.
pub const fn rx_queue(pair: u16) -> u16 {
    2 * pair
}

/// Number of the transmit queue of a pair, as the driver counts: odd ones.
pub const fn tx_queue(pair: u16) -> u16 {
    2 * pair + 1
}

/// `status`: the link is up.
pub const STATUS_LINK_UP: u16 = 1;

/// `status`: the driver is to announce itself.
pub const STATUS_ANNOUNCE: u16 = 2;

/// Number of the control queue of a device with so many pairs, as the driver counts.
pub const fn ctrl_queue(pairs: u16) -> u16 {
    2 * pairs
}

/// Bytes of the config space up to and with the MTU.
pub const CONFIG_LEN: usize = 12;

/// The config space as far as the MTU: mac, status, max_virtqueue_pairs, mtu.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Ethernet address (`MAC`).
    pub mac: [u8; 6],
    /// Of the link (`STATUS`).
    pub status: u16,
    /// Most queue pairs (`MQ`, `RSS`).
    pub pairs: u16,
    /// Largest MTU of the driver (`MTU`).
    pub mtu: u16,
}

impl Config {
    /// As it lies in memory.
    pub fn to_bytes(self) -> [u8; CONFIG_LEN] {
        let mut out = [0; CONFIG_LEN];
        out[..6].copy_from_slice(&self.mac);
        out[6..8].copy_from_slice(&self.status.to_le_bytes());
        out[8..10].copy_from_slice(&self.pairs.to_le_bytes());
        out[10..12].copy_from_slice(&self.mtu.to_le_bytes());
        out
    }

    /// From memory.
    pub fn from_bytes(bytes: &[u8; CONFIG_LEN]) -> Self {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let [a, b, c, d, e, f, ..] = *bytes;
        Self { mac: [a, b, c, d, e, f], status: half(6), pairs: half(8), mtu: half(10) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: every field lies at its place.
    #[test]
    fn config_has_its_layout() {
        let config = Config { mac: [1, 2, 3, 4, 5, 6], status: 1, pairs: 0x0208, mtu: 9000 };
        let bytes = config.to_bytes();
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 1, 0, 8, 2, 0x28, 0x23]);
        assert_eq!(Config::from_bytes(&bytes), config);
    }
}
