//! `mqnet show`: links, their two netdevs, how they stand and who serves them.

use std::fmt::Write as _;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use mqnet_command::{Failure, Table, json_text, put};
use mqnet_control::discover::names;
use mqnet_control_api::{
    ChannelPlace, Instance, LinkInfo, LinkState, MemberInfo, NetdevInfo, RxBufferInfo, WayOffloads,
    WorkerInfo,
};
use serde_json::Value;

use crate::api::{self, Api};
use crate::drops;

#[derive(Args, Debug)]
pub struct ShowArgs {
    /// A link or one of its netdevs [default: every link].
    #[arg(value_name = "LINK|DEV")]
    pub(crate) name: Option<String>,
    /// JSON.
    #[arg(short, long)]
    pub(crate) json: bool,
}

/// Runs the command. `verbose` adds what is as people expect it.
pub(crate) fn run(
    args: &ShowArgs,
    verbose: bool,
    api: &dyn Api,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    // Links of several processes stand below the process that has them.
    let (mut texts, mut values) = (Vec::new(), Vec::new());
    for one in api.several().unwrap_or_else(|| vec![api]) {
        let instance: Instance = api::get(one, "/v1/instance")?;
        let links = links(one, args.name.as_deref())?;
        match args.json {
            true => values.extend(json(&instance, &links)?),
            false => texts.push(text(&instance, &links, verbose)),
        }
    }
    let text = if args.json { json_text(&values, true)? } else { texts.join("\n") };
    put(out, &text)
}

/// Every link, or the one that a name stands for.
pub(crate) fn links(api: &dyn Api, name: Option<&str>) -> Result<Vec<LinkInfo>, Failure> {
    let all: Vec<LinkInfo> = api::get(api, "/v1/links")?;
    let Some(name) = name else { return Ok(all) };
    let named = names::of_links(&all);
    let found = names::links(name, names::own_netns(), &named);
    if !found.is_empty() {
        let at = names::only(name, "link or netdev", &found, &named)?;
        let is_it = |link: &&LinkInfo| link.name == named[at].link;
        return Ok(all.iter().find(is_it).cloned().into_iter().collect());
    }
    let known: Vec<&str> =
        all.iter().flat_map(|link| link.netdevs.iter()).map(|dev| &dev.name[..]).collect();
    let there = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Err(Failure::Broken(format!("{name}: no link or netdev of this name; there are: {there}")))
}

fn state(state: LinkState) -> &'static str {
    match state {
        LinkState::Up => "up",
        LinkState::Down => "down",
        LinkState::Changing => "changing",
    }
}

/// Time from now to `at_ms`, milliseconds since the epoch.
fn seconds_to(at_ms: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let left = Duration::from_millis(at_ms).saturating_sub(now);
    format!("{:.1} s", left.as_secs_f64())
}

/// How a link stands, in a few words.
pub(crate) fn standing(link: &LinkInfo) -> String {
    let mut out = state(link.state).to_owned();
    let next = link.next_attempt_ms.map(|at| format!("next attempt in {}", seconds_to(at)));
    let notes: Vec<&str> = link.reason.as_deref().into_iter().chain(next.as_deref()).collect();
    if !notes.is_empty() {
        let _ = write!(out, " ({})", notes.join("; "));
    }
    if link.channels > 0 {
        let plural = if link.channels == 1 { "" } else { "s" };
        let _ = write!(out, ", {} channel{plural}", link.channels);
    }
    if let Some(mtu) = link.mtu {
        let _ = write!(out, ", mtu {mtu}");
    }
    if let Some(max) = link.frame_max {
        let _ = write!(out, ", frames up to {max} B");
    }
    out
}

fn netdev(dev: &NetdevInfo) -> Vec<String> {
    let carrier = if dev.carrier { "carrier" } else { "no carrier" };
    let netns = dev.netns.map_or(String::new(), |inode| format!("netns {inode}"));
    let index = format!("index {}", dev.ifindex);
    vec![format!("  {}", dev.name), dev.function.clone(), index, carrier.to_owned(), netns]
}

