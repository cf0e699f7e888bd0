//! Order in which `tc` prints keys of filters and options of actions.

use std::collections::BTreeMap;

use serde_json::Value;

/// Keys of flower in the order of `tc`.
pub(super) const KEYS: [&str; 18] = [
    "vlan_id",
    "vlan_prio",
    "vlan_ethtype",
    "dst_mac",
    "src_mac",
    "eth_type",
    "ip_proto",
    "ip_tos",
    "ip_tos_mask",
    "ip_ttl",
    "ip_ttl_mask",
    "dst_ip",
    "src_ip",
    "dst_port",
    "src_port",
    "tcp_flags",
    "ip_flags",
    "mark",
];

/// Options of actions in the order of `tc`.
pub(super) const ACTION_OPTIONS: [&str; 9] = [
    "queue_mapping",
    "priority",
    "mark",
    "inheritdsfield",
    "rate",
    "burst",
    "mtu",
    "peakrate",
    "overhead",
];

/// Values in the order of `order`; other values follow, sorted by name.
pub(super) fn ordered<'a>(
    values: &'a BTreeMap<String, Value>,
    order: &[&str],
) -> Vec<(&'a str, &'a Value)> {
    let rank = |name: &str| order.iter().position(|known| *known == name);
    let mut all: Vec<_> = values.iter().map(|(name, value)| (name.as_str(), value)).collect();
    all.sort_by_key(|(name, _)| rank(name).unwrap_or(order.len()));
    all
}
