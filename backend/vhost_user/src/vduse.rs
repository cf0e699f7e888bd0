//! Network card of this host's kernel over VDUSE. The rings and queue halves are those of
//! vhost-user; the control plane differs.
//!
//! The driver is the kernel's virtio-net. The kernel copies the driver's frames into bounce
//! buffers, and shares only these buffers.

mod node;
mod service;
mod state;
mod vdpa;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use mqnet_netdev::limits::{FRAME_MAX, MTU_MAX};
use mqnet_netdev::{
    Caps, Channel, Function, KernelInterface, LinkStatus, Offloads, OpenChannelsError, Plan,
    QueuePairStats, Rx, Steering, Tx,
};
use mqnet_virtio::Features;
use mqnet_virtio::net::{rx_queue, tx_queue};
use mqnet_wire::Layer;

pub use node::probe;
use service::Service;
use state::Shared;

use crate::{GuestRx, GuestTx};

/// Options of a VDUSE function.
#[derive(Clone, Debug)]
pub struct VduseConfig {
    /// Name of the function, for messages.
    pub name: String,
    /// Name of the device, and of the netdev if the name is free.
    pub device: String,
    /// Ethernet address.
    pub mac: Option<[u8; 6]>,
    /// MTU that is offered and required.
    pub mtu: Option<u32>,
    /// True to offer packed rings.
    pub packed: bool,
    /// True to keep device and netdev when the function ends.
    pub persist: bool,
}

/// Network function over a network card of this host's kernel.
pub struct VduseFunction {
    name: String,
    device: String,
    mtu: Option<u32>,
    persist: bool,
    netdev: Option<node::Netdev>,
    stats: [Arc<QueuePairStats>; 1],
    // The remaining fields are dropped in this order.
    _service: Service,
    shared: Arc<Shared>,
    _made: Option<Made>,
}

/// Device that is removed on drop, after all its descriptors are closed.
struct Made {
    device: String,
}

impl Drop for Made {
    fn drop(&mut self) {
        if let Err(e) = node::remove(&self.device) {
            tracing::warn!("{e}");
        }
    }
}

impl VduseFunction {
    /// Creates the device, or opens one that an earlier process left, and attaches it to the vDPA
    /// bus.
    pub fn open(config: VduseConfig) -> Result<Self, OpenChannelsError> {
        let error = |what: String| OpenChannelsError { function: config.name.clone(), what };
        let node = node::open(&config).map_err(error)?;
        let shared = Arc::new(Shared::new(node.device).map_err(|e| error(e.to_string()))?);
        let service = Service::start(shared.clone(), node.kept);
        let service = service.map_err(|e| error(e.to_string()))?;
        let mut function = Self {
            name: config.name.clone(),
            device: config.device.clone(),
            mtu: config.mtu,
            persist: config.persist,
            netdev: None,
            stats: [Arc::default()],
            _service: service,
            shared,
            _made: (!config.persist).then(|| Made { device: config.device.clone() }),
        };
        // From here on an error drops `function`, which removes the device unless it persists.
        node::attach(&config.device).map_err(error)?;
        match node.kept {
            // The user may have renamed the netdev of an earlier process.
            true => function.netdev = node::netdev(&config.device),
            false => function.find_netdev(),
        }
        if function.netdev.is_none() {
            tracing::warn!(
                "{}: no netdev has appeared: modprobe virtio_vdpa virtio_net (one in another \
                 network namespace is not seen)",
                config.name
            );
        }
        Ok(function)
    }

    /// Finds the netdev. A netdev that was not known before is renamed to the name of the device.
    fn find_netdev(&mut self) {
        let Some(found) = node::netdev(&self.device) else { return };
        if self.netdev.as_ref().is_some_and(|known| known.index == found.index) {
            return;
        }
        let netdev = node::rename(&self.device, found);
        tracing::info!("{}: the netdev is '{}'", self.name, netdev.name);
        self.netdev = Some(netdev);
    }

    /// Name and index of the netdev; `None` if there is none in this network namespace.
    pub fn netdev(&self) -> Option<(&str, u32)> {
        self.netdev.as_ref().map(|netdev| (&*netdev.name, netdev.index))
    }
}

