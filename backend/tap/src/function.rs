//! The TAP as a function: opening, offloads, MTU, carrier, queues that come and go.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use mqnet_netdev::limits::{CHANNELS_MAX, FRAME_MAX, L2_HEADER, MTU_MAX};
use mqnet_netdev::{
    Caps, Channel, ChannelStats, Function, LinkStatus, Offloads, OpenError, Plan, Rx, Tx,
};
use mqnet_sysio::tap as sys;
use mqnet_sysio::{namespace, process};

use crate::TapConfig;
use crate::netlink::Netlink;
use crate::queue::{TapRx, TapTx};

/// The kernel's default limit of large frames, from the network header on.
const GSO_MAX_DEFAULT: u32 = 65_536;

/// Why a TAP could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("tap:{name}: {what}")]
pub struct TapError {
    /// The device.
    pub name: String,
    /// What failed and the knob to turn.
    pub what: String,
}

/// One queue: a descriptor, and whether the kernel gives it frames.
struct TapQueue {
    fd: Arc<OwnedFd>,
    attached: bool,
}

/// A TAP device.
pub struct TapFunction {
    address: String,
    device: String,
    index: u32,
    queues: Vec<TapQueue>,
    stats: Vec<Arc<ChannelStats>>,
    netlink: Netlink,
    mtu: u32,
    wanted_mtu: Option<u32>,
    offloads: Offloads,
    backpressure: bool,
}

impl TapFunction {
    /// Opens (or creates) the device and its queues. The carrier stays off until a link is up.
    pub fn open(config: TapConfig) -> Result<Self, TapError> {
        let name = config.name.clone();
        let result = match config.netns.clone() {
            None => Self::open_here(config),
            Some(path) => namespace::run_in_net(&path, move || Self::open_here(config))
                .map_err(|e| format!("network namespace {}: {e}", path.display()))
                .and_then(|inner| inner),
        };
        result.map_err(|what| TapError { name, what })
    }

    fn open_here(mut config: TapConfig) -> Result<Self, String> {
        let given = std::mem::take(&mut config.fds);
        let inherited = !given.is_empty();
        let (name, fds, flags) =
            if inherited { adopt(given)? } else { create(&config.name, config.channels)? };
        let offloads = enable_offloads(&fds[0], Offloads::NONE)?;
        let mut netlink = Netlink::open().map_err(|e| format!("netlink: {e}"))?;
        let info = netlink.link(&name).map_err(|e| format!("reading the device: {e}"))?;
        let stats = (0..fds.len()).map(|_| Arc::default()).collect();
        let attached = |fd| TapQueue { fd: Arc::new(fd), attached: true };
        let mut tap = Self {
            address: format!("tap:{name}"),
            device: name,
            index: info.index,
            queues: fds.into_iter().map(attached).collect(),
            stats,
            netlink,
            mtu: info.mtu,
            wanted_mtu: config.mtu,
            offloads,
            backpressure: flags & sys::flag::BACKPRESSURE != 0,
        };
        tap.configure(&config)?;
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
            self.netlink.set_mac(self.index, mac).map_err(|e| fail("mac", e))?;
        }
        if let Some(mtu) = config.mtu.filter(|&mtu| mtu != self.mtu) {
            self.netlink.set_mtu(self.index, mtu).map_err(|e| fail("mtu", e))?;
            self.mtu = mtu;
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

    fn first(&self) -> BorrowedFd<'_> {
        self.queues[0].fd.as_fd()
    }

    /// The kernel's name of the device.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// True when a full ring of this device stops its qdisc (Linux 7.3) instead of dropping.
    pub fn has_backpressure(&self) -> bool {
        self.backpressure
    }

    /// Sets MTU, offloads and the limit of large frames as the plan says.
    fn apply(&mut self, plan: &Plan) -> Result<(), String> {
        if plan.mtu != self.mtu {
            self.netlink.set_mtu(self.index, plan.mtu).map_err(|e| {
                let (from, to) = (self.mtu, plan.mtu);
                format!("changing the mtu from {from} to the link's {to}: {e}")
            })?;
            self.mtu = plan.mtu;
        }
        let mut rx = plan.rx_offloads;
        if rx.any_large() && !self.limit_large_frames(plan.frame_max) {
            rx = rx.without_large();
        }
        sys::set_offload(self.first(), to_kernel(rx)).map_err(|e| format!("offloads {rx}: {e}"))
    }

    /// Makes the kernel's large frames fit the link; false when it would not.
    fn limit_large_frames(&mut self, frame_max: u32) -> bool {
        let size = frame_max.saturating_sub(L2_HEADER).min(GSO_MAX_DEFAULT);
        match self.netlink.link(&self.device) {
            Ok(info) if info.gso_max_size == size => true,
            Ok(_) => self.netlink.set_gso_max(self.index, size).is_ok(),
            Err(_) => false,
        }
    }

    /// Attaches the first `channels` queues and detaches the rest.
    fn attach_queues(&mut self, channels: usize) -> Result<(), String> {
        for (i, queue) in self.queues.iter_mut().enumerate() {
            let wanted = i < channels;
            if queue.attached != wanted {
                let what = if wanted { "attaching" } else { "detaching" };
                sys::set_queue(queue.fd.as_fd(), wanted)
                    .map_err(|e| format!("{what} queue {i}: {e}"))?;
                queue.attached = wanted;
            }
        }
        Ok(())
    }
}

