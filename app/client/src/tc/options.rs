//! What can be set and counted about each kind, in the order in which tc prints it.

use std::collections::BTreeMap;

use serde_json::Value;

/// Options of a kind of discipline.
pub(super) fn of_qdisc(kind: &str) -> &'static [&'static str] {
    match kind {
        "pfifo_fast" | "prio" => &["bands", "priomap", "multiqueue"],
        "mqprio" => &["tc", "map", "queues"],
        "tbf" => &["rate", "burst", "mpu", "peakrate", "minburst", "mtu", "lat", "limit"],
        "fq_codel" => &[
            "limit",
            "flows",
            "quantum",
            "target",
            "ce_threshold",
            "interval",
            "memory_limit",
            "ecn",
            "drop_batch",
        ],
        _ => &["limit"],
    }
}

/// Counters of fq_codel.
pub(super) const FQ_CODEL_COUNTERS: [&str; 9] = [
    "maxpacket",
    "drop_overlimit",
    "new_flow_count",
    "ecn_mark",
    "ce_mark",
    "memory_used",
    "drop_overmemory",
    "new_flows_len",
    "old_flows_len",
];

/// Counters of one of its flows.
pub(super) const FLOW_COUNTERS: [&str; 5] = ["deficit", "count", "lastcount", "ldelay", "dropping"];

/// What flower matches.
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

/// What actions set.
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

/// Counters that tc leaves out while they are 0.
const SHOWN_IF_ANY: [&str; 3] = ["ce_mark", "memory_used", "drop_overmemory"];

/// The counters that tc shows.
pub(super) fn shown(counters: &BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let is_shown = |name: &str, value: &Value| {
        !SHOWN_IF_ANY.contains(&name) || value.as_u64().is_none_or(|n| n > 0)
    };
    let shown = counters.iter().filter(|(name, value)| is_shown(name, value));
    shown.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The values in this order; those that are not in it come last.
pub(super) fn ordered<'a>(
    values: &'a BTreeMap<String, Value>,
    order: &[&str],
) -> Vec<(&'a str, &'a Value)> {
    let rank = |name: &str| order.iter().position(|known| *known == name);
    let mut all: Vec<_> = values.iter().map(|(name, value)| (name.as_str(), value)).collect();
    all.sort_by_key(|(name, _)| rank(name).unwrap_or(order.len()));
    all
}
