//! `tc qdisc`, `tc class` and `tc filter`.

use std::collections::{BTreeMap, BTreeSet};

use mqnet_control_api::{
    Action, ApiError, Change, Class, Code, ControlAction, Filter, FilterOptions, QdiscEntry,
    TcCounters, TcObject, TcRequest, TcVerb,
};
use mqnet_qdisc::id::{parse_class, parse_handle, parse_protocol, protocol_name};
use mqnet_qdisc::{
    ActionInfo, Attach, ClassInfo, DrrClass, Errno, ExtraCounter, FilterInfo, Handle, KindOptions,
    ObjectType, OptionValue, Params, QdiscInfo, TcCommand, TcError, Totals, Verb,
};
use mqnet_sysio::clock;
use serde_json::{Value, json};

use super::{done, not_while_changing};
use crate::HostedLink;

/// Parent of clsact as printed by tc.
const CLSACT_PARENT: &str = "ffff:fff1";

/// Number of channels in use; 1 while the link is down, as in the engine.
fn channels(entry: &HostedLink) -> u16 {
    entry.link.running().map_or(1, |running| running.plan.channels)
}

/// `tc qdisc show`.
pub(super) fn qdiscs(entry: &mut HostedLink, side: usize) -> Result<Vec<QdiscEntry>, ApiError> {
    Ok(entry.link.tree(side).qdiscs(channels(entry)).iter().map(qdisc).collect())
}

/// `tc class show`.
pub(super) fn classes(entry: &mut HostedLink, side: usize) -> Result<Vec<Class>, ApiError> {
    Ok(entry.link.tree(side).classes(channels(entry)).iter().map(class).collect())
}

/// `tc filter show`. As in the kernel, an entry with only the priority precedes the filters of that
/// priority.
pub(super) fn filters(entry: &mut HostedLink, side: usize) -> Result<Vec<Filter>, ApiError> {
    Ok(listed(&entry.link.tree(side).filters()))
}

/// Lists filters as tc does, with an entry without options before the first filter of each
/// priority.
pub fn listed(infos: &[FilterInfo]) -> Vec<Filter> {
    let mut seen = BTreeSet::new();
    let mut list = Vec::new();
    for info in infos {
        let filter = filter(info);
        if seen.insert((filter.egress, filter.parent.clone(), info.pref, info.protocol)) {
            list.push(Filter { options: None, ..filter.clone() });
        }
        list.push(filter);
    }
    list
}

/// `tc ... add|change|replace|delete`.
pub(super) fn set_tc(entry: &mut HostedLink, side: usize, want: &TcRequest) -> Change {
    let since = clock::monotonic();
    not_while_changing(entry)?;
    let command = command(want, &entry.link.tree(side).qdiscs(channels(entry)))?;
    let changed = entry.link.tc(side, &command).map_err(refused)?;
    done(changed, since)
}

/// Formats a request as one line for people, such as `qdisc replace fq_codel limit 1000`.
pub(super) fn in_words(want: &TcRequest) -> String {
    let object = match want.object {
        TcObject::Qdisc => "qdisc",
        TcObject::Class => "class",
        TcObject::Filter => "filter",
    };
    let verb = match want.command {
        TcVerb::Add => "add",
        TcVerb::Change => "change",
        TcVerb::Replace => "replace",
        TcVerb::Delete => "delete",
    };
    let words = [object, verb].into_iter().chain(want.kind.as_deref());
    let words: Vec<&str> = words.chain(want.options.iter().map(String::as_str)).collect();
    words.join(" ")
}

fn refused(error: TcError) -> ApiError {
    let code = match error.errno {
        Errno::Busy => Code::Busy,
        Errno::Exists => Code::Exists,
        Errno::NotFound => Code::NoEntry,
        Errno::Invalid => Code::Invalid,
        Errno::NotSupported => Code::NotSupported,
        Errno::Range => Code::Range,
    };
    let field = error.usage.then(|| "options".to_owned());
    ApiError { code, message: error.message, field }
}

