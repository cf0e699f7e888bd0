//! Placement of channels: CPU, node and memory of each channel, and the CPUs that send through it.

#[cfg(test)]
mod tests;
mod xps;

use crate::{Cpu, Topology};
use xps::{Queue, spread};

/// End of the CPU list where a process starts to take CPUs. The two processes of a link on one
/// machine use different ends, so that they share no core while there are enough cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuListEnd {
    /// Lowest numbers first.
    #[default]
    Low,
    /// Highest numbers first.
    High,
}

/// Function and vector of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Function number.
    pub function: usize,
    /// Queue number on that function.
    pub vector: u16,
}

/// Default map of channels to functions: channel i is on function i mod G, with vector i div G. The
/// map is independent of the number of channels, so a resize moves no channel.
pub fn round_robin(channel: u16, functions: usize) -> Slot {
    let functions = functions.max(1);
    let channel = usize::from(channel);
    // The quotient is at most the channel number, so it fits `u16`.
    Slot { function: channel % functions, vector: (channel / functions) as u16 }
}

/// Known properties of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionLocation {
    /// NUMA node.
    pub node: Option<u32>,
    /// Number of interrupt vectors for queues. Additional channels share them.
    pub vectors: Option<u16>,
}

/// Input of the placement.
#[derive(Clone, Copy, Debug)]
pub struct PlacementRequest<'a> {
    /// CPUs for workers.
    pub topology: &'a Topology,
    /// CPUs that are assigned to TX queues (XPS): all CPUs of the system, even if workers may use
    /// only some.
    pub senders: &'a Topology,
    /// Functions, in the order of the map. An empty list means one function without known
    /// properties.
    pub functions: &'a [FunctionLocation],
    /// Number of channels.
    pub channels: u16,
    /// Map from channel to function.
    pub map: fn(u16, usize) -> Slot,
    /// Maximum number of workers, or `None` for one per CPU.
    pub workers: Option<usize>,
    /// End of the CPU list to start from.
    pub side: CpuListEnd,
}

impl<'a> PlacementRequest<'a> {
    /// Creates a request for channels of these functions, on all CPUs.
    pub fn new(topology: &'a Topology, functions: &'a [FunctionLocation], channels: u16) -> Self {
        let (map, workers, side) = (round_robin as fn(u16, usize) -> Slot, None, CpuListEnd::Low);
        Self { topology, senders: topology, functions, channels, map, workers, side }
    }
}

/// Placement of one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelPlacement {
    /// Channel number.
    pub channel: u16,
    /// Function number.
    pub function: usize,
    /// Queue number on that function.
    pub vector: u16,
    /// NUMA node of the function.
    pub device_node: Option<u32>,
    /// Worker number.
    pub worker: usize,
    /// CPU of the worker.
    pub cpu: usize,
    /// NUMA node of that CPU.
    pub node: u32,
    /// CPU for the interrupts of the queue.
    pub irq_cpu: usize,
    /// NUMA node of the channel's memory.
    pub memory: u32,
    /// CPUs that send through the queue, ascending.
    pub xps: Vec<usize>,
}

impl ChannelPlacement {
    /// True if function and worker are on the same node, or `None` if the function's node is
    /// unknown.
    pub fn is_local(&self) -> Option<bool> {
        self.device_node.map(|node| node == self.node)
    }
}

/// Placement of all channels, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Channels; empty without CPUs.
    pub places: Vec<ChannelPlacement>,
}

impl Placement {
    /// CPUs for each vector of one function, for a network stack that sends only through this
    /// function. Every CPU, on any node, gets a queue of the function. Sorted by vector.
    pub fn senders_of(
        &self,
        function: usize,
        request: &PlacementRequest<'_>,
    ) -> Vec<(u16, Vec<usize>)> {
        let mine: Vec<&ChannelPlacement> =
            self.places.iter().filter(|p| p.function == function).collect();
        let sets = spread(request.senders, &queues(request, &mine));
        let mut by_vector: Vec<(u16, Vec<usize>)> = Vec::new();
        for (place, set) in mine.iter().zip(sets) {
            match by_vector.iter_mut().find(|(vector, _)| *vector == place.vector) {
                Some((_, cpus)) => cpus.extend(set),
                None => by_vector.push((place.vector, set)),
            }
        }
        by_vector.sort_by_key(|(vector, _)| *vector);
        for (_, cpus) in &mut by_vector {
            cpus.sort_unstable();
            cpus.dedup();
        }
        by_vector
    }
}

