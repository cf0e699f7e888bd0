//! TAP as a network function: opening, offloads, MTU, carrier, changes of the number of queues.

mod facets;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use mqnet_netdev::limits::{CHANNELS_MAX, FRAME_MAX, MTU_MIN, l2_header, mtu_max};
use mqnet_netdev::{
    Caps, Channel, FullCause, Function, KernelInterface, LinkStatus, Offloads, OpenChannelsError,
    Plan, QueuePairStats, Rx, Tx,
};
use mqnet_sysio::link_monitor::LinkMonitor;
use mqnet_sysio::namespace::NetNs;
use mqnet_sysio::tap as sys;
use mqnet_undo::Value;
use mqnet_wire::Layer;

use crate::batching::{Batch, batches, choose};
use crate::fallback::{Fallback, Refused};
use crate::location::other_netns;
use crate::netlink::{LinkInfo, Netlink};
use crate::open::{Attached, adopt, create, open_clone_device};
use crate::origin::Origin;
use crate::queue::{TapRx, TapTx};
use crate::queues::{Opener, Queues};
use crate::restore::{Restore, Which};
use crate::view::View;
use crate::{Io, TapConfig};

/// The kernel's default GSO size limit, counted from the network header.
const GSO_MAX_DEFAULT: u32 = 65_536;

/// Private flag: the steering program of this process selects the queue of a frame. Without the
/// flag the kernel selects the queue, and a change of the number of queues may reorder flows.
const FLOW_STEERING: &str = "flow-steering";

/// Error of opening a TAP or TUN.
#[derive(Debug, thiserror::Error)]
#[error("{kind}:{name}: {what}")]
pub struct TapError {
    /// `tap` or `tun`.
    pub kind: &'static str,
    /// Name of the device.
    pub name: String,
    /// Failed operation with the reason, and a remedy if there is one.
    pub what: String,
}

fn kind(layer: Layer) -> &'static str {
    match layer {
        Layer::Ethernet => "tap",
        Layer::Ip => "tun",
    }
}

/// A TAP or TUN device.
pub struct TapFunction {
    address: String,
    layer: Layer,
    pub(crate) device: String,
    pub(crate) index: u32,
    queues: Queues,
    /// Restore journal; `drop` restores the settings of the device.
    restore: Restore,
    stats: Vec<Arc<QueuePairStats>>,
    pub(crate) netlink: Netlink,
    pub(crate) mtu: u32,
    pub(crate) wanted_mtu: Option<u32>,
    /// MTU of the device when it was opened; `None` if this process created the device, or the MTU
    /// is out of range.
    found_mtu: Option<u32>,
    pub(crate) wanted_mac: Option<[u8; 6]>,
    /// State of the device at the last reading.
    pub(crate) view: View,
    offloads: Offloads,
    /// RX offloads that were last set in the kernel (`TUNSETOFFLOAD`); `None` before the first.
    kernel_offloads: Option<Offloads>,
    backpressure: bool,
    /// Offloads that the kernel refuses; `warned` has those that were reported to the user.
    refused: Refused,
    warned: Offloads,
    /// Method of writing frames; with [`Io::Auto`], batches are available.
    io: Io,
    /// Configuration for opening the device again.
    pub(crate) origin: Origin,
    pub(crate) session: u64,
    /// Plan in use, and the plan of a prepared change.
    pub(crate) plan: Option<Plan>,
    pub(crate) prepared: Option<Plan>,
}

impl TapFunction {
    /// Opens or creates the device and its queues. The carrier stays off until a link is up.
    pub fn open(config: TapConfig) -> Result<Self, TapError> {
        let name = config.name.clone();
        let kind = kind(config.layer());
        let result = other_netns(config.netns.as_deref()).and_then(|netns| match &netns {
            None => Self::open_here(config, None),
            Some(there) => {
                let again = there.try_clone().map(Some);
                let again = again.map_err(|e| format!("network namespace: {e}"))?;
                there
                    .run(move || Self::open_here(config, again))
                    .map_err(|e| format!("network namespace: {e}"))?
            }
        });
        result.map_err(|what| TapError { kind, name, what })
    }

