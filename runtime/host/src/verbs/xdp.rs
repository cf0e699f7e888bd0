//! XDP programs of a netdev.

use mqnet_control_api::{
    ApiError, Change, Code, SetXdp, XdpEntry, XdpInfo, XdpMap, XdpMapRequest, XdpMapVerb, XdpMode,
    XdpProgram,
};
use mqnet_ebpf::{ExecutionMode, Map, MapError, MapKind, Program, Selector};
use mqnet_engine::XdpError;
use mqnet_netdev::limits::CHANNELS_MAX;
use mqnet_sysio::clock;

use super::{done, not_while_changing};
use crate::{HostedLink, Netdev};

/// Largest number of entries in a reply, because a map may have millions.
const DUMP_MAX: usize = 100_000;

fn bytes(field: &str, text: &str) -> Result<Vec<u8>, ApiError> {
    let bad = || ApiError::field(field, format!("{field}: two hexadecimal digits a byte"));
    if !text.is_ascii() {
        return Err(bad());
    }
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |b: u8| (b as char).to_digit(16);
    let byte = |pair: &[u8; 2]| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8);
    let all: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    all.filter(|_| rest.is_empty()).ok_or_else(bad)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Describes the program of a side.
pub(super) fn xdp(entry: &mut HostedLink, side: usize) -> Result<XdpInfo, ApiError> {
    let map = |map: &Map| {
        let def = map.def();
        XdpMap {
            name: def.name.clone(),
            kind: def.kind.name().to_owned(),
            key_size: def.key_size,
            value_size: def.value_size,
            max_entries: def.max_entries,
        }
    };
    let stats = entry.link.stats()[side];
    let sum = |get: fn(&mqnet_netdev::XdpStats) -> u64| stats.iter().map(|s| get(&s.rx.xdp)).sum();
    let program = entry.link.xdp(side).map(|program| XdpProgram {
        name: program.name().to_owned(),
        section: program.section().to_owned(),
        mode: program.mode().name().to_owned(),
        insns: program.insns() as u64,
        verified_insns: program.walked().into(),
        packets: sum(|xdp| xdp.packets.get()),
        drops: sum(|xdp| xdp.drops.get()),
        tx: sum(|xdp| xdp.tx.get()),
        redirects: sum(|xdp| xdp.redirects.get()),
        maps: program.maps().iter().map(map).collect(),
    });
    Ok(XdpInfo { program })
}

fn refused(e: &XdpError) -> ApiError {
    let code = match e {
        XdpError::Busy => Code::Busy,
        XdpError::None => Code::NoEntry,
        XdpError::Layer => Code::NotSupported,
        XdpError::System(_) => Code::Failed,
    };
    ApiError::new(code, format!("xdp: {e}"))
}

/// Attaches or detaches a program.
pub(super) fn set_xdp(entry: &mut HostedLink, side: usize, want: &SetXdp) -> Change {
    let since = clock::monotonic();
    // A channel change has already created its new lanes, which would not get the program.
    not_while_changing(entry)?;
    let Some(object) = &want.object else {
        entry.link.detach_xdp(side).map_err(|e| refused(&e))?;
        return done(true, since);
    };
    let object = bytes("object", object)?;
    let mode = match want.mode {
        XdpMode::Auto => ExecutionMode::BEST,
        XdpMode::Jit => ExecutionMode::Jit,
        XdpMode::Interpret => ExecutionMode::Interpret,
    };
    let which = Selector { section: want.section.as_deref(), program: want.program.as_deref() };
    let program = Program::load(&object, which, mode, CHANNELS_MAX)
        .map_err(|e| ApiError::field("object", e.to_string()))?;
    let ifindexes = [entry.netdevs[0].ifindex, entry.netdevs[1].ifindex];
    entry.link.attach_xdp(side, program, ifindexes).map_err(|e| refused(&e))?;
    done(true, since)
}

/// Returns an error unless `value` is 0 or the index of a netdev of this link, because lanes do not
/// lead to other links.
fn can_redirect(netdevs: &[Netdev; 2], value: &[u8]) -> Result<(), ApiError> {
    let number = value.first_chunk().map_or(0, |n| u32::from_le_bytes(*n));
    if number == 0 || netdevs.iter().any(|netdev| netdev.ifindex == number) {
        return Ok(());
    }
    let [a, b] = netdevs.each_ref().map(|netdev| format!("{} ({})", netdev.ifindex, netdev.name));
    let why = format!("value: no netdev of this link has number {number}; allowed: {a} and {b}");
    Err(ApiError::field("value", why))
}

fn no_map<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    format!("no map '{wanted}' in this program; maps: {names}")
}

/// Executes an operation on a map. Returns the entries that were read; empty after a write or a
/// deletion.
pub(super) fn xdp_map(
    entry: &HostedLink,
    side: usize,
    want: &XdpMapRequest,
) -> Result<Vec<XdpEntry>, ApiError> {
    let program = entry.link.xdp(side).ok_or_else(|| refused(&XdpError::None))?;
    let named = |map: &&Map| map.def().name == want.map;
    let map = program.maps().iter().find(named).ok_or_else(|| {
        let names = program.maps().iter().map(|map| &*map.def().name);
        ApiError::new(Code::NoEntry, no_map(&want.map, names))
    })?;
    let bad = |e: MapError| match e {
        MapError::NoKey(_) => ApiError::new(Code::NoEntry, e.to_string()),
        MapError::Full(_) => ApiError::new(Code::Busy, e.to_string()),
        e => ApiError::new(Code::Invalid, e.to_string()),
    };
    let part = |field: &str, text: &Option<String>| {
        let text = text.as_ref().ok_or_else(|| ApiError::field(field, format!("{field}: missing")));
        text.and_then(|text| bytes(field, text))
    };
    let netdevs = &entry.netdevs;
    let entry = |key: &[u8], values: &[Vec<u8>]| XdpEntry {
        key: hex(key),
        values: values.iter().map(|value| hex(value)).collect(),
    };
    Ok(match want.verb {
        XdpMapVerb::Dump => {
            map.dump(DUMP_MAX).iter().map(|(key, values)| entry(key, values)).collect()
        }
        XdpMapVerb::Get => {
            let key = part("key", &want.key)?;
            vec![entry(&key, &map.get(&key).map_err(bad)?)]
        }
        XdpMapVerb::Set => {
            let value = part("value", &want.value)?;
            if map.def().kind == MapKind::Devmap {
                can_redirect(netdevs, &value)?;
            }
            map.set(&part("key", &want.key)?, &value).map_err(bad)?;
            Vec::new()
        }
        XdpMapVerb::Delete => {
            map.unset(&part("key", &want.key)?).map_err(bad)?;
            Vec::new()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: bytes survive the conversion to hexadecimal and back, and other text is rejected.
    #[test]
    fn hexadecimal_is_strict() {
        assert_eq!(bytes("key", &hex(&[0, 1, 0xfe])).unwrap(), [0, 1, 0xfe]);
        for text in ["0", "0g", "0x00", " 00", "\u{e9}0", "+1"] {
            assert_eq!(bytes("key", text).unwrap_err().field.as_deref(), Some("key"), "{text}");
        }
    }
}
