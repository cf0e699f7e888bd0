//! `mqnet show`: links, their two netdevs, how they stand and who serves them.

use std::fmt::Write as _;
use std::io::Write;
use std::time::Duration;

use clap::Args;
use mqnet_control_api::{Instance, LinkInfo, LinkState, NetdevInfo, WorkerInfo};
use serde_json::Value;

use crate::api::{self, Api};
use crate::cli::Failure;
use crate::stats::table::Table;
use crate::stats::{json_text, put};

#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    /// A link or one of its netdevs [default: every link].
    #[arg(value_name = "LINK|DEV")]
    pub(crate) name: Option<String>,
    /// JSON.
    #[arg(short, long)]
    pub(crate) json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &ShowArgs, api: &dyn Api, out: &mut dyn Write) -> Result<(), Failure> {
    let instance: Instance = api::get(api, "/v1/instance")?;
    let links = links(api, args.name.as_deref())?;
    let text = if args.json { json(&instance, &links)? } else { text(&instance, &links) };
    put(out, &text)
}

/// Every link, or the one that has this name or a netdev of it.
pub(crate) fn links(api: &dyn Api, name: Option<&str>) -> Result<Vec<LinkInfo>, Failure> {
    let all: Vec<LinkInfo> = api::get(api, "/v1/links")?;
    let Some(name) = name else { return Ok(all) };
    let netdev = |link: &LinkInfo| link.netdevs.iter().any(|dev| dev.name == name);
    if let Some(link) = all.iter().find(|link| link.name == name || netdev(link)) {
        return Ok(vec![link.clone()]);
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

/// How a link stands, in a few words.
pub(crate) fn standing(link: &LinkInfo) -> String {
    let mut out = state(link.state).to_owned();
    if let Some(reason) = &link.reason {
        let _ = write!(out, " ({reason})");
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

fn worker(worker: &WorkerInfo) -> Vec<String> {
    let cpu = worker.cpu.map_or("any cpu".to_owned(), |cpu| format!("cpu {cpu}"));
    let node = worker.node.map_or(String::new(), |node| format!("node {node}"));
    let thread = worker.tid.map_or(String::new(), |tid| format!("thread {tid}"));
    vec![format!("  worker {}", worker.id), cpu, node, thread]
}

fn text(instance: &Instance, links: &[LinkInfo]) -> String {
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
        let mut table = Table::new(&["<"; 4]);
        for one in &link.workers {
            table.row(worker(one));
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
fn json(instance: &Instance, links: &[LinkInfo]) -> Result<String, Failure> {
    let owner = serde_json::to_value(instance)?;
    let mut all = Vec::new();
    for link in links {
        let mut value = serde_json::to_value(link)?;
        if let Value::Object(map) = &mut value {
            map.insert("instance".to_owned(), owner.clone());
        }
        all.push(value);
    }
    json_text(&all, true)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::stats::fixture::{FakeApi, link};

    fn shown(name: Option<&str>, json: bool, state: &str) -> Result<String, Failure> {
        let instance =
            json!({ "version": "9.9", "pid": 42, "mode": "daemon", "uptime-ms": 61_500 });
        let api =
            FakeApi::default().on("/v1/instance", instance).on("/v1/links", vec![link(state)]);
        let mut out = Vec::new();
        run(&ShowArgs { name: name.map(str::to_owned), json }, &api, &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    // Goal: everything that identifies a link is there, found by link or by netdev.
    #[test]
    fn a_link_is_shown_whole() {
        for name in [None, Some("vm0"), Some("ntb0")] {
            assert_eq!(
                shown(name, false, "up").unwrap(),
                "mqnet 9.9 (daemon), pid 42, started 1m 1s ago\n\n\
                 link vm0: up, 2 channels, mtu 1500, frames up to 65554 B\n\
                 \u{20} vm0   tap:vm0          index 7        carrier\n\
                 \u{20} ntb0  ntb:/run/x.sock  index 1000000  carrier\n\
                 \u{20} worker 0  cpu 2  node 0\n\
                 \u{20} worker 1  cpu 3  node 0\n"
            );
        }
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

    // Goal: an unknown name fails in one line that names what there is.
    #[test]
    fn an_unknown_name() {
        let Err(Failure::Broken(what)) = shown(Some("vmx"), false, "up") else { panic!() };
        assert_eq!(what, "vmx: no link or netdev of this name; there are: vm0, ntb0");
    }
}
