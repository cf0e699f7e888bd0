//! Session: one set of sockets, valid until the interface changes.

use std::ffi::CStr;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mqnet_netdev::limits::CHANNELS_MAX;
use mqnet_shmem::{Region, RegionPart};
use mqnet_sysio::bpf::xdp::{KernelXdpProgram, SocketMap, XdpAttachMode, XdpLink};
use mqnet_sysio::clock;
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::nic::{Nics, Promiscuous};
use mqnet_sysio::poll;
use mqnet_sysio::xdp::{Copying, RingKind, Statistics, XdpSocket};
use mqnet_undo::{Setting, SettingNetns, Undo, Value};

use crate::cell::Cell;
use crate::config::{AfXdpConfig, RequestedMode, ZeroCopy};
use crate::errors::{Step, explain, losses};
use crate::pages::CHUNK;
use crate::pages::Closing;
use crate::shared::Xsk;
use crate::side::{RxSide, TxSide};
use crate::spread::Spread;
use crate::watch::Seen;

/// Largest MTU at which a frame fits one page with every driver, with headroom and
/// `skb_shared_info`.
const MTU_ONE_PAGE: u32 = 3498;

/// Licence of the program: some helper functions of the kernel require a GPL program.
const LICENSE: &CStr = c"Dual MIT/GPL";

/// Send buffer of a socket in bytes: more than a full TX ring, so that the buffer is never the
/// limit.
const SEND_BUFFER: i32 = 16 << 20;

/// Interval of attempts to bind a queue that another socket has bound.
const BIND_INTERVAL: Duration = Duration::from_millis(2);

/// Session of the interface. The order of the fields is the order of their drop: the program is
/// detached before the sockets close, and the number of queues is restored after both.
pub(crate) struct Session {
    _link: XdpLink,
    _promiscuous: Option<Promiscuous>,
    pub(crate) rx: Vec<Arc<Cell<RxSide>>>,
    pub(crate) tx: Vec<Arc<Cell<TxSide>>>,
    sockets: Vec<Arc<Xsk>>,
    pub(crate) spread: Option<Spread>,
    /// Restore journal entry of the number of queues.
    _queues: Option<Undo>,
    pub(crate) seen: Seen,
    /// Modes in use, as text for users.
    pub(crate) modes: String,
    /// Parts of frames that are lost, as text for users.
    pub(crate) losses: Vec<String>,
}

/// XDP mode in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttachMode {
    Generic,
    Native,
    /// Native mode with a program that reads VLAN tags from the driver's metadata.
    NativeWithTags,
}

/// Bound sockets of all queues, before a program is attached.
struct Bound {
    sockets: Vec<Arc<Xsk>>,
    sides: Vec<(RxSide, TxSide)>,
}

/// Parameters of one takeover.
struct Attempt<'a> {
    config: &'a AfXdpConfig,
    seen: Seen,
    memory: &'a MemoryPlacement,
    /// True if the device may move VLAN tags into metadata.
    wants_tags: bool,
    /// Time until which binding waits for queues that other sockets have bound.
    bind_deadline: Duration,
}

/// Memory placement of sessions.
#[derive(Debug, Default)]
pub(crate) struct MemoryPlacement {
    /// NUMA node for the memory: the node nearest to the interface, if known.
    pub(crate) node: Option<u32>,
    /// Detached pages of earlier sessions.
    pub(crate) closing: Arc<Closing>,
}

