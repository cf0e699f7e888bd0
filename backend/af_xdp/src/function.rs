//! Network function over a kernel interface.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mqnet_netdev::limits::{CHANNELS_MAX, FRAME_MAX, MTU_MAX, frame_of_mtu};
use mqnet_netdev::{
    Buckets, Caps, Channel, Function, HardwareDevice, Indirection, Interface, KernelInterface,
    LinkStatus, Offloads, OpenChannelsError, Placement, Plan, QueuePairStats, Rx, Steering, Tx,
};
use mqnet_sysio::{namespace, poll};
use mqnet_topology::{Topology, nic};
use mqnet_undo::Undo;
use mqnet_wire::Layer;

use crate::AfXdpConfig;
use crate::cell::Cell;
use crate::location::Location;
use crate::rss;
use crate::rx::NicRx;
use crate::session::{MemoryPlacement, Session};
use crate::side::{RxSide, TxSide};
use crate::spread::Spread;
use crate::tx::NicTx;
use crate::watch::{Seen, Watch};

/// Interval of retries after a failure, and of reading the interface: no notification reports a
/// change of the number of queues.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Default time for which the first attempt waits for queues that other sockets have bound.
const PATIENCE: Duration = Duration::from_millis(100);

/// Time after which frames received by a former table are in the sockets' rings.
const SETTLE: Duration = Duration::from_millis(1);

/// Network function over a network interface of the kernel.
pub struct AfXdpFunction {
    name: String,
    /// Configuration, with the present name of the interface.
    config: AfXdpConfig,
    location: Location,
    watch: Watch,
    seen: Option<Seen>,
    /// Time at which the interface was last read.
    read_at: Duration,
    session: Option<Session>,
    sessions: u64,
    is_open: bool,
    /// True if the sockets hold frames that the interface did not send before it went down.
    is_stale: bool,
    /// Reason and time of the last failure to start a session.
    failed: Option<(String, Duration)>,
    /// Restore journal entry of the number of queues, while no session has it.
    queues: Option<Undo>,
    /// NUMA node of the interface when the session began.
    node: Option<u32>,
    memory: MemoryPlacement,
    /// Number of channels of the link, and of a prepared channel change.
    channels: u16,
    next_channels: Option<u16>,
    /// Table that a user has set, applied in every session.
    table: Option<Vec<u16>>,
    /// True if flow following relies on the table, so that every session must enforce it.
    is_followed: bool,
    /// Number of frames dropped at closed sockets, or before a link was up.
    dropped: u64,
    stats: Vec<Arc<QueuePairStats>>,
}

/// NUMA node for the frames of an interface on `node`: that node, or the nearest one with memory.
fn memory_near(root: &Path, node: u32) -> u32 {
    Topology::read(&root.join("sys/devices/system"), None).memory_near(node)
}

/// Refuses loopbacks, and interfaces without an Ethernet header: frames of the other end have one.
fn check_link_type(interface: &str, link_type: u16) -> Result<(), String> {
    match link_type {
        libc::ARPHRD_ETHER => Ok(()),
        // A loopback has the header, but receives every frame that it sends.
        libc::ARPHRD_LOOPBACK => Err(format!(
            "{interface} is a loopback, which receives what it sends: use one end of a veth pair"
        )),
        other => Err(format!(
            "{interface} has no Ethernet header (link type {other}, ip link show dev {interface}): \
             allowed: Ethernet interfaces, such as a NIC, a veth or a TAP"
        )),
    }
}

impl AfXdpFunction {
    /// Creates the function; the interface may appear later.
    pub fn new(config: AfXdpConfig) -> Result<Self, OpenChannelsError> {
        let name = format!("xdp:{}", config.interface);
        let error = |what: String| OpenChannelsError { function: name.clone(), what };
        let mut location = Location::new(&config);
        let watch = match &config.netns {
            None => Watch::open().map_err(|e| format!("watching interfaces: {e}")),
            Some(path) => location.enter(path),
        };
        let watch = watch.map_err(error)?;
        let stats = (0..CHANNELS_MAX).map(|_| Arc::default()).collect();
        Ok(Self {
            name,
            config,
            location,
            watch,
            seen: None,
            read_at: Duration::ZERO,
            session: None,
            sessions: 0,
            is_open: false,
            is_stale: false,
            failed: None,
            node: None,
            queues: None,
            memory: MemoryPlacement::default(),
            channels: 1,
            next_channels: None,
            table: None,
            is_followed: false,
            dropped: 0,
            stats,
        })
    }

