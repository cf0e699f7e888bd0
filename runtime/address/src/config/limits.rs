//! Section `[limits]` of a configuration file: resource limits for peers and clients.

use super::document::{Document, Key, Value};
use crate::parse_size;

/// Resource limits. `None`: the default, which is defined where the limit is enforced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Largest amount of guest memory in bytes that one VMM may share.
    pub link_memory: Option<u64>,
    /// Largest amount of memory in bytes that all peers together may share.
    pub memory: Option<u64>,
    /// Largest number of links.
    pub links: Option<u32>,
    /// Largest number of connections per second to one socket.
    pub connections: Option<u32>,
    /// Largest number of log lines of one kind per second.
    pub log_lines: Option<u32>,
}

const SECTION: &str = "[limits] ";
pub(super) const KEYS: [&str; 5] =
    ["link-memory", "memory", "links", "connections-per-second", "log-lines-per-second"];

fn size(document: &mut Document<'_>, value: &Value<'_>, key: &str) -> Option<u64> {
    let text = document.string(value, SECTION, key)?;
    let size = parse_size(&text).filter(|&size| size > 0);
    if size.is_none() {
        let what = format!("{SECTION}{key}: {text:?} must be a size, like \"64G\"");
        document.report(value.span(), what);
    }
    size
}

/// Reads the section `[limits]`. Reports invalid keys and values.
pub(super) fn read<'a>(
    document: &mut Document<'a>,
    section: &Key<'a>,
    value: &Value<'a>,
) -> Limits {
    let mut limits = Limits::default();
    for (key, value) in document.table(value, section.get_ref(), "a table, [limits]") {
        let name = key.get_ref().as_ref();
        let mut number = || document.number(value, SECTION, name, &(1..=1_000_000));
        match name {
            "links" => limits.links = number(),
            "connections-per-second" => limits.connections = number(),
            "log-lines-per-second" => limits.log_lines = number(),
            "link-memory" => limits.link_memory = size(document, value, name),
            "memory" => limits.memory = size(document, value, name),
            _ => document.unknown(key, SECTION, &KEYS),
        }
    }
    limits
}
