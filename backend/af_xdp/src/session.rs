//! One life of the sockets: from a look at the interface until something about it changes.

use std::ffi::CStr;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mqnet_netdev::limits::CHANNELS_MAX;
use mqnet_shmem::{Part, Region};
use mqnet_sysio::bpf::xdp::{Mode, SocketMap, XdpLink, XdpProgram};
use mqnet_sysio::clock;
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::nic::{Nics, Promiscuous};
use mqnet_sysio::poll;
use mqnet_sysio::xdp::{Copying, RingKind, Statistics, XdpSocket};
use mqnet_undo::{Place, Setting, Undo, Value};

use crate::cell::Cell;
use crate::config::{AfXdpConfig, ModeWish, ZeroCopy};
use crate::pages::Closing;
use crate::side::{CHUNK, RxSide, TxSide, Xsk};
use crate::spread::Spread;
use crate::watch::Seen;
use crate::words::{Step, explain, losses};

/// Largest MTU at which every driver has a frame in one page, with its headroom and what the
/// kernel keeps behind it.
const MTU_ONE_PAGE: u32 = 3498;

/// Functions of the kernel are for programs under the GPL.
const LICENSE: &CStr = c"Dual MIT/GPL";

/// More than the frames of a TX ring take, so that their memory is not the limit.
const SEND_BUFFER: i32 = 16 << 20;

/// How often a queue that somebody has is asked for again while there is patience.
const ASK_AGAIN: Duration = Duration::from_millis(2);

/// See the module. What comes first here ends first: no frame comes any more when sockets go, and
/// queues can be changed only after both.
pub(crate) struct Session {
    _link: XdpLink,
    _promiscuous: Option<Promiscuous>,
    pub(crate) rx: Vec<Arc<Cell<RxSide>>>,
    pub(crate) tx: Vec<Arc<Cell<TxSide>>>,
    sockets: Vec<Arc<Xsk>>,
    pub(crate) spread: Option<Spread>,
    /// Queues that were set for us.
    _queues: Option<Undo>,
    pub(crate) seen: Seen,
    /// What became of the wishes, for people.
    pub(crate) manner: String,
    /// Parts of frames that are lost, for users.
    pub(crate) losses: Vec<String>,
}

/// How frames get to the sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Generic,
    Native,
    /// The program reads VLAN tags from the driver's metadata.
    NativeWithTags,
}

/// The sockets of all queues, in front of which nothing is yet.
struct Bound {
    sockets: Vec<Arc<Xsk>>,
    sides: Vec<(RxSide, TxSide)>,
}

/// What a step needs to be explained.
struct Attempt<'a> {
    config: &'a AfXdpConfig,
    seen: Seen,
    memory: &'a Placing,
    /// The device may strip VLAN tags into metadata.
    wants_tags: bool,
    /// Until this time of the clock a queue that somebody has is waited for.
    patient_until: Duration,
}

/// Where the memory of sessions lies, and where it goes.
#[derive(Debug, Default)]
pub(crate) struct Placing {
    /// The NUMA node nearest to the interface, if it is known.
    pub(crate) node: Option<u32>,
    /// Pages of older sessions that somebody still keeps.
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

    /// A socket with its rings, which is not bound.
    fn socket(&self, ring: u16) -> Result<XdpSocket, String> {
        let socket = XdpSocket::new().map_err(self.failed(Step::Socket))?;
        // As much as there may be: less makes it slower.
        let _ = socket.set_send_buffer(SEND_BUFFER);
        for kind in [RingKind::Fill, RingKind::Completion, RingKind::Rx, RingKind::Tx] {
            socket.make_ring(kind, ring.into()).map_err(self.failed(Step::Ring))?;
        }
        // An older kernel is called once more for every 32 frames.
        let _ = socket.set_send_budget(ring.into());
        Ok(socket)
    }

