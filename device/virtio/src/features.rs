//! Feature bits (virtio 1.3, 5.1.3 and 6), and the offloads that they announce.

use std::fmt;

use mqnet_netdev::Offloads;

/// A set of feature bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(pub u64);

/// Defines one constant for each bit, and the table of names.
macro_rules! bits {
    ($($name:ident = $bit:literal, $text:literal;)*) => {
        impl Features {
            $(#[doc = concat!("`", $text, "`")] pub const $name: Self = Self(1 << $bit);)*
            const NAMES: &[(Self, &str)] = &[$((Self::$name, $text)),*];
        }
    };
}

bits! {
    CSUM = 0, "csum";
    GUEST_CSUM = 1, "guest_csum";
    CTRL_GUEST_OFFLOADS = 2, "ctrl_guest_offloads";
    MTU = 3, "mtu";
    MAC = 5, "mac";
    GUEST_TSO4 = 7, "guest_tso4";
    GUEST_TSO6 = 8, "guest_tso6";
    GUEST_ECN = 9, "guest_ecn";
    GUEST_UFO = 10, "guest_ufo";
    HOST_TSO4 = 11, "host_tso4";
    HOST_TSO6 = 12, "host_tso6";
    HOST_ECN = 13, "host_ecn";
    HOST_UFO = 14, "host_ufo";
    MRG_RXBUF = 15, "mrg_rxbuf";
    STATUS = 16, "status";
    CTRL_VQ = 17, "ctrl_vq";
    CTRL_RX = 18, "ctrl_rx";
    CTRL_VLAN = 19, "ctrl_vlan";
    CTRL_RX_EXTRA = 20, "ctrl_rx_extra";
    GUEST_ANNOUNCE = 21, "guest_announce";
    MQ = 22, "mq";
    CTRL_MAC_ADDR = 23, "ctrl_mac_addr";
    LOG_ALL = 26, "log_all";
    INDIRECT_DESC = 28, "indirect_desc";
    EVENT_IDX = 29, "event_idx";
    PROTOCOL_FEATURES = 30, "protocol_features";
    VERSION_1 = 32, "version_1";
    ACCESS_PLATFORM = 33, "access_platform";
    RING_PACKED = 34, "ring_packed";
    IN_ORDER = 35, "in_order";
    ORDER_PLATFORM = 36, "order_platform";
    RING_RESET = 40, "ring_reset";
    GUEST_USO4 = 54, "guest_uso4";
    GUEST_USO6 = 55, "guest_uso6";
    HOST_USO = 56, "host_uso";
    HASH_REPORT = 57, "hash_report";
    RSS = 60, "rss";
}

/// Offloads of frames that a driver sends, by feature bit of the device.
const HOST: [(Features, Offloads); 6] = [
    (Features::CSUM, Offloads::CSUM),
    (Features::HOST_TSO4, Offloads::TSO4),
    (Features::HOST_TSO6, Offloads::TSO6),
    (Features::HOST_ECN, Offloads::TSO_ECN),
    (Features::HOST_USO, Offloads::USO4),
    (Features::HOST_USO, Offloads::USO6),
];

/// Offloads of frames that a driver receives, by feature bit of the driver.
const GUEST: [(Features, Offloads); 6] = [
    (Features::GUEST_CSUM, Offloads::CSUM),
    (Features::GUEST_TSO4, Offloads::TSO4),
    (Features::GUEST_TSO6, Offloads::TSO6),
    (Features::GUEST_ECN, Offloads::TSO_ECN),
    (Features::GUEST_USO4, Offloads::USO4),
    (Features::GUEST_USO6, Offloads::USO6),
];

fn offloads(features: Features, of: &[(Features, Offloads)]) -> Offloads {
    let has = |(bit, _): &&(Features, Offloads)| features.has(*bit);
    of.iter().filter(has).fold(Offloads::NONE, |all, (_, offload)| all.or(*offload)).consistent()
}

fn bits(offloads: Offloads, of: &[(Features, Offloads)]) -> Features {
    let has = |(_, offload): &&(Features, Offloads)| offloads.has(*offload);
    of.iter().filter(has).fold(Features::default(), |all, (bit, _)| all.or(*bit))
}

impl Features {
    /// All bits with which a driver announces receive offloads.
    pub const GUEST: Self = Self::GUEST_CSUM
        .or(Self::GUEST_TSO4)
        .or(Self::GUEST_TSO6)
        .or(Self::GUEST_ECN)
        .or(Self::GUEST_UFO)
        .or(Self::GUEST_USO4)
        .or(Self::GUEST_USO6);

    /// True if all bits of `other` are in this set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Union.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Intersection.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Difference.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Offloads that frames from the driver may need; the device receives such frames.
    pub fn sent_by_driver(self) -> Offloads {
        offloads(self, &HOST)
    }

    /// Offloads that frames to the driver may need; the driver accepts them.
    pub fn taken_by_driver(self) -> Offloads {
        offloads(self, &GUEST)
    }

    /// Feature bits of a device that accepts frames with the offloads in `taken`.
    pub fn of_device_that_takes(taken: Offloads) -> Self {
        bits(taken, &HOST)
    }

    /// Feature bits of a driver that accepts frames with the offloads in `taken`.
    pub fn of_driver_that_takes(taken: Offloads) -> Self {
        bits(taken, &GUEST)
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Self::NAMES.iter().filter(|(bit, _)| self.has(*bit));
        let mut names: Vec<String> = known.clone().map(|(_, name)| (*name).to_owned()).collect();
        let rest = known.fold(*self, |rest, (bit, _)| rest.minus(*bit));
        if rest != Self::default() {
            names.push(format!("{:#x}", rest.0));
        }
        f.write_str(if names.is_empty() { "none" } else { "" })?;
        f.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the offloads of each role follow from its feature bits, reduced to sets that the kernel
    // accepts.
    #[test]
    fn offloads_of_either_role() {
        let host = Features::CSUM.or(Features::HOST_TSO4).or(Features::GUEST_TSO6);
        assert_eq!(host.sent_by_driver(), Offloads::CSUM.or(Offloads::TSO4));
        assert_eq!(host.taken_by_driver(), Offloads::NONE, "large frames need the checksum bit");
        let all = Features::of_device_that_takes(Offloads::ALL);
        assert_eq!(all.sent_by_driver(), Offloads::ALL);
        let all = Features::of_driver_that_takes(Offloads::ALL);
        assert_eq!((all.taken_by_driver(), all.sent_by_driver()), (Offloads::ALL, Offloads::NONE));
    }

    // Goal: a feature set is printed with names, unknown bits as a number, and the empty set as
    // `none`.
    #[test]
    fn features_are_printed_by_name() {
        let odd = Features::CSUM.or(Features::RING_PACKED).or(Features(1 << 63));
        assert_eq!(odd.to_string(), "csum,ring_packed,0x8000000000000000");
        assert_eq!(Features::default().to_string(), "none");
    }
}
