//! `--show-priv-flags` and `--set-priv-flags`: private flags.

use std::io;

use mqnet_control_api::{ApiError, Code, Outcome, PrivFlag, SetPrivFlags};

use super::call::{Call, unsupported};

/// `--show-priv-flags`: prints the flags, then their notes.
pub(super) fn show(call: &mut Call<'_>) -> io::Result<u8> {
    let flags: Vec<PrivFlag> = match call.request("priv-flags")? {
        Ok(flags) => flags,
        Err(exit) => return Ok(exit),
    };
    if flags.is_empty() {
        return call.refuse(&unsupported(), 1);
    }
    let width = flags.iter().map(|flag| flag.name.len()).max().unwrap_or(0);
    writeln!(call.out, "Private flags for {}:", call.dev)?;
    for PrivFlag { name, on, .. } in &flags {
        writeln!(call.out, "{name:width$}: {}", if *on { "on" } else { "off" })?;
    }
    // Notes follow after the last flag: scripts that parse the first lines find ethtool's format.
    for PrivFlag { name, notes, .. } in &flags {
        for note in notes {
            writeln!(call.out, "  {name}: {note}")?;
        }
    }
    Ok(0)
}

/// Requested flags: names with values, or hexadecimal bits with an optional mask of the bits to
/// change.
#[derive(Debug, PartialEq, Eq)]
enum Wanted<'a> {
    Names(Vec<(&'a str, bool)>),
    Bits(&'a str, Option<&'a str>),
}

/// `--set-priv-flags`: changes flags.
pub(super) fn set(call: &mut Call<'_>) -> io::Result<u8> {
    let wanted = match parse(call.args) {
        Ok(wanted) => wanted,
        Err(what) => return call.complain(&format!("ethtool (--set-priv-flags): {what}")),
    };
    let result = change(call, &wanted);
    call.finish(result, 1)
}

fn parse(args: &[String]) -> Result<Wanted<'_>, String> {
    if let Some(first) = args.first()
        && let Some(bits) = bits(first)?
    {
        // Arguments after the bits are ignored, as in ethtool.
        return Ok(bits);
    }
    let mut names = Vec::new();
    for pair in args.chunks(2) {
        match pair {
            [name, value] if value == "on" || value == "off" => {
                names.push((name.as_str(), value == "on"));
            }
            [name, ..] => {
                return Err(format!(
                    "flag '{name}' for parameter '(null)' is not followed by 'on' or 'off'"
                ));
            }
            [] => {}
        }
    }
    Ok(Wanted::Names(names))
}

/// Parses `VALUE` or `VALUE/MASK`; none if the word is a name. The error is ethtool's text for an
/// invalid number.
fn bits(word: &str) -> Result<Option<Wanted<'_>>, String> {
    fn prefix(text: &str) -> Option<&str> {
        text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))
    }
    let hex = |text: &str| text.chars().all(|c| c.is_ascii_hexdigit());
    let invalid = |text: &str| Err(format!("invalid value '{text}' for parameter '(null)'"));
    let digits = prefix(word).unwrap_or(word);
    let (value, mask) = match digits.split_once('/') {
        Some((value, mask)) => (value, Some(prefix(mask).unwrap_or(mask))),
        None => (digits, None),
    };
    if !hex(value) || !mask.is_none_or(hex) {
        return if prefix(word).is_some() { invalid(digits) } else { Ok(None) };
    }
    if value.is_empty() || mask.is_some_and(str::is_empty) {
        return invalid(digits);
    }
    Ok(Some(Wanted::Bits(value, mask)))
}

fn change(call: &Call<'_>, wanted: &Wanted<'_>) -> Result<Option<Outcome>, ApiError> {
    let device = call.device()?;
    let known: Vec<PrivFlag> = match device.get("priv-flags") {
        Err(e) if e.code != Code::NotSupported => return Err(e),
        Ok(known) => known,
        Err(_) => Vec::new(),
    };
    if known.is_empty() {
        return Err(unsupported());
    }
    let want = match wanted {
        Wanted::Names(names) => by_name(&known, names)?,
        Wanted::Bits(value, mask) => by_number(&known, value, *mask)?,
    };
    if want.flags.is_empty() {
        return Ok(None);
    }
    Ok(Some(device.patch("priv-flags", &want)?))
}

fn by_name(known: &[PrivFlag], names: &[(&str, bool)]) -> Result<SetPrivFlags, ApiError> {
    let mut want = SetPrivFlags::default();
    for &(name, on) in names {
        if !known.iter().any(|flag| flag.name == *name) {
            return Err(ApiError::new(Code::NotSupported, "bit name not found"));
        }
        want.flags.insert(name.to_owned(), on);
    }
    Ok(want)
}

fn by_number(
    known: &[PrivFlag],
    value: &str,
    mask: Option<&str>,
) -> Result<SetPrivFlags, ApiError> {
    let all = u128::MAX.checked_shr(128 - known.len().min(128) as u32).unwrap_or(0);
    let number = |text: &str| match u128::from_str_radix(text, 16) {
        Ok(n) if n & !all == 0 => Ok(n),
        _ => {
            let why = format!("bit index too high: the device has {} flags", known.len());
            Err(ApiError::new(Code::Invalid, why))
        }
    };
    let value = number(value)?;
    let mask = mask.map_or(Ok(all), number)?;
    let flags = known.iter().enumerate().take(128).filter(|(i, _)| mask >> i & 1 == 1);
    Ok(SetPrivFlags {
        flags: flags.map(|(i, flag)| (flag.name.clone(), value >> i & 1 == 1)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: names and hexadecimal bits are distinguished as in ethtool; an empty or invalid number
    // is an error.
    #[test]
    fn words_and_bits() {
        assert_eq!(bits("ab"), Ok(Some(Wanted::Bits("ab", None))));
        assert_eq!(bits("0X5/0x7"), Ok(Some(Wanted::Bits("5", Some("7")))));
        for name in ["tx", "1g", "-1", " 1", "5/g", "5//7", "1,2"] {
            assert_eq!(bits(name), Ok(None), "{name}");
        }
        for (wrong, shown) in [("5/", "5/"), ("/7", "/7"), ("0x", ""), ("0xg", "g"), ("", "")] {
            let line = format!("invalid value '{shown}' for parameter '(null)'");
            assert_eq!(bits(wrong), Err(line));
        }
    }

    // Goal: bit `i` is the value of flag `i`, flags outside the mask are not changed, and bits
    // above the last flag are rejected.
    #[test]
    fn bits_by_number() {
        let flag = |name: &str| PrivFlag { name: name.to_owned(), on: false, notes: Vec::new() };
        let known = [flag("a"), flag("b"), flag("c")];
        let set = |value, mask| {
            let want = by_number(&known, value, mask).ok()?;
            let text = |(name, on): (String, bool)| format!("{name}{}", if on { '+' } else { '-' });
            Some(want.flags.into_iter().map(text).collect::<String>())
        };
        assert_eq!(set("5", None).as_deref(), Some("a+b-c+"));
        assert_eq!(set("5", Some("3")).as_deref(), Some("a+b-"));
        assert_eq!(set("0", Some("0")).as_deref(), Some(""));
        assert_eq!(set("8", None), None);
        assert_eq!(set("0", Some("ffffffffffffffffffffffffffffffffffff")), None);
    }
}