    /// Binds a socket to every queue. Without a number of queues, until there is none any more.
    fn bind_all(&self, generic: bool) -> Result<Bound, String> {
        let most = self.seen.queues().map(|(rx, _)| rx);
        if let Some(most) = most.filter(|most| *most > CHANNELS_MAX.into()) {
            // What came by the others would go to the kernel, and nobody would count it.
            let name = &self.config.interface;
            return Err(format!(
                "{name} has {most} receive queues and at most {CHANNELS_MAX} can be taken over: \
                 queues={CHANNELS_MAX} sets them, as ethtool -L {name} does"
            ));
        }
        let ring = self.config.ring_for(most.map_or(CHANNELS_MAX, |n| n as u16));
        let per_queue = 2 * usize::from(ring) * CHUNK as usize;
        let queues = most.unwrap_or(CHANNELS_MAX.into());
        let len = per_queue * queues as usize;
        let step = Step::Memory(len >> 20);
        let memory = Region::private(len, false, self.memory.node);
        let memory = memory.map_err(|e| explain(step, "", &io::Error::other(e)))?;
        // The kernel pins all of it at once.
        memory.prefer_huge_pages();
        let (region, mut rest) = Part::whole(memory).shared();
        let mut bound = Bound { sockets: Vec::new(), sides: Vec::new() };
        for queue in 0..queues {
            // The memory, too, is the first one's, before it has rings.
            let socket = self.socket(ring)?;
            if queue == 0 {
                region.lend_to(&socket, CHUNK).map_err(self.failed(step))?;
            }
            let xsk = Arc::new(Xsk::new(socket).map_err(self.failed(Step::Socket))?);
            let mut part = || {
                let part = rest.take(per_queue / 2);
                part.ok_or_else(|| io::Error::other("no memory is left"))
            };
            // Linux 6.1 maps the rings of sockets that are not bound, and of no others.
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
                Some(first) => socket.bind_beside(&first.socket, index, queue),
            };
            match bound {
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) && self.is_patient() => {
                    poll::pause(ASK_AGAIN);
                }
                done => return done,
            }
        }
    }

    fn is_patient(&self) -> bool {
        clock::monotonic() < self.patient_until
    }

    /// The map of these sockets.
    fn map(&self, bound: &Bound) -> io::Result<SocketMap> {
        let map = SocketMap::create(bound.sockets.len() as u32)?;
        for (queue, xsk) in (0..).zip(&bound.sockets) {
            map.set(queue, &xsk.socket)?;
        }
        Ok(map)
    }

    /// Attaches a program to the driver that puts VLAN tags back into the frames.
    fn attach_with_tags(&self, map: &SocketMap) -> io::Result<XdpLink> {
        let index = self.seen.look.index;
        let program = XdpProgram::to_sockets_with_tags(map, self.has_frags(), LICENSE, index)?;
        program.attach(index, Mode::Native)
    }

    /// Sockets, and the program in front of them, in one of the modes that are allowed.
    fn take_over(&self) -> Result<(Bound, XdpLink, Manner), String> {
        let generic_only = self.config.mode == ModeWish::Generic;
        let bound = self.bind_all(generic_only)?;
        let map = self.map(&bound).map_err(self.failed(Step::Program))?;
        if self.wants_tags && !generic_only {
            match self.attach_with_tags(&map) {
                Ok(link) => return Ok((bound, link, Manner::NativeWithTags)),
                Err(e) => tracing::debug!("{}: VLAN tags: {e}", self.config.interface),
            }
        }
        let program = XdpProgram::to_sockets(&map, self.has_frags(), LICENSE);
        let program = program.map_err(self.failed(Step::Program))?;
        let look = self.seen.look;
        let attach = |mode: Mode| program.attach(look.index, mode);
        let failed = |generic: bool| self.failed(Step::Attach { generic, mtu: look.mtu });
        if generic_only {
            let link = attach(Mode::Generic).map_err(failed(true))?;
            return Ok((bound, link, Manner::Generic));
        }
        let error = match attach(Mode::Native) {
            Ok(link) => return Ok((bound, link, Manner::Native)),
            Err(e) => e,
        };
        // What is in the way of one is in the way of the other, too; and the stack has no frames
        // for sockets whose memory the device has.
        let hopeless = [libc::EBUSY, libc::EEXIST, libc::EPERM].map(Some);
        let is_hopeless = hopeless.contains(&error.raw_os_error()) || bound.is_zero_copy();
        let why = failed(false)(error);
        if self.config.mode == ModeWish::Native || is_hopeless {
            return Err(why);
        }
        tracing::info!("{why}; trying mode=generic");
        // The same sockets: the kernel takes its time to let go of others.
        let link = attach(Mode::Generic).map_err(failed(true))?;
        Ok((bound, link, Manner::Generic))
    }
}

