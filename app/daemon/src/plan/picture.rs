//! Text picture of a plan: a box for each node, with its CPUs and their channels.

use std::fmt::Write;

use mqnet_topology::Cpu;

use super::Made;

/// Columns inside a box.
const WIDTH: usize = 76;

/// Channels that a CPU serves or sends through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Duty {
    /// Channels with their worker on the CPU.
    pub(super) serves: Vec<u16>,
    /// Other channels that the CPU sends through.
    pub(super) sends: Vec<u16>,
    /// True if a channel of `serves` or `sends` belongs to a function on another node.
    pub(super) far: bool,
}

impl Duty {
    pub(super) fn of(made: &Made, cpu: &Cpu) -> Self {
        let mut duty = Self::default();
        let near = |home: Option<u32>| {
            home.and_then(|node| made.senders.nearest_cpu_node(node))
                .is_none_or(|node| node == cpu.node)
        };
        for place in &made.placement.places {
            let (serves, sends) = (place.cpu == cpu.id, place.xps.contains(&cpu.id));
            duty.far |= (serves || sends) && !near(place.device_node);
            if serves {
                duty.serves.push(place.channel);
            } else if sends {
                duty.sends.push(place.channel);
            }
        }
        duty
    }
}

/// Channel numbers as text; the first four if there are more.
pub(super) fn numbers(channels: &[u16]) -> String {
    let shown: Vec<String> = channels.iter().take(4).map(u16::to_string).collect();
    let more = if channels.len() > 4 { ",.." } else { "" };
    format!("{}{more}", shown.join(","))
}

fn cell(made: &Made, cpu: &Cpu) -> String {
    let duty = Duty::of(made, cpu);
    let mut out = format!("cpu {}", cpu.id);
    if !duty.serves.is_empty() {
        let _ = write!(out, " *{}", numbers(&duty.serves));
    }
    if !duty.sends.is_empty() {
        let _ = write!(out, " >{}", numbers(&duty.sends));
    }
    if duty.far {
        out.push('!');
    }
    out
}

/// Nodes in a picture, sorted: all nodes of the machine and the nodes of its CPUs.
pub(super) fn nodes(made: &Made) -> Vec<u32> {
    let mut nodes: Vec<u32> = made.senders.nodes.iter().map(|node| node.id).collect();
    nodes.extend(made.senders.cpu_nodes());
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// Numbers of the functions on a node. `None` selects functions without a node or on a node without
/// a nearest CPU.
pub(super) fn functions_on(made: &Made, node: Option<u32>) -> String {
    let on = |home: Option<u32>| match home {
        Some(home) if made.senders.nearest_cpu_node(home).is_some() => Some(home),
        _ => None,
    };
    let all = made.members.iter().enumerate().filter(|(_, m)| on(m.location.node) == node);
    all.map(|(number, _)| number.to_string()).collect::<Vec<_>>().join(", ")
}

fn line(out: &mut String, text: &str) {
    let _ = writeln!(out, "│ {text:<WIDTH$} │");
}

fn node_box(made: &Made, node: u32) -> String {
    let mut title = format!("node {node}");
    let functions = functions_on(made, Some(node));
    if !functions.is_empty() {
        let _ = write!(title, ": function {functions}");
    }
    if made.senders.nodes.iter().any(|n| n.id == node && !n.memory) {
        title.push_str(", no memory");
    }
    let rule = "─".repeat((WIDTH + 1).saturating_sub(title.chars().count() + 1));
    let mut out = format!("┌ {title} {rule}┐\n");
    let cpus: Vec<&Cpu> = made.senders.cpus.iter().filter(|cpu| cpu.node == node).collect();
    if cpus.is_empty() {
        line(&mut out, "no CPUs");
    }
    let cells: Vec<String> = cpus.iter().map(|cpu| cell(made, cpu)).collect();
    let widest = cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(1);
    for row in cells.chunks((WIDTH + 2) / (widest + 2)) {
        let row: Vec<String> = row.iter().map(|cell| format!("{cell:<widest$}")).collect();
        line(&mut out, row.join("  ").trim_end());
    }
    let _ = writeln!(out, "└{}┘", "─".repeat(WIDTH + 2));
    out
}

/// Draws a plan.
pub(super) fn draw(made: &Made) -> String {
    let mut out: String = nodes(made).into_iter().map(|node| node_box(made, node)).collect();
    let nowhere = functions_on(made, None);
    if !nowhere.is_empty() && !nodes(made).is_empty() {
        let _ = writeln!(out, "on no known node: function {nowhere}");
    }
    out + "*N serves channel N   >N sends through channel N   ! of a function on another node\n"
}
