//! Feature bits (virtio 1.3, 5.1.3 and 6), and the offloads that they mean.

use std::fmt;

use mqnet_netdev::Offloads;

/// A set of feature bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(pub u64);

/// One constant a bit, and their names.
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

/// What a driver may send, by what the device takes.
const HOST: [(Features, Offloads); 6] = [
    (Features::CSUM, Offloads::CSUM),
    (Features::HOST_TSO4, Offloads::TSO4),
    (Features::HOST_TSO6, Offloads::TSO6),
    (Features::HOST_ECN, Offloads::TSO_ECN),
    (Features::HOST_USO, Offloads::USO4),
    (Features::HOST_USO, Offloads::USO6),
];

/// What a driver takes.
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
    /// Everything by which a driver says which unfinished frames it takes.
    pub const GUEST: Self = Self::GUEST_CSUM
        .or(Self::GUEST_TSO4)
        .or(Self::GUEST_TSO6)
        .or(Self::GUEST_ECN)
        .or(Self::GUEST_UFO)
        .or(Self::GUEST_USO4)
        .or(Self::GUEST_USO6);

    /// True when all bits of `other` are in this set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// What is in either.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What is in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// What is in this set and not in `other`.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// How frames that the driver sends may be unfinished: the device's RX.
    pub fn sent_by_driver(self) -> Offloads {
        offloads(self, &HOST)
    }

    /// Which unfinished frames the driver takes: the device's TX.
    pub fn taken_by_driver(self) -> Offloads {
        offloads(self, &GUEST)
    }

    /// The bits by which a device says that it takes such frames.
    pub fn of_device_that_takes(taken: Offloads) -> Self {
        bits(taken, &HOST)
    }

    /// The bits by which a driver says that it takes such frames.
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

    // Goal: each role's offloads come from its own bits, and only in sets that a kernel takes.
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

    // Goal: sets are told by names, unknown bits by number, and nothing by a word.
    #[test]
    fn features_are_told_by_name() {
        let odd = Features::CSUM.or(Features::RING_PACKED).or(Features(1 << 63));
        assert_eq!(odd.to_string(), "csum,ring_packed,0x8000000000000000");
        assert_eq!(Features::default().to_string(), "none");
    }
}