/// The functions of a group: which is the primary and why, how each stands, and its channels.
fn members(dev: &NetdevInfo) -> Vec<Vec<String>> {
    let list = |channels: &[u16]| {
        let all: Vec<String> = channels.iter().map(u16::to_string).collect();
        all.join(",")
    };
    let row = |member: &MemberInfo| {
        let role = match member.primary {
            true => format!("primary ({})", member.why),
            false => "secondary".to_owned(),
        };
        let state = match (member.up, member.reason.is_empty()) {
            (true, _) => "up".to_owned(),
            (false, true) => "down".to_owned(),
            (false, false) => format!("down ({})", member.reason),
        };
        let mut channels = match (member.channels.is_empty(), member.up) {
            (true, _) => String::new(),
            (false, true) => format!("channels {}", list(&member.channels)),
            (false, false) => format!("channels {} parked", list(&member.channels)),
        };
        if !member.standing_in.is_empty() {
            let _ = write!(channels, ", stands in for {}", list(&member.standing_in));
        }
        vec![format!("    {}", member.function), role, state, channels]
    };
    dev.members.iter().map(row).collect()
}

/// What the engine does to frames of one direction, if anything.
fn emulation(way: &WayOffloads, verbose: bool) -> Option<String> {
    let list = |names: &[String]| {
        if names.is_empty() { "none".to_owned() } else { names.join(",") }
    };
    let mut done = Vec::new();
    if !way.emulated.is_empty() {
        done.push(format!("{} done here", list(&way.emulated)));
    }
    if way.cuts {
        done.push("frames beyond the largest cut".to_owned());
    }
    let (from, to) = (&way.from, &way.to);
    let mut lines = String::new();
    if !done.is_empty() {
        let (arriving, leaving) = (list(&way.arriving), list(&way.leaving));
        let done = done.join(", ");
        let _ = writeln!(lines, "  {from} -> {to}: {arriving} comes, {leaving} goes: {done}");
    }
    if verbose && !way.merged.is_empty() {
        let has = |kind: &str| way.merged.iter().any(|name| name.starts_with(kind));
        let kinds = match (has("tso"), has("uso")) {
            (true, true) => "TCP and UDP",
            (false, true) => "UDP",
            _ => "TCP",
        };
        let _ = writeln!(lines, "  {from} -> {to}: small {kinds} frames are coalesced");
    }
    (!lines.is_empty()).then_some(lines)
}

/// How the buffers of an RX queue lie; queues that agree are one line.
pub(crate) fn rx_buffers(link: &LinkInfo) -> Vec<String> {
    let key = |b: &RxBufferInfo| (b.netdev.clone(), b.layout.clone(), b.reason.clone(), b.size);
    let line = |group: &[RxBufferInfo]| {
        let (first, last) = (&group[0], &group[group.len() - 1]);
        let queues = match first.queue == last.queue {
            true => format!("queue {}", first.queue),
            false => format!("queues {}-{}", first.queue, last.queue),
        };
        let [pages, most] = [|b: &RxBufferInfo| b.pages, |b: &RxBufferInfo| b.pages_most]
            .map(|of| group.iter().map(of).sum::<u64>());
        format!(
            "{} rx {queues}: {} buffers of {} B, {} in a page, {pages} of {most} pages in use; \
             rx-buf-layout {}: {} ({})",
            first.netdev,
            first.mode,
            first.size,
            first.per_page,
            first.asked,
            first.layout,
            first.reason
        )
    };
    link.rx_buffers.chunk_by(|a, b| key(a) == key(b)).map(line).collect()
}

fn worker(worker: &WorkerInfo) -> Vec<String> {
    let cpu = worker.cpu.map_or("any cpu".to_owned(), |cpu| format!("cpu {cpu}"));
    let node = worker.node.map_or(String::new(), |node| format!("node {node}"));
    let thread = worker.tid.map_or(String::new(), |tid| format!("thread {tid}"));
    vec![format!("  worker {}", worker.id), cpu, node, thread]
}

/// Where a channel is served, and by which devices.
fn place(place: &ChannelPlace) -> Vec<String> {
    let cpu = place.cpu.map_or("any cpu".to_owned(), |cpu| format!("cpu {cpu}"));
    let node = place.node.map_or(String::new(), |node| format!("node {node}"));
    let mut cells =
        vec![format!("  channel {}", place.channel), format!("worker {}", place.worker), cpu, node];
    cells.extend(place.functions.iter().map(|function| {
        let name = function.interface.as_ref().unwrap_or(&function.netdev);
        let mut cell = format!("{name} (function {}) queue {}", function.function, function.queue);
        if let Some(node) = function.node {
            let _ = write!(cell, " node {node}");
        }
        let irqs: Vec<String> = function.irqs.iter().map(u32::to_string).collect();
        if !irqs.is_empty() {
            let _ = write!(cell, " irq {}", irqs.join(","));
        }
        cell
    }));
    cells
}

