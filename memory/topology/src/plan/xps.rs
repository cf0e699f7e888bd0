//! Assignment of sending CPUs to queues (XPS).

use crate::{Cpu, Topology};

/// Queue, from the point of view of senders.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    /// Node that owns the queue.
    pub(super) node: u32,
    /// CPU that serves the queue.
    pub(super) cpu: usize,
}

/// Distance class from a CPU to the CPU that serves a queue: the same CPU, a hyperthread, then by
/// node distance. A queue without a known serving CPU is the farthest.
fn nearness(topology: &Topology, cpu: &Cpu, queue: &Queue) -> (u8, u32) {
    let Some(server) = topology.cpus.iter().find(|c| c.id == queue.cpu) else {
        return (3, 0);
    };
    let step = if cpu.id == server.id {
        0
    } else if cpu.core == server.core {
        1
    } else {
        2
    };
    (step, topology.distance(cpu.node, server.node))
}

/// Assigns every CPU a queue (of the same node, else of the nearest one) and every queue a CPU.
/// Returns the CPUs of each queue. A CPU has several queues only if queues outnumber the CPUs near
/// them.
pub(super) fn spread(topology: &Topology, queues: &[Queue]) -> Vec<Vec<usize>> {
    let mut cpus: Vec<&Cpu> = topology.cpus.iter().collect();
    cpus.sort_unstable_by_key(|cpu| cpu.id);
    let far = |cpu: &Cpu, queue: &Queue| topology.distance(cpu.node, queue.node);
    let candidates = |cpu: &Cpu| -> Vec<usize> {
        let nearest = queues.iter().map(|queue| far(cpu, queue)).min();
        (0..queues.len()).filter(|&q| Some(far(cpu, &queues[q])) == nearest).collect()
    };
    let mine: Vec<Vec<usize>> = cpus.iter().map(|cpu| candidates(cpu)).collect();
    let near = |at: usize, q: usize| nearness(topology, cpus[at], &queues[q]);
    let mut sets: Vec<Vec<usize>> = vec![Vec::new(); queues.len()];
    let mut served = vec![false; cpus.len()];
    // Assign each CPU to a nearest queue that it serves, if there is one.
    for at in 0..cpus.len() {
        let own = mine[at].iter().find(|&&q| near(at, q).0 == 0);
        own.into_iter().for_each(|&q| sets[q].push(cpus[at].id));
        served[at] = own.is_some();
    }
    // A queue without its serving CPU gets a CPU that is still free.
    for (q, set) in sets.iter_mut().enumerate().filter(|(_, set)| set.is_empty()) {
        let free = (0..cpus.len()).filter(|&at| !served[at] && mine[at].contains(&q));
        if let Some(at) = free.min_by_key(|&at| (near(at, q), at)) {
            set.push(cpus[at].id);
            served[at] = true;
        }
    }
    // First assign a hyperthread to a queue that its core serves, because both share a cache. Then
    // assign the other CPUs to the queues with the fewest CPUs.
    for siblings in [true, false] {
        for at in 0..cpus.len() {
            if served[at] {
                continue;
            }
            let wanted = mine[at].iter().filter(|&&q| !siblings || near(at, q).0 == 1);
            let best = wanted.min_by_key(|&&q| (sets[q].len(), near(at, q), q)).copied();
            best.into_iter().for_each(|q| sets[q].push(cpus[at].id));
            served[at] = best.is_some();
        }
    }
    // More queues than CPUs near them: CPUs are shared.
    for q in 0..queues.len() {
        let loads = |at: usize| sets.iter().filter(|set| set.contains(&cpus[at].id)).count();
        let all = (0..cpus.len()).filter(|_| sets[q].is_empty());
        let helper = all.min_by_key(|&at| (!mine[at].contains(&q), near(at, q), loads(at), at));
        sets[q].extend(helper.map(|at| cpus[at].id));
    }
    sets.iter_mut().for_each(|set| set.sort_unstable());
    sets
}
