//! Numbers as the C library reads them: white space, a sign and a base prefix may precede the
//! digits, and nothing may follow. `keyword` and `unsigned` negate modulo 2^64, as `strtoull` does.

/// Sign (true: minus) and magnitude; none if the text is not a number or exceeds 64 bits. If `base`
/// is 0, the prefix selects the base.
fn scan(text: &str, base: u32) -> Option<(bool, u64)> {
    let space = |c: char| matches!(c, ' ' | '\t'..='\r');
    let text = text.trim_start_matches(space);
    let (minus, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (base, digits) = match (base, hex) {
        (0 | 16, Some(rest)) => (16, rest),
        (0, None) if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        (0, None) => (10, digits),
        (base, _) => (base, digits),
    };
    // `from_str_radix` would accept another sign.
    if !digits.starts_with(|c: char| c.is_digit(base)) {
        return None;
    }
    Some((minus, u64::from_str_radix(digits, base).ok()?))
}

/// 32-bit value of a keyword: decimal, or hexadecimal after `0x`; none for any other text.
pub(crate) fn keyword(text: &str) -> Option<u32> {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (minus, value) = match hex {
        Some(rest) => scan(rest, 16)?,
        None => scan(text, 10)?,
    };
    u32::try_from(if minus { value.wrapping_neg() } else { value }).ok()
}

/// 32-bit number with the base that the prefix selects; none for any other text.
pub(crate) fn unsigned(text: &str) -> Option<u32> {
    let (minus, value) = scan(text, 0)?;
    u32::try_from(if minus { value.wrapping_neg() } else { value }).ok()
}

/// Number from `min` to `max`; the prefix selects the base. -0 is 0; other negative numbers
/// are rejected.
pub(crate) fn ranged(text: &str, min: u32, max: u32) -> Option<u32> {
    match scan(text, 0)? {
        (true, 0) => Some(0),
        (true, _) => None,
        (false, value) => u32::try_from(value).ok(),
    }
    .filter(|value| (min..=max).contains(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: every listed spelling gives the value that the real ethtool reads from it.
    #[test]
    fn spellings() {
        for (text, value) in [
            (" 3", Some(3)),
            ("\t2", Some(2)),
            ("+3", Some(3)),
            ("0X2", Some(2)),
            ("0x0x2", Some(2)),
            ("08", Some(8)),
            ("-18446744073709551614", Some(2)),
            ("4294967295", Some(u32::MAX)),
            ("4294967296", None),
            ("18446744073709551618", None),
            ("0x100000001", None),
            ("-1", None),
            ("", None),
            (" ", None),
            ("0x", None),
            (" 0x3", None),
            ("+0x3", None),
            ("3 ", None),
            ("2.", None),
            ("- 1", None),
            ("+-1", None),
            ("--1", None),
        ] {
            assert_eq!(keyword(text), value, "{text:?}");
        }
        assert_eq!(unsigned("010"), Some(8));
        assert_eq!(unsigned("0"), Some(0));
        assert_eq!(unsigned("08"), None);
        assert_eq!(ranged("0x10", 1, 16), Some(16));
        assert_eq!(ranged("-0", 0, 1), Some(0));
        assert_eq!(ranged("-1", 0, 1), None);
        assert_eq!(ranged("0", 1, 9), None);
    }
}
