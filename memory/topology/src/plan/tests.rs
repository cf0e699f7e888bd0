//! The rules, as oracles that know nothing of how places are found.

use proptest::prelude::*;

use super::*;
use crate::{Node, synthetic};

mod known;

/// A machine of 1 to 8 nodes that may lack CPUs or memory, with hyperthreads, holes in the
/// numbering and any distances.
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
                    // Node numbers have holes, too.
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

/// Functions on nodes with and without CPUs, on nodes that nobody knows and on none.
fn homes() -> impl Strategy<Value = Vec<Home>> {
    let node =
        prop_oneof![4 => (0u32..8).prop_map(|n| Some(2 * n)), 1 => Just(None), 1 => Just(Some(99))];
    let home = (node, prop::option::of(1u16..6)).prop_map(|(node, vectors)| Home { node, vectors });
    prop::collection::vec(home, 1..=8)
}

fn home_of(topology: &Topology, home: &Home) -> Option<u32> {
    home.node.and_then(|node| topology.home_of(node))
}

/// The node to which a channel's queue belongs.
fn belongs(topology: &Topology, homes: &[Home], place: &Place) -> u32 {
    home_of(topology, &homes[place.function]).unwrap_or(place.node)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    // Goal: the map of channels to functions knows no count, the same question has the same answer,
    // and more channels move neither worker nor interrupt nor memory of those that there are.
    #[test]
    fn more_channels_move_none(
        topology in machine(),
        homes in homes(),
        few in 1u16..40,
        more in 0u16..30,
        high in any::<bool>(),
    ) {
        let side = if high { Side::High } else { Side::Low };
        let request = Request { side, ..Request::new(&topology, &homes, few) };
        let small = plan(&request);
        prop_assert_eq!(&small, &plan(&request));
        let large = plan(&Request { channels: few + more, ..request });
        prop_assert_eq!(small.places.len(), usize::from(few));
        for (a, b) in small.places.iter().zip(&large.places) {
            let function = usize::from(a.channel) % homes.len();
            prop_assert_eq!(a.function, function);
            let vector = a.channel / homes.len() as u16;
            prop_assert_eq!(a.vector, homes[function].vectors.map_or(vector, |n| vector % n));
            // Only who sends through it may change.
            let fixed = |p: &Place| Place { xps: Vec::new(), ..p.clone() };
            prop_assert_eq!(fixed(a), fixed(b));
        }
    }

    // Goal: nobody has two workers while a CPU has none, a worker is on its function's node while
    // a CPU there is free, and on a core of its own while there is one among equally near CPUs.
    #[test]
    fn workers_are_near_and_alone(topology in machine(), homes in homes(), channels in 1u16..60) {
        let placement = plan(&Request::new(&topology, &homes, channels));
        let mut used: Vec<usize> = Vec::new();
        let first = topology.cpus.len().min(usize::from(channels));
        for place in &placement.places[..first] {
            let cpu = *topology.cpus.iter().find(|cpu| cpu.id == place.cpu).unwrap();
            prop_assert!(!used.contains(&cpu.id), "CPU {} twice", cpu.id);
            prop_assert_eq!(place.node, cpu.node);
            let home = home_of(&topology, &homes[place.function]);
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
        // Later channels share workers of their own function, evenly.
        for function in 0..homes.len() {
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

    // Goal: every CPU sends through a queue, of its own node if there is one, never through a
    // farther one than it must; every queue has a CPU; and a CPU has one queue alone unless queues
    // outnumber the CPUs near them.
    #[test]
    fn every_cpu_has_a_near_queue(topology in machine(), homes in homes(), channels in 1u16..60) {
        let placement = plan(&Request::new(&topology, &homes, channels));
        let places = &placement.places;
        let of = |cpu: &Cpu| places.iter().filter(|p| p.xps.contains(&cpu.id)).collect::<Vec<_>>();
        for cpu in &topology.cpus {
            let mine = of(cpu);
            prop_assert!(!mine.is_empty(), "{cpu:?} has no queue");
            let far = |p: &Place| topology.distance(cpu.node, belongs(&topology, &homes, p));
            let nearest = places.iter().map(far).min().unwrap();
            prop_assert!(mine.iter().all(|p| far(p) == nearest), "{cpu:?} has a far queue");
            // Whoever serves a queue that is near sends through what it serves.
            let serves = places.iter().any(|p| p.cpu == cpu.id && far(p) == nearest);
            prop_assert!(!serves || mine.iter().any(|p| p.cpu == cpu.id));
        }
        for place in places {
            prop_assert!(!place.xps.is_empty(), "channel {} has no CPU", place.channel);
            prop_assert!(place.xps.is_sorted());
        }
        // A second queue is one that has nobody else, where there are not enough for all. The first
        // one may belong to another node: a CPU may be as near to two.
        let few = |place: &Place| {
            let node = belongs(&topology, &homes, place);
            let near = topology.cpus.iter().filter(|cpu| cpu.node == node).count();
            places.iter().filter(|p| belongs(&topology, &homes, p) == node).count() > near
        };
        for cpu in &topology.cpus {
            let mine = of(cpu);
            let first = mine.iter().filter(|p| !few(p) || p.xps.len() > 1).count();
            prop_assert!(first <= 1, "{cpu:?} has {mine:?}");
        }
    }

    // Goal: channels that share a vector agree on its CPU, memory is on the nearest node that has
    // some, and a function alone gives each CPU of the machine a queue.
    #[test]
    fn vectors_memory_and_lone_functions(
        topology in machine(),
        homes in homes(),
        channels in 1u16..40,
    ) {
        let request = Request::new(&topology, &homes, channels);
        let placement = plan(&request);
        for a in &placement.places {
            let same = |b: &&Place| (b.function, b.vector) == (a.function, a.vector);
            for b in placement.places.iter().filter(same) {
                prop_assert_eq!(a.irq_cpu, b.irq_cpu);
            }
            let with_memory = topology.nodes.iter().filter(|n| n.memory);
            let memory: Vec<u32> = with_memory.map(|n| n.id).collect();
            let nearest = memory.iter().map(|&n| topology.distance(a.node, n)).min();
            prop_assert!(memory.is_empty() && a.memory == a.node || memory.contains(&a.memory));
            prop_assert_eq!(nearest.unwrap_or(0), topology.distance(a.node, a.memory));
        }
        for function in 0..homes.len().min(usize::from(channels)) {
            let sets = placement.senders_of(function, &request);
            for cpu in &topology.cpus {
                prop_assert!(sets.iter().any(|(_, set)| set.contains(&cpu.id)), "{cpu:?}");
            }
            let vectors: Vec<u16> = sets.iter().map(|(vector, _)| *vector).collect();
            prop_assert!(vectors.is_sorted_by(|a, b| a < b));
            prop_assert!(sets.iter().all(|(_, set)| !set.is_empty()));
        }
    }

    // Goal: without hyperthreads the CPUs of a node are spread over its queues to within one.
    #[test]
    fn senders_are_spread_evenly(nodes in 1usize..5, cores in 1usize..9, channels in 1u16..40) {
        let topology = synthetic(&format!("{nodes}x{cores}")).unwrap();
        let homes: Vec<Home> =
            (0..nodes).map(|n| Home { node: Some(n as u32), vectors: None }).collect();
        let placement = plan(&Request::new(&topology, &homes, channels));
        for function in 0..nodes {
            let sizes = placement.places.iter().filter(|p| p.function == function);
            let sizes: Vec<usize> = sizes
                .map(|p| p.xps.iter().filter(|&&c| topology.node_of(c) == p.home).count())
                .collect();
            if let (Some(most), Some(least)) = (sizes.iter().max(), sizes.iter().min()) {
                prop_assert!(most - least <= 1, "{sizes:?}");
            }
        }
    }
}
