//! Placement of channels, and the bytes that crossed NUMA nodes.

use mqnet_control_api::{ChannelPlace, FunctionPlace, Locality};
use mqnet_engine::Notice;
use mqnet_netdev::HardwareDevice;
use mqnet_topology::{nic, round_robin};

use crate::foreign::{ForeignInterfaces, kernels};
use crate::link::{HostedLink, Netdev};
use crate::platform::Platform;

/// Index of a channel's device in `devices`, and the channel's queue on that device.
pub fn device_slot(channel: u16, devices: &[HardwareDevice]) -> (u16, u16) {
    let slot = round_robin(channel, devices.len());
    // A netdev has at most as many devices as channels, so the index fits.
    (slot.function as u16, slot.vector)
}

/// Index of the interrupt of a queue: the vector of the queue if the device has vectors, otherwise
/// the queue number.
pub fn irq_queue(device: &HardwareDevice, queue: u16) -> u16 {
    let vectors = device.vectors.as_ref();
    vectors.and_then(|all| all.of_queue.get(usize::from(queue)).copied()).unwrap_or(queue)
}

/// Placement of every channel in use.
pub(crate) fn channels(entry: &mut HostedLink) -> Vec<ChannelPlace> {
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
        let place =
            |((devices, nics), dev): ((&Vec<HardwareDevice>, &Vec<Option<nic::NicInfo>>), &_)| {
                let dev: &Netdev = dev;
                let (function, queue) = device_slot(channel, devices);
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

/// Hardware devices of both ends of a link; CPU and NUMA node of each channel.
type Served = ([Vec<HardwareDevice>; 2], Vec<(usize, u32)>);

/// Returns the hardware devices of both ends, and CPU and NUMA node of each channel. Returns `None`
/// if no device has settings to change, or if a worker is not pinned.
pub(crate) fn served(entry: &mut HostedLink) -> Option<Served> {
    let devices = entry.link.functions().map(|function| function.devices());
    let is_none = |device: &HardwareDevice| device.interface.is_none() && device.vectors.is_none();
    if devices.iter().flatten().all(is_none) {
        return None;
    }
    let cpu = |place: &ChannelPlace| Some((place.cpu? as usize, place.node.unwrap_or(0)));
    let served: Option<Vec<(usize, u32)>> = channels(entry).iter().map(cpu).collect();
    Some((devices, served?))
}

/// Sums the bytes of each device with a known node. Bytes are local if the worker runs on the node
/// of the device, otherwise cross. Channels with a worker on an unknown node are not counted.
fn sum(
    netdev: &str,
    devices: &[HardwareDevice],
    channels: impl Iterator<Item = (u16, Option<u32>, u64)>,
) -> Vec<Locality> {
    let mut sums = Vec::new();
    for (function, device) in (0u16..).zip(devices) {
        let Some(node) = device.node else { continue };
        let (netdev, interface) = (netdev.to_owned(), device.interface.clone());
        sums.push(Locality { netdev, function, interface, node, ..Locality::default() });
    }
    for (channel, worker, bytes) in channels {
        let (function, _) = device_slot(channel, devices);
        let one = sums.iter_mut().find(|sum| sum.function == function);
        if let (Some(one), Some(worker)) = (one, worker) {
            let sum = if worker == one.node { &mut one.local_bytes } else { &mut one.cross_bytes };
            *sum += bytes;
        }
    }
    sums
}

/// NUMA locality of each function of the link. The worker of a channel never changes, so its node
/// applies to all bytes since the start.
pub(crate) fn locality(entry: &mut HostedLink) -> Vec<Locality> {
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

impl HostedLink {
    /// Applies the placement of the link's workers to the interrupts and transmit queues of its
    /// interfaces. The notice of a failed change has no effect; while the link is down, the
    /// original settings are restored.
    pub(crate) fn fit_interfaces(&mut self, platform: &dyn Platform, notice: &Notice) {
        if matches!(notice, Notice::ChangeFailed(_)) {
            return;
        }
        // Restore the original settings first, so that the new journal records the original values.
        self.placed = None;
        self.elsewhere = ForeignInterfaces::default();
        // A link that is down keeps no settings: its network namespace may have been deleted.
        if !matches!(notice, Notice::Down(_)) {
            self.placed = served(self)
                .and_then(|(devices, served)| platform.place(&self.name, &devices, &served));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: bytes are local if worker and function have the same node, cross if not, and not
    // counted if a node is unknown. Channel i belongs to function i modulo the number of functions.
    #[test]
    fn bytes_are_local_or_cross() {
        let device = |node| HardwareDevice { node, ..HardwareDevice::default() };
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