    fn error(&self, what: String) -> OpenChannelsError {
        OpenChannelsError { function: self.name.clone(), what }
    }

    /// Calls `read` with the `/sys` that shows the interface; `None` if this `/sys` is not
    /// accessible.
    fn in_sysfs<T: Send>(&self, read: impl FnOnce() -> T + Send) -> Option<T> {
        let result = namespace::run_in_sysfs(self.config.netns.as_deref(), read);
        result.inspect_err(|e| tracing::debug!("{}: its sysfs: {e}", self.name)).ok()
    }

    /// NUMA node of the interface; `None` for a virtual interface, or if it cannot be read.
    fn own_node(&self) -> Option<u32> {
        let interface = self.config.interface.clone();
        self.in_sysfs(move || nic::read(Path::new("/"), &interface))??.node
    }

    /// Reads the state of the interface; `Err` with the reason if the interface cannot be used.
    fn read_interface(&mut self) -> Result<Seen, String> {
        self.seen = None;
        let gone = self.location.follow(&mut self.config.interface, &self.watch.nics, &self.name);
        let interface = &self.config.interface;
        let seen = self.watch.read(interface).map_err(|e| match e.raw_os_error() {
            Some(libc::ENODEV) if gone => {
                format!("{interface} was deleted, or moved to another network namespace")
            }
            Some(libc::ENODEV) => format!("there is no interface {interface} (yet)"),
            _ => format!("{interface}: {e}"),
        })?;
        self.seen = Some(seen);
        check_link_type(interface, seen.look.link_type)?;
        let mtu = seen.look.mtu;
        match self.config.mtu.filter(|&wanted| wanted > mtu) {
            Some(wanted) => Err(format!(
                "mtu={wanted}, but {interface} has {mtu}: ip link set dev {interface} mtu {wanted}"
            )),
            None if seen.look.mtu > MTU_MAX => {
                Err(format!("{interface} has mtu {mtu}, at most {MTU_MAX} is possible"))
            }
            None => Ok(seen),
        }
    }

    /// Reason why the interface carries no traffic; `None` if it is up and has a carrier.
    fn inactive_reason(&self, seen: &Seen) -> Option<String> {
        let interface = &self.config.interface;
        if !seen.look.is_up {
            return Some(format!("{interface} is down: ip link set dev {interface} up"));
        }
        (!seen.look.is_running).then(|| format!("{interface} has no carrier"))
    }

    /// True if TX rings hold frames while the interface carries no traffic.
    fn is_stuck(&self) -> bool {
        let inactive_reason = self.seen.is_none_or(|seen| self.inactive_reason(&seen).is_some());
        let waits = |cell: &Arc<Cell<TxSide>>| cell.with(|side| side.tx.waiting()) > Some(0);
        inactive_reason && self.session.as_ref().is_some_and(|session| session.tx.iter().any(waits))
    }

    fn end_session(&mut self) {
        self.is_stale = false;
        let Some(session) = self.session.take() else { return };
        self.dropped += session.dropped();
        for (cell, stats) in session.tx.iter().zip(&self.stats) {
            let lost = cell.with(|side| side.waiting_frames()).unwrap_or(0);
            stats.tx.lost.add(lost);
        }
    }

