//! Systems with results that can be verified by hand.

use super::*;

fn on(nodes: &[u32]) -> Vec<FunctionLocation> {
    nodes.iter().map(|&node| FunctionLocation { node: Some(node), vectors: None }).collect()
}

fn cpus(topology: &Topology, workers: usize, side: CpuListEnd) -> Vec<usize> {
    let request = PlacementRequest { side, ..PlacementRequest::new(topology, &[], workers as u16) };
    plan(&PlacementRequest { workers: Some(workers), ..request })
        .places
        .iter()
        .map(|p| p.cpu)
        .collect()
}

// Goal: with unknown nodes, no two workers share a core while an idle one exists, from either side.
// More workers than CPUs wrap around.
#[test]
fn distinct_cores_first() {
    let smt = synthetic("1x4x2").unwrap();
    assert_eq!(cpus(&smt, 6, CpuListEnd::Low), [0, 1, 2, 3, 4, 5]);
    assert_eq!(cpus(&smt, 5, CpuListEnd::High), [7, 6, 5, 4, 3]);
    // Nodes are ignored for a function without a node.
    assert_eq!(cpus(&synthetic("2x2x2").unwrap(), 5, CpuListEnd::Low), [0, 1, 2, 3, 4]);
    assert_eq!(cpus(&synthetic("1x1x2").unwrap(), 5, CpuListEnd::Low), [0, 1, 0, 1, 0]);
    assert!(cpus(&Topology::default(), 3, CpuListEnd::Low).is_empty());
}

// Goal: on the system of 24 CPUs with two functions, every CPU has exactly one queue, on the same
// node. All queues have equally many CPUs. (The kernel's stride over all channels leaves 12 CPUs
// without a queue for 12 channels, or gives CPUs remote queues for 8 channels.)
#[test]
fn where_the_kernels_rule_breaks() {
    let machine = synthetic("2x6x2").unwrap();
    let functions = on(&[0, 1]);
    for (channels, each) in [(24, 1), (12, 2), (8, 3), (6, 4), (2, 12)] {
        let placement = plan(&PlacementRequest::new(&machine, &functions, channels));
        let mut seen: Vec<usize> = Vec::new();
        for place in &placement.places {
            assert_eq!(place.xps.len(), each, "{channels} channels: {place:?}");
            assert_eq!(place.is_local(), Some(true), "{place:?}");
            assert!(
                place.xps.iter().all(|&cpu| machine.node_of(cpu) == place.device_node),
                "{place:?}"
            );
            assert!(place.xps.contains(&place.cpu));
            seen.extend(&place.xps);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..24).collect::<Vec<_>>(), "{channels} channels");
    }
    // As many channels as CPUs: the table in the kernel's documents.
    let full = plan(&PlacementRequest::new(&machine, &functions, 24));
    let first: Vec<usize> = full.places.iter().take(6).map(|p| p.cpu).collect();
    assert_eq!(first, [0, 6, 1, 7, 2, 8]);
    // Hyperthreads send through the queue of their core.
    let twelve = plan(&PlacementRequest::new(&machine, &functions, 12));
    assert_eq!(twelve.places[0].xps, [0, 12]);
    assert_eq!(twelve.places[11].xps, [11, 23]);
}

// Goal: one function on a system of two nodes uses the other node's CPUs when the CPUs of its own
// node are used up. The placement reports these channels as not local. Each CPU
// transmits through its own queue.
#[test]
fn one_function_for_two_nodes() {
    let machine = synthetic("2x2").unwrap();
    let placement = plan(&PlacementRequest::new(&machine, &on(&[1]), 4));
    let of = |f: fn(&ChannelPlacement) -> usize| -> Vec<usize> {
        placement.places.iter().map(f).collect()
    };
    assert_eq!(of(|p| p.cpu), [2, 3, 0, 1]);
    let local: Vec<Option<bool>> =
        placement.places.iter().map(ChannelPlacement::is_local).collect();
    assert_eq!(local, [Some(true), Some(true), Some(false), Some(false)]);
    assert_eq!(of(|p| p.memory as usize), [1, 1, 0, 0]);
    assert!(placement.places.iter().all(|p| p.xps == [p.cpu]));
}

// Goal: a function on a node without CPUs is served from the nearest node, with memory from the
// nearest node that has some.
#[test]
fn nodes_without_cpus_or_memory() {
    let mut machine = synthetic("1x2+1x0+1x2").unwrap();
    machine.nodes[1].distances = vec![(0, 40), (1, 10), (2, 15)];
    machine.nodes[2].memory = false;
    machine.nodes[2].distances = vec![(0, 30), (1, 15), (2, 10)];
    let placement = plan(&PlacementRequest::new(&machine, &on(&[1]), 2));
    let seen: Vec<_> = placement.places.iter().map(|p| (p.cpu, p.node, p.memory)).collect();
    assert_eq!(seen, [(2, 2, 1), (3, 2, 1)]);
}

// Goal: if there are fewer workers than channels, each worker serves channels of one function.
#[test]
fn workers_serve_one_function_each() {
    let of = |channel| worker_of(channel, 2, 3, round_robin).unwrap();
    assert_eq!((0..8).map(of).collect::<Vec<_>>(), [0, 1, 2, 1, 0, 1, 2, 1]);
    // One function: round robin. More functions than workers: workers are shared.
    let alone = |channel| worker_of(channel, 1, 3, round_robin).unwrap();
    assert_eq!((0..7).map(alone).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2, 0]);
    assert_eq!(worker_of(3, 8, 2, round_robin), Some(1));
    assert_eq!(worker_of(0, 1, 0, round_robin), None);
}
