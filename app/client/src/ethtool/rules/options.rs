//! Arguments after `flow-type KIND`.

use std::net::{Ipv4Addr, Ipv6Addr};

use mqnet_control_api::{FieldMatch, FlowRule};

use crate::ethtool::number;

/// Error in the arguments.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Bad {
    Syntax,
    Line(String),
    Unknown(String),
}

/// Requested rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) rule: FlowRule,
    pub(super) location: Option<u32>,
    /// True if mqnet supports the request: no AH or ESP flow, no unsupported option, no drop
    /// action.
    pub(super) possible: bool,
}

/// Notation of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Number(u32),
    V4,
    V6,
    Mac,
    /// Option of ethtool that mqnet does not support.
    Foreign,
    Queue,
    Location,
}

const EVERY: [(&str, Form); 8] = [
    ("vlan-etype", Form::Foreign),
    ("vlan", Form::Foreign),
    ("user-def", Form::Foreign),
    ("vf", Form::Foreign),
    ("context", Form::Foreign),
    ("action", Form::Queue),
    ("queue", Form::Queue),
    ("loc", Form::Location),
];

fn forms(kind: &str) -> Option<Vec<(&'static str, Form)>> {
    let (address, class) = match kind.chars().last() {
        Some('4') => (Form::V4, "tos"),
        _ => (Form::V6, "tclass"),
    };
    let common = [("src-ip", address), ("dst-ip", address), (class, Form::Number(1))];
    let own: Vec<(&str, Form)> = match kind {
        "tcp4" | "udp4" | "sctp4" | "tcp6" | "udp6" | "sctp6" => {
            vec![("src-port", Form::Number(2)), ("dst-port", Form::Number(2))]
        }
        "ip4" | "ip6" => vec![
            ("l4proto", Form::Number(1)),
            ("l4data", Form::Foreign),
            ("spi", Form::Foreign),
            ("src-port", Form::Foreign),
            ("dst-port", Form::Foreign),
        ],
        "ah4" | "esp4" | "ah6" | "esp6" => vec![("spi", Form::Foreign)],
        "ether" => {
            let own = [("src", Form::Mac), ("dst", Form::Mac), ("proto", Form::Number(2))];
            return Some(own.into_iter().chain(EVERY).collect());
        }
        _ => return None,
    };
    let mac = [("dst-mac", Form::Foreign)];
    Some(common.into_iter().chain(own).chain(mac).chain(EVERY).collect())
}

fn mac(text: &str) -> Option<Vec<u8>> {
    let parts: Vec<&str> = text.split(':').collect();
    let byte = |part: &&str| match part.len() {
        1 | 2 if part.bytes().all(|c| c.is_ascii_hexdigit()) => u8::from_str_radix(part, 16).ok(),
        _ => None,
    };
    (parts.len() == 6).then(|| parts.iter().map(byte).collect())?
}

fn value(form: Form, text: &str) -> Option<Vec<u8>> {
    match form {
        Form::Number(width) => {
            let value = number::unsigned(text)?.to_be_bytes();
            let (above, value) = value.split_at(4 - width as usize);
            above.iter().all(|byte| *byte == 0).then(|| value.to_vec())
        }
        Form::V4 => text.parse::<Ipv4Addr>().ok().map(|ip| ip.octets().to_vec()),
        Form::V6 => text.parse::<Ipv6Addr>().ok().map(|ip| ip.octets().to_vec()),
        Form::Mac => mac(text),
        Form::Foreign | Form::Queue | Form::Location => None,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses the flow type and the options after it. A last option without a value is ignored.
pub(super) fn parse(kind: &str, words: &[&str]) -> Result<Rule, Bad> {
    let forms = forms(kind).ok_or(Bad::Syntax)?;
    let rule = FlowRule { flow: kind.to_owned(), ..FlowRule::default() };
    // mqnet cannot match AH and ESP headers.
    let possible = !kind.starts_with("ah") && !kind.starts_with("esp");
    let mut parsed = Rule { rule, location: None, possible };
    let mut seen: Vec<&str> = Vec::new();
    let mut left = words;
    while let [option, rest @ ..] = left {
        let Some((name, form)) = forms.iter().find(|(name, _)| name == option) else {
            return Err(Bad::Unknown((*option).to_owned()));
        };
        let [text, rest @ ..] = rest else { break };
        let wrong = |what, text: &str| Bad::Line(format!("Invalid {name} {what}[{text}]"));
        if seen.contains(name) {
            return Err(wrong("value", text));
        }
        if seen.contains(&"action") && *name == "queue" {
            return Err(Bad::Line("action and queue are not compatible".to_owned()));
        }
        seen.push(name);
        let (mask, rest) = match rest {
            ["m", mask, rest @ ..] => (Some(*mask), rest),
            ["m"] => return Err(Bad::Syntax),
            rest => (None, rest),
        };
        left = rest;
        take(&mut parsed, name, *form, text).ok_or_else(|| wrong("value", text))?;
        match (mask, parsed.rule.matches.last_mut()) {
            (None, _) => {}
            (Some(mask), Some(last)) if last.field == *name => {
                // A set bit in ethtool's mask means "ignore"; a set bit in `mask` means "compare".
                let bits = value(*form, mask).ok_or_else(|| wrong("mask", mask))?;
                last.mask = hex(&bits.iter().map(|byte| !byte).collect::<Vec<u8>>());
            }
            (Some(_), _) if *form == Form::Foreign => {}
            (Some(mask), _) => return Err(wrong("mask", mask)),
        }
    }
    Ok(parsed)
}

/// Parses one option into `parsed`; none if its value is invalid.
fn take(parsed: &mut Rule, name: &str, form: Form, text: &str) -> Option<()> {
    match form {
        Form::Foreign => parsed.possible = false,
        Form::Queue => match number::ranged(text, 0, u32::MAX) {
            Some(queue) => parsed.rule.queue = u16::try_from(queue).unwrap_or(u16::MAX),
            // -1 is the drop action. Other negative numbers become a queue that no device has.
            None if text == "-1" => parsed.possible = false,
            None => {
                number::unsigned(text.strip_prefix('-')?)?;
                parsed.rule.queue = u16::MAX;
            }
        },
        Form::Location => parsed.location = Some(number::ranged(text, 0, u32::MAX)?),
        form => {
            let value = value(form, text)?;
            let mask = vec![0xff; value.len()];
            let (value, mask) = (hex(&value), hex(&mask));
            parsed.rule.matches.push(FieldMatch { field: name.to_owned(), value, mask });
        }
    }
    Some(())
}