fn text(instance: &Instance, links: &[LinkInfo], verbose: bool) -> String {
    let uptime = humantime::format_duration(Duration::from_secs(instance.uptime_ms / 1000));
    let mut out = format!(
        "mqnet {} ({}), pid {}, started {uptime} ago\n",
        instance.version, instance.mode, instance.pid
    );
    if links.is_empty() {
        out.push_str("no links\n");
    }
    for link in links {
        let _ = writeln!(out, "\nlink {}: {}", link.name, standing(link));
        let mut table = Table::new(&["<"; 5]);
        for dev in &link.netdevs {
            table.row(netdev(dev));
        }
        push_rows(&mut out, &table);
        let protocols = link.netdevs.iter().filter_map(|dev| dev.protocol.as_deref());
        protocols.for_each(|protocol| out += &format!("  protocol: {protocol}\n"));
        link.notes.iter().for_each(|note| out += &format!("  note: {note}\n"));
        for dev in link.netdevs.iter().filter(|dev| !dev.members.is_empty()) {
            let _ = writeln!(out, "  {} is a group:", dev.name);
            let mut table = Table::new(&["<"; 4]);
            members(dev).into_iter().for_each(|row| table.row(row));
            push_rows(&mut out, &table);
        }
        let emulated = link.offloads.iter().filter_map(|way| emulation(way, verbose));
        emulated.for_each(|line| out.push_str(&line));
        for line in drops::lines(link).into_iter().chain(rx_buffers(link)) {
            let _ = writeln!(out, "  {line}");
        }
        let mut table = Table::new(&["<"; 4]);
        for one in &link.workers {
            table.row(worker(one));
        }
        push_rows(&mut out, &table);
        let mut table = Table::new(&["<"; 6]);
        for one in &link.placement {
            table.row(place(one));
        }
        push_rows(&mut out, &table);
    }
    out
}

/// Without the headings: they say nothing that the rows do not say.
fn push_rows(out: &mut String, table: &Table) {
    for line in table.text().lines().skip(1) {
        out.push_str(line);
        out.push('\n');
    }
}

