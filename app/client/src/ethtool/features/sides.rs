//! `-k DEV --sides`: offloads of both sides of a link, offloads that cross the link, and offload
//! emulation. ethtool has no such listing; plain `-k` is unchanged.

use std::io;

use mqnet_command::TextTable;
use mqnet_control_api::{ApiError, Code, LinkInfo, WayOffloads};

use super::super::call::Call;
use crate::api;

/// Kinds of offload, each with a description.
const KINDS: [(&str, &str); 6] = [
    ("csum", "checksum left out"),
    ("tso4", "large TCP, IPv4"),
    ("tso6", "large TCP, IPv6"),
    ("tso-ecn", "large TCP with ECN"),
    ("uso4", "large UDP, IPv4"),
    ("uso6", "large UDP, IPv6"),
];

fn link(call: &Call<'_>) -> Result<LinkInfo, ApiError> {
    let api = (call.find)(call.dev)?;
    let all: Vec<LinkInfo> = api::get(&*api, "/v1/links")?;
    let of = |link: &LinkInfo| link.netdevs.iter().any(|netdev| netdev.name == call.dev);
    all.into_iter().find(of).ok_or_else(|| ApiError::new(Code::NoDevice, "it was removed just now"))
}

/// Text for the emulation of one kind of offload in one direction; empty if frames pass unchanged.
fn done(way: &WayOffloads, kind: &str) -> &'static str {
    let has = |list: &[String]| list.iter().any(|name| name == kind);
    let large = kind != "csum";
    match (has(&way.emulated), has(&way.merged)) {
        (true, _) if large => "[emulated: cut]",
        (true, _) => "[emulated: filled in]",
        (_, true) if way.cuts => "[emulated: merged, cut beyond the largest]",
        (_, true) => "[emulated: merged]",
        _ if large && way.cuts && has(&way.leaving) => "[emulated: cut beyond the largest]",
        _ => "",
    }
}

fn table(way: &WayOffloads) -> TextTable {
    let has = |list: &[String], kind: &str| list.iter().any(|name| name == kind);
    let word = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let (sends, takes) = (format!("<{} sends", way.from), format!("<{} takes", way.to));
    let mut table = TextTable::new(&["<", "<", &sends, &takes, "<crosses", "<"]);
    for (kind, what) in KINDS {
        let crosses = has(&way.arriving, kind) && has(&way.leaving, kind);
        let crosses = match (crosses, has(&way.unwanted, kind)) {
            (true, _) => "on",
            (false, true) => "off [requested off]",
            (false, false) => "off",
        };
        let (sends, takes) = (word(has(&way.sends, kind)), word(has(&way.takes, kind)));
        let done = done(way, kind).to_owned();
        let crosses = crosses.to_owned();
        table.row(vec![format!("  {kind}"), what.to_owned(), sends, takes, crosses, done]);
    }
    table
}

pub(super) fn show(call: &mut Call<'_>) -> io::Result<u8> {
    let link = match link(call) {
        Ok(link) => link,
        Err(e) => return call.refuse(&e, 1),
    };
    if call.json {
        let text = serde_json::to_string_pretty(&link.offloads)?;
        writeln!(call.out, "{text}")?;
        return Ok(0);
    }
    if link.offloads.is_empty() {
        writeln!(call.out, "{}: the link is down: nothing is negotiated", call.dev)?;
    }
    for way in &link.offloads {
        writeln!(call.out, "Offloads from {} to {}:", way.from, way.to)?;
        call.out.write_all(table(way).text().as_bytes())?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    // Goal: one table shows the offloads of each side, the offloads that cross the link, and the
    // emulation.
    #[test]
    fn both_sides_in_one_table() {
        let way = WayOffloads {
            from: "vm0".into(),
            to: "tap0".into(),
            sends: names(&["csum", "tso4", "tso6"]),
            takes: names(&["csum", "tso4", "uso4", "uso6"]),
            unwanted: names(&["tso4"]),
            arriving: names(&["csum", "tso6"]),
            leaving: names(&["csum"]),
            emulated: names(&["tso6"]),
            cuts: false,
            merged: names(&["uso4", "uso6"]),
        };
        let text = table(&way).text();
        let line = |kind: &str| {
            let line = text.lines().find(|line| line.trim_start().starts_with(kind)).unwrap();
            line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>()
        };
        assert_eq!(line("vm0"), ["vm0 sends", "tap0 takes", "crosses"]);
        assert_eq!(line("csum"), ["csum", "checksum left out", "yes", "yes", "on"]);
        assert_eq!(line("tso4")[2..], ["yes", "yes", "off [requested off]"]);
        assert_eq!(line("tso6")[2..], ["yes", "no", "off", "[emulated: cut]"]);
        assert_eq!(line("uso4")[2..], ["no", "yes", "off", "[emulated: merged]"]);
    }

    // Goal: checksum emulation and segmentation of frames beyond the largest have their texts; an
    // offload without emulation has none.
    #[test]
    fn words_for_what_is_done() {
        let csum = WayOffloads { emulated: names(&["csum"]), ..WayOffloads::default() };
        assert_eq!(done(&csum, "csum"), "[emulated: filled in]");
        let narrow =
            WayOffloads { cuts: true, leaving: names(&["tso4"]), ..WayOffloads::default() };
        assert_eq!(done(&narrow, "tso4"), "[emulated: cut beyond the largest]");
        assert_eq!(done(&narrow, "uso4"), "");
    }
}
