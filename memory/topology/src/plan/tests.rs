//! Placement rules as oracles, independent of the algorithm.

use proptest::prelude::*;

use super::*;
use crate::{Node, synthetic};

mod known;

/// System of 1 to 8 nodes that may lack CPUs or memory, with hyperthreads, gaps in the numbering
/// and arbitrary distances.
fn machine() -> impl Strategy<Value = Topology> {
    let node = (0usize..6, 1usize..3, any::<bool>());
    let nodes = prop::collection::vec(node, 1..=8);
    (
        nodes,
        prop::collection::vec(11u32..60, 64),
        prop::collection::vec(0usize..3, 128),
        any::<u64>(),
    )
        .prop_filter_map("no CPU", |(nodes, distances, gaps, shuffle)| {
            let mut slots = Vec::new();
            for (node, &(cores, threads, _)) in nodes.iter().enumerate() {
                for core in 0..cores {
                    // Node numbers have gaps, too.
                    slots.extend(std::iter::repeat_n((2 * node as u32, (node, core)), threads));
                }
            }
            let mut at = shuffle;
            for i in (1..slots.len()).rev() {
                at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                slots.swap(i, (at >> 33) as usize % (i + 1));
            }
            let mut id = 0;
            let mut cpus: Vec<Cpu> = Vec::new();
            let mut cores: Vec<((usize, usize), usize)> = Vec::new();
            for (slot, gap) in slots.iter().zip(gaps) {
                id += 1 + gap;
                let known = cores.iter().find(|(core, _)| *core == slot.1);
                let core = known.map_or(id, |(_, first)| *first);
                cores.push((slot.1, core));
                cpus.push(Cpu { id, core, node: slot.0 });
            }
            let all = nodes.len();
            let nodes = nodes.iter().enumerate().map(|(from, &(_, _, memory))| Node {
                id: 2 * from as u32,
                memory,
                distances: (0..all)
                    .map(|to| {
                        (2 * to as u32, if from == to { 10 } else { distances[from * 8 + to] })
                    })
                    .collect(),
            });
            (!cpus.is_empty()).then(|| Topology { cpus, nodes: nodes.collect() })
        })
}

/// Functions on nodes with and without CPUs, on unknown nodes, and without a node.
fn functions() -> impl Strategy<Value = Vec<FunctionLocation>> {
    let node =
        prop_oneof![4 => (0u32..8).prop_map(|n| Some(2 * n)), 1 => Just(None), 1 => Just(Some(99))];
    let home = (node, prop::option::of(1u16..6))
        .prop_map(|(node, vectors)| FunctionLocation { node, vectors });
    prop::collection::vec(home, 1..=8)
}

fn location_on(topology: &Topology, home: &FunctionLocation) -> Option<u32> {
    home.node.and_then(|node| topology.nearest_cpu_node(node))
}

