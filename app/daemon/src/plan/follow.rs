//! Settings of a running link's interfaces, which follow the CPUs of its workers.

use std::path::Path;

use mqnet_host::{device_slot, irq_queue};
use mqnet_netdev::HardwareDevice;
use mqnet_topology::{ChannelPlacement, FunctionLocation, Placement, Topology};

use super::apply::{Applied, Wanted};
use super::{Made, Member};

/// Sets interrupts and XPS of the devices of a link. `served` contains CPU and node of the worker
/// of each channel.
pub(crate) fn apply(
    link: &str,
    devices: &[Vec<HardwareDevice>; 2],
    served: &[(usize, u32)],
) -> Applied {
    let machine = Topology::read(Path::new("/sys/devices/system"), None);
    let of = |all: &Vec<HardwareDevice>| {
        let vectors = wanted_vectors(all, served);
        wanted_of(all, served, machine.clone()).into_iter().chain(vectors)
    };
    let wanted: Vec<Wanted> = devices.iter().flat_map(of).collect();
    if wanted.is_empty() {
        return Applied::default();
    }
    let applied = Applied::apply(Path::new("/"), &wanted);
    applied.lines.iter().for_each(|what| tracing::info!("{link}: {what}"));
    if applied.failed > 0 {
        let (failed, all) = (applied.failed, applied.lines.len());
        tracing::warn!(
            "{link}: {failed} of {all} interrupts and XPS sets could not be placed (-v lists them)"
        );
    }
    applied
}

/// Settings for the interfaces among `devices`. `served` contains CPU and node of the worker of
/// each channel.
fn wanted_of(
    devices: &[HardwareDevice],
    served: &[(usize, u32)],
    machine: Topology,
) -> Vec<Wanted> {
    let member = |device: &HardwareDevice| Member {
        name: device.name.clone(),
        location: FunctionLocation { node: device.node, vectors: None },
        interface: device.interface.clone(),
        netns: device.netns.clone(),
    };
    let place = |(channel, &(cpu, node)): (u16, &(usize, u32))| {
        let (function, vector) = device_slot(channel, devices);
        let function = usize::from(function);
        ChannelPlacement {
            channel,
            function,
            vector,
            device_node: devices.get(function).and_then(|device| device.node),
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

/// Settings for the vectors of devices that mqnet drives; a shared vector follows its first queue.
fn wanted_vectors(devices: &[HardwareDevice], served: &[(usize, u32)]) -> Vec<Wanted> {
    let mut wanted: Vec<Wanted> = Vec::new();
    for (channel, &(irq_cpu, _)) in (0u16..).zip(served) {
        let (function, queue) = device_slot(channel, devices);
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

#[cfg(test)]
mod tests {
    use mqnet_netdev::Vectors;

    use super::*;

    // Goal: the interrupts of each interface follow the CPUs that serve its channels, and every CPU
    // sends through one queue of each interface. A device without an interface has no settings.
    #[test]
    fn interfaces_follow_the_workers() {
        let machine = mqnet_topology::synthetic("2x2").unwrap();
        let device = |node: u32, interface: &str| HardwareDevice {
            node: Some(node),
            interface: (!interface.is_empty()).then(|| interface.to_owned()),
            ..HardwareDevice::default()
        };
        let devices = [device(1, "eth1"), device(0, "")];
        let served = [(3, 1), (1, 0), (2, 1), (0, 0)];
        let wanted = wanted_of(&devices, &served, machine.clone());
        let seen: Vec<_> =
            wanted.iter().map(|w| (&w.interface[..], w.queue, w.irq_cpu, &w.senders[..])).collect();
        assert_eq!(seen, [("eth1", 0, 3, &[0, 3][..]), ("eth1", 1, 2, &[1, 2])]);
        assert!(wanted_of(&[], &served, machine).is_empty());
    }

    // Goal: each vector follows the CPU that serves its queue; a shared vector follows its first
    // queue.
    #[test]
    fn vectors_follow_the_workers() {
        let device = |of_queue: &[u16]| {
            let pci = "0000:00:04.0".to_owned();
            let vectors = Vectors { pci, of_queue: of_queue.to_vec() };
            [HardwareDevice { vectors: Some(vectors), ..HardwareDevice::default() }]
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
        assert!(wanted_vectors(&[HardwareDevice::default()], &served).is_empty());
    }
}