    fn begin_session(&mut self) -> Result<(), String> {
        self.node = self.own_node();
        self.memory.node = self.node.map(|node| memory_near(Path::new("/"), node));
        let (config, nics, memory) = (&self.config, &self.watch.nics, &self.memory);
        let queues = &mut self.queues;
        let patience = match self.failed {
            None => config.patience.unwrap_or(PATIENCE),
            // Do not wait in later attempts, which are repeated anyway.
            Some(_) => Duration::ZERO,
        };
        let mut begin = || Session::begin(config, nics, memory, queues, patience);
        let begun = match &config.netns {
            None => begin(),
            Some(path) => {
                namespace::run_in_net(path, begin).map_err(|e| namespace::failure(path, &e))?
            }
        };
        let mut session = begun?;
        tracing::info!("{}: {}", self.name, session.modes);
        let done = match (&mut session.spread, &self.table) {
            (Some(spread), Some(table)) => spread.set(table, self.channels, true).map(drop),
            (Some(spread), None) if self.is_followed => spread.enforce(),
            _ => Ok(()),
        };
        if let Err(e) = done {
            tracing::warn!("{}: indirection table not restored: {e}", self.name);
        }
        for loss in &session.losses {
            tracing::warn!("{}: {loss}", self.name);
        }
        self.location.index = Some(session.seen.look.index);
        self.session = Some(session);
        self.sessions += 1;
        Ok(())
    }

    /// Leaves a deleted network namespace, and enters its successor of the same name.
    fn find_location(&mut self, now: Duration) -> Result<(), String> {
        let Some(path) = self.config.netns.clone() else { return Ok(()) };
        if self.location.has_no_netns() {
            self.watch.has_changed(None);
            if namespace::id_of(&path).is_err() {
                return Err(format!("waiting for the network namespace {}", path.display()));
            }
            self.watch = self.location.enter(&path)?;
            return Ok(());
        }
        if !self.location.is_gone(now) {
            return Ok(());
        }
        if !self.is_open {
            // Close all descriptors, because any of them keeps a deleted namespace in existence.
            self.end_session();
            (self.queues, self.seen) = (None, None);
            self.watch = Watch::open().map_err(|e| format!("watching interfaces: {e}"))?;
            self.location.clear();
            self.config.interface.clone_from(&self.location.configured);
        }
        Err(format!("the network namespace {} was deleted", path.display()))
    }

    fn make(&self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        let Some(session) = &self.session else {
            return Err(self.error("the interface does not exist".to_owned()));
        };
        let (most, count) = (session.channels(), usize::from(plan.channels));
        if plan.channels > most {
            return Err(self.error(format!("{count} channels, the interface has {most} queues")));
        }
        let channel = |at: u16| -> io::Result<Channel> {
            let stats = &self.stats[usize::from(at)];
            let cells = session.rx.iter().skip(at.into()).step_by(count).cloned();
            let rx = NicRx::new(at, cells, plan.rx_frame_max(), stats.clone())?;
            let tx = session.tx[usize::from(at)].clone();
            let tx = NicTx::new(at, tx, plan.frame_max, stats.clone())?;
            Ok(Channel { rx: Rx::Owning(Box::new(rx)), tx: Tx::Owning(Box::new(tx)) })
        };
        let channels = (0..plan.channels).map(channel).collect::<io::Result<_>>();
        channels.map_err(|e| self.error(e.to_string()))
    }
}