/// Node that owns a channel's queue.
fn queue_node(
    topology: &Topology,
    functions: &[FunctionLocation],
    place: &ChannelPlacement,
) -> u32 {
    location_on(topology, &functions[place.function]).unwrap_or(place.node)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    // Goal: the map of channels is independent of their number, and equal requests give equal
    // results. Additional channels do not move worker, interrupt or memory of the first ones.
    #[test]
    fn additional_channels_move_none(
        topology in machine(),
        functions in functions(),
        few in 1u16..40,
        more in 0u16..30,
        high in any::<bool>(),
    ) {
        let side = if high { CpuListEnd::High } else { CpuListEnd::Low };
        let request =
            PlacementRequest { side, ..PlacementRequest::new(&topology, &functions, few) };
        let small = plan(&request);
        prop_assert_eq!(&small, &plan(&request));
        let large = plan(&PlacementRequest { channels: few + more, ..request });
        prop_assert_eq!(small.places.len(), usize::from(few));
        for (a, b) in small.places.iter().zip(&large.places) {
            let function = usize::from(a.channel) % functions.len();
            prop_assert_eq!(a.function, function);
            let vector = a.channel / functions.len() as u16;
            prop_assert_eq!(a.vector, functions[function].vectors.map_or(vector, |n| vector % n));
            // Only the sending CPUs may change.
            let fixed = |p: &ChannelPlacement| ChannelPlacement { xps: Vec::new(), ..p.clone() };
            prop_assert_eq!(fixed(a), fixed(b));
        }
    }

    // Goal: no CPU has two workers while another has none. A worker is on its function's node while
    // a CPU there is free, and on an idle core while there is one among equally near CPUs.
    #[test]
    fn workers_are_near_and_separate(
        topology in machine(),
        functions in functions(),
        channels in 1u16..60,
    ) {
        let placement = plan(&PlacementRequest::new(&topology, &functions, channels));
        let mut used: Vec<usize> = Vec::new();
        let first = topology.cpus.len().min(usize::from(channels));
        for place in &placement.places[..first] {
            let cpu = *topology.cpus.iter().find(|cpu| cpu.id == place.cpu).unwrap();
            prop_assert!(!used.contains(&cpu.id), "CPU {} twice", cpu.id);
            prop_assert_eq!(place.node, cpu.node);
            let home = location_on(&topology, &functions[place.function]);
            let far = |cpu: &Cpu| home.map_or(0, |home| topology.distance(home, cpu.node));
            let core_used = |cpu: &Cpu| {
                topology.cpus.iter().any(|c| c.core == cpu.core && used.contains(&c.id))
            };
            for free in topology.cpus.iter().filter(|free| !used.contains(&free.id)) {
                prop_assert!(far(&cpu) <= far(free), "{cpu:?} is farther than {free:?}");
                let alone = far(free) == far(&cpu) && !core_used(free);
                prop_assert!(!core_used(&cpu) || !alone, "{free:?} is a core alone");
            }
            used.push(cpu.id);
        }
        // Additional channels share workers of the same function, evenly.
        for function in 0..functions.len() {
            let mine = placement.places.iter().filter(|p| p.function == function);
            let own = placement.places[..first].iter().filter(|p| p.function == function);
            let loads: Vec<usize> = own
                .map(|p| mine.clone().filter(|other| other.worker == p.worker).count())
                .collect();
            if let (Some(most), Some(least)) = (loads.iter().max(), loads.iter().min()) {
                let all = mine.clone().count();
                prop_assert_eq!(loads.iter().sum::<usize>(), all, "a worker of another function");
                prop_assert!(most - least <= 1, "{loads:?}");
            }
        }
    }

    // Goal: every CPU sends through a nearest queue, and every queue has a CPU. A CPU has only one
    // queue unless queues outnumber the CPUs near them.
    #[test]
    fn every_cpu_has_a_near_queue(
        topology in machine(),
        functions in functions(),
        channels in 1u16..60,
    ) {
        let placement = plan(&PlacementRequest::new(&topology, &functions, channels));
        let places = &placement.places;
        let of = |cpu: &Cpu| places.iter().filter(|p| p.xps.contains(&cpu.id)).collect::<Vec<_>>();
        for cpu in &topology.cpus {
            let mine = of(cpu);
            prop_assert!(!mine.is_empty(), "{cpu:?} has no queue");
            let far = |p: &ChannelPlacement| {
                topology.distance(cpu.node, queue_node(&topology, &functions, p))
            };
            let nearest = places.iter().map(far).min().unwrap();
            prop_assert!(mine.iter().all(|p| far(p) == nearest), "{cpu:?} has a far queue");
            // A CPU that serves a near queue sends through a queue that it serves.
            let serves = places.iter().any(|p| p.cpu == cpu.id && far(p) == nearest);
            prop_assert!(!serves || mine.iter().any(|p| p.cpu == cpu.id));
        }
        for place in places {
            prop_assert!(!place.xps.is_empty(), "channel {} has no CPU", place.channel);
            prop_assert!(place.xps.is_sorted());
        }
        // A second queue of a CPU has no other CPU, and exists only if there are too few CPUs. The
        // first queue of that CPU may belong to another node, because a CPU may be equally near to
        // two nodes.
        let few = |place: &ChannelPlacement| {
            let node = queue_node(&topology, &functions, place);
            let near = topology.cpus.iter().filter(|cpu| cpu.node == node).count();
            places.iter().filter(|p| queue_node(&topology, &functions, p) == node).count() > near
        };
        for cpu in &topology.cpus {
            let mine = of(cpu);
            let first = mine.iter().filter(|p| !few(p) || p.xps.len() > 1).count();
            prop_assert!(first <= 1, "{cpu:?} has {mine:?}");
        }
    }

    // Goal: channels with a common vector agree on its CPU, and memory is on the nearest node with
    // memory. A single function gives each CPU of the system a queue.
    #[test]
    fn vectors_memory_and_single_functions(
        topology in machine(),
        functions in functions(),
        channels in 1u16..40,
    ) {
        let request = PlacementRequest::new(&topology, &functions, channels);
        let placement = plan(&request);
        for a in &placement.places {
            let same = |b: &&ChannelPlacement| (b.function, b.vector) == (a.function, a.vector);
            for b in placement.places.iter().filter(same) {
                prop_assert_eq!(a.irq_cpu, b.irq_cpu);
            }
            let with_memory = topology.nodes.iter().filter(|n| n.memory);
            let memory: Vec<u32> = with_memory.map(|n| n.id).collect();
            let nearest = memory.iter().map(|&n| topology.distance(a.node, n)).min();
            prop_assert!(memory.is_empty() && a.memory == a.node || memory.contains(&a.memory));
            prop_assert_eq!(nearest.unwrap_or(0), topology.distance(a.node, a.memory));
        }
        for function in 0..functions.len().min(usize::from(channels)) {
            let sets = placement.senders_of(function, &request);
            for cpu in &topology.cpus {
                prop_assert!(sets.iter().any(|(_, set)| set.contains(&cpu.id)), "{cpu:?}");
            }
            let vectors: Vec<u16> = sets.iter().map(|(vector, _)| *vector).collect();
            prop_assert!(vectors.is_sorted_by(|a, b| a < b));
            prop_assert!(sets.iter().all(|(_, set)| !set.is_empty()));
        }
    }

    // Goal: without hyperthreads the CPUs of a node are spread evenly over its queues.
    #[test]
    fn senders_are_spread_evenly(nodes in 1usize..5, cores in 1usize..9, channels in 1u16..40) {
        let topology = synthetic(&format!("{nodes}x{cores}")).unwrap();
        let functions: Vec<FunctionLocation> =
            (0..nodes).map(|n| FunctionLocation { node: Some(n as u32), vectors: None }).collect();
        let placement = plan(&PlacementRequest::new(&topology, &functions, channels));
        for function in 0..nodes {
            let sizes = placement.places.iter().filter(|p| p.function == function);
            let sizes: Vec<usize> = sizes
                .map(|p| p.xps.iter().filter(|&&c| topology.node_of(c) == p.device_node).count())
                .collect();
            if let (Some(most), Some(least)) = (sizes.iter().max(), sizes.iter().min()) {
                prop_assert!(most - least <= 1, "{sizes:?}");
            }
        }
    }
}
