//! JSON output of tc, with the fields in tc's order.

use std::collections::BTreeMap;

use mqnet_control_api::{Action, Class, Filter, FilterOptions, QdiscEntry, TcCounters};
use serde_json::Value;

use super::{Common, Style};
use super::{kinds, options};
use crate::ethtool::json::Json;

type Fields = Vec<(String, Json)>;

fn put(fields: &mut Fields, name: &str, value: Json) {
    fields.push((name.to_owned(), value));
}

fn text(fields: &mut Fields, name: &str, value: &str) {
    put(fields, name, Json::Text(value.to_owned()));
}

/// Converts a JSON value. Members of objects are sorted by name, with `start` and `end` first.
fn any(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(yes) => Json::Bool(*yes),
        Value::Number(n) => match (n.as_u64(), n.as_i64()) {
            (Some(n), _) => Json::Number(n),
            (None, Some(n)) => Json::Signed(n),
            (None, None) => Json::Text(n.to_string()),
        },
        Value::String(text) => Json::Text(text.clone()),
        Value::Array(items) => Json::List(items.iter().map(any).collect()),
        Value::Object(map) => {
            let order = ["start", "end"];
            let rank = |name: &str| order.iter().position(|known| *known == name);
            let mut all: Vec<_> = map.iter().collect();
            all.sort_by_key(|(name, _)| rank(name).unwrap_or(order.len()));
            Json::Object(all.into_iter().map(|(k, v)| (k.clone(), any(v))).collect())
        }
    }
}

fn map(values: &BTreeMap<String, Value>, order: &[&str]) -> Fields {
    let ordered = options::ordered(values, order);
    ordered.into_iter().map(|(name, value)| (name.to_owned(), any(value))).collect()
}

fn counters(counters: &TcCounters) -> Fields {
    let c = counters;
    let all = [
        ("bytes", c.bytes),
        ("packets", c.packets),
        ("drops", c.drops),
        ("overlimits", c.overlimits),
        ("requeues", c.requeues),
        ("backlog", c.backlog),
        ("qlen", c.qlen),
    ];
    all.map(|(name, value)| (name.to_owned(), Json::Number(value))).into()
}

fn place(fields: &mut Fields, root: bool, parent: Option<&str>) {
    if root {
        put(fields, "root", Json::Bool(true));
    } else if let Some(parent) = parent {
        text(fields, "parent", parent);
    }
}

pub(super) fn qdisc(qdisc: &QdiscEntry, style: Style) -> Json {
    let mut fields = Fields::new();
    text(&mut fields, "kind", &qdisc.kind);
    text(&mut fields, "handle", &qdisc.handle);
    if let Some(dev) = &qdisc.dev {
        text(&mut fields, "dev", dev);
    }
    place(&mut fields, qdisc.root, qdisc.parent.as_deref());
    if let Some(refcnt) = qdisc.refcnt {
        put(&mut fields, "refcnt", refcnt.into());
    }
    let known = kinds::option_order(&qdisc.kind);
    put(&mut fields, "options", Json::Object(map(&qdisc.options, known)));
    if style.stats {
        fields.extend(counters(&qdisc.counters));
        let order = kinds::counter_order(&qdisc.kind);
        fields.extend(map(&kinds::shown(&qdisc.extra), order));
    }
    Json::Object(fields)
}

pub(super) fn class(class: &Class, style: Style) -> Json {
    let mut fields = Fields::new();
    text(&mut fields, "class", &class.class);
    text(&mut fields, "handle", &class.handle);
    place(&mut fields, class.root, class.parent.as_deref());
    if let Some(leaf) = &class.leaf {
        text(&mut fields, "leaf", leaf);
    }
    fields.extend(map(&class.options, &[]));
    if style.stats {
        fields.extend(counters(&class.counters));
        fields.extend(map(&class.extra, &[]));
    }
    Json::Object(fields)
}

/// JSON of a filter, without the fields in `common`.
pub(super) fn filter(filter: &Filter, common: Common, style: Style) -> Json {
    let mut fields = Fields::new();
    if !common.parent {
        if filter.egress {
            put(&mut fields, "egress", Json::Bool(true));
        } else if let Some(parent) = &filter.parent {
            text(&mut fields, "parent", parent);
        }
    }
    if !common.protocol {
        text(&mut fields, "protocol", &filter.protocol);
    }
    if !common.pref {
        put(&mut fields, "pref", filter.pref.into());
    }
    text(&mut fields, "kind", &filter.kind);
    put(&mut fields, "chain", filter.chain.into());
    if let Some(options) = &filter.options {
        put(&mut fields, "options", filter_options(&filter.kind, options, style));
    }
    Json::Object(fields)
}

fn filter_options(kind: &str, options: &FilterOptions, style: Style) -> Json {
    let mut fields = Fields::new();
    put(&mut fields, "handle", options.handle.into());
    for (name, class) in [("classid", &options.classid), ("flowid", &options.flowid)] {
        if let Some(class) = class {
            text(&mut fields, name, class);
        }
    }
    if kind == "flower" || !options.keys.is_empty() {
        put(&mut fields, "keys", Json::Object(map(&options.keys, &options::KEYS)));
    }
    if options.not_in_hw {
        put(&mut fields, "not_in_hw", Json::Bool(true));
    }
    if style.stats && kind == "matchall" {
        put(&mut fields, "rule_hit", Json::Number(options.rule_hit));
    }
    if !options.actions.is_empty() {
        let all = options.actions.iter().map(|one| action(one, style)).collect();
        put(&mut fields, "actions", Json::List(all));
    }
    Json::Object(fields)
}

fn control(kind: &str) -> Json {
    let mut fields = Fields::new();
    text(&mut fields, "type", kind);
    Json::Object(fields)
}

fn action(action: &Action, style: Style) -> Json {
    let mut fields = Fields::new();
    put(&mut fields, "order", action.order.into());
    text(&mut fields, "kind", &action.kind);
    let is_police = action.kind == "police";
    if is_police {
        put(&mut fields, "index", action.index.into());
    }
    let set = map(&action.options, &options::ACTION_OPTIONS);
    let then = ("control_action".to_owned(), control(&action.control_action.kind));
    if is_police {
        fields.push(then);
        fields.extend(set);
    } else {
        fields.extend(set);
        fields.push(then);
    }
    if action.kind == "gact" {
        let mut chance = Fields::new();
        text(&mut chance, "random_type", "none");
        put(&mut chance, "control_action", control("pass"));
        put(&mut chance, "val", Json::Number(0));
        put(&mut fields, "prob", Json::Object(chance));
    }
    if !is_police {
        put(&mut fields, "index", action.index.into());
    }
    put(&mut fields, "ref", Json::Number(1));
    put(&mut fields, "bind", Json::Number(1));
    if style.stats {
        put(&mut fields, "stats", Json::Object(counters(&action.stats)));
    }
    Json::Object(fields)
}
