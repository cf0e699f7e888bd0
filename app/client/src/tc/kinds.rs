//! Options and counters of each kind of qdisc, in the order and notation of `tc`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::options::ordered;
use super::{Style, units};

pub(super) type Values = BTreeMap<String, Value>;

/// Options of a kind in the order of `tc`; other options follow by name.
pub(super) fn option_order(kind: &str) -> &'static [&'static str] {
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

/// Counters specific to a kind, in the order of `tc`.
pub(super) fn counter_order(kind: &str) -> &'static [&'static str] {
    match kind {
        "fq_codel" => &[
            "maxpacket",
            "drop_overlimit",
            "new_flow_count",
            "ecn_mark",
            "ce_mark",
            "memory_used",
            "drop_overmemory",
            "new_flows_len",
            "old_flows_len",
        ],
        _ => &[],
    }
}

/// Counters that tc omits while they are 0.
const SHOWN_IF_ANY: [&str; 3] = ["ce_mark", "memory_used", "drop_overmemory"];

/// Counters without those that tc omits while they are 0.
pub(super) fn shown(counters: &BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let is_shown = |name: &str, value: &Value| {
        !SHOWN_IF_ANY.contains(&name) || value.as_u64().is_none_or(|n| n > 0)
    };
    let shown = counters.iter().filter(|(name, value)| is_shown(name, value));
    shown.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Value as a number; 0 if the value is absent or no number. A response of a newer version
/// therefore does not end the listing.
pub(super) fn number(values: &Values, name: &str) -> u64 {
    values.get(name).and_then(Value::as_u64).unwrap_or_default()
}

/// Value without quotes, with blanks between the items of lists.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

pub(super) fn list(values: &Values, name: &str) -> String {
    values.get(name).map(plain).unwrap_or_default()
}

/// Options of a qdisc as text, in tc's notation for the kind.
pub(super) fn options(kind: &str, values: &Values, style: Style) -> String {
    match kind {
        "pfifo" => format!("limit {}p", number(values, "limit")),
        "bfifo" => format!("limit {}", units::size(number(values, "limit"))),
        "pfifo_fast" | "prio" => {
            format!("bands {} priomap {}", number(values, "bands"), list(values, "priomap"))
        }
        "tbf" => tbf(values, style),
        "mqprio" => mqprio(values),
        "fq_codel" => fq_codel_options(values),
        _ => {
            let all = ordered(values, option_order(kind));
            all.into_iter().map(|(name, value)| format!("{name} {} ", plain(value))).collect()
        }
    }
}

fn fq_codel_options(values: &Values) -> String {
    let mut out = String::new();
    for (name, value) in ordered(values, option_order("fq_codel")) {
        let n = value.as_u64().unwrap_or_default();
        let _ = match name {
            "limit" => write!(out, "limit {n}p "),
            "target" | "ce_threshold" | "interval" => write!(out, "{name} {} ", units::time(n)),
            "memory_limit" => write!(out, "memory_limit {} ", units::size(n)),
            "ecn" => write!(out, "ecn "),
            _ => write!(out, "{name} {} ", plain(value)),
        };
    }
    out
}

fn tbf(values: &Values, style: Style) -> String {
    let of = |name: &str| values.get(name).and_then(Value::as_u64);
    // `tc -d` also prints the cell size and the minimum packet size of a rate.
    let (cell, least) = if style.details { ("/1", "mpu 0b ") } else { ("", "") };
    let mut out = format!("rate {} ", units::rate(number(values, "rate")));
    let _ = write!(out, "burst {}{cell} {least}", units::size(number(values, "burst")));
    if let Some(rate) = of("peakrate") {
        let _ = write!(out, "peakrate {} ", units::rate(rate));
    }
    if let Some(bytes) = of("minburst") {
        let name = if style.details { "mtu" } else { "minburst" };
        let _ = write!(out, "{name} {}{cell} {least}", units::size(bytes));
    }
    if let Some(us) = of("lat") {
        let _ = write!(out, "lat {} ", units::time(us));
    }
    if let Some(bytes) = of("limit") {
        let _ = write!(out, "limit {} ", units::size(bytes));
    }
    if style.details {
        out += "linklayer ethernet ";
    }
    out
}

fn mqprio(values: &Values) -> String {
    let mut out = format!("tc {} map {} ", number(values, "tc"), list(values, "map"));
    out += "\n             queues:";
    let ranges = values.get("queues").and_then(Value::as_array);
    for range in ranges.into_iter().flatten() {
        let end = |at: usize| range.get(at).and_then(Value::as_u64).unwrap_or_default();
        let _ = write!(out, "({}:{}) ", end(0), end(1));
    }
    out
}

/// Counters specific to the kind, as text.
pub(super) fn extra(kind: &str, values: &Values) -> String {
    let values = shown(values);
    if values.is_empty() {
        return String::new();
    }
    let mut out = String::from(" ");
    for (name, value) in ordered(&values, counter_order(kind)) {
        out += if name == "new_flows_len" { "\n  " } else { " " };
        let _ = write!(out, "{name} {}", plain(value));
    }
    out.push('\n');
    out
}

/// Counters specific to classes of the kind, as text.
pub(super) fn class_extra(kind: &str, values: &Values) -> String {
    match kind {
        "drr" => format!(" deficit {} \n", units::size(number(values, "deficit"))),
        _ => String::new(),
    }
}
