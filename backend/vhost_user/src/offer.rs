//! Offer to a driver: features, protocol features and config space.

use mqnet_virtio::Features;
use mqnet_virtio::net::rss::{KEY_LEN, TABLE_MAX, TYPES};
use mqnet_virtio::net::{CONFIG_LEN, Config};
use vhost::vhost_user::message::VhostUserProtocolFeatures as Protocol;

/// Features of every network card, over vhost-user and VDUSE.
pub(crate) const CARD: Features = Features::VERSION_1
    .or(Features::MRG_RXBUF)
    .or(Features::CSUM)
    .or(Features::GUEST_CSUM)
    .or(Features::HOST_TSO4)
    .or(Features::HOST_TSO6)
    .or(Features::HOST_ECN)
    .or(Features::HOST_USO)
    .or(Features::GUEST_TSO4)
    .or(Features::GUEST_TSO6)
    .or(Features::GUEST_ECN)
    .or(Features::GUEST_USO4)
    .or(Features::GUEST_USO6)
    .or(Features::STATUS)
    .or(Features::INDIRECT_DESC)
    .or(Features::EVENT_IDX);

/// Features of every device over vhost-user.
///
/// Most VMMs execute the commands of the control queue themselves. Features of these commands are
/// therefore offered only with a control queue (`BY_COMMAND`). `GUEST_ANNOUNCE` is the exception:
/// the VMM implements it if the device offers it.
///
/// `RING_RESET` is not offered. QEMU offers this feature to the guest, but does not forward
/// resets to the backend (QEMU 10.0 handles them for TAP only). A guest that resets a ring would
/// lose its card, and this process would write into freed memory. Without the feature, the guest
/// refuses `ethtool -G`.
const ALWAYS: Features = CARD
    .or(Features::GUEST_ANNOUNCE)
    .or(Features::MQ)
    .or(Features::IN_ORDER)
    .or(Features::LOG_ALL)
    .or(Features::PROTOCOL_FEATURES);

/// Further features of a device with a control queue.
const BY_COMMAND: Features = Features::CTRL_VQ
    .or(Features::CTRL_RX)
    .or(Features::CTRL_RX_EXTRA)
    .or(Features::CTRL_VLAN)
    .or(Features::CTRL_MAC_ADDR)
    .or(Features::CTRL_GUEST_OFFLOADS)
    .or(Features::MAC)
    .or(Features::RSS)
    .or(Features::HASH_REPORT);

/// Config space after the MTU: speed (unknown), duplex (full), largest RSS key length, number of
/// entries of the indirection table (u16), hash types (u32).
const REST: [u8; 12] = {
    let ([a, b], [c, d, e, f]) = (TABLE_MAX.to_le_bytes(), TYPES.to_le_bytes());
    [0xff, 0xff, 0xff, 0xff, 1, KEY_LEN as u8, a, b, c, d, e, f]
};

/// Offer of one device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) mac: Option<[u8; 6]>,
    pub(crate) mtu: Option<u32>,
    pub(crate) pairs: u16,
    pub(crate) packed: bool,
    /// True to offer a control queue with its commands.
    pub(crate) ctrl: bool,
}

impl Offer {
    pub(crate) fn features(&self) -> Features {
        let when = |on: bool, bit| if on { bit } else { Features::default() };
        ALWAYS
            .or(when(self.packed, Features::RING_PACKED))
            .or(when(self.mac.is_some(), Features::MAC))
            .or(when(self.mtu.is_some(), Features::MTU))
            .or(when(self.ctrl, BY_COMMAND))
    }

    /// Number of rings.
    pub(crate) fn rings(&self) -> u16 {
        2 * self.pairs + u16::from(self.ctrl)
    }

    /// Protocol features that both the crate `vhost` and this backend implement.
    pub(crate) fn protocol(&self) -> Protocol {
        let always = Protocol::MQ
            | Protocol::LOG_SHMFD
            | Protocol::REPLY_ACK
            | Protocol::INFLIGHT_SHMFD
            | Protocol::RESET_DEVICE
            | Protocol::CONFIGURE_MEM_SLOTS
            | Protocol::STATUS
            | Protocol::MTU
            | Protocol::RARP;
        // QEMU provides the config space itself, and warns if a backend offers `CONFIG`
        // unnecessarily.
        match self.mac.is_some() || self.mtu.is_some() || self.ctrl {
            true => always | Protocol::CONFIG,
            false => always,
        }
    }

    /// Reads `size` bytes of the config space from `offset`; bytes after the end of the space are
    /// zero.
    pub(crate) fn config(&self, mac: [u8; 6], status: u16, offset: u32, size: u32) -> Vec<u8> {
        let mtu = self.mtu.unwrap_or(0) as u16;
        let config = Config { mac, status, pairs: self.pairs, mtu };
        let mut all = [0; CONFIG_LEN + REST.len()];
        all[..CONFIG_LEN].copy_from_slice(&config.to_bytes());
        all[CONFIG_LEN..].copy_from_slice(&REST);
        let byte = |at: u32| all.get(at as usize).copied().unwrap_or(0);
        (offset..offset.saturating_add(size)).map(byte).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: any range of the config space can be read, and bytes after its end are zero. Each
    // optional feature is offered only if its field is set.
    #[test]
    fn any_part_of_the_config_is_readable() {
        let mac = [2, 0, 0, 0, 0, 1];
        let offer = Offer { mac: Some(mac), mtu: Some(9000), pairs: 8, packed: false, ctrl: false };
        let config = |offset, size| offer.config(mac, 3, offset, size);
        assert_eq!(config(0, 8), [2, 0, 0, 0, 0, 1, 3, 0]);
        assert_eq!(config(8, 4), [8, 0, 0x28, 0x23]);
        assert_eq!(config(16, 10), [1, 40, 128, 0, 0x3f, 0, 0, 0, 0, 0]);
        assert!(config(u32::MAX, 9).is_empty());
        assert!(!offer.features().has(Features::CTRL_VQ));
        assert!(!offer.features().has(Features::RING_PACKED));
        assert!(!offer.features().has(Features::RING_RESET));
        assert!(offer.features().has(Features::MAC.or(Features::MTU)));
    }
}
