//! Parsers of numbers with tc's units. Each returns `None` for a syntax error or a value out of
//! range.

use crate::{Handle, id};

/// Name and factor of a unit.
type Unit = (&'static str, f64);

const K: f64 = 1000.0;
const KI: f64 = 1024.0;

/// Units of rates, in bits per second.
const RATES: [Unit; 19] = [
    ("", 1.0),
    ("bit", 1.0),
    ("kbit", K),
    ("mbit", K * K),
    ("gbit", K * K * K),
    ("tbit", K * K * K * K),
    ("kibit", KI),
    ("mibit", KI * KI),
    ("gibit", KI * KI * KI),
    ("tibit", KI * KI * KI * KI),
    ("bps", 8.0),
    ("kbps", 8.0 * K),
    ("mbps", 8.0 * K * K),
    ("gbps", 8.0 * K * K * K),
    ("tbps", 8.0 * K * K * K * K),
    ("kibps", 8.0 * KI),
    ("mibps", 8.0 * KI * KI),
    ("gibps", 8.0 * KI * KI * KI),
    ("tibps", 8.0 * KI * KI * KI * KI),
];

/// Units of sizes, in bytes.
const SIZES: [Unit; 11] = [
    ("", 1.0),
    ("b", 1.0),
    ("k", KI),
    ("kb", KI),
    ("m", KI * KI),
    ("mb", KI * KI),
    ("g", KI * KI * KI),
    ("gb", KI * KI * KI),
    ("kbit", KI / 8.0),
    ("mbit", KI * KI / 8.0),
    ("gbit", KI * KI * KI / 8.0),
];

/// Units of times, in nanoseconds; a number without a unit is in microseconds.
const TIMES: [Unit; 12] = [
    ("", K),
    ("s", K * K * K),
    ("sec", K * K * K),
    ("secs", K * K * K),
    ("ms", K * K),
    ("msec", K * K),
    ("msecs", K * K),
    ("us", K),
    ("usec", K),
    ("usecs", K),
    ("ns", 1.0),
    ("nsec", 1.0),
];

/// Parses a decimal number with an optional fraction, followed by a unit in upper or lower case.
fn with_unit(word: &str, units: &[Unit]) -> Option<f64> {
    let digits = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
    let (number, unit) = word.split_at(digits);
    let number: f64 = number.parse().ok()?;
    let (_, factor) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    Some(number * factor)
}

/// Parses a rate into bytes per second; a number without a unit is in bits per second.
pub(crate) fn rate(word: &str) -> Option<u64> {
    let bytes = with_unit(word, &RATES)? / 8.0;
    // Reject larger numbers: `f64` is exact only up to 2^53.
    (bytes <= 9_007_199_254_740_992.0).then_some(bytes as u64)
}

/// Parses a size into bytes.
pub(crate) fn size(word: &str) -> Option<u32> {
    let bytes = with_unit(word, &SIZES)?;
    (bytes <= f64::from(u32::MAX)).then_some(bytes as u32)
}

/// Parses a time into nanoseconds; limited to a 32-bit number of microseconds, as in the kernel.
pub(crate) fn time(word: &str) -> Option<u64> {
    let nanoseconds = with_unit(word, &TIMES)?;
    (nanoseconds <= f64::from(u32::MAX) * K).then_some(nanoseconds as u64)
}

/// Parses a decimal number, a hexadecimal number with `0x`, or an octal number with `0`.
pub(crate) fn number(word: &str) -> Option<u32> {
    let (digits, radix) = match word.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&word[2..], 16),
        [b'0', _, ..] => (&word[1..], 8),
        _ => (word, 10),
    };
    // Reject a sign, which `from_str_radix` accepts.
    let plain = digits.starts_with(|c: char| c.is_ascii_hexdigit());
    u32::from_str_radix(digits, radix).ok().filter(|_| plain)
}

pub(crate) fn decimal<T: std::str::FromStr>(word: &str) -> Option<T> {
    word.parse().ok().filter(|_| word.starts_with(|c: char| c.is_ascii_digit()))
}

/// Parses a number with an optional mask after a slash; the default mask is all ones.
pub(crate) fn masked(word: &str) -> Option<(u32, u32)> {
    match word.split_once('/') {
        Some((value, mask)) => Some((number(value)?, number(mask)?)),
        None => Some((number(word)?, u32::MAX)),
    }
}

/// Parses a class id: `1:2`, `:2`, `1:`, or all 32 bits in hexadecimal; `root` is all ones, `none`
/// is 0.
pub(crate) fn class(word: &str) -> Option<Handle> {
    match word {
        "root" => Some(Handle(u32::MAX)),
        _ => id::parse_class(word),
    }
}

/// Parses the handle of a qdisc: `1:` or `1`. A minor number is ignored, as in tc.
pub(crate) fn qdisc(word: &str) -> Option<Handle> {
    id::parse_handle(word)
}
