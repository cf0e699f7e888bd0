//! Match conditions on header fields.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use mqnet_wire::FlowKeys;

/// Addresses with a common prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// Address bits as in the flow keys: IPv4 in the upper 32 bits. Bits after the prefix are 0.
    bits: u128,
    mask: u128,
    prefix: u8,
    is_v6: bool,
}

impl Address {
    /// Creates the condition; the default prefix is the whole address. Returns `None` if the prefix
    /// is longer than the address.
    pub(crate) fn new(address: std::net::IpAddr, prefix: Option<u8>) -> Option<Self> {
        let (bits, longest) = match address {
            std::net::IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, 32),
            std::net::IpAddr::V6(v6) => (v6.to_bits(), 128),
        };
        let prefix = prefix.unwrap_or(longest);
        let mask = match prefix {
            0 => 0,
            1..=128 => u128::MAX << (128 - prefix),
            _ => return None,
        };
        (prefix <= longest).then_some(Self {
            bits: bits & mask,
            mask,
            prefix,
            is_v6: address.is_ipv6(),
        })
    }

    fn matches(&self, address: &[u8; 16]) -> bool {
        u128::from_be_bytes(*address) & self.mask == self.bits
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let whole = if self.is_v6 {
            write!(f, "{}", Ipv6Addr::from_bits(self.bits))?;
            128
        } else {
            write!(f, "{}", Ipv4Addr::from_bits((self.bits >> 96) as u32))?;
            32
        };
        if self.prefix < whole { write!(f, "/{}", self.prefix) } else { Ok(()) }
    }
}

/// A port or a range of ports.
pub(crate) type Ports = RangeInclusive<u16>;

/// Conditions on the fields of a packet; `None` matches any value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flower {
    pub(crate) vlan_id: Option<u16>,
    pub(crate) vlan_prio: Option<u8>,
    /// EtherType after the VLAN tag; without a tag, the EtherType of the frame.
    pub(crate) ethertype: Option<u16>,
    /// True if `ethertype` was given as `vlan_ethtype`, false if it is the filter's protocol.
    pub(crate) in_vlan: bool,
    pub(crate) dst_mac: Option<([u8; 6], [u8; 6])>,
    pub(crate) src_mac: Option<([u8; 6], [u8; 6])>,
    pub(crate) ip_proto: Option<u8>,
    /// Value and mask of the IPv4 TOS or IPv6 traffic class.
    pub(crate) ip_tos: Option<(u8, u8)>,
    pub(crate) dst_ip: Option<Address>,
    pub(crate) src_ip: Option<Address>,
    pub(crate) dst_port: Option<Ports>,
    pub(crate) src_port: Option<Ports>,
}

fn is<T: PartialEq>(wanted: Option<T>, value: T) -> bool {
    wanted.is_none_or(|wanted| wanted == value)
}

fn mac_is(wanted: &Option<([u8; 6], [u8; 6])>, mac: &[u8; 6]) -> bool {
    wanted.is_none_or(|(bits, mask)| (0..6).all(|i| mac[i] & mask[i] == bits[i] & mask[i]))
}

impl Flower {
    pub(crate) fn matches(&self, keys: &FlowKeys) -> bool {
        self.link_matches(keys) && (!self.wants_ip() || self.ip_matches(keys))
    }

    fn link_matches(&self, keys: &FlowKeys) -> bool {
        let vlan = match keys.vlan {
            Some(tci) => is(self.vlan_id, tci & 0xfff) && is(self.vlan_prio, (tci >> 13) as u8),
            None => self.vlan_id.is_none() && self.vlan_prio.is_none(),
        };
        vlan && is(self.ethertype, keys.ethertype)
            && mac_is(&self.dst_mac, &keys.mac[0])
            && mac_is(&self.src_mac, &keys.mac[1])
    }

    fn wants_ip(&self) -> bool {
        self.ip_proto.is_some()
            || self.ip_tos.is_some()
            || self.src_ip.is_some()
            || self.dst_ip.is_some()
    }

    fn ip_matches(&self, keys: &FlowKeys) -> bool {
        let address = |wanted: &Option<Address>, address| {
            wanted.is_none_or(|wanted| wanted.is_v6 == keys.is_v6 && wanted.matches(address))
        };
        // Do not match a port condition for fragments: the ports of a fragment are unknown.
        let port = |wanted: &Option<Ports>, port: u16| {
            wanted.as_ref().is_none_or(|wanted| !keys.fragment && wanted.contains(&port))
        };
        keys.ip.is_some()
            && is(self.ip_proto, keys.proto)
            && self.ip_tos.is_none_or(|(value, mask)| keys.tos & mask == value & mask)
            && address(&self.src_ip, &keys.src)
            && address(&self.dst_ip, &keys.dst)
            && port(&self.src_port, keys.ports[0])
            && port(&self.dst_port, keys.ports[1])
    }

    /// Conditions with the names of `tc -j`, in the order in which tc prints them.
    pub(super) fn keys(&self) -> Vec<(&'static str, String)> {
        let ethertype = self.ethertype.map(ethertype_text);
        let (in_vlan, plain) = if self.in_vlan { (ethertype, None) } else { (None, ethertype) };
        let fields = [
            ("vlan_id", self.vlan_id.map(|id| id.to_string())),
            ("vlan_prio", self.vlan_prio.map(|prio| prio.to_string())),
            ("vlan_ethtype", in_vlan),
            ("dst_mac", self.dst_mac.map(mac_text)),
            ("src_mac", self.src_mac.map(mac_text)),
            ("eth_type", plain),
            ("ip_proto", self.ip_proto.map(proto_text)),
            ("ip_tos", self.ip_tos.map(tos_text)),
            ("dst_ip", self.dst_ip.map(|ip| ip.to_string())),
            ("src_ip", self.src_ip.map(|ip| ip.to_string())),
            ("dst_port", self.dst_port.as_ref().map(ports_text)),
            ("src_port", self.src_port.as_ref().map(ports_text)),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

fn ethertype_text(ethertype: u16) -> String {
    match ethertype {
        0x0800 => "ipv4".to_owned(),
        0x86dd => "ipv6".to_owned(),
        0x0806 => "arp".to_owned(),
        0x8035 => "rarp".to_owned(),
        _ => format!("{ethertype:04x}"),
    }
}

fn mac_text((mac, mask): ([u8; 6], [u8; 6])) -> String {
    let text = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
    if mask == [0xff; 6] { text(mac) } else { format!("{}/{}", text(mac), text(mask)) }
}

fn proto_text(proto: u8) -> String {
    match proto {
        1 => "icmp".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        58 => "icmpv6".to_owned(),
        132 => "sctp".to_owned(),
        _ => format!("{proto:02x}"),
    }
}

fn tos_text((value, mask): (u8, u8)) -> String {
    if mask == 0xff { format!("{value:#x}") } else { format!("{value:#x}/{mask:x}") }
}

fn ports_text(ports: &Ports) -> String {
    match (ports.start(), ports.end()) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}-{last}"),
    }
}