/// Converts a request to a command for the tree. `there` are the existing disciplines, in which a
/// handle without a parent is found. Returns an error with the invalid field.
fn command(want: &TcRequest, there: &[QdiscInfo]) -> Result<TcCommand, ApiError> {
    let wrong = |field: &str, value: &str, allowed: &str| {
        ApiError::field(field, format!("{field}: '{value}' is not {allowed}"))
    };
    let mut options = want.options.clone();
    let mut handle = want.handle.as_deref();
    // In the tree the mask of a mark is an option, not a part of the handle.
    if let (TcObject::Filter, Some((mark, mask))) = (want.object, split_mask(handle)) {
        handle = Some(mark);
        options.splice(..0, ["mask".to_owned(), mask.to_owned()]);
    }
    let handle = handle.map(|text| {
        let (handle, allowed) = match want.object {
            TcObject::Qdisc => (parse_handle(text), "a handle, like 1:"),
            TcObject::Class => (parse_class(text), "a class id, like 1:2"),
            TcObject::Filter => (number(text).map(Handle), "a number, like 0x1"),
        };
        handle.ok_or_else(|| wrong("handle", text, allowed))
    });
    let handle = handle.transpose()?;
    let attach = match want.parent.as_deref() {
        Some("root") => Attach::Root,
        Some("egress") => Attach::Egress,
        Some(text) => match parse_class(text) {
            Some(Handle(1..)) => Attach::Parent(parse_class(text).unwrap_or_default()),
            _ => return Err(wrong("parent", text, "root, egress or a class id, like 1:2")),
        },
        None => parent_of(want.object, handle, there)?,
    };
    let protocol = want.protocol.as_deref().map(|text| {
        let allowed = "ip, ipv6, arp, 802.1Q, 802.1ad, all or a number";
        parse_protocol(text).ok_or_else(|| wrong("protocol", text, allowed))
    });
    Ok(TcCommand {
        verb: match want.command {
            TcVerb::Add => Verb::Add,
            TcVerb::Change => Verb::Change,
            TcVerb::Replace => Verb::Replace,
            TcVerb::Delete => Verb::Delete,
        },
        object: match want.object {
            TcObject::Qdisc => ObjectType::Qdisc,
            TcObject::Class => ObjectType::Class,
            TcObject::Filter => ObjectType::Filter,
        },
        attach,
        handle,
        prio: want.prio.filter(|&prio| prio != 0),
        protocol: protocol.transpose()?,
        kind: want.kind.clone(),
        options,
    })
}

fn split_mask(handle: Option<&str>) -> Option<(&str, &str)> {
    handle?.split_once('/')
}

/// Parses a hexadecimal number with `0x`, or a decimal number; `None` for other text.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Determines the attachment of an object from its handle, for a request without a parent. Returns
/// an error for a qdisc or class without a handle, and for a qdisc with an unknown handle.
fn parent_of(
    object: TcObject,
    handle: Option<Handle>,
    there: &[QdiscInfo],
) -> Result<Attach, ApiError> {
    match (object, handle) {
        (TcObject::Filter, _) => Ok(Attach::Root),
        (TcObject::Class, Some(class)) => Ok(Attach::Parent(Handle::new(class.major(), 0))),
        (TcObject::Class, None) => Err(ApiError::new(Code::NoEntry, "")),
        (TcObject::Qdisc, None) => Err(ApiError::new(Code::Invalid, "Handle cannot be zero")),
        (TcObject::Qdisc, Some(handle)) => {
            let found = there.iter().find(|info| info.handle == handle);
            let why = "Failed to find qdisc with specified handle";
            found.map(|info| info.attach).ok_or_else(|| ApiError::new(Code::NoEntry, why))
        }
    }
}

fn counters(totals: &Totals) -> TcCounters {
    TcCounters {
        bytes: totals.bytes,
        packets: totals.packets,
        drops: totals.drops,
        overlimits: totals.overlimits,
        requeues: totals.requeues,
        backlog: totals.backlog,
        qlen: totals.qlen,
    }
}

/// Counters specific to a kind, by their names in tc.
fn extra(counters: &[ExtraCounter], totals: &Totals) -> BTreeMap<String, Value> {
    let named = counters.iter().zip(totals.extra);
    named.map(|(counter, value)| (counter.name.to_owned(), Value::from(value))).collect()
}

/// Options of a kind as JSON, by their names in tc.
fn options(options: KindOptions) -> BTreeMap<String, Value> {
    let value = |value| match value {
        OptionValue::Number(number) => json!(number),
        OptionValue::Flag(flag) => json!(flag),
        OptionValue::Numbers(numbers) => json!(numbers),
        OptionValue::Ranges(ranges) => json!(ranges),
    };
    options.into_iter().map(|(name, option)| (name.to_owned(), value(option))).collect()
}

