//! Section `[daemon]` of a configuration file.

use std::net::SocketAddr;

use super::document::{Document, Key, Value};

/// Settings of the daemon; `None`: the daemon's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaemonConfig {
    /// Control socket: an absolute path, or an `@abstract` name.
    pub control_socket: Option<String>,
    /// Permissions of the control socket, at most 0o777.
    pub socket_mode: Option<u32>,
    /// Owner of the control socket, `USER` or `USER:GROUP`, as names or numbers. Names are resolved
    /// when the socket is created.
    pub socket_owner: Option<String>,
    /// TCP address of the Prometheus endpoint.
    pub metrics: Option<SocketAddr>,
}

const SECTION: &str = "[daemon] ";
pub(super) const KEYS: [&str; 4] = ["control-socket", "socket-mode", "socket-owner", "metrics"];

fn control_socket(text: &str) -> Result<String, &'static str> {
    // `sun_path` has 108 bytes. A path is followed by a zero byte; an abstract name is preceded by
    // one.
    let fits = text.len() <= 107 && !text.contains('\0');
    let named = text.len() > 1 && (text.starts_with('/') || text.starts_with('@'));
    let why = "must be an absolute path or '@name', of at most 107 bytes";
    if fits && named { Ok(text.to_owned()) } else { Err(why) }
}

fn socket_mode(text: &str) -> Result<u32, &'static str> {
    let octal = (3..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    let mode = u32::from_str_radix(text, 8).ok().filter(|&mode| octal && mode <= 0o777);
    mode.ok_or("must be octal permissions from \"0000\" to \"0777\", like \"0660\"")
}

fn socket_owner(text: &str) -> Result<String, &'static str> {
    let name = |text: &str| {
        let good = |c: char| c.is_ascii_alphanumeric() || "_.-$".contains(c);
        (1..=64).contains(&text.len()) && !text.starts_with('-') && text.chars().all(good)
    };
    let good = match text.split_once(':') {
        Some((user, group)) => name(user) && name(group),
        None => name(text),
    };
    let why = "must be \"USER\" or \"USER:GROUP\" (names or numbers)";
    if good { Ok(text.to_owned()) } else { Err(why) }
}

fn metrics(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "must be an address and a port, like \"127.0.0.1:9101\"")
}

/// Parses a string value. Reports a value of another type or an invalid string, and then returns
/// `None`.
fn read_one<T>(
    document: &mut Document<'_>,
    key: &str,
    value: &Value<'_>,
    parse: impl Fn(&str) -> Result<T, &'static str>,
) -> Option<T> {
    let text = document.string(value, SECTION, key)?;
    let parsed = parse(&text);
    if let Err(why) = &parsed {
        document.report(value.span(), format!("{SECTION}{key}: {text:?} {why}"));
    }
    parsed.ok()
}

/// Reads the section `[daemon]`. Reports invalid keys and values.
pub(super) fn read<'a>(
    document: &mut Document<'a>,
    section: &Key<'a>,
    value: &Value<'a>,
) -> DaemonConfig {
    let mut daemon = DaemonConfig::default();
    let mut admission = None;
    for (key, value) in document.table(value, section.get_ref(), "a table, [daemon]") {
        let name = key.get_ref().as_ref();
        match name {
            "control-socket" => {
                daemon.control_socket = read_one(document, name, value, control_socket);
            }
            "socket-mode" => daemon.socket_mode = read_one(document, name, value, socket_mode),
            "socket-owner" => daemon.socket_owner = read_one(document, name, value, socket_owner),
            "metrics" => daemon.metrics = read_one(document, name, value, metrics),
            _ => document.unknown(key, SECTION, &KEYS),
        }
        if name.starts_with("socket-") {
            admission = Some(key);
        }
    }
    let is_abstract = daemon.control_socket.as_ref().is_some_and(|name| name.starts_with('@'));
    if let Some(key) = admission.filter(|_| is_abstract) {
        let what = "an abstract control-socket has neither mode nor owner";
        document.report(key.span(), format!("{SECTION}{}: {what}", key.get_ref()));
    }
    daemon
}
