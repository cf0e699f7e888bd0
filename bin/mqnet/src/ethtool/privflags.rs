//! `--show-priv-flags` and `--set-priv-flags`.

use std::io;

use mqnet_control_api::{Code, Outcome, PrivFlag, SetPrivFlags};

use super::call::{Call, Refusal, attribute};

/// `--show-priv-flags`.
pub(super) fn show(call: &mut Call<'_>) -> io::Result<u8> {
    let flags: Vec<PrivFlag> = match call.ask("priv-flags")? {
        Ok(flags) => flags,
        Err(exit) => return Ok(exit),
    };
    if flags.is_empty() {
        return call.refuse(&Refusal::unsupported(), 1);
    }
    let width = flags.iter().map(|flag| flag.name.len()).max().unwrap_or(0);
    writeln!(call.out, "Private flags for {}:", call.dev)?;
    for PrivFlag { name, on } in &flags {
        writeln!(call.out, "{name:width$}: {}", if *on { "on" } else { "off" })?;
    }
    Ok(0)
}

/// `--set-priv-flags`.
pub(super) fn set(call: &mut Call<'_>) -> io::Result<u8> {
    let mut given = Vec::new();
    for pair in call.args.chunks(2) {
        match pair {
            [name, value] if value == "on" || value == "off" => given.push((name, value == "on")),
            [name, ..] => {
                let line = format!(
                    "ethtool (--set-priv-flags): flag '{name}' for parameter '(null)' is not \
                     followed by 'on' or 'off'"
                );
                return call.complain(&line);
            }
            [] => {}
        }
    }
    let result = change(call, &given);
    call.finish(result, &[], 1)
}

fn change(call: &Call<'_>, given: &[(&String, bool)]) -> Result<Option<Outcome>, Refusal> {
    let device = call.device()?;
    let known: Vec<PrivFlag> = match device.get("priv-flags") {
        Err(e) if e.code != Code::NotSupported => return Err(e.into()),
        Ok(known) => known,
        Err(_) => Vec::new(),
    };
    if known.is_empty() {
        return Err(Refusal::unsupported());
    }
    let mut want = SetPrivFlags::default();
    let mut offset = call.attributes() + 12;
    for &(name, on) in given {
        if !known.iter().any(|flag| flag.name == *name) {
            return Err(Refusal::new(Code::NotSupported, "bit name not found", Some(offset)));
        }
        want.flags.insert(name.clone(), on);
        offset += 4 + attribute(name) + if on { 4 } else { 0 };
    }
    if want.flags.is_empty() {
        return Ok(None);
    }
    Ok(Some(device.patch("priv-flags", &want)?))
}