    fn open_here(mut config: TapConfig, netns: Option<NetNs>) -> Result<Self, String> {
        let layer = config.layer();
        if config.tun && config.mac.is_some() {
            return Err("mac: a TUN has no Ethernet address (use a TAP)".to_owned());
        }
        let given = std::mem::take(&mut config.fds);
        let inherited = !given.is_empty();
        let device = if inherited { adopt(given, layer)? } else { create(&config.name, layer)? };
        let restore = Restore::begin(&device, config.netns.as_deref(), config.persist);
        device.set_header()?;
        let was_found = device.found.is_some();
        let mtus = MTU_MIN..=mtu_max(layer);
        let Attached { name, fds, flags, .. } = device;
        let offloads = enable_offloads(&fds[0], Offloads::NONE)?;
        let io = choose(config.io, &fds[0])?;
        let mut netlink = Netlink::open().map_err(|e| format!("netlink: {e}"))?;
        let monitor = LinkMonitor::open().map_err(|e| format!("netlink: {e}"))?;
        let info = netlink.link(&name).map_err(|e| format!("reading the device: {e}"))?;
        let view = View::new(monitor, netns, info.clone());
        let opener = Opener::of(flags, info.index, view.reopen()?);
        let queues = Queues::new(fds, layer, opener.filter(|_| !inherited));
        // A device that was opened by its name can get more queues later. An inherited device has
        // only the given descriptors.
        let most = if inherited { queues.most() } else { CHANNELS_MAX };
        let stats = (0..most).map(|_| Arc::default()).collect();
        let mut tap = Self {
            address: format!("{}:{name}", kind(layer)),
            layer,
            device: name,
            index: info.index,
            queues,
            restore,
            stats,
            netlink,
            mtu: info.mtu,
            wanted_mtu: config.mtu,
            found_mtu: was_found.then_some(info.mtu).filter(|mtu| mtus.contains(mtu)),
            wanted_mac: config.mac,
            view,
            kernel_offloads: None,
            offloads,
            refused: Refused::default(),
            warned: Offloads::NONE,
            io,
            backpressure: flags & sys::flag::BACKPRESSURE != 0,
            origin: Origin::Inherited,
            session: 0,
            plan: None,
            prepared: None,
        };
        tap.configure(&config)?;
        if !inherited {
            tap.origin = Origin::Named(Box::new(config));
        }
        Ok(tap)
    }

    fn configure(&mut self, config: &TapConfig) -> Result<(), String> {
        let fail = |what: &str, e: io::Error| match e.raw_os_error() {
            Some(1) => format!("{what}: {e} (needs CAP_NET_ADMIN in the device's namespace)"),
            _ => format!("{what}: {e}"),
        };
        if config.persist {
            sys::set_persist(self.first(), true).map_err(|e| fail("persist", e))?;
        }
        self.set_carrier(false);
        if let Some(mac) = config.mac {
            self.change_mac(mac).map_err(|e| fail("mac", e))?;
        }
        if let Some(mtu) = config.mtu.filter(|&mtu| mtu != self.mtu) {
            self.change_mtu(mtu).map_err(|e| fail("mtu", e))?;
        }
        for address in &config.addresses {
            let what = format!("address {address}");
            self.netlink.add_address(self.index, address).map_err(|e| fail(&what, e))?;
        }
        if !config.addresses.is_empty() {
            self.netlink.set_up(self.index).map_err(|e| fail("setting up", e))?;
        }
        Ok(())
    }

