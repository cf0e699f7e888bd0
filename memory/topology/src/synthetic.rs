//! Synthetic topologies from a description: `2x12`, `2x6x2`, `1x4+1x8x2`.

use crate::{Cpu, Node, Topology};

/// Distance between two synthetic nodes. This is a usual firmware value.
const NEIGHBOUR: u32 = 21;
const NODES_MAX: usize = 64;
const CPUS_MAX: usize = 4096;

/// Error of a text that is not a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSpec(String);

impl std::fmt::Display for BadSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "'{}' is not a machine; allowed: NODESxCORES[xTHREADS], such as 2x12 or 2x6x2, joined \
             by + for nodes that differ; at most {NODES_MAX} nodes and {CPUS_MAX} CPUs",
            self.0
        )
    }
}

impl std::error::Error for BadSpec {}

/// Number of nodes, cores per node, threads per core; `None` for an invalid part.
fn part(text: &str) -> Option<(usize, usize, usize)> {
    let mut numbers = text.split('x').map(|n| n.parse::<usize>().ok());
    let (nodes, cores) = (numbers.next()??, numbers.next()??);
    let threads = numbers.next().unwrap_or(Some(1))?;
    let sane = (1..=NODES_MAX).contains(&nodes) && cores <= CPUS_MAX && (1..=8).contains(&threads);
    (sane && numbers.next().is_none()).then_some((nodes, cores, threads))
}

/// Creates a topology from a description. CPUs are numbered as by most firmware: the first threads
/// of all cores, node by node, then the second threads. A node may have 0 cores.
pub fn synthetic(text: &str) -> Result<Topology, BadSpec> {
    let bad = || BadSpec(text.to_owned());
    let mut nodes = Vec::new();
    for one in text.split('+') {
        let (count, cores, threads) = part(one).ok_or_else(bad)?;
        nodes.extend(std::iter::repeat_n((cores, threads), count));
    }
    let all: usize = nodes.iter().map(|(cores, threads)| cores * threads).sum();
    if !(1..=CPUS_MAX).contains(&all) || nodes.len() > NODES_MAX {
        return Err(bad());
    }
    let mut cpus = Vec::new();
    for thread in 0..8 {
        let mut core = 0;
        for (node, &(cores, threads)) in (0u32..).zip(&nodes) {
            if thread < threads {
                let id = cpus.len();
                cpus.extend((0..cores).map(|k| Cpu { id: id + k, core: core + k, node }));
            }
            core += cores;
        }
    }
    let numbers = 0..nodes.len() as u32;
    let distance = |from: u32, to: u32| if from == to { 10 } else { NEIGHBOUR };
    let node = |id: u32| Node {
        id,
        memory: true,
        distances: numbers.clone().map(|to| (to, distance(id, to))).collect(),
    };
    Ok(Topology { cpus, nodes: numbers.clone().map(node).collect() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Goal: the system of 24 CPUs from kernel documents has CPUs 0-5 and 12-17 on node 0, and CPUs
    // n and n + 12 share a core. Nodes may differ, and an invalid description is rejected with the
    // format.
    #[test]
    fn descriptions_are_parsed() {
        let machine = synthetic("2x6x2").unwrap();
        let of = |node| -> Vec<usize> {
            machine.cpus.iter().filter(|cpu| cpu.node == node).map(|cpu| cpu.id).collect()
        };
        assert_eq!(of(0), [0, 1, 2, 3, 4, 5, 12, 13, 14, 15, 16, 17]);
        assert!((0..12).all(|cpu| machine.cpus[cpu].core == machine.cpus[cpu + 12].core));
        assert_eq!((machine.distance(0, 1), machine.nodes.len()), (21, 2));
        let uneven = synthetic("1x1+1x2x2+1x0").unwrap();
        let nodes: Vec<u32> = uneven.cpus.iter().map(|cpu| cpu.node).collect();
        assert_eq!((&nodes[..], uneven.nodes.len()), (&[0, 1, 1, 1, 1][..], 3));
        for bad in ["", "2", "0x4", "2x0", "2x4x0", "2x4x9", "2x4x1x1", "65x1", "1x99999", "2x+1x1"]
        {
            assert!(synthetic(bad).unwrap_err().to_string().contains("NODESxCORES"), "{bad}");
        }
    }

    proptest! {
        // Goal: every CPU exists once, with the requested number of threads per core, and no text
        // causes a panic.
        #[test]
        fn every_cpu_exists_once(
            nodes in 1usize..9,
            cores in 1usize..9,
            threads in 1usize..5,
            text in "[0-9x+]{0,12}",
        ) {
            let machine = synthetic(&format!("{nodes}x{cores}x{threads}")).unwrap();
            let ids: Vec<usize> = machine.cpus.iter().map(|cpu| cpu.id).collect();
            prop_assert_eq!(ids, (0..nodes * cores * threads).collect::<Vec<_>>());
            for cpu in &machine.cpus {
                let same: Vec<&Cpu> = machine.cpus.iter().filter(|c| c.core == cpu.core).collect();
                prop_assert_eq!(same.len(), threads);
                prop_assert!(same.iter().all(|c| c.node == cpu.node));
            }
            let _ = synthetic(&text);
        }
    }
}
