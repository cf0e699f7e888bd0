//! A rule in the output format of ethtool.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use mqnet_control_api::FlowRule;

/// Output notation of a field.
#[derive(Clone, Copy)]
enum Form {
    Address,
    Mac,
    Decimal,
    Hex,
    UpperHex,
}

type Line = (&'static str, &'static str, Form, usize);

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let at = |i| hex.get(i..i + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    (0..hex.len()).step_by(2).map(at).collect()
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

fn shown(form: Form, bytes: &[u8]) -> String {
    match (form, bytes.len()) {
        (Form::Address, 4) => Ipv4Addr::from(number(bytes)).to_string(),
        (Form::Address, _) => {
            let bytes: [u8; 16] = bytes.try_into().unwrap_or([0; 16]);
            Ipv6Addr::from(bytes).to_string()
        }
        (Form::Mac, _) => {
            bytes.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
        }
        (Form::Decimal, _) => number(bytes).to_string(),
        (Form::Hex, _) => format!("{:#x}", number(bytes)),
        (Form::UpperHex, _) => format!("0x{:X}", number(bytes)),
    }
}

/// Text for the type of a rule, and the fields to print: label, field name, notation, width in
/// bytes.
fn lines(flow: &str) -> (String, Vec<Line>) {
    let v6 = flow.ends_with('6');
    let width = if v6 { 16 } else { 4 };
    let addresses = [
        ("Src IP addr", "src-ip", Form::Address, width),
        ("Dest IP addr", "dst-ip", Form::Address, width),
        match v6 {
            true => ("Traffic Class", "tclass", Form::Hex, 1),
            false => ("TOS", "tos", Form::Hex, 1),
        },
    ];
    let version = if v6 { "IPv6" } else { "IPv4" };
    let own = match flow {
        "ether" => {
            let lines = vec![
                ("Src MAC addr", "src", Form::Mac, 6),
                ("Dest MAC addr", "dst", Form::Mac, 6),
                ("Ethertype", "proto", Form::UpperHex, 2),
            ];
            return ("Flow Type: Raw Ethernet".to_owned(), lines);
        }
        "ip4" | "ip6" => {
            vec![("Protocol", "l4proto", Form::Decimal, 1), ("L4 bytes", "l4data", Form::Hex, 4)]
        }
        _ => vec![
            ("Src port", "src-port", Form::Decimal, 2),
            ("Dest port", "dst-port", Form::Decimal, 2),
        ],
    };
    let kind = match flow {
        "ip4" | "ip6" => format!("Rule Type: Raw {version}"),
        other => {
            let name = other.trim_end_matches(['4', '6']).to_uppercase();
            format!("Rule Type: {name} over {version}")
        }
    };
    (kind, addresses.into_iter().chain(own).collect())
}

/// Lines of a rule, followed by an empty line.
pub(super) fn of(rule: &FlowRule) -> String {
    let (kind, lines) = lines(&rule.flow);
    let mut out = format!("Filter: {}\n\t{kind}\n", rule.location);
    for (label, field, form, width) in lines {
        let of_field = rule.matches.iter().find(|m| m.field == field);
        let pair = of_field.and_then(|m| Some((bytes(&m.value)?, bytes(&m.mask)?)));
        let (value, mask) = pair.unwrap_or_else(|| (vec![0; width], vec![0; width]));
        let ignored: Vec<u8> = mask.iter().map(|byte| !byte).collect();
        let mask_form = match form {
            Form::Decimal => Form::Hex,
            form => form,
        };
        let (value, ignored) = (shown(form, &value), shown(mask_form, &ignored));
        let _ = writeln!(out, "\t{label}: {value} mask: {ignored}");
    }
    let _ = writeln!(out, "\tAction: Direct to queue {}\n", rule.queue);
    out
}