impl Function for AfXdpFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn caps(&self) -> Caps {
        let mtu = self.session.as_ref().map(|session| session.seen.look.mtu);
        let channels = self.session.as_ref().map(Session::channels);
        Caps {
            layer: Layer::Ethernet,
            channels: channels.unwrap_or(CHANNELS_MAX),
            wanted: channels,
            mtu: self.config.mtu.or(mtu),
            mtu_found: None,
            mtu_max: mtu.unwrap_or(MTU_MAX),
            frame_max: mtu.map_or(FRAME_MAX, frame_of_mtu),
            rx_offloads: Offloads::NONE,
            tx_offloads: Offloads::NONE,
            rx_fixed: Offloads::NONE,
        }
    }

    fn poll_link(&mut self, now: Duration) -> LinkStatus {
        if let Err(why) = self.find_location(now) {
            return LinkStatus::Down(why);
        }
        let is_due = now.saturating_sub(self.read_at) >= RETRY_INTERVAL || !self.is_open;
        let is_news = self.watch.has_changed(self.seen.map(|seen| seen.look.index));
        let state = match self.seen {
            Some(seen) if !is_news && !is_due => Ok(seen),
            _ => {
                self.memory.closing.settle();
                self.read_at = now;
                self.read_interface()
            }
        };
        // A fault may close the function before the notification arrives, so check here too.
        self.is_stale |= !self.is_open && self.is_stuck();
        let fits = state.as_ref().is_ok_and(|s| self.session.as_ref().is_some_and(|h| h.fits(s)));
        if self.session.is_some() && (!fits || self.is_stale) {
            if self.is_open {
                let what = format!("{} changed", self.config.interface);
                return LinkStatus::Down(state.err().unwrap_or(what));
            }
            self.end_session();
        }
        let mut seen = match state {
            Ok(seen) => seen,
            Err(why) => return LinkStatus::Down(why),
        };
        if self.session.is_none() {
            if !seen.look.is_up {
                return LinkStatus::Down(self.inactive_reason(&seen).unwrap_or_default());
            }
            if let Some((why, since)) = &self.failed
                && now.saturating_sub(*since) < RETRY_INTERVAL
            {
                return LinkStatus::Down(why.clone());
            }
            self.failed = self.begin_session().err().map(|why| (why, now));
            if let Some((why, _)) = &self.failed {
                return LinkStatus::Down(why.clone());
            }
            // Read the interface again. Many drivers reset the device at a takeover, and have no
            // carrier for seconds. A link that comes up earlier would lose its first frames and
            // end the session, and the next takeover would reset the device again. A changed
            // number of queues also causes a notification.
            seen = match self.read_interface() {
                Ok(seen) => seen,
                Err(why) => return LinkStatus::Down(why),
            };
        }
        match self.inactive_reason(&seen) {
            Some(why) => LinkStatus::Down(why),
            None => LinkStatus::Up { session: self.sessions },
        }
    }

    fn events(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.watch.event()]
    }

    fn open(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        let channels = self.make(plan)?;
        self.channels = plan.channels;
        self.is_stale = false;
        if let Some(session) = &self.session {
            // Discard frames that were received before the link was up.
            let discard = |cell: &Arc<Cell<RxSide>>| cell.with(RxSide::discard).unwrap_or(0);
            self.dropped += session.rx.iter().map(discard).sum::<u64>();
        }
        self.is_open = true;
        Ok(channels)
    }

    fn close(&mut self, _why: &str) {
        self.is_open = false;
        self.next_channels = None;
        // The remaining frames would be sent when the interface is up again, after newer frames on
        // another path. Only closing the socket withdraws a published frame, so end the session.
        self.is_stale = self.is_stuck();
    }

    fn prepare(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        let channels = self.make(plan)?;
        self.next_channels = Some(plan.channels);
        Ok(channels)
    }

    fn commit(&mut self) -> Result<(), OpenChannelsError> {
        self.channels = self.next_channels.take().unwrap_or(self.channels);
        Ok(())
    }

    fn abort(&mut self) {
        self.next_channels = None;
    }

    fn stats(&self) -> &[Arc<QueuePairStats>] {
        &self.stats
    }

    fn share_stats(&mut self, stats: &[Arc<QueuePairStats>]) {
        self.stats = stats.to_vec();
    }

    fn full_means(&self) -> &'static str {
        "the interface does not send as fast as frames arrive (its ring is full)"
    }

    mqnet_netdev::facets!(steering, kernel_interface, placement);
}

impl Steering for AfXdpFunction {
    /// False: the interface selects the queue, and every queue has a channel for any number of
    /// channels.
    fn steers(&self) -> bool {
        false
    }

    fn indirection(&self) -> Option<Indirection> {
        let spread = self.session.as_ref()?.spread.as_ref()?;
        Some(spread.in_channels(self.channels))
    }

    fn refresh_indirection(&mut self) -> bool {
        let spread = self.session.as_mut().and_then(|session| session.spread.as_mut());
        match spread.map(Spread::refresh) {
            Some(Ok(is_foreign)) => is_foreign,
            // The next write of the table fails in the same way, and returns the error.
            Some(Err(e)) => {
                tracing::debug!("{}: its indirection table cannot be read: {e}", self.name);
                false
            }
            None => false,
        }
    }

    fn set_indirection(&mut self, table: &[u16], user_set: bool) -> Result<(), OpenChannelsError> {
        let channels = self.channels;
        let spread = self.session.as_mut().and_then(|session| session.spread.as_mut());
        let set = spread.map(|spread| spread.set(table, channels, user_set));
        match set {
            Some(Ok(moved)) => {
                self.table = user_set.then(|| table.to_vec());
                if moved {
                    // Frames in the interface's own rings still arrive by the former table, so wait
                    // for them.
                    poll::pause(SETTLE);
                }
                Ok(())
            }
            Some(Err(e)) => Err(self.error(format!("its indirection table cannot be set: {e}"))),
            None => Err(self.error("its driver has no indirection table".to_owned())),
        }
    }