    pub(crate) fn first(&self) -> BorrowedFd<'_> {
        self.queues.first()
    }

    /// True while the function has no channels.
    pub(crate) fn is_closed(&self) -> bool {
        self.plan.is_none()
    }

    /// Replaces the device by a newly created one, and configures it.
    pub(crate) fn renew(
        &mut self,
        queues: Queues,
        restore: Restore,
        info: LinkInfo,
    ) -> Result<(), String> {
        let queues = queues.inherit_choices(&self.queues);
        (self.queues, self.index, self.mtu) = (queues, info.index, info.mtu);
        self.restore = restore;
        self.device.clone_from(&info.name);
        self.view.renew(info);
        (self.kernel_offloads, self.session) = (None, self.session + 1);
        (self.refused, self.warned) = (Refused::default(), Offloads::NONE);
        let origin = std::mem::replace(&mut self.origin, Origin::Inherited);
        let done = match &origin {
            Origin::Named(config) => self.configure(config),
            Origin::Inherited => Ok(()),
        };
        self.origin = origin;
        done
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Name of the device in the kernel.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Interface index of the device.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// True if a full ring of this device stops its qdisc (Linux 7.3) instead of dropping frames.
    pub fn has_backpressure(&self) -> bool {
        self.backpressure
    }

    /// Sets MTU, offloads and GSO size limit according to the plan.
    fn apply(&mut self, plan: &Plan) -> Result<(), String> {
        self.apply_mtu(plan)?;
        let mut rx = plan.rx_offloads;
        if rx.any_large() && !self.limit_large_frames(plan.frame_max) {
            rx = rx.without_large();
        }
        if self.kernel_offloads != Some(rx) {
            // Set changed values only: `TUNSETOFFLOAD` reverts offloads that a user has disabled
            // (ethtool -K).
            let set = sys::set_offload(self.first(), to_kernel(rx));
            set.map_err(|e| format!("offloads {rx}: {e}"))?;
            self.kernel_offloads = Some(rx);
        }
        Ok(())
    }

    pub(crate) fn apply_mtu(&mut self, plan: &Plan) -> Result<(), String> {
        if plan.mtu != self.mtu {
            self.change_mtu(plan.mtu).map_err(|e| {
                let (from, to) = (self.mtu, plan.mtu);
                format!("changing the mtu from {from} to the link's {to}: {e}")
            })?;
        }
        Ok(())
    }

    pub(crate) fn change_mtu(&mut self, mtu: u32) -> io::Result<()> {
        let Self { restore, netlink, index, device, .. } = self;
        let values = [self.mtu, mtu].map(Value::Number);
        restore.change(Which::Mtu, device, values, || netlink.set_mtu(*index, mtu))?;
        self.mtu = mtu;
        Ok(())
    }

    pub(crate) fn change_mac(&mut self, mac: [u8; 6]) -> io::Result<()> {
        let Self { restore, netlink, index, device, .. } = self;
        let before = netlink.link_at(*index)?.mac.unwrap_or_default();
        let values = [before, mac].map(Value::mac);
        restore.change(Which::Mac, device, values, || netlink.set_mac(*index, mac))
    }

    /// Limits the kernel's GSO frames to the link's frame size; false if that fails.
    fn limit_large_frames(&mut self, frame_max: u32) -> bool {
        let size = frame_max.saturating_sub(l2_header(self.layer)).min(GSO_MAX_DEFAULT);
        match self.netlink.link_at(self.index) {
            Ok(info) if info.gso_max_size == size => true,
            Ok(info) => {
                let Self { restore, netlink, index, device, .. } = self;
                let values = [info.gso_max_size, size].map(Value::Number);
                let set = || netlink.set_gso_max(*index, size);
                restore.change(Which::GsoMaxSize, device, values, set).is_ok()
            }
            Err(_) => false,
        }
    }

    /// Replaces all queues by an unattached descriptor, because an open queue keeps its deleted
    /// network namespace alive.
    pub(crate) fn drop_queues(&mut self) -> Result<(), String> {
        let opener = Opener { flags: 0, index: 0, netns: None };
        self.queues = Queues::new(vec![open_clone_device()?], self.layer, Some(opener));
        self.restore = Restore::default();
        Ok(())
    }

    /// Checks the permission to raise the MTU, by setting the present one. Only the commit sets a
    /// larger MTU, and a failure there would be too late.
    fn try_mtu(&mut self, mtu: u32) -> Result<(), String> {
        if mtu <= self.mtu {
            return Ok(());
        }
        let same = self.mtu;
        let set = self.netlink.set_mtu(self.index, same);
        set.map_err(|e| format!("changing the mtu from {same} to {mtu}: {e}"))
    }

    /// Counts frames that the device dropped during a change of queues, if the kernel selects the
    /// queue.
    fn note_dropped_since(&mut self, before: Option<u64>) {
        if !self.queues.steers() {
            let dropped = self.dropped_outside().zip(before);
            self.queues.note_dropped(dropped.map_or(0, |(now, then)| now.saturating_sub(then)));
        }
    }

    /// Sets limits that satisfy both plans while lanes of both run.
    fn apply_both(&mut self, old: &Plan, new: &Plan) -> Result<(), String> {
        self.apply(&Plan {
            mtu: old.mtu.min(new.mtu),
            frame_max: old.frame_max.min(new.frame_max),
            rx_offloads: old.rx_offloads.and(new.rx_offloads).consistent(),
            ..new.clone()
        })
    }

    /// Warns about offloads that the kernel refuses, and stores them in `warned`, which `caps`
    /// excludes.
    fn warn_of_refusals(&mut self) {
        let refused = self.refused.get();
        if refused != self.warned {
            let address = &self.address;
            tracing::warn!(
                "{address}: the kernel refuses offloads that it offered to accept: {refused}; \
                 mqnet completes such frames from now on (ethtool -k)"
            );
            self.warned = refused;
        }
    }

    fn error(&self, what: String) -> OpenChannelsError {
        OpenChannelsError { function: self.address.clone(), what }
    }

    fn channels(&self, plan: &Plan, batches: Vec<Batch>) -> Vec<Channel> {
        let channel = |(channel, batch): (u16, Batch)| {
            let (fd, stats) = (self.queues.fd(channel), &self.stats[usize::from(channel)]);
            let frame_max = plan.frame_max;
            let rx = TapRx { channel, fd: fd.clone(), frame_max, stats: stats.clone() };
            let fallback = Fallback::new(self.layer, frame_max, self.refused.clone());
            let tx = TapTx { channel, fd, stats: stats.clone(), batch, fallback };
            Channel { rx: Rx::Syscall(Box::new(rx)), tx: Tx::Syscall(Box::new(tx)) }
        };
        (0u16..).zip(batches).map(channel).collect()
    }
}

