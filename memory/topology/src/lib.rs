//! CPUs and NUMA nodes as values, and placement as a pure function of them.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod cpulist;
mod mask;
pub mod nic;
mod plan;
pub mod port;
mod read;
mod synthetic;

pub use cpulist::{BadList, format_cpu_list, parse_cpu_list};
pub use mask::{format_cpu_mask, parse_cpu_mask};
pub use plan::{
    ChannelPlacement, CpuListEnd, FunctionLocation, Placement, PlacementRequest, Slot, plan,
    round_robin, worker_of,
};
pub use read::parse_distances;
pub use synthetic::{BadSpec, synthetic};

/// Distance between nodes if it is unknown. The distance to the same node is 10.
const FAR: u32 = 20;

/// CPU that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// CPU number of the kernel.
    pub id: usize,
    /// Physical core. CPUs with the same number are hyperthreads of one core.
    pub core: usize,
    /// NUMA node.
    pub node: u32,
}

/// NUMA node, possibly without CPUs or without usable CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Node number of the kernel.
    pub id: u32,
    /// True if the node has memory.
    pub memory: bool,
    /// Distances to nodes, in the firmware's units. The value 10 is the distance to the same node.
    pub distances: Vec<(u32, u32)>,
}

/// CPUs that this process may use, in ascending order, and all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Usable CPUs.
    pub cpus: Vec<Cpu>,
    /// All nodes.
    pub nodes: Vec<Node>,
}

impl Topology {
    /// NUMA node of a CPU, or `None` for a CPU that this process may not use.
    pub fn node_of(&self, cpu: usize) -> Option<u32> {
        self.cpus.iter().find(|c| c.id == cpu).map(|c| c.node)
    }

    /// Distance between two nodes: 0 for the same node, never 0 for different nodes.
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        if from == to {
            return 0;
        }
        let row = self.nodes.iter().find(|node| node.id == from).map(|node| &node.distances);
        let known = row.and_then(|row| row.iter().find(|(node, _)| *node == to));
        known.map_or(FAR, |(_, distance)| (*distance).max(1))
    }

    /// Nodes with CPUs, ascending.
    pub fn cpu_nodes(&self) -> Vec<u32> {
        let mut nodes: Vec<u32> = self.cpus.iter().map(|cpu| cpu.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Nearest node with CPUs, which is the given node if it has CPUs, or `None` for an unknown
    /// node.
    pub fn nearest_cpu_node(&self, node: u32) -> Option<u32> {
        let with_cpus = self.cpu_nodes();
        let known = with_cpus.contains(&node) || self.nodes.iter().any(|n| n.id == node);
        let near = with_cpus.into_iter().min_by_key(|&home| (self.distance(node, home), home));
        near.filter(|_| known)
    }

    /// Nearest node with memory. The result is the given node if it has memory, or if nothing is
    /// known about memory.
    pub fn memory_near(&self, node: u32) -> u32 {
        let with_memory = self.nodes.iter().filter(|n| n.memory).map(|n| n.id);
        with_memory.min_by_key(|&home| (self.distance(node, home), home)).unwrap_or(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the nearest node with CPUs or memory is found by distance, and an unknown node has
    // none. An unknown distance counts as far but usable.
    #[test]
    fn nearest_node_is_by_distance() {
        let cpu = |id: usize, node: u32| Cpu { id, core: id, node };
        let node = |id: u32, memory: bool, distances: &[(u32, u32)]| Node {
            id,
            memory,
            distances: distances.to_vec(),
        };
        let topology = Topology {
            cpus: vec![cpu(0, 0), cpu(1, 1)],
            nodes: vec![
                node(0, true, &[(0, 10), (1, 21), (2, 31)]),
                node(1, false, &[(0, 31), (1, 10), (2, 15)]),
                node(2, true, &[(0, 40), (1, 15), (2, 10)]),
            ],
        };
        assert_eq!(
            [0, 1, 2, 9].map(|n| topology.nearest_cpu_node(n)),
            [Some(0), Some(1), Some(1), None]
        );
        assert_eq!([0, 1, 2].map(|n| topology.memory_near(n)), [0, 2, 2]);
        assert_eq!((topology.distance(1, 1), topology.distance(1, 9)), (0, FAR));
        assert_eq!(Topology::default().memory_near(3), 3);
    }
}
