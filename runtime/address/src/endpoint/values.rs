//! Option declarations and value parsers shared by several kinds.

use std::path::{Path, PathBuf};

use mqnet_netdev::limits::{CHANNELS_MAX, MTU_MAX, MTU_MIN};

use super::option::{Custom, OptionDecl, ValueType, option};
use super::value::Value;

pub(super) const QUEUES: ValueType = ValueType::Number(1, CHANNELS_MAX as u32);
pub(super) const ON_OFF: ValueType = ValueType::Switch { bare: false };

pub(super) const MTU: OptionDecl =
    option("mtu", ValueType::Number(MTU_MIN, MTU_MAX), "MTU to set and to insist on");

pub(super) const MAC: OptionDecl = option(
    "mac",
    ValueType::Custom(&Custom {
        syntax: "MAC",
        allowed: "a unicast Ethernet address",
        example: "02:00:00:00:00:01",
        read: |text| mac(text).map(Value::Mac),
    }),
    "Ethernet address to set",
);

pub(super) const NETNS: OptionDecl = option(
    "netns",
    ValueType::Custom(&Custom {
        syntax: "NAME|PATH",
        allowed: "a name below /run/netns, or a path",
        example: "blue",
        read: |text| {
            let folder = Path::new(if text.contains('/') { "" } else { NAMESPACES });
            Some(Value::Text(folder.join(text).to_string_lossy().into_owned()))
        },
    }),
    "network namespace of the device",
);

pub(super) const NAME: OptionDecl = option(
    "name",
    ValueType::Custom(&Custom {
        syntax: "NAME",
        allowed: "an interface name of 1 to 15 bytes, not '.' or '..', without '/', ':' and white \
                  space",
        example: "web",
        read: |text| device_name(text).ok().map(Value::Text),
    }),
    "name of the netdev; otherwise that of the socket's file",
);

/// Value type for descriptors inherited from the parent process.
pub(super) const DESCRIPTORS: ValueType = ValueType::Custom(&Custom {
    syntax: "N[:N...]",
    allowed: "descriptor numbers above 2",
    example: "5:6",
    read: |text| text.split(':').map(descriptor).collect::<Option<_>>().map(Value::List),
});

pub(super) const DESCRIPTOR: ValueType = ValueType::Custom(&Custom {
    syntax: "N",
    allowed: "a descriptor number above 2",
    example: "5",
    read: descriptor,
});

/// Folder with the names of network namespaces.
const NAMESPACES: &str = "/run/netns";

fn descriptor(text: &str) -> Option<Value> {
    let fd: i32 = text.parse().ok()?;
    (fd > 2).then_some(Value::Number(fd as u64))
}

/// Parses a unicast Ethernet address other than zero; `None` for other text.
fn mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    (parts.next().is_none() && mac[0] & 1 == 0 && mac != [0; 6]).then_some(mac)
}

/// Checks an interface name as the kernel does (`dev_valid_name`), and rejects control characters.
/// Returns the name, or a message with the rules.
pub(super) fn device_name(name: &str) -> Result<String, String> {
    let odd = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    // The kernel treats the byte 0xa0 as white space, even inside a multi-byte character.
    let is_odd = name.contains(odd) || name.bytes().any(|byte| byte == 0xa0);
    if !(1..=15).contains(&name.len()) || is_odd || [".", ".."].contains(&name) {
        return Err(format!(
            "'{}' is not a valid interface name: 1 to 15 bytes, not '.' or '..', no '/', ':' or \
             white space",
            name.escape_debug()
        ));
    }
    Ok(name.to_owned())
}

/// Checks the length of a socket path: `sun_path` has 108 bytes including the terminating zero.
/// Returns the path, or a message with the allowed length.
pub(super) fn socket_path(path: &str) -> Result<PathBuf, String> {
    if path.is_empty() || path.len() > 107 {
        let n = path.len();
        return Err(format!("the socket path has {n} bytes, allowed are 1 to 107"));
    }
    Ok(path.into())
}

/// Returns the name of a netdev: `name` if given, otherwise the file name of `path` without its
/// extension, otherwise `otherwise`.
pub(super) fn name_of(name: Option<&String>, path: &Path, otherwise: &str) -> String {
    let stem = || path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    name.cloned().or_else(stem).unwrap_or_else(|| otherwise.to_owned())
}