const OFFLOAD_BITS: [(Offloads, u32); 6] = [
    (Offloads::CSUM, sys::offload::CSUM),
    (Offloads::TSO4, sys::offload::TSO4),
    (Offloads::TSO6, sys::offload::TSO6),
    (Offloads::TSO_ECN, sys::offload::TSO_ECN),
    (Offloads::USO4, sys::offload::USO4),
    (Offloads::USO6, sys::offload::USO6),
];

fn to_kernel(offloads: Offloads) -> u32 {
    OFFLOAD_BITS.iter().filter(|(o, _)| offloads.has(*o)).map(|(_, bit)| bit).sum()
}

/// Detects the offloads of this kernel (older ones lack USO), then sets `now`.
fn enable_offloads(fd: &OwnedFd, now: Offloads) -> Result<Offloads, String> {
    let uso = Offloads::USO4.or(Offloads::USO6);
    let without_uso = Offloads::from_bits(Offloads::ALL.bits() & !uso.bits());
    let known = [Offloads::ALL, without_uso, Offloads::CSUM]
        .into_iter()
        .find(|set| sys::set_offload(fd.as_fd(), to_kernel(*set)).is_ok())
        .unwrap_or(Offloads::NONE);
    sys::set_offload(fd.as_fd(), to_kernel(now)).map_err(|e| format!("offloads: {e}"))?;
    Ok(known)
}