/// Worker of a channel, or `None` without workers. The first `workers` channels have one worker
/// each. A further channel shares a worker of the same function if there is one, so that memory,
/// interrupts and worker stay on one node.
pub fn worker_of(
    channel: u16,
    functions: usize,
    workers: usize,
    map: fn(u16, usize) -> Slot,
) -> Option<usize> {
    if workers == 0 {
        return None;
    }
    let at = usize::from(channel);
    if at < workers {
        return Some(at);
    }
    let function = map(channel, functions).function;
    let same = |other: &u16| map(*other, functions).function == function;
    // `workers` is at most `channel`, so it fits `u16`.
    let serving = (0..workers as u16).filter(same);
    let earlier = (0..channel).filter(same).count();
    let same_function = serving.clone().count();
    if same_function == 0 {
        return Some(at % workers);
    }
    serving.map(usize::from).nth(earlier % same_function)
}

/// Computes the placement of every channel. Additional channels do not move the first ones.
pub fn plan(request: &PlacementRequest<'_>) -> Placement {
    let cpus = place_workers(request);
    if cpus.is_empty() {
        return Placement::default();
    }
    let functions = request.functions.len().max(1);
    let mut places: Vec<ChannelPlacement> = Vec::new();
    for channel in 0..request.channels {
        let slot = (request.map)(channel, functions);
        let known = request.functions.get(slot.function).copied().unwrap_or_default();
        let vectors = known.vectors.unwrap_or(u16::MAX).max(1);
        let worker = worker_of(channel, functions, cpus.len(), request.map).unwrap_or(0);
        let Cpu { id: cpu, node, .. } = cpus[worker];
        let vector = slot.vector % vectors;
        let shared = places.iter().find(|p| (p.function, p.vector) == (slot.function, vector));
        places.push(ChannelPlacement {
            channel,
            function: slot.function,
            vector,
            device_node: function_node(request, slot.function),
            worker,
            cpu,
            node,
            irq_cpu: shared.map_or(cpu, |first| first.irq_cpu),
            memory: request.topology.memory_near(node),
            xps: Vec::new(),
        });
    }
    let all: Vec<&ChannelPlacement> = places.iter().collect();
    let sets = spread(request.senders, &queues(request, &all));
    for (place, set) in places.iter_mut().zip(sets) {
        place.xps = set;
    }
    Placement { places }
}

/// Node of a function, or `None` if the system does not have the node.
fn function_node(request: &PlacementRequest<'_>, function: usize) -> Option<u32> {
    let node = request.functions.get(function)?.node?;
    let here =
        [request.topology, request.senders].iter().any(|t| t.nearest_cpu_node(node).is_some());
    here.then_some(node)
}

/// Queues with the nodes that own them: the node with CPUs nearest to the function, or the worker's
/// node if the function's node is unknown.
fn queues(request: &PlacementRequest<'_>, places: &[&ChannelPlacement]) -> Vec<Queue> {
    let node = |place: &ChannelPlacement| {
        place.device_node.and_then(|node| request.senders.nearest_cpu_node(node))
    };
    let queue = |place: &&ChannelPlacement| Queue {
        node: node(place).unwrap_or(place.node),
        cpu: place.cpu,
    };
    places.iter().map(queue).collect()
}

/// Selects the CPU of each worker: a free CPU before a shared CPU, then a near CPU before a far
/// CPU, then an idle core before a hyperthread of a used core.
fn place_workers(request: &PlacementRequest<'_>) -> Vec<Cpu> {
    let topology = request.topology;
    let mut order = topology.cpus.clone();
    order.sort_unstable_by_key(|cpu| cpu.id);
    if request.side == CpuListEnd::High {
        order.reverse();
    }
    let functions = request.functions.len().max(1);
    let most = request.workers.unwrap_or(order.len()).max(1);
    let mut placed: Vec<Cpu> = Vec::new();
    for channel in (0..request.channels).take(most) {
        let function = (request.map)(channel, functions).function;
        let home =
            function_node(request, function).and_then(|node| topology.nearest_cpu_node(node));
        let on = |is: &dyn Fn(&Cpu) -> bool| placed.iter().filter(|cpu| is(cpu)).count();
        let cost = |cpu: &&Cpu| {
            let far = home.map_or(0, |home| topology.distance(home, cpu.node));
            (on(&|other| other.id == cpu.id), far, on(&|other| other.core == cpu.core))
        };
        // Take the first of equally good CPUs.
        let Some(best) = order.iter().min_by_key(cost) else { break };
        placed.push(*best);
    }
    placed
}