impl Bound {
    fn is_zero_copy(&self) -> bool {
        self.sockets.iter().all(|xsk| xsk.socket.is_zero_copy().unwrap_or(false))
    }
}

/// The kernel knows no such queue.
fn is_no_queue(e: &io::Error) -> bool {
    e.raw_os_error() == Some(libc::EINVAL)
}

/// Sets the number of queues that the user asked for, unless it is that. What was set before this
/// and is so no more is somebody else's.
fn set_queues(config: &AfXdpConfig, place: &Place, set: &mut Option<Undo>) -> Result<(), String> {
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
    /// Takes the interface over. Call it in its network namespace. The number of queues that was
    /// set for it stays set while it fails: many drivers reset their card for each change. For so
    /// long as `patience` says, queues that other sockets have are waited for.
    pub(crate) fn begin(
        config: &AfXdpConfig,
        nics: &Nics,
        memory: &Placing,
        queues: &mut Option<Undo>,
        patience: Duration,
    ) -> Result<Self, String> {
        let place = Place::open(config.netns.as_deref());
        let place = place.map_err(|e| format!("its network namespace: {e}"))?;
        set_queues(config, &place, queues)?;
        let interface = &config.interface;
        let look = nics.look(interface).map_err(|e| format!("{interface}: {e}"))?;
        let seen = Seen { look, channels: nics.channels(interface).ok() };
        let is_veth = nics.driver(interface).is_ok_and(|driver| driver == "veth");
        let strips = nics.strips_tags(interface).unwrap_or(false);
        let patient_until = clock::monotonic() + patience;
        let wants_tags = is_veth || strips;
        let attempt = Attempt { config, seen, memory, wants_tags, patient_until };
        let (bound, link, manner) = attempt.take_over()?;
        let losses = losses(interface, is_veth, strips, manner == Manner::NativeWithTags);
        let promiscuous = match config.keep_filter {
            true => None,
            false => Some(Promiscuous::new(look.index).map_err(attempt.failed(Step::Promiscuous))?),
        };
        let mode = if manner == Manner::Generic { "generic" } else { "native" };
        let copying = if bound.is_zero_copy() { "zero-copy" } else { "copying" };
        let manner = format!("{} queues, {mode} XDP, {copying}", bound.sockets.len());
        let (mut rx, mut tx) = (Vec::new(), Vec::new());
        for (one, other) in bound.sides {
            let bell = EventFd::new().map_err(|e| format!("{interface}: {e}"))?;
            rx.push(Arc::new(Cell::new(one.xsk.bell.clone(), one)));
            tx.push(Arc::new(Cell::new(Arc::new(bell), other)));
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
            manner,
            losses,
        })
    }

    /// Channels that it has room for.
    pub(crate) fn channels(&self) -> u16 {
        let tx = self.seen.queues().map_or(u32::MAX, |(_, tx)| tx);
        (self.rx.len() as u32).min(tx) as u16
    }

    /// True when the interface is still the one that was taken over.
    pub(crate) fn fits(&self, now: &Seen) -> bool {
        let then = &self.seen;
        (then.look.index, then.look.mtu, then.queues())
            == (now.look.index, now.look.mtu, now.queues())
    }

    /// Frames that the kernel dropped at the sockets.
    pub(crate) fn dropped(&self) -> u64 {
        let all = self.sockets.iter().filter_map(|xsk| xsk.socket.statistics().ok());
        // An empty fill ring is not counted: what is copied and finds it so is in the first number
        // too, and a driver that writes by itself counts its attempts there, not frames.
        all.map(|Statistics { rx_dropped, rx_ring_full, .. }| rx_dropped + rx_ring_full).sum()
    }
}
