//! Where channels are served, and what crossed between nodes because of that.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use mqnet_control_api::{ChannelPlace, FunctionPlace, Locality};
use mqnet_netdev::Device;
use mqnet_sysio::namespace;
use mqnet_topology::{Home, Place, Placement, Topology, nic, round_robin};

use super::Entry;
use crate::plan::apply::Wanted;
use crate::plan::{Made, Member};

/// Number of a channel's device, and its queue there.
fn slot(channel: u16, devices: &[Device]) -> (u16, u16) {
    let slot = round_robin(channel, devices.len());
    // There are no more devices than channels.
    (slot.function as u16, slot.vector)
}

/// What the kernel knows of interfaces in other network namespaces, by these and their names. To
/// ask takes a thread and a mount, which not every reader of the control socket shall cost.
#[derive(Debug, Default)]
pub(super) struct Elsewhere(HashMap<(PathBuf, String), Option<nic::Nic>>);

impl Elsewhere {
    fn ask(&mut self, netns: &Path, interface: &str) -> Option<nic::Nic> {
        let key = (netns.to_owned(), interface.to_owned());
        let read = || nic::read(Path::new("/"), interface);
        let known = self.0.entry(key);
        known.or_insert_with(|| namespace::run_in_sysfs(Some(netns), read).ok().flatten()).clone()
    }
}

/// What the kernel knows of a device.
fn kernels(device: &Device, elsewhere: &mut Elsewhere) -> Option<nic::Nic> {
    let root = Path::new("/");
    match (&device.vectors, device.interface.as_deref(), &device.netns) {
        (Some(vectors), ..) => nic::read_pci(root, &vectors.pci),
        (None, Some(interface), Some(netns)) => elsewhere.ask(netns, interface),
        (None, Some(interface), None) => nic::read(root, interface),
        (None, None, _) => None,
    }
}

/// What the kernel knows a queue's interrupts by: its number, or that of its vector.
fn irq_queue(device: &Device, queue: u16) -> u16 {
    let vectors = device.vectors.as_ref();
    vectors.and_then(|all| all.of_queue.get(usize::from(queue)).copied()).unwrap_or(queue)
}

/// Every channel in use.
pub(super) fn channels(entry: &mut Entry) -> Vec<ChannelPlace> {
    let channels = entry.link.running().map_or(0, |running| running.plan.channels);
    if channels == 0 {
        return Vec::new();
    }
    let devices = entry.link.functions().map(|function| function.devices());
    let elsewhere = &mut entry.elsewhere;
    let nics = devices
        .each_ref()
        .map(|devices| devices.iter().map(|device| kernels(device, elsewhere)).collect::<Vec<_>>());
    let workers: Vec<_> = entry.link.workers().map(|w| (w.cpu, w.node)).collect();
    let functions = |channel: u16| {
        let sides = devices.iter().zip(&nics).zip(&entry.netdevs);
        let known = sides.filter(|((devices, _), _)| !devices.is_empty());
        let place = |((devices, nics), dev): ((&Vec<Device>, &Vec<Option<nic::Nic>>), &_)| {
            let dev: &super::entry::Netdev = dev;
            let (function, queue) = slot(channel, devices);
            let device = &devices[usize::from(function)];
            let nic = &nics[usize::from(function)];
            let irqs = nic.iter().flat_map(|nic| nic.irqs_of(irq_queue(device, queue)));
            FunctionPlace {
                netdev: dev.name.clone(),
                function,
                interface: device.interface.clone(),
                netns: device.netns.as_ref().map(|place| place.display().to_string()),
                node: device.node,
                queue,
                irqs: irqs.collect(),
            }
        };
        known.map(place).collect()
    };
    let place = |channel: u16| {
        let worker = entry.link.worker_of(channel)?;
        let (cpu, node) = *workers.get(worker)?;
        let cpu = cpu.map(|cpu| cpu as u32);
        let functions = functions(channel);
        Some(ChannelPlace { channel, worker: worker as u16, cpu, node, functions })
    };
    (0..channels).filter_map(place).collect()
}