/// Converts a discipline for the API.
pub fn qdisc(info: &QdiscInfo) -> QdiscEntry {
    // mq and mqprio have one child per channel and show no reference count.
    let shared = !matches!(info.params, Params::Mq | Params::Mqprio(_));
    let root = info.attach == Attach::Root;
    QdiscEntry {
        kind: info.params.kind().to_owned(),
        handle: info.handle.to_string(),
        dev: None,
        root,
        parent: match info.attach {
            Attach::Root => None,
            Attach::Parent(parent) => Some(parent.to_string()),
            Attach::Egress => Some(CLSACT_PARENT.to_owned()),
        },
        refcnt: Some(info.refcnt).filter(|&n| root && shared && n > 1),
        options: options(info.params.options()),
        counters: counters(&info.totals),
        extra: extra(info.params.counters(), &info.totals),
    }
}

/// Converts a class for the API.
pub fn class(info: &ClassInfo) -> Class {
    Class {
        class: info.kind.to_owned(),
        handle: info.id.to_string(),
        root: info.parent.is_none(),
        parent: info.parent.map(|parent| parent.to_string()),
        leaf: info.leaf.map(|leaf| leaf.to_string()),
        options: options(info.drr.map(DrrClass::options).unwrap_or_default()),
        counters: counters(&info.totals),
        extra: extra(info.counters, &info.totals),
    }
}

fn filter(info: &FilterInfo) -> Filter {
    let class = info.class.map(|class| class.to_string());
    let is_flow = info.kind == "matchall";
    let mut keys = BTreeMap::new();
    for (name, value) in &info.keys {
        key(&mut keys, name, value);
    }
    let actions = (1..).zip(&info.actions).map(|(order, info)| action(order, info));
    Filter {
        parent: match info.attach {
            Attach::Root | Attach::Egress => None,
            Attach::Parent(parent) => Some(parent.to_string()),
        },
        egress: info.attach == Attach::Egress,
        protocol: protocol_name(info.protocol),
        pref: info.pref.into(),
        kind: info.kind.to_owned(),
        chain: 0,
        options: Some(FilterOptions {
            handle: info.handle,
            classid: class.clone().filter(|_| !is_flow),
            flowid: class.filter(|_| is_flow),
            keys,
            not_in_hw: info.kind != "fw",
            rule_hit: info.hits,
            actions: actions.collect(),
        }),
    }
}

/// Keys with values that remain text even if the value is a decimal number.
const NAMES: [&str; 3] = ["eth_type", "vlan_ethtype", "ip_proto"];

/// Converts text to a JSON number if it is decimal, otherwise to a JSON string.
fn value(text: &str) -> Value {
    text.parse::<u64>().map_or_else(|_| Value::from(text), Value::from)
}

/// Adds a filter key as in `tc -j`: a number where possible, a range as an object, the mask of
/// `ip_tos` as a separate key.
fn key(keys: &mut BTreeMap<String, Value>, name: &str, text: &str) {
    let decimal = |text: &str| text.parse::<u64>().ok();
    let range = text
        .split_once('-')
        .and_then(|(start, end)| Some(json!({ "start": decimal(start)?, "end": decimal(end)? })));
    let parsed = match name {
        _ if NAMES.contains(&name) => Value::from(text),
        "ip_tos" => {
            let (tos, mask) = text.split_once('/').unzip();
            if let Some(mask) = mask {
                let mask = mask.strip_prefix("0x").unwrap_or(mask);
                keys.insert("ip_tos_mask".to_owned(), Value::from(mask));
            }
            number(tos.unwrap_or(text)).map_or_else(|| Value::from(text), Value::from)
        }
        _ => range.unwrap_or_else(|| value(text)),
    };
    keys.insert(name.to_owned(), parsed);
}

fn action(order: u32, info: &ActionInfo) -> Action {
    let mut options = BTreeMap::new();
    let mut then = None;
    for (name, text) in &info.options {
        match *name {
            "control_action" => then = Some(text.clone()),
            _ => {
                options.insert((*name).to_owned(), value(text));
            }
        }
    }
    Action {
        order,
        kind: info.kind.to_owned(),
        control_action: ControlAction { kind: then.unwrap_or_else(|| "pipe".to_owned()) },
        index: info.index,
        options,
        stats: TcCounters {
            bytes: info.bytes,
            packets: info.packets,
            drops: info.drops,
            overlimits: info.overlimits,
            ..TcCounters::default()
        },
    }
}

#[cfg(test)]
mod tests;