impl Attempt<'_> {
    fn failed(&self, step: Step) -> impl FnOnce(io::Error) -> String {
        let interface = self.config.interface.clone();
        move |e| explain(step, &interface, &e)
    }

    fn has_frags(&self) -> bool {
        self.seen.look.mtu > MTU_ONE_PAGE
    }

    /// Creates an unbound socket with its rings.
    fn socket(&self, ring: u16) -> Result<XdpSocket, String> {
        let socket = XdpSocket::new().map_err(self.failed(Step::Socket))?;
        // An error is ignored: a lower limit of the system only reduces the throughput.
        let _ = socket.set_send_buffer(SEND_BUFFER);
        for kind in [RingKind::Fill, RingKind::Completion, RingKind::Rx, RingKind::Tx] {
            socket.make_ring(kind, ring.into()).map_err(self.failed(Step::Ring))?;
        }
        // An error is ignored: older kernels lack this option, and need one call for every 32
        // frames.
        let _ = socket.set_send_budget(ring.into());
        Ok(socket)
    }

    /// Binds a socket to every queue. If the number of queues is unknown, binds until a queue
    /// does not exist.
    fn bind_all(&self, generic: bool) -> Result<Bound, String> {
        let most = self.seen.queues().map(|(rx, _)| rx);
        if let Some(most) = most.filter(|most| *most > CHANNELS_MAX.into()) {
            // Refuse such an interface, because frames of the other queues would go to the
            // kernel's stack uncounted.
            let name = &self.config.interface;
            return Err(format!(
                "{name} has {most} receive queues, at most {CHANNELS_MAX} are possible: use \
                 queues={CHANNELS_MAX}, or ethtool -L {name}"
            ));
        }
        let ring = self.config.ring_for(most.map_or(CHANNELS_MAX, |n| n as u16));
        let per_queue = 2 * usize::from(ring) * CHUNK as usize;
        let queues = most.unwrap_or(CHANNELS_MAX.into());
        let len = per_queue * queues as usize;
        let step = Step::Memory(len >> 20);
        let memory = Region::private(len, false, self.memory.node);
        let memory = memory.map_err(|e| explain(step, "", &io::Error::other(e)))?;
        // Use huge pages, because the kernel pins the whole memory immediately.
        memory.prefer_huge_pages();
        let (region, mut rest) = RegionPart::whole(memory).shared();
        let mut bound = Bound { sockets: Vec::new(), sides: Vec::new() };
        for queue in 0..queues {
            // The first socket registers the UMEM, which the other sockets share.
            let socket = self.socket(ring)?;
            if queue == 0 {
                region.lend_to(&socket, CHUNK).map_err(self.failed(step))?;
            }
            let xsk = Arc::new(Xsk::new(socket).map_err(self.failed(Step::Socket))?);
            let mut part = || {
                let part = rest.take(per_queue / 2);
                part.ok_or_else(|| io::Error::other("out of memory"))
            };
            // Map the rings before binding: Linux 6.1 maps the rings of unbound sockets only.
            let sides = part()
                .and_then(|memory| RxSide::new(xsk.clone(), ring, memory, &self.memory.closing))
                .and_then(|rx| Ok((rx, TxSide::new(xsk.clone(), ring, part()?)?)));
            match self.bind(&xsk.socket, queue, bound.sockets.first(), generic) {
                Ok(()) => {
                    let zero_copy = xsk.socket.is_zero_copy().unwrap_or(false);
                    xsk.zero_copy.store(zero_copy, Ordering::Relaxed);
                }
                Err(e) if most.is_none() && queue > 0 && is_no_queue(&e) => break,
                Err(e) => {
                    let zero_copy = self.config.zero_copy == ZeroCopy::On;
                    return Err(self.failed(Step::Bind { queue, zero_copy })(e));
                }
            }
            bound.sides.push(sides.map_err(self.failed(Step::Ring))?);
            bound.sockets.push(xsk);
        }
        Ok(bound)
    }

    fn bind(
        &self,
        socket: &XdpSocket,
        queue: u32,
        first: Option<&Arc<Xsk>>,
        generic: bool,
    ) -> io::Result<()> {
        let index = self.seen.look.index;
        let copying = match self.config.zero_copy {
            _ if generic => Copying::Always,
            ZeroCopy::Auto => Copying::IfNeeded,
            ZeroCopy::On => Copying::Never,
            ZeroCopy::Off => Copying::Always,
        };
        loop {
            let bound = match first {
                None => socket.bind(index, queue, copying, self.has_frags()),
                Some(first) => socket.bind_shared(&first.socket, index, queue),
            };
            match bound {
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) && self.may_wait() => {
                    poll::pause(BIND_INTERVAL);
                }
                done => return done,
            }
        }
    }

    fn may_wait(&self) -> bool {
        clock::monotonic() < self.bind_deadline
    }

    /// Creates the socket map (XSKMAP).
    fn map(&self, bound: &Bound) -> io::Result<SocketMap> {
        let map = SocketMap::create(bound.sockets.len() as u32)?;
        for (queue, xsk) in (0..).zip(&bound.sockets) {
            map.set(queue, &xsk.socket)?;
        }
        Ok(map)
    }

    /// Attaches a native program that restores VLAN tags in frames.
    fn attach_with_tags(&self, map: &SocketMap) -> io::Result<XdpLink> {
        let index = self.seen.look.index;
        let program =
            KernelXdpProgram::to_sockets_with_tags(map, self.has_frags(), LICENSE, index)?;
        program.attach(index, XdpAttachMode::Native)
    }

    /// Binds the sockets and attaches the program, in one of the allowed modes.
    fn take_over(&self) -> Result<(Bound, XdpLink, AttachMode), String> {
        let generic_only = self.config.mode == RequestedMode::Generic;
        let bound = self.bind_all(generic_only)?;
        let map = self.map(&bound).map_err(self.failed(Step::Program))?;
        if self.wants_tags && !generic_only {
            match self.attach_with_tags(&map) {
                Ok(link) => return Ok((bound, link, AttachMode::NativeWithTags)),
                Err(e) => tracing::debug!("{}: VLAN tags: {e}", self.config.interface),
            }
        }
        let program = KernelXdpProgram::to_sockets(&map, self.has_frags(), LICENSE);
        let program = program.map_err(self.failed(Step::Program))?;
        let look = self.seen.look;
        let attach = |mode: XdpAttachMode| program.attach(look.index, mode);
        let failed = |generic: bool| self.failed(Step::Attach { generic, mtu: look.mtu });
        if generic_only {
            let link = attach(XdpAttachMode::Generic).map_err(failed(true))?;
            return Ok((bound, link, AttachMode::Generic));
        }
        let error = match attach(XdpAttachMode::Native) {
            Ok(link) => return Ok((bound, link, AttachMode::Native)),
            Err(e) => e,
        };
        // Generic mode would fail with these errors too, and delivers no frames to zero-copy
        // sockets.
        let hopeless = [libc::EBUSY, libc::EEXIST, libc::EPERM].map(Some);
        let is_hopeless = hopeless.contains(&error.raw_os_error()) || bound.is_zero_copy();
        let why = failed(false)(error);
        if self.config.mode == RequestedMode::Native || is_hopeless {
            return Err(why);
        }
        tracing::info!("{why}; trying mode=generic");
        // Keep the sockets, because the kernel releases the queues of closed sockets late.
        let link = attach(XdpAttachMode::Generic).map_err(failed(true))?;
        Ok((bound, link, AttachMode::Generic))
    }
}

