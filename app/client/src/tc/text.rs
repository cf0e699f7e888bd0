//! Text output of tc for disciplines and classes.

mod filter;

use std::fmt::Write as _;

use mqnet_control_api::{Class, QdiscEntry, TcCounters};

use super::kinds::{self, plain};
use super::{Style, units};

pub(super) use filter::filter;

/// One discipline, with its line end.
pub(super) fn qdisc(qdisc: &QdiscEntry, style: Style) -> String {
    let mut out = format!("qdisc {} {} ", qdisc.kind, qdisc.handle);
    if let Some(dev) = &qdisc.dev {
        let _ = write!(out, "dev {dev} ");
    }
    out += &place(qdisc.root, qdisc.parent.as_deref());
    if let Some(refcnt) = qdisc.refcnt {
        let _ = write!(out, "refcnt {refcnt} ");
    }
    out += &kinds::options(&qdisc.kind, &qdisc.options, style);
    out.push('\n');
    if style.stats {
        out += &counters(&qdisc.counters, " ");
        out += &kinds::extra(&qdisc.kind, &qdisc.extra);
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

/// Counters in the two lines of `tc -s`.
fn counters(counters: &TcCounters, indent: &str) -> String {
    let TcCounters { bytes, packets, drops, overlimits, requeues, backlog, qlen } = counters;
    let backlog = units::size(*backlog);
    format!(
        "{indent}Sent {bytes} bytes {packets} pkt (dropped {drops}, overlimits {overlimits} \
         requeues {requeues}) \n{indent}backlog {backlog} {qlen}p requeues {requeues}\n"
    )
}

/// One class, with its line end.
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
        out += &kinds::class_extra(&class.class, &class.extra);
    }
    out
}
