//! What tc prints for people about disciplines and classes.

mod filter;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use mqnet_control_api::{Class, Qdisc, TcCounters};
use serde_json::Value;

use super::options::{FQ_CODEL_COUNTERS, of_qdisc, ordered, shown};
use super::{Style, units};

pub(super) use filter::filter;

type Values = BTreeMap<String, Value>;

/// A number, 0 for anything else: an answer of a newer version must not end the list.
fn number(values: &Values, name: &str) -> u64 {
    values.get(name).and_then(Value::as_u64).unwrap_or_default()
}

/// A value without quotes, lists with blanks between.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

fn list(values: &Values, name: &str) -> String {
    values.get(name).map(plain).unwrap_or_default()
}

/// One discipline, with its line's end.
pub(super) fn qdisc(qdisc: &Qdisc, style: Style) -> String {
    let mut out = format!("qdisc {} {} ", qdisc.kind, qdisc.handle);
    if let Some(dev) = &qdisc.dev {
        let _ = write!(out, "dev {dev} ");
    }
    out += &place(qdisc.root, qdisc.parent.as_deref());
    if let Some(refcnt) = qdisc.refcnt {
        let _ = write!(out, "refcnt {refcnt} ");
    }
    out += &options(&qdisc.kind, &qdisc.options, style);
    out.push('\n');
    if style.stats {
        out += &counters(&qdisc.counters, " ");
        if qdisc.kind == "fq_codel" {
            out += &fq_codel(&shown(&qdisc.extra));
        }
    }
    out
}

fn place(root: bool, parent: Option<&str>) -> String {
    match (root, parent) {
        (true, _) => "root ".to_owned(),
        (false, Some(parent)) => format!("parent {parent} "),
        (false, None) => String::new(),
    }
}

/// Bytes, packets and the rest, in two lines.
fn counters(counters: &TcCounters, indent: &str) -> String {
    let TcCounters { bytes, packets, drops, overlimits, requeues, backlog, qlen } = counters;
    let backlog = units::size(*backlog);
    format!(
        "{indent}Sent {bytes} bytes {packets} pkt (dropped {drops}, overlimits {overlimits} \
         requeues {requeues}) \n{indent}backlog {backlog} {qlen}p requeues {requeues}\n"
    )
}

fn fq_codel(extra: &Values) -> String {
    let mut out = String::from(" ");
    for (name, value) in ordered(extra, &FQ_CODEL_COUNTERS) {
        out += if name == "new_flows_len" { "\n  " } else { " " };
        let _ = write!(out, "{name} {}", plain(value));
    }
    out.push('\n');
    out
}

fn options(kind: &str, values: &Values, style: Style) -> String {
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
            let all = ordered(values, of_qdisc(kind));
            all.into_iter().map(|(name, value)| format!("{name} {} ", plain(value))).collect()
        }
    }
}

fn fq_codel_options(values: &Values) -> String {
    let mut out = String::new();
    for (name, value) in ordered(values, of_qdisc("fq_codel")) {
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
    // A cell of one byte and no smallest packet: what tc -d calls the rest of a rate.
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

/// One class, with its line's end.
pub(super) fn class(class: &Class, style: Style) -> String {
    let mut out = format!("class {} {} ", class.class, class.handle);
    out += &place(class.root, class.parent.as_deref());
    if let Some(leaf) = &class.leaf {
        let _ = write!(out, "leaf {leaf} ");
    }
    for (name, value) in &class.options {
        let value = value.as_u64().map_or_else(|| plain(value), units::size);
        let _ = write!(out, "{name} {value} ");
    }
    out.push('\n');
    if style.stats {
        out += &counters(&class.counters, " ");
        out += &class_extra(&class.class, &class.extra);
    }
    out
}

fn class_extra(kind: &str, extra: &Values) -> String {
    match kind {
        "drr" => format!(" deficit {} \n", units::size(number(extra, "deficit"))),
        "fq_codel" => {
            let deficit = list(extra, "deficit");
            let (count, last) = (number(extra, "count"), number(extra, "lastcount"));
            let delay = units::time(number(extra, "ldelay"));
            let dropping = extra.get("dropping").and_then(Value::as_bool).unwrap_or_default();
            let dropping = if dropping { " dropping" } else { "" };
            let deficit = format!("  deficit {deficit} count {count} lastcount {last}");
            format!("{deficit} ldelay {delay}{dropping}\n")
        }
        _ => String::new(),
    }
}