impl Bound {
    fn is_zero_copy(&self) -> bool {
        self.sockets.iter().all(|xsk| xsk.socket.is_zero_copy().unwrap_or(false))
    }
}

/// True if the queue does not exist.
fn is_no_queue(e: &io::Error) -> bool {
    e.raw_os_error() == Some(libc::EINVAL)
}

/// Sets the configured number of queues if it differs. A former change that is no longer in
/// effect was overridden by another program, so its journal entry is dropped.
fn set_queues(
    config: &AfXdpConfig,
    place: &SettingNetns,
    set: &mut Option<Undo>,
) -> Result<(), String> {
    let Some(queues) = config.queues else { return Ok(()) };
    let failed = |e: io::Error| explain(Step::Queues(queues), &config.interface, &e);
    let nics = Nics::open().map_err(failed)?;
    let before = nics.channels(&config.interface).map_err(failed)?;
    let after = before.with(queues.into());
    if (before.rx(), before.tx()) == (after.rx(), after.tx()) {
        return Ok(());
    }
    *set = None;
    let [before, after] = [before, after].map(|c| Value::Numbers(c.numbers().to_vec()));
    let setting = Setting::Queues(config.interface.clone());
    *set = Some(Undo::set(place, setting, before, &after).map_err(failed)?);
    Ok(())
}