/// What the interfaces among `devices` are to have when these CPUs, with their nodes, serve the
/// channels in order.
fn wanted_of(devices: &[Device], served: &[(usize, u32)], machine: Topology) -> Vec<Wanted> {
    let member = |device: &Device| Member {
        name: device.name.clone(),
        home: Home { node: device.node, vectors: None },
        interface: device.interface.clone(),
        netns: device.netns.clone(),
    };
    let place = |(channel, &(cpu, node)): (u16, &(usize, u32))| {
        let (function, vector) = slot(channel, devices);
        let function = usize::from(function);
        Place {
            channel,
            function,
            vector,
            home: devices.get(function).and_then(|device| device.node),
            worker: usize::from(channel),
            cpu,
            node,
            irq_cpu: cpu,
            memory: node,
            xps: Vec::new(),
        }
    };
    let places = (0u16..).zip(served).map(place).collect();
    let members = devices.iter().map(member).collect();
    let (topology, placement) = (machine.clone(), Placement { places });
    Made { title: None, topology, senders: machine, members, placement }.wanted()
}

/// What the vectors that we take ourselves are to have; one that queues share goes to the first.
fn wanted_vectors(devices: &[Device], served: &[(usize, u32)]) -> Vec<Wanted> {
    let mut wanted: Vec<Wanted> = Vec::new();
    for (channel, &(irq_cpu, _)) in (0u16..).zip(served) {
        let (function, queue) = slot(channel, devices);
        let Some(device) = devices.get(usize::from(function)) else { continue };
        let Some(vectors) = &device.vectors else { continue };
        let (interface, queue) = (vectors.pci.clone(), irq_queue(device, queue));
        if !wanted.iter().any(|other| (&other.interface, other.queue) == (&interface, queue)) {
            let senders = Vec::new();
            wanted.push(Wanted { interface, netns: None, queue, irq_cpu, senders });
        }
    }
    wanted
}

/// What the interfaces behind a link are to have. Nothing where workers may run anywhere.
pub(super) fn wanted(entry: &mut Entry) -> Vec<Wanted> {
    let devices = entry.link.functions().map(|function| function.devices());
    let is_none = |device: &Device| device.interface.is_none() && device.vectors.is_none();
    if devices.iter().flatten().all(is_none) {
        return Vec::new();
    }
    let cpu = |place: &ChannelPlace| Some((place.cpu? as usize, place.node.unwrap_or(0)));
    let served: Option<Vec<(usize, u32)>> = channels(entry).iter().map(cpu).collect();
    let Some(served) = served else { return Vec::new() };
    let machine = Topology::read(Path::new("/sys/devices/system"), None);
    let of = |all: &Vec<Device>| {
        let vectors = wanted_vectors(all, &served);
        wanted_of(all, &served, machine.clone()).into_iter().chain(vectors)
    };
    devices.iter().flat_map(of).collect()
}

/// Sums what each device moved: locally where the worker's node is its own. Channels whose worker
/// may run anywhere are in neither sum.
fn sum(
    netdev: &str,
    devices: &[Device],
    channels: impl Iterator<Item = (u16, Option<u32>, u64)>,
) -> Vec<Locality> {
    let mut sums = Vec::new();
    for (function, device) in (0u16..).zip(devices) {
        let Some(node) = device.node else { continue };
        let (netdev, interface) = (netdev.to_owned(), device.interface.clone());
        sums.push(Locality { netdev, function, interface, node, ..Locality::default() });
    }
    for (channel, worker, bytes) in channels {
        let (function, _) = slot(channel, devices);
        let one = sums.iter_mut().find(|sum| sum.function == function);
        if let (Some(one), Some(worker)) = (one, worker) {
            let sum = if worker == one.node { &mut one.local_bytes } else { &mut one.cross_bytes };
            *sum += bytes;
        }
    }
    sums
}