/// The links as they came, each with the process that owns it.
fn json(instance: &Instance, links: &[LinkInfo]) -> Result<Vec<Value>, Failure> {
    let owner = serde_json::to_value(instance)?;
    let mut all = Vec::new();
    for link in links {
        let mut value = serde_json::to_value(link)?;
        if let Value::Object(map) = &mut value {
            map.insert("instance".to_owned(), owner.clone());
        }
        all.push(value);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use mqnet_control_api::FunctionPlace;
    use serde_json::json;

    use super::*;
    use crate::stats::fixture::{FakeApi, link};

    fn shown(name: Option<&str>, json: bool, state: &str) -> Result<String, Failure> {
        let instance =
            json!({ "version": "9.9", "pid": 42, "mode": "daemon", "uptime-ms": 61_500 });
        let api =
            FakeApi::default().on("/v1/instance", instance).on("/v1/links", vec![link(state)]);
        let mut out = Vec::new();
        run(&ShowArgs { name: name.map(str::to_owned), json }, false, &api, &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    // Goal: queues whose buffers lie alike are one line, with what was asked for, what it is, why,
    // and the pages of all of them.
    #[test]
    fn rx_buffers_are_shown() {
        let queue = |queue: u16, layout: &str, reason: &str| RxBufferInfo {
            netdev: "v".into(),
            queue,
            mode: "mergeable".into(),
            asked: "auto".into(),
            layout: layout.into(),
            reason: reason.into(),
            size: 1536,
            per_page: 2,
            pages: 5,
            pages_most: 10,
            ..RxBufferInfo::default()
        };
        let rx_buffers = vec![
            queue(0, "frag", "auto: cheap"),
            queue(1, "frag", "auto: cheap"),
            queue(2, "full", "auto: 60 %"),
        ];
        let line = "v rx queues 0-1: mergeable buffers of 1536 B, 2 in a page, 10 of 20 pages in \
                    use; rx-buf-layout auto: frag (auto: cheap)";
        let lines = super::rx_buffers(&LinkInfo { rx_buffers, ..link("up") });
        assert_eq!((lines.len(), &lines[0][..]), (2, line));
        assert!(lines[1].starts_with("v rx queue 2: ") && lines[1].ends_with("full (auto: 60 %)"));
    }

    // Goal: everything that identifies a link is there, found by link or by netdev.
    #[test]
    fn a_link_is_shown_whole() {
        for name in [None, Some("vm0"), Some("ntb0")] {
            assert_eq!(
                shown(name, false, "up").unwrap(),
                "mqnet 9.9 (daemon), pid 42, started 1m 1s ago\n\n\
                 link vm0: up, 2 channels, mtu 1500, frames up to 65558 B\n\
                 \u{20} vm0   tap:vm0          index 7        carrier\n\
                 \u{20} ntb0  ntb:/run/x.sock  index 1000000  carrier\n\
                 \u{20} worker 0  cpu 2  node 0\n\
                 \u{20} worker 1  cpu 3  node 0\n"
            );
        }
    }

    // Goal: each channel says who serves it, and which queue, node and interrupts of which device.
    #[test]
    fn channels_say_where_they_are() {
        let function = FunctionPlace {
            netdev: "g0".into(),
            function: 1,
            interface: Some("eth1".into()),
            netns: None,
            node: Some(1),
            queue: 2,
            irqs: vec![40, 41],
        };
        let (cpu, node) = (Some(7), Some(1));
        let mut one = ChannelPlace { channel: 5, worker: 3, cpu, node, functions: vec![function] };
        assert_eq!(
            place(&one).join(" "),
            "  channel 5 worker 3 cpu 7 node 1 eth1 (function 1) queue 2 node 1 irq 40,41"
        );
        (one.cpu, one.node, one.functions) = (None, None, Vec::new());
        assert_eq!(place(&one), ["  channel 5", "worker 3", "any cpu", ""]);
    }

    // Goal: what the engine does for a side that cannot be told is shown, and nothing else is.
    #[test]
    fn emulation_is_shown() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let mut way = WayOffloads {
            from: "vm0".into(),
            to: "tap0".into(),
            arriving: names(&["csum", "tso4"]),
            leaving: names(&["csum", "tso4"]),
            ..WayOffloads::default()
        };
        assert_eq!(emulation(&way, true), None);
        (way.leaving, way.emulated) = (Vec::new(), names(&["csum", "tso4"]));
        way.cuts = true;
        assert_eq!(
            emulation(&way, false).unwrap(),
            "  vm0 -> tap0: csum,tso4 comes, none goes: csum,tso4 done here, frames beyond the \
             largest cut\n"
        );
        let merged = names(&["tso4", "uso4"]);
        let way =
            WayOffloads { from: "a".into(), to: "b".into(), merged, ..WayOffloads::default() };
        assert_eq!(emulation(&way, false), None);
        let line = "  a -> b: small TCP and UDP frames are coalesced\n";
        assert_eq!(emulation(&way, true).unwrap(), line);
    }

    // Goal: a link that is down says why; its state and the owner are in the JSON.
    #[test]
    fn a_link_that_is_down() {
        let text = shown(None, false, "down").unwrap();
        assert!(text.contains("link vm0: down (the peer has ended)\n"), "{text}");
        let value: Value = serde_json::from_str(&shown(None, true, "down").unwrap()).unwrap();
        assert_eq!(value[0]["state"], "down");
        assert_eq!(value[0]["instance"]["pid"], 42);
    }

    // Goal: a link whose end cannot be opened yet shows the reason and when it is tried next.
    #[test]
    fn next_attempt_is_shown() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
        let mut waiting = link("down");
        waiting.next_attempt_ms = Some(now + 3_600_000);
        let text = standing(&waiting);
        let start = "down (the peer has ended; next attempt in ";
        assert!(text.starts_with(start) && text.ends_with(" s)"), "{text}");
        waiting.next_attempt_ms = Some(now - 1);
        assert_eq!(standing(&waiting), format!("{start}0.0 s)"));
    }

    // Goal: an unknown name fails in one line that names what there is.
    #[test]
    fn an_unknown_name() {
        let Err(Failure::Broken(what)) = shown(Some("vmx"), false, "up") else { panic!() };
        assert_eq!(what, "vmx: no link or netdev of this name; there are: vm0, ntb0");
    }
}
