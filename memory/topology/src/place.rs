//! Which CPU each worker gets.

use crate::Topology;

/// From which end of the CPU list a process takes its CPUs. The two ends of a link on one machine
/// take different sides, so that they share no core as long as there are enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    /// Lowest numbers first.
    #[default]
    Low,
    /// Highest numbers first.
    High,
}

/// CPUs for `workers` workers: distinct physical cores first, then the remaining hyperthreads,
/// then again from the start when there are more workers than CPUs. Empty without CPUs.
pub fn place_workers(topology: &Topology, workers: usize, side: Side) -> Vec<usize> {
    let mut order: Vec<_> = topology.cpus.clone();
    order.sort_unstable_by_key(|cpu| cpu.id);
    if side == Side::High {
        order.reverse();
    }
    let (mut first, mut rest, mut cores) = (Vec::new(), Vec::new(), Vec::new());
    for cpu in order {
        if cores.contains(&cpu.core) {
            rest.push(cpu.id);
        } else {
            cores.push(cpu.core);
            first.push(cpu.id);
        }
    }
    first.append(&mut rest);
    if first.is_empty() {
        return first;
    }
    first.iter().copied().cycle().take(workers).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cpu;

    fn smt(cores: usize) -> Topology {
        let cpu = |id| Cpu { id, core: id % cores, node: (id % 2) as u32 };
        Topology { cpus: (0..2 * cores).map(cpu).collect() }
    }

    // Goal: no two workers share a core while a whole core is free, from either side.
    #[test]
    fn distinct_cores_first() {
        assert_eq!(place_workers(&smt(4), 4, Side::Low), [0, 1, 2, 3]);
        assert_eq!(place_workers(&smt(4), 6, Side::Low), [0, 1, 2, 3, 4, 5]);
        assert_eq!(place_workers(&smt(4), 4, Side::High), [7, 6, 5, 4]);
    }

    // Goal: more workers than CPUs wrap, and no CPU at all gives no placement.
    #[test]
    fn scarce_cpus_wrap() {
        assert_eq!(place_workers(&smt(1), 5, Side::Low), [0, 1, 0, 1, 0]);
        assert!(place_workers(&Topology::default(), 3, Side::Low).is_empty());
    }
}