/// What each function of the link moved on its node and across. A channel's worker is the same for
/// ever, so the bytes of all its life count.
pub(super) fn locality(entry: &mut Entry) -> Vec<Locality> {
    let devices = entry.link.functions().map(|function| function.devices());
    let nodes: Vec<_> = entry.link.workers().map(|worker| worker.node).collect();
    let mut all = Vec::new();
    for (side, devices) in devices.iter().enumerate() {
        let counted = (0u16..).zip(entry.link.stats()[side]).map(|(channel, stats)| {
            let worker = entry.link.worker_of(channel);
            let node = worker.and_then(|worker| *nodes.get(worker)?);
            (channel, node, stats.rx.bytes.get() + stats.tx.bytes.get())
        });
        all.extend(sum(&entry.netdevs[side].name, devices, counted));
    }
    all
}

#[cfg(test)]
mod tests {
    use mqnet_netdev::Vectors;

    use super::*;

    // Goal: the interfaces behind a running link get the CPUs that serve their channels, and every
    // CPU of the machine sends through one queue of each; a device without an interface gets none.
    #[test]
    fn interfaces_follow_the_workers() {
        let machine = mqnet_topology::synthetic("2x2").unwrap();
        let device = |node: u32, interface: &str| Device {
            node: Some(node),
            interface: (!interface.is_empty()).then(|| interface.to_owned()),
            ..Device::default()
        };
        let devices = [device(1, "eth1"), device(0, "")];
        let served = [(3, 1), (1, 0), (2, 1), (0, 0)];
        let wanted = wanted_of(&devices, &served, machine.clone());
        let seen: Vec<_> =
            wanted.iter().map(|w| (&w.interface[..], w.queue, w.irq_cpu, &w.senders[..])).collect();
        assert_eq!(seen, [("eth1", 0, 3, &[0, 3][..]), ("eth1", 1, 2, &[1, 2])]);
        assert!(wanted_of(&[], &served, machine).is_empty());
    }

    // Goal: each vector of ours goes to the CPU that serves its queue, a shared one to that of the
    // first of its queues.
    #[test]
    fn vectors_follow_the_workers() {
        let device = |of_queue: &[u16]| {
            let pci = "0000:00:04.0".to_owned();
            let vectors = Vectors { pci, of_queue: of_queue.to_vec() };
            [Device { vectors: Some(vectors), ..Device::default() }]
        };
        let served = [(3, 0), (1, 0), (2, 0), (0, 0)];
        let cpus = |of_queue: &[u16]| {
            let wanted = wanted_vectors(&device(of_queue), &served);
            assert!(wanted.iter().all(|one| one.interface == "0000:00:04.0"));
            wanted.iter().map(|one| (one.queue, one.irq_cpu)).collect::<Vec<_>>()
        };
        assert_eq!(cpus(&[1, 2, 3, 4, 5]), [(1, 3), (2, 1), (3, 2), (4, 0)]);
        assert_eq!(cpus(&[1, 2, 1, 2]), [(1, 3), (2, 1)]);
        assert_eq!(cpus(&[0; 64]), [(0, 3)]);
        assert!(wanted_vectors(&[Device::default()], &served).is_empty());
    }

    // Goal: bytes are local where worker and function share a node, cross where not, and counted
    // nowhere when either is unknown; channel i belongs to function i mod their number.
    #[test]
    fn bytes_are_local_or_cross() {
        let device = |node| Device { node, ..Device::default() };
        let devices = [device(Some(0)), device(Some(1)), device(None)];
        let channels = [
            (0, Some(0), 1),
            (1, Some(0), 10),
            (2, Some(0), 100),
            (3, Some(1), 1_000),
            (4, Some(1), 10_000),
            (6, None, 100_000),
        ];
        let sums = sum("g", &devices, channels.into_iter());
        let seen: Vec<_> =
            sums.iter().map(|s| (s.function, s.local_bytes, s.cross_bytes)).collect();
        assert_eq!(seen, [(0, 1, 1_000), (1, 10_000, 10)]);
        assert!(super::sum("g", &[], channels.into_iter()).is_empty());
    }
}