/// Creates the device or attaches to it; one descriptor a queue.
fn create(name: &str, channels: u16) -> Result<(String, Vec<OwnedFd>, u32), String> {
    let open = || {
        sys::open_clone_device().map_err(|e| match e.raw_os_error() {
            Some(2) => "no /dev/net/tun: this kernel has no TUN/TAP (modprobe tun)".to_owned(),
            Some(13) => format!("/dev/net/tun: {e}: chmod 666 /dev/net/tun (udev's default)"),
            _ => format!("/dev/net/tun: {e}"),
        })
    };
    let first = open()?;
    let known = sys::features(first.as_fd()).map_err(|e| format!("features: {e}"))?;
    let mut flags =
        sys::flag::TAP | sys::flag::NO_PI | sys::flag::VNET_HDR | sys::flag::MULTI_QUEUE;
    flags |= known & sys::flag::BACKPRESSURE;
    let fail = |queue: u16, e: io::Error| match e.raw_os_error() {
        Some(1) if process::is_root() => format!("creating: {e}: CAP_NET_ADMIN is missing"),
        Some(1) => format!(
            "creating: {e}: run as root, or inside 'unshare -Urn', or make the device first with \
             'ip tuntap add dev {name} mode tap multi_queue user $USER'"
        ),
        Some(22) => format!(
            "queue {queue}: {e}: the device exists and is not a multi-queue TAP with vnet_hdr"
        ),
        Some(16) => format!("queue {queue}: {e}: the device is in use by another program"),
        Some(7) => format!("queue {queue}: {e}: the kernel allows no more queues"),
        _ => format!("queue {queue}: {e}"),
    };
    let name = sys::attach(first.as_fd(), name, flags).map_err(|e| fail(0, e))?;
    let mut fds = vec![first];
    for queue in 1..channels.clamp(1, CHANNELS_MAX) {
        let fd = open()?;
        sys::attach(fd.as_fd(), &name, flags).map_err(|e| fail(queue, e))?;
        fds.push(fd);
    }
    for fd in &fds {
        sys::set_vnet_header(fd.as_fd()).map_err(|e| format!("vnet header: {e}"))?;
    }
    Ok((name, fds, flags))
}

/// Takes over queues that somebody else has attached.
fn adopt(fds: Vec<OwnedFd>) -> Result<(String, Vec<OwnedFd>, u32), String> {
    let mut device: Option<(String, u32)> = None;
    for (i, fd) in fds.iter().enumerate() {
        let this = sys::identify(fd.as_fd())
            .map_err(|e| format!("inherited descriptor {i} is not an attached TAP queue: {e}"))?;
        let want = sys::flag::TAP | sys::flag::NO_PI | sys::flag::VNET_HDR;
        if this.1 & want != want {
            return Err(format!("inherited queue {i} lacks IFF_TAP, IFF_NO_PI or IFF_VNET_HDR"));
        }
        if device.as_ref().is_some_and(|d| d.0 != this.0) {
            return Err(format!("inherited queue {i} belongs to another device, {}", this.0));
        }
        set_nonblocking(fd).map_err(|e| format!("inherited queue {i}: {e}"))?;
        sys::set_vnet_header(fd.as_fd()).map_err(|e| format!("vnet header: {e}"))?;
        device = Some(this);
    }
    let (name, flags) = device.ok_or("no descriptor was given")?;
    Ok((name, fds, flags))
}

fn set_nonblocking(fd: &OwnedFd) -> io::Result<()> {
    process::set_nonblocking(fd.as_fd())
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

/// Finds out which offloads this kernel has (older ones lack USO), then sets `now`.
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
            channels: self.queues.len() as u16,
            mtu: self.wanted_mtu,
            mtu_max: MTU_MAX,
            frame_max: FRAME_MAX,
            rx_offloads: self.offloads,
            tx_offloads: self.offloads,
        }
    }

    fn set_partner(&mut self, _partner: &Caps) {}

    fn poll_link(&mut self, _now: Duration) -> LinkStatus {
        LinkStatus::Up { session: 0, caps: self.caps() }
    }

    fn events(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    fn open(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenError> {
        let channels = usize::from(plan.channels);
        let done = self.apply(plan).and_then(|()| self.attach_queues(channels));
        done.map_err(|what| OpenError { function: self.address.clone(), what })?;
        let queues = self.queues.iter().zip(&self.stats).zip(0u16..).take(channels);
        Ok(queues
            .map(|((queue, stats), channel)| Channel {
                rx: Rx::Borrows(Box::new(TapRx {
                    channel,
                    fd: queue.fd.clone(),
                    frame_max: plan.frame_max,
                    stats: stats.clone(),
                })),
                tx: Tx::Borrows(Box::new(TapTx {
                    channel,
                    fd: queue.fd.clone(),
                    stats: stats.clone(),
                })),
            })
            .collect())
    }

    fn close(&mut self, channels: Vec<Channel>, _why: &str) {
        drop(channels);
    }

    fn set_carrier(&mut self, up: bool) {
        // Refused only on kernels before 5.0 and without privilege over an inherited device, where
        // the carrier is the owner's business.
        let _ = sys::set_carrier(self.first(), up);
    }

    fn stats(&self) -> &[Arc<ChannelStats>] {
        &self.stats
    }

    fn dropped_outside(&mut self) -> Option<u64> {
        self.netlink.link(&self.device).ok().map(|info| info.tx_dropped)
    }
}
