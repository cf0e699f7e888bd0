//! Which CPU, node and memory serves each channel, and which CPUs send through it.

#[cfg(test)]
mod tests;
mod xps;

use crate::{Cpu, Topology};
use xps::{Queue, spread};

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

/// Where a channel is: a function and one of its vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Number of the function.
    pub function: usize,
    /// Number of the queue there.
    pub vector: u16,
}

/// The map of channels to functions: channel i is on function i mod G, as its vector i div G. It
/// does not know how many channels there are, so a resize moves none.
pub fn round_robin(channel: u16, functions: usize) -> Slot {
    let functions = functions.max(1);
    let channel = usize::from(channel);
    // A quotient is no larger than the channel.
    Slot { function: channel % functions, vector: (channel / functions) as u16 }
}

/// What is known of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Home {
    /// Its NUMA node.
    pub node: Option<u32>,
    /// Interrupt vectors for its queues; more channels than these share them.
    pub vectors: Option<u16>,
}

/// What is to be placed.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// CPUs for workers.
    pub topology: &'a Topology,
    /// CPUs that send: all of the machine, where workers may only use some.
    pub senders: &'a Topology,
    /// The functions, in the order of the map; none is one of which nothing is known.
    pub functions: &'a [Home],
    /// Number of channels.
    pub channels: u16,
    /// Which channel is where.
    pub map: fn(u16, usize) -> Slot,
    /// Most workers; `None`: one a CPU.
    pub workers: Option<usize>,
    /// Where to begin.
    pub side: Side,
}

impl<'a> Request<'a> {
    /// Channels of these functions on all CPUs.
    pub fn new(topology: &'a Topology, functions: &'a [Home], channels: u16) -> Self {
        let (map, workers, side) = (round_robin as fn(u16, usize) -> Slot, None, Side::Low);
        Self { topology, senders: topology, functions, channels, map, workers, side }
    }
}

/// Where one channel is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its number.
    pub channel: u16,
    /// Its function.
    pub function: usize,
    /// Its queue there.
    pub vector: u16,
    /// Node of the function.
    pub home: Option<u32>,
    /// Number of the worker.
    pub worker: usize,
    /// CPU of the worker.
    pub cpu: usize,
    /// Node of that CPU.
    pub node: u32,
    /// CPU that takes the interrupts of the queue.
    pub irq_cpu: usize,
    /// Node of its memory.
    pub memory: u32,
    /// CPUs that send through it, ascending.
    pub xps: Vec<usize>,
}

impl Place {
    /// Its bytes stay on one node; `None` when nobody knows where the function is.
    pub fn is_local(&self) -> Option<bool> {
        self.home.map(|home| home == self.node)
    }
}

/// Every channel's place, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The channels; empty without CPUs.
    pub places: Vec<Place>,
}

impl Placement {
    /// CPUs for each vector of one function, for a network stack that sends through it alone: every
    /// CPU has a queue there, wherever it is. By vector, ascending.
    pub fn senders_of(&self, function: usize, request: &Request<'_>) -> Vec<(u16, Vec<usize>)> {
        let mine: Vec<&Place> = self.places.iter().filter(|p| p.function == function).collect();
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

/// Number of the worker that serves a channel, of so many that serve the first channels one each.
/// A channel beyond them shares a worker of its own function, as long as there is one: so memory,
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
    // Fewer than `channel`, so they fit.
    let serving = (0..workers as u16).filter(same);
    let earlier = (0..channel).filter(same).count();
    let colleagues = serving.clone().count();
    if colleagues == 0 {
        return Some(at % workers);
    }
    serving.map(usize::from).nth(earlier % colleagues)
}

/// Finds the place of every channel. The first channels keep theirs when there are more of them.
pub fn plan(request: &Request<'_>) -> Placement {
    let cpus = place_workers(request);
    if cpus.is_empty() {
        return Placement::default();
    }
    let functions = request.functions.len().max(1);
    let mut places: Vec<Place> = Vec::new();
    for channel in 0..request.channels {
        let slot = (request.map)(channel, functions);
        let known = request.functions.get(slot.function).copied().unwrap_or_default();
        let vectors = known.vectors.unwrap_or(u16::MAX).max(1);
        let worker = worker_of(channel, functions, cpus.len(), request.map).unwrap_or(0);
        let Cpu { id: cpu, node, .. } = cpus[worker];
        let vector = slot.vector % vectors;
        let shared = places.iter().find(|p| (p.function, p.vector) == (slot.function, vector));
        places.push(Place {
            channel,
            function: slot.function,
            vector,
            home: home(request, slot.function),
            worker,
            cpu,
            node,
            irq_cpu: shared.map_or(cpu, |first| first.irq_cpu),
            memory: request.topology.memory_near(node),
            xps: Vec::new(),
        });
    }
    let all: Vec<&Place> = places.iter().collect();
    let sets = spread(request.senders, &queues(request, &all));
    for (place, set) in places.iter_mut().zip(sets) {
        place.xps = set;
    }
    Placement { places }
}

/// The node of a function; one that the machine does not have is not known.
fn home(request: &Request<'_>, function: usize) -> Option<u32> {
    let node = request.functions.get(function)?.node?;
    let here = [request.topology, request.senders].iter().any(|t| t.home_of(node).is_some());
    here.then_some(node)
}

/// The queue of a channel belongs to the CPUs nearest to its function, and without one that is
/// known, to those of its worker's node.
fn queues(request: &Request<'_>, places: &[&Place]) -> Vec<Queue> {
    let node = |place: &Place| place.home.and_then(|home| request.senders.home_of(home));
    let queue = |place: &&Place| Queue { node: node(place).unwrap_or(place.node), cpu: place.cpu };
    places.iter().map(queue).collect()
}

/// The CPU of each worker. A free CPU is better than a shared one, a near one better than a far
/// one, a core of its own better than a hyperthread of another's.
fn place_workers(request: &Request<'_>) -> Vec<Cpu> {
    let topology = request.topology;
    let mut order = topology.cpus.clone();
    order.sort_unstable_by_key(|cpu| cpu.id);
    if request.side == Side::High {
        order.reverse();
    }
    let functions = request.functions.len().max(1);
    let most = request.workers.unwrap_or(order.len()).max(1);
    let mut placed: Vec<Cpu> = Vec::new();
    for channel in (0..request.channels).take(most) {
        let function = (request.map)(channel, functions).function;
        let home = home(request, function).and_then(|node| topology.home_of(node));
        let on = |is: &dyn Fn(&Cpu) -> bool| placed.iter().filter(|cpu| is(cpu)).count();
        let cost = |cpu: &&Cpu| {
            let far = home.map_or(0, |home| topology.distance(home, cpu.node));
            (on(&|other| other.id == cpu.id), far, on(&|other| other.core == cpu.core))
        };
        // The first of equals.
        let Some(best) = order.iter().min_by_key(cost) else { break };
        placed.push(*best);
    }
    placed
}
