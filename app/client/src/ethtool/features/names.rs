//! Names of the kernel's features, and ethtool's older names for groups of them.

/// Feature names in the order of the kernel's feature bits.
pub(super) const KERNEL: [&str; 60] = [
    "tx-scatter-gather",
    "tx-checksum-ipv4",
    "tx-checksum-ip-generic",
    "tx-checksum-ipv6",
    "highdma",
    "tx-scatter-gather-fraglist",
    "tx-vlan-hw-insert",
    "rx-vlan-hw-parse",
    "rx-vlan-filter",
    "vlan-challenged",
    "tx-generic-segmentation",
    "rx-gro",
    "rx-lro",
    "tx-tcp-segmentation",
    "tx-gso-robust",
    "tx-tcp-ecn-segmentation",
    "tx-tcp-mangleid-segmentation",
    "tx-tcp6-segmentation",
    "tx-fcoe-segmentation",
    "tx-gre-segmentation",
    "tx-gre-csum-segmentation",
    "tx-ipxip4-segmentation",
    "tx-ipxip6-segmentation",
    "tx-udp_tnl-segmentation",
    "tx-udp_tnl-csum-segmentation",
    "tx-gso-partial",
    "tx-tunnel-remcsum-segmentation",
    "tx-sctp-segmentation",
    "tx-esp-segmentation",
    "tx-udp-segmentation",
    "tx-gso-list",
    "tx-tcp-accecn-segmentation",
    "tx-checksum-fcoe-crc",
    "tx-checksum-sctp",
    "rx-ntuple-filter",
    "rx-hashing",
    "rx-checksum",
    "tx-nocache-copy",
    "loopback",
    "rx-fcs",
    "rx-all",
    "tx-vlan-stag-hw-insert",
    "rx-vlan-stag-hw-parse",
    "rx-vlan-stag-filter",
    "l2-fwd-offload",
    "hw-tc-offload",
    "esp-hw-offload",
    "esp-tx-csum-hw-offload",
    "rx-udp_tunnel-port-offload",
    "tls-hw-tx-offload",
    "tls-hw-rx-offload",
    "rx-gro-hw",
    "tls-hw-record",
    "rx-gro-list",
    "macsec-hw-offload",
    "rx-udp-gro-forwarding",
    "hsr-tag-ins-offload",
    "hsr-tag-rm-offload",
    "hsr-fwd-offload",
    "hsr-dup-offload",
];

/// Older name of a group of features: short form (`-K`), long form (`-k` and `-K`), and the pattern
/// that matches the features of the group.
pub(super) struct Legacy {
    pub(super) short: &'static str,
    pub(super) long: &'static str,
    pattern: &'static str,
}

const fn legacy(short: &'static str, long: &'static str, pattern: &'static str) -> Legacy {
    Legacy { short, long, pattern }
}

/// Older names in the order in which `-k` prints them.
pub(super) const LEGACY: [Legacy; 12] = [
    legacy("rx", "rx-checksumming", "rx-checksum"),
    legacy("tx", "tx-checksumming", "tx-checksum-*"),
    legacy("sg", "scatter-gather", "tx-scatter-gather*"),
    legacy("tso", "tcp-segmentation-offload", "tx-tcp*-segmentation"),
    legacy("ufo", "udp-fragmentation-offload", "tx-udp-fragmentation"),
    legacy("gso", "generic-segmentation-offload", "tx-generic-segmentation"),
    legacy("gro", "generic-receive-offload", "rx-gro"),
    legacy("lro", "large-receive-offload", "rx-lro"),
    legacy("rxvlan", "rx-vlan-offload", "rx-vlan-hw-parse"),
    legacy("txvlan", "tx-vlan-offload", "tx-vlan-hw-insert"),
    legacy("ntuple", "ntuple-filters", "rx-ntuple-filter"),
    legacy("rxhash", "receive-hashing", "rx-hashing"),
];

impl Legacy {
    /// True if the feature `name` belongs to the group.
    pub(super) fn covers(&self, name: &str) -> bool {
        match self.pattern.split_once('*') {
            Some((head, tail)) => {
                name.len() >= head.len() + tail.len()
                    && name.starts_with(head)
                    && name.ends_with(tail)
            }
            None => name == self.pattern,
        }
    }
}