impl Session {
    /// Takes the interface over. The caller must be in the interface's network namespace. After
    /// an error the number of queues stays set, because many drivers reset the device for each
    /// change. `patience` limits the wait for queues that other sockets have bound.
    pub(crate) fn begin(
        config: &AfXdpConfig,
        nics: &Nics,
        memory: &MemoryPlacement,
        queues: &mut Option<Undo>,
        patience: Duration,
    ) -> Result<Self, String> {
        let place = SettingNetns::open(config.netns.as_deref());
        let place = place.map_err(|e| format!("its network namespace: {e}"))?;
        set_queues(config, &place, queues)?;
        let interface = &config.interface;
        let look = nics.interface_state(interface).map_err(|e| format!("{interface}: {e}"))?;
        let seen = Seen { look, channels: nics.channels(interface).ok() };
        let is_veth = nics.driver(interface).is_ok_and(|driver| driver == "veth");
        let strips = nics.strips_tags(interface).unwrap_or(false);
        let bind_deadline = clock::monotonic() + patience;
        let wants_tags = is_veth || strips;
        let attempt = Attempt { config, seen, memory, wants_tags, bind_deadline };
        let (bound, link, attached) = attempt.take_over()?;
        let losses = losses(interface, is_veth, strips, attached == AttachMode::NativeWithTags);
        let promiscuous = match config.keep_filter {
            true => None,
            false => Some(Promiscuous::new(look.index).map_err(attempt.failed(Step::Promiscuous))?),
        };
        let mode = if attached == AttachMode::Generic { "generic" } else { "native" };
        let copying = if bound.is_zero_copy() { "zero-copy" } else { "copying" };
        let modes = format!("{} queues, {mode} XDP, {copying}", bound.sockets.len());
        let (mut rx, mut tx) = (Vec::new(), Vec::new());
        for (one, other) in bound.sides {
            let wakeup = EventFd::new().map_err(|e| format!("{interface}: {e}"))?;
            rx.push(Arc::new(Cell::new(one.xsk.wakeup.clone(), one)));
            tx.push(Arc::new(Cell::new(Arc::new(wakeup), other)));
        }
        Ok(Self {
            _link: link,
            _promiscuous: promiscuous,
            rx,
            tx,
            sockets: bound.sockets,
            spread: Spread::read(interface, &place),
            _queues: queues.take(),
            seen,
            modes,
            losses,
        })
    }

    /// Number of channels that the session supports.
    pub(crate) fn channels(&self) -> u16 {
        let tx = self.seen.queues().map_or(u32::MAX, |(_, tx)| tx);
        (self.rx.len() as u32).min(tx) as u16
    }

    /// True if index, MTU and number of queues are the same as at the takeover.
    pub(crate) fn fits(&self, now: &Seen) -> bool {
        let then = &self.seen;
        (then.look.index, then.look.mtu, then.queues())
            == (now.look.index, now.look.mtu, now.queues())
    }

    /// Number of frames that the kernel dropped at the sockets.
    pub(crate) fn dropped(&self) -> u64 {
        let all = self.sockets.iter().filter_map(|xsk| xsk.socket.statistics().ok());
        // Drops for lack of fill entries are omitted. In copy mode `rx_dropped` includes these
        // frames; in zero copy mode the driver counts attempts, not frames.
        all.map(|Statistics { rx_dropped, rx_ring_full, .. }| rx_dropped + rx_ring_full).sum()
    }
}