impl Function for TapFunction {
    fn name(&self) -> &str {
        &self.address
    }

    fn caps(&self) -> Caps {
        Caps {
            layer: self.layer,
            channels: self.queues.most(),
            wanted: None,
            mtu: self.wanted_mtu,
            mtu_found: self.found_mtu,
            mtu_max: mtu_max(self.layer),
            frame_max: FRAME_MAX,
            rx_offloads: self.offloads,
            tx_offloads: self.offloads.without(self.warned),
            rx_fixed: Offloads::NONE,
        }
    }

    fn poll_link(&mut self, now: Duration) -> LinkStatus {
        if let Err(what) = self.queues.retire_more(&self.stats) {
            // The queues report a removed device; any other error is retried.
            tracing::debug!("{}: {what}", self.address);
        }
        self.warn_of_refusals();
        self.link_status(now)
    }

    fn events(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.view.monitor.event()]
    }

    fn notes(&self) -> Vec<String> {
        self.notes_of_device()
    }

    fn open(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        plan.check_channels(&self.address, self.queues.most())?;
        let batches = batches(self.io, plan.channels).map_err(|what| self.error(what))?;
        let done = self
            .find_device()
            .and_then(|()| self.apply(plan))
            .and_then(|()| self.queues.use_exactly(plan.channels));
        done.map_err(|what| self.error(what))?;
        self.plan = Some(plan.clone());
        Ok(self.channels(plan, batches))
    }

    fn close(&mut self, _why: &str) {
        (self.plan, self.prepared) = (None, None);
    }

    fn prepare(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        plan.check_channels(&self.address, self.queues.most())?;
        let old = self.plan.clone().ok_or_else(|| self.error("is not open".to_owned()))?;
        let batches = batches(self.io, plan.channels).map_err(|what| self.error(what))?;
        let before = if self.queues.steers() { None } else { self.dropped_outside() };
        let done = self
            .find_device()
            .and_then(|()| self.apply_both(&old, plan))
            .and_then(|()| self.try_mtu(plan.mtu))
            .and_then(|()| self.queues.make_ready(plan.channels));
        self.note_dropped_since(before);
        if let Err(what) = done {
            let _ = self.apply(&old);
            return Err(self.error(what));
        }
        self.prepared = Some(plan.clone());
        Ok(self.channels(plan, batches))
    }

    fn commit(&mut self) -> Result<(), OpenChannelsError> {
        let Some(plan) = self.prepared.take() else { return Ok(()) };
        let limits = self.apply(&plan);
        let retired = self.queues.retire(plan.channels, &self.stats);
        self.plan = Some(plan);
        limits.and(retired).map_err(|what| self.error(what))
    }

    fn abort(&mut self) {
        self.prepared = None;
        if let Some(plan) = self.plan.clone() {
            // Restore the previous plan. Ignore errors: the queues report a removed device.
            let _ = self.apply(&plan);
            let _ = self.queues.steer_back(plan.channels);
            let _ = self.queues.retire(plan.channels, &self.stats);
        }
    }

    fn full_cause(&self) -> FullCause {
        FullCause::Memory
    }

    fn full_means(&self) -> &'static str {
        "the kernel has no memory for the frame"
    }

    fn stats(&self) -> &[Arc<QueuePairStats>] {
        &self.stats
    }

    fn share_stats(&mut self, stats: &[Arc<QueuePairStats>]) {
        self.stats = stats.to_vec();
    }

    mqnet_netdev::facets!(steering, kernel_interface, private_flags);
}

impl Drop for TapFunction {
    fn drop(&mut self) {
        self.restore.put_back(self.queues.first());
    }
}