impl Drop for VduseFunction {
    fn drop(&mut self) {
        let Self { name, device, .. } = self;
        if self.persist || !node::is_on_bus(device) {
            return;
        }
        // The driver resets the device during the removal, and the service thread must answer the
        // reset.
        if let Err(e) = vdpa::remove(device) {
            tracing::warn!("{name}: vdpa dev del {device}: {e}");
        }
    }
}

impl Function for VduseFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn caps(&self) -> Caps {
        let features = self.shared.lock().features;
        let (rx, tx) = features.map_or((Offloads::ALL, Offloads::ALL), |features| {
            (features.sent_by_driver(), features.taken_by_driver())
        });
        Caps {
            layer: Layer::Ethernet,
            channels: 1,
            wanted: None,
            mtu: self.mtu,
            mtu_found: None,
            mtu_max: MTU_MAX,
            frame_max: FRAME_MAX,
            rx_offloads: rx,
            // The driver's features are final once it has accepted them, so the partner cannot
            // restrict them.
            rx_fixed: features.map_or(Offloads::NONE, Features::sent_by_driver),
            tx_offloads: tx,
        }
    }

    fn poll_link(&mut self, _now: Duration) -> LinkStatus {
        self.shared.wake.drain();
        if self.shared.lock().idle {
            // Poll, because no event reports the first buffers, or the netdev of a driver that is
            // bound again.
            self.find_netdev();
        }
        let mut state = self.shared.lock();
        if state.idle {
            self.shared.serve(&mut state);
        }
        if state.broken.is_none() && state.is_memory_lost() {
            state.broken = Some("the kernel removed memory of the driver".to_owned());
        }
        match state.why_down() {
            Some(why) => LinkStatus::Down(why),
            None => LinkStatus::Up { session: state.session },
        }
    }

    fn events(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.shared.wake.as_fd()]
    }

    fn open(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        plan.check_channels(&self.name, 1)?;
        let error = |what: String| OpenChannelsError { function: self.name.clone(), what };
        let state = self.shared.lock();
        if let Some(why) = state.why_down() {
            return Err(error(why));
        }
        let cell = |queue: u16| state.slots[usize::from(queue)].cell.clone();
        let stats = &self.stats[0];
        let sent = GuestTx::new(0, [cell(tx_queue(0))], plan.rx_frame_max(), stats.clone());
        let received = GuestRx::new(0, cell(rx_queue(0)), stats.clone());
        Ok(vec![Channel {
            rx: Rx::Owning(Box::new(sent.map_err(|e| error(e.to_string()))?)),
            tx: Tx::Owning(Box::new(received.map_err(|e| error(e.to_string()))?)),
        }])
    }

    fn close(&mut self, _why: &str) {
        let mut state = self.shared.lock();
        let violation = state.slots.iter().find_map(|slot| slot.cell.take_violation());
        if let Some(what) = violation {
            tracing::warn!("{}: {what}", self.name);
            state.broken = Some(format!("the driver violated the protocol: {what}"));
        }
    }

    fn stats(&self) -> &[Arc<QueuePairStats>] {
        &self.stats
    }

    fn full_means(&self) -> &'static str {
        "the driver of this kernel has no free receive buffers (is the netdev up? is it busy?)"
    }

    mqnet_netdev::facets!(steering, kernel_interface);
}

impl Steering for VduseFunction {
    fn steers(&self) -> bool {
        false
    }

    fn waiting_most(&mut self) -> u32 {
        let state = self.shared.lock();
        state.slots.iter().map(|slot| u32::from(slot.size)).sum::<u32>().max(1)
    }
}

impl KernelInterface for VduseFunction {
    fn feeds_a_stack(&self) -> bool {
        true
    }

    fn set_carrier(&mut self, up: bool) {
        // The carrier is a field of the config space, so a driver that starts later reads it too.
        if let Err(e) = node::set_carrier(&self.shared.device, up) {
            tracing::warn!("{}: setting the carrier: {e}", self.name);
        }
    }

    fn dropped_outside(&mut self) -> Option<u64> {
        let name = &self.netdev.as_ref()?.name;
        let count = std::fs::read_to_string(format!("/sys/class/net/{name}/statistics/tx_dropped"));
        count.ok()?.trim().parse().ok()
    }
}
