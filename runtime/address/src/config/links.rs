//! Sections `[link.NAME]` of a configuration file.

use std::collections::BTreeMap;
use std::ops::Range;

use mqnet_control_api::{ApiError, LinkSpec};

use super::ConfiguredLink;
use super::document::{Document, Key, Value};
use crate::{CHANNELS, CheckedLink, Endpoint, POLL_WINDOW, WORKERS, check_link_name};

pub(super) const KEYS: [&str; 6] = ["a", "b", "channels", "workers", "cpus", "poll-window"];

/// Reads all links of a file into `links`. Reports invalid links.
pub(super) fn read<'a>(
    document: &mut Document<'a>,
    value: &Value<'a>,
    links: &mut BTreeMap<String, ConfiguredLink>,
    check: &impl Fn(&LinkSpec) -> Result<CheckedLink, ApiError>,
) {
    for (key, value) in document.table(value, "link", "a table for each link, [link.NAME]") {
        let name = key.get_ref().as_ref();
        if let Err(e) = check_link_name(name) {
            document.report(key.span(), e.message);
            continue;
        }
        if let Some(first) = links.get(name) {
            let place = &first.place;
            let what = format!("[link.{name}] is defined twice, first at {place}");
            document.report(key.span(), what);
            continue;
        }
        let Some((spec, spans)) = read_spec(document, key, value) else { continue };
        let checked = check(&spec).and_then(|checked| {
            is_free(links, &checked)?;
            Ok(checked)
        });
        match checked {
            Ok(checked) => {
                let place = document.place(key.span().start);
                links.insert(name.to_owned(), ConfiguredLink { spec, checked, place });
            }
            Err(error) => {
                let field = error.field.as_deref().unwrap_or_default();
                let span = spans.get(field).cloned().unwrap_or_else(|| key.span());
                document.report(span, format!("[link.{name}] {error}"));
            }
        }
    }
}

/// Reads a link and the positions of its fields. Reports invalid fields, and then returns `None`.
fn read_spec<'a>(
    document: &mut Document<'a>,
    name: &Key<'a>,
    value: &Value<'a>,
) -> Option<(LinkSpec, BTreeMap<String, Range<usize>>)> {
    let section = format!("[link.{}] ", name.get_ref());
    let (mut a, mut b) = (None, None);
    let (mut channels, mut workers, mut cpus, mut poll_window) = (None, None, None, None);
    let mut spans = BTreeMap::new();
    let mut good = value.get_ref().is_table();
    let table = format!("link.{}", name.get_ref());
    for (key, value) in document.table(value, &table, "a table; write [link.NAME] above it") {
        let field = key.get_ref().as_ref();
        let text = |document: &mut Document<'a>, to: &mut Option<String>| {
            *to = document.string(value, &section, field);
            to.is_some()
        };
        let number = |document: &mut Document<'a>, to: &mut Option<u32>, range| {
            *to = document.number(value, &section, field, range);
            to.is_some()
        };
        good &= match field {
            "a" => text(document, &mut a),
            "b" => text(document, &mut b),
            "cpus" => text(document, &mut cpus),
            "channels" => number(document, &mut channels, &CHANNELS),
            "workers" => number(document, &mut workers, &WORKERS),
            "poll-window" => number(document, &mut poll_window, &POLL_WINDOW),
            _ => {
                document.unknown(key, &section, &KEYS);
                false
            }
        };
        spans.insert(field.to_owned(), value.span());
    }
    for side in ["a", "b"] {
        if value.get_ref().is_table() && !spans.contains_key(side) {
            let what = format!("{section}{side} is missing: an endpoint address, like \"tap:vm0\"");
            document.report(name.span(), what);
        }
    }
    // Both ranges fit into 16 bits.
    let short = |n: Option<u32>| n.and_then(|n| u16::try_from(n).ok());
    let (channels, workers) = (short(channels), short(workers));
    let spec = LinkSpec { a: a?, b: b?, channels, workers, cpus, poll_window };
    good.then_some((spec, spans))
}

/// True if two endpoints use the same TAP device. The two ends of a bridge share a socket and do
/// not conflict.
fn same_device(one: &Endpoint, other: &Endpoint) -> bool {
    match (one, other) {
        (Endpoint::Group(group), single) | (single, Endpoint::Group(group)) => {
            group.members.iter().any(|member| same_device(member, single))
        }
        (Endpoint::Tap(one), Endpoint::Tap(other)) => {
            // The kernel replaces '%d' by a free number, so such names never conflict.
            one.name == other.name && one.netns == other.netns && !one.name.contains('%')
        }
        _ => false,
    }
}

/// Returns an error if a device of `new` is used by another link, or by both ends of `new`.
fn is_free(links: &BTreeMap<String, ConfiguredLink>, new: &CheckedLink) -> Result<(), ApiError> {
    if same_device(&new.a, &new.b) {
        return Err(ApiError::field("b", "b: the device is also the other side of this link"));
    }
    for (field, end) in [("a", &new.a), ("b", &new.b)] {
        for (name, link) in links {
            if [&link.checked.a, &link.checked.b].iter().any(|other| same_device(end, other)) {
                let place = &link.place;
                let what = format!("{field}: the device belongs to [link.{name}] at {place}");
                return Err(ApiError::field(field, what));
            }
        }
    }
    Ok(())
}
