//! Text output of tc for filters and their actions.

use std::fmt::Write as _;

use mqnet_control_api::{Action, Filter, FilterOptions};
use serde_json::Value;

use super::super::kinds::{list, number, plain};
use super::super::options::{KEYS, ordered};
use super::super::{Common, Style, units};
use super::counters;

/// One filter, with its line end.
pub(in super::super) fn filter(filter: &Filter, common: Common, style: Style) -> String {
    let mut out = "filter ".to_owned();
    if !common.parent {
        match &filter.parent {
            _ if filter.egress => out += "egress ",
            Some(parent) => {
                let _ = write!(out, "parent {parent} ");
            }
            None => {}
        }
    }
    if !common.protocol {
        let _ = write!(out, "protocol {} ", filter.protocol);
    }
    if !common.pref {
        let _ = write!(out, "pref {} ", filter.pref);
    }
    let _ = write!(out, "{} chain {} ", filter.kind, filter.chain);
    if let Some(options) = &filter.options {
        out += &what(&filter.kind, options, style);
        options.actions.iter().for_each(|one| out += &action(one, style));
    }
    out.push('\n');
    out
}

fn what(kind: &str, options: &FilterOptions, style: Style) -> String {
    let mut out = format!("handle {:#x}", options.handle);
    if let (true, Some(mask)) = (kind == "fw", options.keys.get("mask")) {
        let _ = write!(out, "/{}", plain(mask));
    }
    out.push(' ');
    for (name, class) in [("classid", &options.classid), ("flowid", &options.flowid)] {
        if let Some(class) = class {
            let _ = write!(out, "{name} {class} ");
        }
    }
    let has_mask = |name: &str| options.keys.get(&format!("{name}_mask")).map(plain);
    for (name, value) in ordered(&options.keys, &KEYS) {
        if name.ends_with("_mask") || kind == "fw" {
            continue;
        }
        let _ = write!(out, "\n  {name} {}", matched(value));
        if let Some(mask) = has_mask(name) {
            let _ = write!(out, "/0x{mask}");
        }
    }
    if options.not_in_hw {
        out += "\n  not_in_hw";
    }
    if style.stats && kind == "matchall" {
        let _ = write!(out, " (rule hit {})", options.rule_hit);
    }
    out
}

/// Value as text, or a range as `START-END`.
fn matched(value: &Value) -> String {
    match (value.get("start"), value.get("end")) {
        (Some(start), Some(end)) => format!("{}-{}", plain(start), plain(end)),
        _ => plain(value),
    }
}

fn action(action: &Action, style: Style) -> String {
    let Action { order, kind, index, options, .. } = action;
    let then = &action.control_action.kind;
    let mut out = format!("\n\taction order {order}: ");
    match kind.as_str() {
        "police" => {
            let rate = units::rate(number(options, "rate"));
            let [burst, overhead] =
                ["burst", "overhead"].map(|name| units::size(number(options, name)));
            // A police action without an MTU is printed with the largest value.
            let mtu = options.get("mtu").and_then(Value::as_u64).unwrap_or(u32::MAX.into());
            let mtu = units::size(mtu);
            let _ = write!(out, " police {index:#x} rate {rate} burst {burst} mtu {mtu} ");
            if options.contains_key("peakrate") {
                let _ = write!(out, "peakrate {} ", units::rate(number(options, "peakrate")));
            }
            let conform = list(options, "conform");
            let conform = match conform.as_str() {
                "" | "pass" => String::new(),
                other => format!("/{other}"),
            };
            let _ = write!(out, "action {then}{conform} overhead {overhead} \n\tref 1 bind 1 ");
        }
        "gact" => {
            let _ = write!(out, "gact action {then}\n\t random type none pass val 0");
            let _ = write!(out, "\n\t index {index} ref 1 bind 1");
        }
        _ => {
            let _ = write!(out, "{kind} ");
            if options.contains_key("queue_mapping") {
                let _ = write!(out, "queue_mapping {}", number(options, "queue_mapping"));
            }
            for name in ["priority", "mark"] {
                if options.contains_key(name) {
                    let _ = write!(out, " {name} {}", list(options, name));
                }
            }
            if options.contains_key("inheritdsfield") {
                out += " inheritdsfield";
            }
            let _ = write!(out, " {then}\n\t index {index} ref 1 bind 1");
        }
    }
    out.push('\n');
    if style.stats {
        let _ = write!(out, "\tAction statistics:\n{}", counters(&action.stats, "\t"));
    }
    out
}
