//! `ethtool -n` and `-N`: conversion of rules between the API and the functions.

use mqnet_control_api::{ApiError, Change, Code, FieldMatch, FlowRule, FlowRules, SetFlowRules};
use mqnet_netdev::{self as netdev, Field, FlowKind, RULES_MAX};
use mqnet_sysio::clock;

use super::{done, not_while_changing, plain};
use crate::HostedLink;

const KINDS: [(&str, FlowKind); 9] = [
    ("tcp4", FlowKind::Transport { v6: false, protocol: 6 }),
    ("udp4", FlowKind::Transport { v6: false, protocol: 17 }),
    ("sctp4", FlowKind::Transport { v6: false, protocol: 132 }),
    ("tcp6", FlowKind::Transport { v6: true, protocol: 6 }),
    ("udp6", FlowKind::Transport { v6: true, protocol: 17 }),
    ("sctp6", FlowKind::Transport { v6: true, protocol: 132 }),
    ("ip4", FlowKind::Ip { v6: false }),
    ("ip6", FlowKind::Ip { v6: true }),
    ("ether", FlowKind::Ether),
];

const FIELDS: [(&str, Field); 10] = [
    ("src", Field::EtherSource),
    ("dst", Field::EtherDestination),
    ("proto", Field::EtherType),
    ("src-ip", Field::Source),
    ("dst-ip", Field::Destination),
    ("tos", Field::TrafficClass),
    ("tclass", Field::TrafficClass),
    ("l4proto", Field::Protocol),
    ("src-port", Field::SourcePort),
    ("dst-port", Field::DestinationPort),
];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.len().is_multiple_of(2) && hex.bytes().all(|c| c.is_ascii_hexdigit());
    let at = |i| u8::from_str_radix(&hex[i..i + 2], 16).ok();
    digits.then(|| (0..hex.len()).step_by(2).map(at).collect())?
}

fn field_name(kind: FlowKind, field: Field) -> &'static str {
    let v6 = matches!(kind, FlowKind::Ip { v6: true } | FlowKind::Transport { v6: true, .. });
    if field == Field::TrafficClass && v6 {
        return "tclass";
    }
    FIELDS.iter().find(|(_, known)| *known == field).map_or("", |(name, _)| name)
}

/// Converts a rule to its form in the API.
fn written(rule: &netdev::SteeringRule) -> FlowRule {
    let flow = KINDS.iter().find(|(_, kind)| *kind == rule.kind).map_or("", |(name, _)| name);
    let matches = rule.matches.iter().map(|m| FieldMatch {
        field: field_name(rule.kind, m.field).to_owned(),
        value: hex(&m.value),
        mask: hex(&m.mask),
    });
    let (location, queue) = (rule.location, rule.queue);
    FlowRule { location, flow: flow.to_owned(), matches: matches.collect(), queue }
}

/// Converts a rule from its form in the API. Returns an error with the invalid field.
fn read(rule: &FlowRule) -> Result<netdev::SteeringRule, ApiError> {
    let wrong = |field: &str, why: String| Err(ApiError::field(field, why));
    let Some((_, kind)) = KINDS.iter().find(|(name, _)| *name == rule.flow) else {
        let names: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
        return wrong("flow", format!("flow: '{}'; allowed: {}", rule.flow, names.join(" ")));
    };
    if rule.location >= RULES_MAX {
        let (place, most) = (rule.location, RULES_MAX - 1);
        return wrong("location", format!("location: {place} is not a number from 0 to {most}"));
    }
    let mut matches = Vec::new();
    for m in &rule.matches {
        let known = FIELDS
            .iter()
            .find(|(name, field)| *name == m.field && field_name(*kind, *field) == *name);
        let width = known.and_then(|(_, field)| kind.width(*field));
        let (Some((_, field)), Some(width)) = (known, width) else {
            return wrong("matches", format!("matches: {} has no field '{}'", rule.flow, m.field));
        };
        let of_width = |text: &str| bytes(text).filter(|bytes| bytes.len() == width);
        let (Some(value), Some(mask)) = (of_width(&m.value), of_width(&m.mask)) else {
            let why = format!("{}: value and mask are {width} bytes in hexadecimal", m.field);
            return wrong("matches", format!("matches: {why}"));
        };
        let same = |other: &netdev::MaskedField| other.field == *field;
        if matches.iter().any(same) {
            return wrong("matches", format!("matches: '{}' is given twice", m.field));
        }
        matches.push(netdev::MaskedField { field: *field, value, mask });
    }
    Ok(netdev::SteeringRule { location: rule.location, kind: *kind, matches, queue: rule.queue })
}

/// `ethtool -n`.
pub(super) fn rules(entry: &mut HostedLink, side: usize) -> Result<FlowRules, ApiError> {
    let rings = entry.link.running().map_or(1, |running| running.plan.channels);
    let rules = entry.link.functions()[side].rules().map(<[_]>::to_vec);
    let rules = rules.ok_or_else(|| plain(Code::NotSupported, "this device has no rules"))?;
    Ok(FlowRules { rings, size: RULES_MAX, rules: rules.iter().map(written).collect() })
}

/// `ethtool -N`.
pub(super) fn set_rules(entry: &mut HostedLink, side: usize, want: &SetFlowRules) -> Change {
    let since = clock::monotonic();
    let now = rules(entry, side)?;
    not_while_changing(entry)?;
    let (location, rule) = match (&want.add, want.delete) {
        (Some(add), None) => (add.location, Some(read(add)?)),
        (None, Some(location)) => (location, None),
        _ => return Err(plain(Code::Invalid, "exactly one of add and delete is needed")),
    };
    if let Some(rule) = &rule {
        if rule.queue >= now.rings {
            let (queue, last) = (rule.queue, now.rings - 1);
            let why = format!("queue: {queue} is not a number from 0 to {last}");
            return Err(ApiError::field("queue", why));
        }
    } else if now.rules.iter().all(|rule| rule.location != location) {
        return Err(plain(Code::NoEntry, &format!("rule {location} does not exist")));
    }
    if want.add.as_ref().is_some_and(|add| now.rules.contains(add)) {
        return done(false, since);
    }
    let set = entry.link.set_rule(side, location, rule);
    let set = set.map_err(|e| plain(Code::Failed, &e.to_string()))?;
    set.map_err(|why| plain(Code::Failed, &why))?;
    done(true, since)
}
