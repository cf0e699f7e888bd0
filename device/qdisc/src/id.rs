//! Handles, class ids and protocols in tc's notation.

use crate::Handle;

/// Parses the leading hexadecimal number, with or without `0x`. Returns the value and the remaining
/// text; `None` without a valid 32-bit number.
fn hex(text: &str) -> Option<(u32, &str)> {
    let digits = text.strip_prefix("0x").or(text.strip_prefix("0X")).unwrap_or(text);
    let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
    let (number, rest) = digits.split_at(end);
    Some((u32::from_str_radix(number, 16).ok()?, rest))
}

/// Parses a qdisc handle: `1:`, `1` or `none`; text after the colon is ignored.
pub fn parse_handle(text: &str) -> Option<Handle> {
    if text == "none" {
        return Some(Handle::default());
    }
    let (major, rest) = hex(text)?;
    let major = u16::try_from(major).ok()?;
    (rest.is_empty() || rest.starts_with(':')).then_some(Handle::new(major, 0))
}

/// Parses a class id: `1:2`, `1:`, `:2`, all 32 bits in hexadecimal, or `none`.
pub fn parse_class(text: &str) -> Option<Handle> {
    if text == "none" {
        return Some(Handle::default());
    }
    let Some((major, minor)) = text.split_once(':') else {
        return hex(text).filter(|(_, rest)| rest.is_empty()).map(|(number, _)| Handle(number));
    };
    let half = |text: &str| match text {
        "" => Some(0),
        text => {
            let (number, rest) = hex(text)?;
            u16::try_from(number).ok().filter(|_| rest.is_empty())
        }
    };
    Some(Handle::new(half(major)?, half(minor)?))
}

/// EtherTypes and their names in tc.
const PROTOCOLS: [(&str, u16); 10] = [
    ("all", 0x0003),
    ("ip", 0x0800),
    ("ipv4", 0x0800),
    ("arp", 0x0806),
    ("ipv6", 0x86dd),
    ("802.1Q", 0x8100),
    ("802.1ad", 0x88a8),
    ("mpls_uc", 0x8847),
    ("mpls_mc", 0x8848),
    ("LLDP", 0x88cc),
];

/// Parses a protocol: a name of tc in either case, a decimal number, or a hexadecimal number with
/// `0x`.
pub fn parse_protocol(text: &str) -> Option<u16> {
    let named = PROTOCOLS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    named.map(|(_, number)| *number).or_else(|| {
        let number = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
            Some(digits) => u16::from_str_radix(digits, 16),
            None => text.parse(),
        };
        number.ok()
    })
}

/// Name of a protocol in tc's output; `[number]` if it has no name.
pub fn protocol_name(number: u16) -> String {
    let named = PROTOCOLS.iter().find(|(_, n)| *n == number);
    named.map_or_else(|| format!("[{number}]"), |(name, _)| (*name).to_owned())
}
