//! CPUs and NUMA nodes as a value; placement as a pure function of it.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod cpulist;
mod place;

use std::fs;
use std::path::Path;

pub use cpulist::{BadList, format_cpu_list, parse_cpu_list};
pub use place::{Side, place_workers};

/// One CPU that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The kernel's number.
    pub id: usize,
    /// Physical core: CPUs with the same number are hyperthreads of one core.
    pub core: usize,
    /// NUMA node.
    pub node: u32,
}

/// The CPUs that this process may use, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The CPUs.
    pub cpus: Vec<Cpu>,
}

impl Topology {
    /// Reads `/sys/devices/system` for the CPUs in `allowed`. What cannot be read is taken as one
    /// core per CPU on node 0, which is right for machines that hide their topology.
    pub fn discover(allowed: &[usize]) -> Self {
        Self::read(Path::new("/sys/devices/system"), allowed)
    }

    fn read(root: &Path, allowed: &[usize]) -> Self {
        let list = |path: &Path| {
            fs::read_to_string(path).ok().and_then(|text| parse_cpu_list(text.trim()).ok())
        };
        let mut nodes = Vec::new();
        for entry in fs::read_dir(root.join("node")).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(node) = name.strip_prefix("node").and_then(|n| n.parse::<u32>().ok()) {
                nodes.push((node, list(&entry.path().join("cpulist")).unwrap_or_default()));
            }
        }
        let cpu = |&id: &usize| {
            let siblings = root.join(format!("cpu/cpu{id}/topology/thread_siblings_list"));
            let core = list(&siblings).and_then(|l| l.first().copied()).unwrap_or(id);
            let node = nodes.iter().find(|(_, cpus)| cpus.contains(&id)).map_or(0, |(n, _)| *n);
            Cpu { id, core, node }
        };
        Self { cpus: allowed.iter().map(cpu).collect() }
    }

    /// The NUMA node of a CPU; `None` for one that this process may not use.
    pub fn node_of(&self, cpu: usize) -> Option<u32> {
        self.cpus.iter().find(|c| c.id == cpu).map(|c| c.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: this machine can be read, and every allowed CPU appears once.
    #[test]
    fn discovers_this_machine() {
        let topology = Topology::discover(&[0]);
        assert_eq!(topology.cpus.len(), 1);
        assert_eq!(topology.node_of(0), Some(topology.cpus[0].node));
        assert_eq!(topology.node_of(4095), None);
    }
}
