//! CPUs and nodes read from `/sys/devices/system`, or from a copy of it.

use std::fs;
use std::path::Path;

use crate::{Cpu, Node, Topology, parse_cpu_list};

/// Parses a node's `distance` file, with one number per online node, ascending by node. Returns
/// `None` for any other text.
pub fn parse_distances(text: &str) -> Option<Vec<u32>> {
    let numbers: Option<Vec<u32>> = text.split_whitespace().map(|n| n.parse().ok()).collect();
    numbers.filter(|numbers| !numbers.is_empty())
}

fn list(path: &Path) -> Option<Vec<usize>> {
    parse_cpu_list(fs::read_to_string(path).ok()?.trim()).ok()
}

/// Online nodes, ascending.
fn online_nodes(root: &Path) -> Vec<u32> {
    if let Some(online) = list(&root.join("node/online")) {
        return online.into_iter().map(|node| node as u32).collect();
    }
    let folders = fs::read_dir(root.join("node")).into_iter().flatten().flatten();
    let number = |name: &str| name.strip_prefix("node").and_then(|n| n.parse().ok());
    let mut nodes: Vec<u32> =
        folders.filter_map(|folder| number(&folder.file_name().to_string_lossy())).collect();
    nodes.sort_unstable();
    nodes
}

fn nodes(root: &Path) -> Vec<(Node, Vec<usize>)> {
    let online = online_nodes(root);
    let with_memory = list(&root.join("node/has_memory"));
    let node = |&id: &u32| {
        let folder = root.join(format!("node/node{id}"));
        let row = fs::read_to_string(folder.join("distance")).ok();
        let row = row.and_then(|text| parse_distances(&text)).unwrap_or_default();
        // A row of another length does not match the online nodes.
        let row = if row.len() == online.len() { row } else { Vec::new() };
        let memory = with_memory.as_ref().is_none_or(|nodes| nodes.contains(&(id as usize)));
        let distances = online.iter().copied().zip(row).collect();
        (Node { id, memory, distances }, list(&folder.join("cpulist")).unwrap_or_default())
    };
    online.iter().map(node).collect()
}

impl Topology {
    /// Reads `/sys/devices/system` for the CPUs in `allowed`. Unreadable values default to one core
    /// per CPU, on node 0. This is right for systems that hide their topology.
    pub fn discover(allowed: &[usize]) -> Self {
        Self::read(Path::new("/sys/devices/system"), Some(allowed))
    }

    /// Reads a copy of `/sys/devices/system`, for the online CPUs in `allowed`, or for all online
    /// CPUs if `allowed` is `None`.
    pub fn read(root: &Path, allowed: Option<&[usize]>) -> Self {
        let online = list(&root.join("cpu/online"));
        let mut usable = match (&online, allowed) {
            (Some(online), Some(allowed)) => {
                online.iter().copied().filter(|cpu| allowed.contains(cpu)).collect()
            }
            (Some(online), None) => online.clone(),
            (None, allowed) => allowed.unwrap_or_default().to_vec(),
        };
        usable.sort_unstable();
        usable.dedup();
        let nodes = nodes(root);
        let cpu = |&id: &usize| {
            let siblings = root.join(format!("cpu/cpu{id}/topology/thread_siblings_list"));
            let core = list(&siblings).and_then(|l| l.first().copied()).unwrap_or(id);
            let of_node = nodes.iter().find(|(_, cpus)| cpus.contains(&id));
            Cpu { id, core, node: of_node.map_or(0, |(node, _)| node.id) }
        };
        let cpus = usable.iter().map(cpu).collect();
        Self { cpus, nodes: nodes.into_iter().map(|(node, _)| node).collect() }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use proptest::prelude::*;

    use super::*;

    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("mqnet-{name}-{}", std::process::id()));
            for (file, text) in files {
                let file = root.join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, format!("{text}\n")).unwrap();
            }
            Self(root)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    // Goal: the topology of this system is readable, and every allowed CPU appears once.
    #[test]
    fn this_system_is_readable() {
        let topology = Topology::discover(&[0]);
        assert_eq!(topology.cpus.len(), 1);
        assert_eq!(topology.node_of(0), Some(topology.cpus[0].node));
        assert_eq!(topology.node_of(4095), None);
    }

    // Goal: a system with a gap in its node numbers, an offline CPU, hyperthreads, a node without
    // CPUs and one without memory is read exactly. The result is limited to the allowed CPUs.
    #[test]
    fn irregular_topology_is_read() {
        let tree = Tree::new(
            "odd",
            &[
                ("cpu/online", "0-2,8"),
                ("cpu/cpu0/topology/thread_siblings_list", "0,8"),
                ("cpu/cpu8/topology/thread_siblings_list", "0,8"),
                ("cpu/cpu1/topology/thread_siblings_list", "1"),
                ("node/online", "0,2-3"),
                ("node/has_memory", "0,3"),
                ("node/node0/cpulist", "0,8"),
                ("node/node2/cpulist", "1-2"),
                ("node/node3/cpulist", ""),
                ("node/node0/distance", "10 21 17"),
                ("node/node2/distance", "21 10 28"),
                ("node/node3/distance", "17 28"),
            ],
        );
        let topology = Topology::read(&tree.0, None);
        let cpu = |id, core, node| Cpu { id, core, node };
        assert_eq!(topology.cpus, [cpu(0, 0, 0), cpu(1, 1, 2), cpu(2, 2, 2), cpu(8, 0, 0)]);
        assert_eq!(
            topology.nodes.iter().map(|n| n.memory).collect::<Vec<_>>(),
            [true, false, true]
        );
        assert_eq!((topology.distance(0, 3), topology.distance(2, 0)), (17, 21));
        // The row has the wrong length, so it is ignored.
        assert_eq!(topology.distance(3, 0), crate::FAR);
        let few = Topology::read(&tree.0, Some(&[8, 2, 5]));
        assert_eq!(few.cpus, [cpu(2, 2, 2), cpu(8, 0, 0)]);
    }

    // Goal: a system without any information has one core per CPU, on node 0.
    #[test]
    fn missing_topology_has_defaults() {
        let topology = Topology::read(Path::new("/nonexistent"), Some(&[3, 1]));
        let cpu = |id| Cpu { id, core: id, node: 0 };
        assert_eq!(topology, Topology { cpus: vec![cpu(1), cpu(3)], nodes: Vec::new() });
    }

    proptest! {
        // Goal: rows of distances are parsed exactly, and no text causes a panic.
        #[test]
        fn distances(row in prop::collection::vec(0u32..300, 1..12), text in "[0-9 a-]{0,20}") {
            let line = row.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
            prop_assert_eq!(parse_distances(&line), Some(row));
            let bad = text.contains(['a', '-']) || text.trim().is_empty();
            if bad {
                prop_assert_eq!(parse_distances(&text), None);
            }
        }
    }
}