    fn can_follow(&self) -> bool {
        true
    }

    fn buckets(&mut self) -> Result<Buckets, String> {
        // Read the key here, because only the initial network namespace has this file.
        let kernels_key = rss::kernels_key();
        let read = || rss::buckets(&self.config.interface, kernels_key);
        let result = match &self.config.netns {
            None => read(),
            Some(path) => namespace::run_in_net(path, read).map_err(|e| e.to_string())?,
        };
        let buckets = result?;
        self.is_followed = true;
        let spread = self.session.as_mut().and_then(|session| session.spread.as_mut());
        match spread.map(Spread::enforce) {
            Some(Err(e)) => Err(format!("its indirection table cannot be set: {e}")),
            _ => Ok(buckets),
        }
    }

    fn waiting_most(&mut self) -> u32 {
        let queues = self.session.as_ref().map_or(0, |session| session.rx.len());
        let ring = self.config.ring_for(queues as u16);
        (queues as u32 * u32::from(ring)).max(1)
    }
}

impl KernelInterface for AfXdpFunction {
    fn interface(&self) -> Option<Interface<'_>> {
        let netns = self.location.inode();
        Some(Interface { name: &self.config.interface, index: None, netns, is_running: true })
    }

    fn dropped_outside(&mut self) -> Option<u64> {
        Some(self.dropped + self.session.as_ref().map_or(0, Session::dropped))
    }
}

impl Placement for AfXdpFunction {
    fn identity(&self) -> Option<String> {
        let path = format!("/sys/class/net/{}/device", self.config.interface);
        let device = self.in_sysfs(|| std::fs::canonicalize(path))?.ok()?;
        // The name of a virtio device depends on the probe order; its parent is the PCI function.
        let mut names = device.ancestors().filter_map(|folder| folder.file_name()?.to_str());
        names.find(|name| name.contains(':')).map(str::to_owned)
    }

    fn devices(&self) -> Vec<HardwareDevice> {
        let (name, interface) = (self.name.clone(), Some(self.config.interface.clone()));
        // Read the node once per session, because a read in another namespace needs a thread and
        // a mount.
        let is_known = self.session.is_some() || self.config.netns.is_some();
        let node = if is_known { self.node } else { self.own_node() };
        vec![HardwareDevice {
            name,
            node,
            interface,
            netns: self.config.netns.clone(),
            vectors: None,
        }]
    }
}

impl Drop for AfXdpFunction {
    fn drop(&mut self) {
        self.end_session();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    // Goal: a loopback and an interface without an Ethernet header are refused with the reason.
    #[test]
    fn link_types_are_checked() {
        assert_eq!(check_link_type("eth7", libc::ARPHRD_ETHER), Ok(()));
        for (link_type, expected) in [
            (libc::ARPHRD_NONE, "tun7 has no Ethernet header (link type 65534"),
            (libc::ARPHRD_PPP, "no Ethernet header (link type 512"),
            (libc::ARPHRD_LOOPBACK, "receives what it sends"),
        ] {
            let why = check_link_type("tun7", link_type).unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
    }

    // Goal: frames are placed on the interface's node, or on the nearest node with memory.
    #[test]
    fn memory_is_near_the_interface() {
        let root = std::env::temp_dir().join(format!("mqnet-af-xdp-{}", std::process::id()));
        let nodes = "sys/devices/system/node";
        for (file, text) in [
            (&format!("{nodes}/online"), "0-2"),
            (&format!("{nodes}/has_memory"), "0,2"),
            (&format!("{nodes}/node0/distance"), "10 21 31"),
            (&format!("{nodes}/node1/distance"), "21 10 15"),
            (&format!("{nodes}/node2/distance"), "31 15 10"),
        ] {
            let file = root.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let near = [2, 1].map(|node| memory_near(&root, node));
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(near, [2, 2]);
    }
}
