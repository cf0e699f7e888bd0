//! A plan as a table and as JSON.

use std::collections::BTreeSet;
use std::fmt::Write;

use mqnet_command::TextTable;
use mqnet_topology::{ChannelPlacement, Topology, format_cpu_list};
use serde_json::{Value, json};

use super::{Made, picture};

fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn or_unknown(node: Option<u32>) -> String {
    node.map_or("?".to_owned(), |node| node.to_string())
}

fn cores(topology: &Topology) -> usize {
    topology.cpus.iter().map(|cpu| cpu.core).collect::<BTreeSet<_>>().len()
}

/// `local` if the channel's worker is on the node of its function, `across` if not; empty if that
/// node is unknown.
fn locality(place: &ChannelPlacement) -> &'static str {
    match place.is_local() {
        Some(true) => "local",
        Some(false) => "across",
        None => "",
    }
}

fn machine(made: &Made) -> String {
    let (all, mine) = (&made.senders, &made.topology);
    let nodes = all.nodes.len().max(all.cpu_nodes().len());
    let mut out = format!(
        "{}, {}, {}",
        plural(all.cpus.len(), "CPU"),
        plural(cores(all), "core"),
        plural(nodes, "node")
    );
    if mine.cpus.len() < all.cpus.len() {
        let ids: Vec<usize> = mine.cpus.iter().map(|cpu| cpu.id).collect();
        let _ = write!(out, "; workers on {}", format_cpu_list(&ids));
    }
    out
}

fn functions(made: &Made) -> String {
    let mut table = TextTable::new(&["function", "node", "queues", "channels", "<name"]);
    for (number, member) in made.members.iter().enumerate() {
        let mine = made.placement.places.iter().filter(|p| p.function == number).count();
        let queues = member.location.vectors.map_or("any".to_owned(), |n| n.to_string());
        table.row(vec![
            number.to_string(),
            or_unknown(member.location.node),
            queues,
            mine.to_string(),
            member.name.clone(),
        ]);
    }
    table.text()
}

fn channels(made: &Made) -> String {
    let headings = [
        "channel",
        "function",
        "queue",
        "worker",
        "cpu",
        "node",
        "irq-cpu",
        "memory",
        "<bytes",
        "<sent-to-by-cpus",
    ];
    let mut table = TextTable::new(&headings);
    for place in &made.placement.places {
        table.row(vec![
            place.channel.to_string(),
            place.function.to_string(),
            place.vector.to_string(),
            place.worker.to_string(),
            place.cpu.to_string(),
            place.node.to_string(),
            place.irq_cpu.to_string(),
            place.memory.to_string(),
            locality(place).to_owned(),
            format_cpu_list(&place.xps),
        ]);
    }
    table.text()
}

/// Summary of the whole plan.
fn verdict(made: &Made) -> String {
    let places = &made.placement.places;
    let workers: BTreeSet<usize> = places.iter().map(|p| p.worker).collect();
    let cpus: BTreeSet<usize> = places.iter().map(|p| p.cpu).collect();
    let known = places.iter().filter(|p| p.is_local().is_some()).count();
    let local = places.iter().filter(|p| p.is_local() == Some(true)).count();
    let mut out = plural(workers.len(), "worker");
    if cpus.len() < workers.len() {
        let _ = write!(out, " on {}: some share one", plural(cpus.len(), "CPU"));
    }
    match known {
        0 => out.push_str("; no function's node is known, so near and far are the same"),
        _ => {
            let _ = write!(out, "; {local} of {} local", plural(known, "channel"));
        }
    }
    out + "\n"
}

/// Plan as text.
pub(super) fn text(made: &Made, with_picture: bool) -> String {
    let title = made.title.as_ref().map_or(String::new(), |title| format!("{title}: "));
    let mut out = format!("{title}{}\n\n{}\n", machine(made), functions(made));
    out += &channels(made);
    out += &verdict(made);
    if with_picture {
        out.push('\n');
        out += &picture::draw(made);
    }
    out
}

/// Plan as JSON.
pub(super) fn json(made: &Made) -> Value {
    let of_node = |id: u32| -> Vec<usize> {
        made.senders.cpus.iter().filter(|cpu| cpu.node == id).map(|cpu| cpu.id).collect()
    };
    let nodes: Vec<Value> = made
        .senders
        .nodes
        .iter()
        .map(|node| {
            let distances: serde_json::Map<String, Value> =
                node.distances.iter().map(|(to, d)| (to.to_string(), json!(d))).collect();
            let (cpus, memory) = (of_node(node.id), node.memory);
            json!({ "id": node.id, "cpus": cpus, "memory": memory, "distances": distances })
        })
        .collect();
    let members = made.members.iter().enumerate().map(|(number, member)| {
        json!({ "function": number, "name": member.name, "node": member.location.node,
                "queues": member.location.vectors, "interface": member.interface,
                "netns": member.netns })
    });
    let places = made.placement.places.iter().map(|p| {
        json!({ "channel": p.channel, "function": p.function, "queue": p.vector,
                "worker": p.worker, "cpu": p.cpu, "node": p.node, "irq-cpu": p.irq_cpu,
                "memory": p.memory, "home": p.device_node, "local": p.is_local(), "xps": p.xps })
    });
    json!({
        "link": made.title,
        "machine": { "cpus": made.senders.cpus.len(), "cores": cores(&made.senders),
                     "nodes": nodes },
        "functions": members.collect::<Vec<_>>(),
        "channels": places.collect::<Vec<_>>(),
    })
}
