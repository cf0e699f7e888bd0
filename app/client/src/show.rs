//! `mqnet show`: links with their netdevs, state, workers and channels.

use std::fmt::Write as _;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use mqnet_command::{Failure, TextTable, json_text, put};
use mqnet_control::discover::names;
use mqnet_control_api::{
    ChannelPlace, Instance, LinkInfo, LinkState, MemberInfo, NetdevInfo, RxBufferInfo,
    SlotRingsInfo, WayOffloads, WorkerInfo,
};
use serde_json::Value;

use crate::api::{self, Api};
use crate::drops;

#[derive(Args, Debug)]
pub struct ShowArgs {
    /// A link or one of its netdevs [default: every link].
    #[arg(value_name = "LINK|DEV")]
    pub(crate) name: Option<String>,
    /// Print JSON.
    #[arg(short, long)]
    pub(crate) json: bool,
}

/// Runs the command. `verbose` adds lines about normal operation, such as coalescing.
pub(crate) fn run(
    args: &ShowArgs,
    verbose: bool,
    api: &dyn Api,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    // With several processes, each process is printed with its own links.
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

/// Every link, or the one that `name` selects. An unknown or ambiguous name is an error.
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
    Err(Failure::Broken(format!("{name}: no link or netdev of this name; allowed: {there}")))
}

fn state(state: LinkState) -> &'static str {
    match state {
        LinkState::Up => "up",
        LinkState::Down => "down",
        LinkState::Changing => "changing",
    }
}

/// Time from now to `at_ms` (milliseconds since the epoch) in seconds, as text; 0.0 if that time
/// has passed.
fn seconds_to(at_ms: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let left = Duration::from_millis(at_ms).saturating_sub(now);
    format!("{:.1} s", left.as_secs_f64())
}

/// State of a link, followed by reason, next attempt, channels, MTU and largest frame, as far as
/// they are known.
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

/// Rows for the functions of a group: role with its reason, state, channels.
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
            let _ = write!(channels, ", takes over for {}", list(&member.standing_in));
        }
        vec![format!("    {}", member.function), role, state, channels]
    };
    dev.members.iter().map(row).collect()
}

/// Lines about offload emulation in one direction, and with `verbose` about coalescing; none if
/// neither is in use.
fn emulation(way: &WayOffloads, verbose: bool) -> Option<String> {
    let list = |names: &[String]| {
        if names.is_empty() { "none".to_owned() } else { names.join(",") }
    };
    let mut done = Vec::new();
    if !way.emulated.is_empty() {
        done.push(format!("{} emulated", list(&way.emulated)));
    }
    if way.cuts {
        done.push("frames beyond the largest segmented".to_owned());
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

/// Layout of the buffers of RX queues. Adjacent queues of one netdev with the same layout, reason
/// and buffer size share one line.
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

/// Table cells of a channel: worker, CPU and node, then one cell per function with queue, node and
/// interrupts.
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

/// Text for the rings of an `ntb_transport`: windows, slot size and vectors, then one line per
/// queue pair.
fn slot_rings(rings: &SlotRingsInfo) -> String {
    let windows: Vec<String> = rings
        .windows
        .iter()
        .map(|window| {
            format!("{} KiB (far end {} KiB)", window.bytes >> 10, window.far_bytes >> 10)
        })
        .collect();
    let (slot, vectors) = (rings.slot_bytes, rings.vectors);
    let windows = windows.join(", ");
    let mut out = format!("  windows: {windows}, slots of {slot} bytes, {vectors} vectors\n");
    let mut table = TextTable::new(&["<"; 5]);
    for pair in &rings.queue_pairs {
        table.row(vec![
            format!("  queue pair {}", pair.id),
            if pair.open { "open" } else { "closed" }.to_owned(),
            format!("rx {}/{} slots", pair.rx_waiting, pair.rx_slots),
            format!("tx {}/{} slots", pair.tx_in_use, pair.tx_slots),
            format!("received {}, credits {}", pair.received, pair.credits),
        ]);
    }
    push_rows(&mut out, &table);
    out
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
        let mut table = TextTable::new(&["<"; 5]);
        for dev in &link.netdevs {
            table.row(netdev(dev));
        }
        push_rows(&mut out, &table);
        let protocols = link.netdevs.iter().filter_map(|dev| dev.protocol.as_deref());
        protocols.for_each(|protocol| out += &format!("  protocol: {protocol}\n"));
        link.netdevs.iter().filter_map(|dev| dev.slot_rings.as_ref()).for_each(|rings| {
            out += &slot_rings(rings);
        });
        link.notes.iter().for_each(|note| out += &format!("  note: {note}\n"));
        for dev in link.netdevs.iter().filter(|dev| !dev.members.is_empty()) {
            let _ = writeln!(out, "  {} is a group:", dev.name);
            let mut table = TextTable::new(&["<"; 4]);
            members(dev).into_iter().for_each(|row| table.row(row));
            push_rows(&mut out, &table);
        }
        let emulated = link.offloads.iter().filter_map(|way| emulation(way, verbose));
        emulated.for_each(|line| out.push_str(&line));
        for line in drops::lines(link).into_iter().chain(rx_buffers(link)) {
            let _ = writeln!(out, "  {line}");
        }
        let mut table = TextTable::new(&["<"; 4]);
        for one in &link.workers {
            table.row(worker(one));
        }
        push_rows(&mut out, &table);
        let mut table = TextTable::new(&["<"; 6]);
        for one in &link.placement {
            table.row(place(one));
        }
        push_rows(&mut out, &table);
    }
    out
}

/// Appends the rows of a table without its headings.
fn push_rows(out: &mut String, table: &TextTable) {
    for line in table.text().lines().skip(1) {
        out.push_str(line);
        out.push('\n');
    }
}

/// Links as received, each with the owning process as the member `instance`.
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
mod tests;
