//! One connection with a device: the handshake, and the queue pairs that came out of it.

use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use mqnet_netdev::limits::{CHANNELS_MAX, MTU_MAX};
use mqnet_netdev::{Channel, ChannelStats, Offloads, Plan, Rx, RxBrings, Tx};
use mqnet_shmem::{Region, Table};
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::socket::is_quiet;
use mqnet_virtio::Features;
use mqnet_virtio::driver::DriverQueue;
use mqnet_virtio::net::ctrl::{Command, RxMode};
use mqnet_virtio::net::{CONFIG_LEN, Config, STATUS_ANNOUNCE, ctrl_queue, rx_queue, tx_queue};
use mqnet_virtio::rxbuf::sizes::Mode;
use mqnet_virtio::{packed, split};
use vhost::vhost_user::message::{
    FrontendReq, VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserProtocolFeatures as Protocol,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd as VmmEventFd;

use crate::buffers::{Buffers, Knob, RxBufferStats};
use crate::config::VirtioUserConfig;
use crate::control::{Control, ControlMemory};
use crate::memory::{DeviceMemory, PROVIDED, PairMemory, RingMemory, START, Shape};
use crate::rx::{RxCore, RxParts, RxQueue};
use crate::slot::Slot;
use crate::tell;
use crate::tx::{TxCore, TxQueue};

/// Rings of all pairs, and one for commands.
const RINGS_MAX: u64 = 2 * CHANNELS_MAX as u64 + 1;

/// Limit of a handshake, which has a thread of its own.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);
/// Limit of a message after the handshake. It blocks the control thread, and so all links.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(150);
/// Unit in which timeouts are counted: after a pause of the whole machine one unit has passed.
pub(crate) const SLICE: Duration = Duration::from_millis(50);

/// The bit by which a device says that it has protocol features, and its vrings begin disabled.
const PROTOCOL: Features = Features::PROTOCOL_FEATURES;

/// What we take of a control queue.
const BY_COMMAND: Features = Features::CTRL_VQ
    .or(Features::CTRL_RX)
    .or(Features::CTRL_MAC_ADDR)
    .or(Features::CTRL_GUEST_OFFLOADS)
    .or(Features::STATUS)
    .or(Features::GUEST_ANNOUNCE);

/// Offloads can be switched by command.
const SWITCHED: Features = Features::CTRL_VQ.or(Features::CTRL_GUEST_OFFLOADS);

/// The address can be set by command. Devices for VMMs, which have a control queue of their own,
/// offer the queue without this.
const ADDRESSED: Features = Features::CTRL_VQ.or(Features::CTRL_MAC_ADDR);

/// What outlives a connection.
#[derive(Clone)]
pub(crate) struct Lasting {
    pub(crate) stats: Vec<Arc<ChannelStats>>,
    pub(crate) own: Vec<Arc<RxBufferStats>>,
    pub(crate) wish: Arc<Knob>,
    /// The device seems to count vrings where others count pairs (the protocol leaves it open): it
    /// refused one that it should have had. Taken back when it refuses more.
    pub(crate) counts_rings: Arc<AtomicBool>,
}

/// A queue pair, whatever the layout of its rings.
pub(crate) trait Pair: Send {
    fn channel(&self, channel: u16, plan: &Plan) -> Channel;
    /// Its receive ring, to be read by another channel, which has these statistics.
    fn read_by(&self, channel: u16, plan: &Plan, stats: Arc<ChannelStats>) -> Box<dyn RxBrings>;
    /// Fills the receive ring as far as it is not.
    fn refill(&self) -> Result<(), String>;
    /// The device broke the rules in one of the rings.
    fn is_broken(&self) -> bool;
}

struct Queues<Q: DriverQueue> {
    rx: Arc<Slot<RxCore<Q>>>,
    tx: Arc<Slot<TxCore<Q>>>,
    rx_event: Arc<EventFd>,
    tx_event: Arc<EventFd>,
    stats: Arc<ChannelStats>,
}

impl<Q: DriverQueue + 'static> Pair for Queues<Q> {
    fn channel(&self, channel: u16, plan: &Plan) -> Channel {
        let (max, stats) = (plan.frame_max, &self.stats);
        let rx = self.read_by(channel, plan, stats.clone());
        let tx = self.tx.clone();
        let tx = TxQueue::new(channel, tx, max, self.tx_event.clone(), stats.clone());
        Channel { rx: Rx::Brings(rx), tx: Tx::Brings(Box::new(tx)) }
    }

    fn read_by(&self, channel: u16, plan: &Plan, stats: Arc<ChannelStats>) -> Box<dyn RxBrings> {
        let (rx, event) = (self.rx.clone(), self.rx_event.clone());
        Box::new(RxQueue::new(channel, rx, plan.rx_frame_max(), event, stats))
    }

    fn refill(&self) -> Result<(), String> {
        // A ring that is in use fills itself.
        let refilled = self.rx.with(|core| core.refill()).unwrap_or(Ok(()));
        refilled.map_err(|e| format!("the device's doorbell: {e}"))
    }

    fn is_broken(&self) -> bool {
        let rx = self.rx.with(|core| core.is_broken());
        rx == Some(true) || self.tx.with(|core| core.is_broken()) == Some(true)
    }
}

/// What a device and we agreed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    pub(crate) features: Features,
    pub(crate) pairs: u16,
    pub(crate) mode: Mode,
    /// Largest MTU of the device, if it says one.
    pub(crate) mtu_max: u32,
    /// Queue pairs of the device, after which its control queue comes.
    device_pairs: u16,
    /// Messages that it takes.
    protocol: Protocol,
    /// Messages are answered.
    answers: bool,
    /// Vrings can be enabled.
    enables: bool,
}

/// One connection.
pub(crate) struct Session {
    frontend: Frontend,
    stream: UnixStream,
    pub(crate) agreed: Agreed,
    /// Pages of the pool of each RX queue.
    pub(crate) pool_pages: u32,
    pub(crate) pairs: Vec<Box<dyn Pair>>,
    enabled: Vec<bool>,
    control: Option<Control>,
    /// The device maps its file; our own mapping lives with the queues.
    _memory: Arc<Region>,
}

/// Does something that waits for the device, and hangs up when that takes too long: whoever reads
/// messages for us waits for ever, whatever the timeout of the socket.
fn watched<R>(
    stream: &UnixStream,
    limit: Duration,
    work: impl FnOnce() -> Result<R, String>,
) -> Result<R, String> {
    let (done, wait) = mpsc::channel::<()>();
    let other = stream.try_clone().map_err(|e| format!("its socket: {e}"))?;
    let watch = move || {
        let mut slices = 0..limit.as_millis().div_ceil(SLICE.as_millis());
        let late = slices.all(|_| wait.recv_timeout(SLICE) == Err(RecvTimeoutError::Timeout));
        if late {
            // Fails when the device has hung up first.
            let _ = other.shutdown(Shutdown::Both);
        }
        late
    };
    let watchdog = std::thread::Builder::new().name("mqnet-watchdog".to_owned()).spawn(watch);
    let watchdog = watchdog.map_err(|e| format!("a thread: {e}"))?;
    let result = work();
    drop(done);
    match watchdog.join() {
        Ok(true) => Err(format!("the device did not answer within {} ms", limit.as_millis())),
        _ => result,
    }
}

fn said(what: &'static str) -> impl Fn(vhost::Error) -> String {
    move |e| format!("{what}: {e}")
}

/// Which features to take of those offered.
fn choose(
    offered: Features,
    config: &VirtioUserConfig,
    takes: Offloads,
) -> Result<Features, String> {
    if !offered.has(Features::VERSION_1) {
        return Err("the device is older than virtio 1, and those are not supported".to_owned());
    }
    if config.packed && !offered.has(Features::RING_PACKED) {
        return Err("the device has no packed rings: leave packed out".to_owned());
    }
    let sends = if config.csum { Offloads::ALL } else { Offloads::NONE };
    let mut wanted = Features::VERSION_1
        .or(Features::EVENT_IDX)
        .or(Features::MTU)
        .or(Features::MQ)
        .or(PROTOCOL)
        .or(BY_COMMAND)
        .or(Features::of_device_that_takes(sends));
    if config.mac.is_some() && !offered.has(ADDRESSED) {
        return Err("the device has no address to be set: leave mac= out".to_owned());
    }
    // What can be switched off again need not be left out.
    let takes = if offered.has(SWITCHED) { Offloads::ALL } else { takes };
    // A device may vouch for checksums that it leaves out, whatever the partner takes: those are
    // filled in here.
    let takes = takes.or(Offloads::CSUM);
    let guest = offered.and(Features::of_driver_that_takes(takes));
    // Only sets that the partner of this function can take as a whole.
    wanted = wanted.or(Features::of_driver_that_takes(guest.taken_by_driver()));
    if config.mergeable {
        wanted = wanted.or(Features::MRG_RXBUF);
    }
    if config.packed {
        wanted = wanted.or(Features::RING_PACKED);
    }
    if config.in_order {
        wanted = wanted.or(Features::IN_ORDER);
    }
    Ok(offered.and(wanted))
}

/// Agrees with the device about everything but memory.
fn negotiate(
    stream: &UnixStream,
    config: &VirtioUserConfig,
    takes: Offloads,
    counts_rings: bool,
) -> Result<(Frontend, Agreed), String> {
    let most = config.queues.unwrap_or(CHANNELS_MAX);
    let again = || stream.try_clone().map_err(|e| format!("its socket: {e}"));
    // One that asks for the number of queues takes it for one of vrings, and refuses those beyond
    // it, but for a network device it is that of pairs: so another one asks.
    let mut asking = Frontend::from_stream(again()?, RINGS_MAX);
    let mut frontend = Frontend::from_stream(again()?, RINGS_MAX);
    let offered = Features(frontend.get_features().map_err(said("features"))?);
    frontend.set_owner().map_err(said("owner"))?;
    let without = if can_command(&mut frontend, offered)? { Features(0) } else { BY_COMMAND };
    let features = choose(offered.minus(without), config, takes)?;
    let (mut pairs, mut answers, mut mtu_max) = (1, false, MTU_MAX);
    let (mut device_pairs, mut protocol) = (1, Protocol::empty());
    if features.has(PROTOCOL) {
        let known = Protocol::MQ | Protocol::REPLY_ACK | Protocol::CONFIG;
        let known = known | Protocol::MTU | Protocol::STATUS;
        let offered = frontend.get_protocol_features().map_err(said("protocol features"))?;
        protocol = offered & known;
        frontend.set_protocol_features(protocol).map_err(said("protocol features"))?;
        if protocol.contains(Protocol::MQ) {
            asking.get_features().map_err(said("features"))?;
            asking.set_protocol_features(protocol).map_err(said("protocol features"))?;
            let queues = asking.get_queue_num().map_err(said("number of queues"))?;
            let queues = if counts_rings { queues / 2 } else { queues };
            pairs = queues.clamp(1, most.into()) as u16;
        }
        answers = protocol.contains(Protocol::REPLY_ACK);
        if answers {
            frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        }
        if protocol.contains(Protocol::CONFIG) {
            let config = config_of(&mut frontend)?;
            if features.has(Features::MTU) {
                mtu_max = mtu_of(&config);
            }
            if features.has(Features::MQ) && config.pairs > 0 {
                device_pairs = config.pairs.min(CHANNELS_MAX);
                pairs = pairs.min(device_pairs);
            }
        }
    }
    frontend.set_features(features.0).map_err(said("features"))?;
    let any_large = features.taken_by_driver().any_large();
    let mode = Mode::choose(
        features.has(Features::MRG_RXBUF),
        config.mtu.unwrap_or(mqnet_netdev::limits::MTU_DEFAULT),
        any_large,
    );
    let enables = features.has(PROTOCOL);
    let agreed =
        Agreed { features, pairs, mode, mtu_max, device_pairs, protocol, answers, enables };
    Ok((frontend, agreed))
}

/// Commands go to a queue whose number only the config space tells.
fn can_command(frontend: &mut Frontend, offered: Features) -> Result<bool, String> {
    if !offered.has(PROTOCOL.or(ADDRESSED)) {
        return Ok(false);
    }
    let protocol = frontend.get_protocol_features().map_err(said("protocol features"))?;
    Ok(protocol.contains(Protocol::CONFIG))
}

fn config_of(frontend: &mut Frontend) -> Result<Config, String> {
    let blank = [0; CONFIG_LEN];
    let flags = VhostUserConfigFlags::empty();
    let (_, bytes) =
        frontend.get_config(0, CONFIG_LEN as u32, flags, &blank).map_err(said("config space"))?;
    let config: [u8; CONFIG_LEN] =
        bytes.as_slice().try_into().map_err(|_| "a config space of a wrong length".to_owned())?;
    Ok(Config::from_bytes(&config))
}

fn mtu_of(config: &Config) -> u32 {
    match u32::from(config.mtu) {
        0 => MTU_MAX,
        mtu => mtu.clamp(mqnet_netdev::limits::MTU_MIN, MTU_MAX),
    }
}

/// A line of the memory table.
fn area(start: u64, len: u64, file: BorrowedFd<'_>) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        guest_phys_addr: start,
        memory_size: len,
        userspace_addr: start,
        mmap_offset: 0,
        mmap_handle: file.as_raw_fd(),
    }
}

/// The descriptors of one vring.
struct Bells {
    kick: Arc<EventFd>,
    call: Arc<EventFd>,
}

impl Session {
    /// Shakes hands over a fresh connection.
    pub(crate) fn start(
        stream: UnixStream,
        config: &VirtioUserConfig,
        takes: Offloads,
        lasting: &Lasting,
    ) -> Result<Self, String> {
        let watch = stream.try_clone().map_err(|e| format!("its socket: {e}"))?;
        watched(&watch, HANDSHAKE_TIMEOUT, || Self::shake_hands(stream, config, takes, lasting))
    }

    fn shake_hands(
        stream: UnixStream,
        config: &VirtioUserConfig,
        takes: Offloads,
        lasting: &Lasting,
    ) -> Result<Self, String> {
        let counts_rings = lasting.counts_rings.load(Ordering::Relaxed);
        let (frontend, agreed) = negotiate(&stream, config, takes, counts_rings)?;
        let packed = agreed.features.has(Features::RING_PACKED);
        let Agreed { pairs, mode, features, .. } = agreed;
        let provided = config.rx_memory.as_ref();
        let DeviceMemory { region, pairs: memory } =
            Shape { pairs, packed, mode, features }.make(provided)?;
        let file = region.file().ok_or("the memory has no file")?;
        let control = features.has(Features::CTRL_VQ);
        let control = control.then(|| ControlMemory::new(packed)).transpose()?;
        let mut table = vec![area(START, region.len() as u64, file)];
        table.extend(control.as_ref().map(ControlMemory::range).transpose()?);
        table.extend(provided.map(|memory| area(PROVIDED, memory.len(), memory.file())));
        frontend.set_mem_table(&table).map_err(said("memory"))?;
        let enabled = vec![!agreed.enables; 2 * usize::from(agreed.pairs)];
        // Every possible queue has a pool as large as the others'.
        let pool_pages = memory.first().map_or(0, |pair| pair.pool.pages());
        let (pairs, _memory) = (Vec::new(), region);
        let mut session =
            Self { frontend, stream, agreed, pool_pages, pairs, enabled, control: None, _memory };
        for (number, memory) in (0..).zip(memory) {
            let pair = session.set_up(number, memory, packed, lasting)?;
            session.pairs.push(pair);
        }
        if let Some(memory) = control {
            session.set_up_control(memory, config)?;
        }
        session.introduce(config)?;
        Ok(session)
    }

    /// Tells the device what it may want to know of us.
    fn introduce(&self, config: &VirtioUserConfig) -> Result<(), String> {
        let Agreed { protocol, answers, .. } = self.agreed;
        let say = |request, number| tell::number(&self.stream, request, number, answers);
        if let Some(mtu) = config.mtu.filter(|_| protocol.contains(Protocol::MTU)) {
            say(FrontendReq::NET_SET_MTU, mtu.into())?;
        }
        if protocol.contains(Protocol::STATUS) {
            say(FrontendReq::SET_STATUS, tell::READY)?;
        }
        Ok(())
    }

    /// Tells the device of the control queue, and what holds from the start.
    fn set_up_control(
        &mut self,
        memory: ControlMemory,
        config: &VirtioUserConfig,
    ) -> Result<(), String> {
        let features = self.agreed.features;
        let number = ctrl_queue(self.agreed.device_pairs);
        let packed = features.has(Features::RING_PACKED);
        let Bells { kick, call } = self.set_up_vring(number, &memory.ring, packed)?;
        if self.agreed.enables {
            let on = self.frontend.set_vring_enable(number.into(), true);
            on.map_err(said("enabling the control queue"))?;
        }
        self.control = Some(memory.start(number, features, kick, call));
        // Whoever is behind us may have any address.
        let filters = config.mac.is_some();
        if features.has(Features::CTRL_RX) {
            self.command(&Command::Rx(RxMode::Promisc, !filters))?;
            self.command(&Command::Rx(RxMode::AllMulti, true))?;
        }
        if let Some(mac) = config.mac {
            self.command(&Command::MacAddr(mac))?;
        }
        let status = config_of(&mut self.frontend)?.status;
        if features.has(Features::GUEST_ANNOUNCE) && status & STATUS_ANNOUNCE != 0 {
            self.command(&Command::AnnounceAck)?;
        }
        Ok(())
    }

    /// Has the device obey.
    fn command(&mut self, command: &Command) -> Result<(), String> {
        let Some(control) = &mut self.control else { return Ok(()) };
        control.command(&self.stream, command, ANSWER_TIMEOUT)
    }

    /// Which queue pairs are used is told by command, not ring by ring.
    pub(crate) fn commands_pairs(&self) -> bool {
        self.control.is_some() && self.agreed.features.has(Features::MQ)
    }

    /// See [`commands_pairs`](Self::commands_pairs).
    pub(crate) fn set_pairs(&mut self, pairs: u16) -> Result<(), String> {
        self.command(&Command::Pairs(pairs))
    }

    /// Tells the device which unfinished frames we take, if that can be told.
    pub(crate) fn set_taken(&mut self, taken: Offloads) -> Result<(), String> {
        let features = self.agreed.features;
        if !features.has(SWITCHED) {
            return Ok(());
        }
        let taken = Features::of_driver_that_takes(taken).and(features);
        self.command(&Command::GuestOffloads(taken))
    }

    /// Tells the device of the rings of a pair.
    fn set_up(
        &self,
        number: u16,
        memory: PairMemory,
        packed: bool,
        lasting: &Lasting,
    ) -> Result<Box<dyn Pair>, String> {
        let rx = self.set_up_vring(rx_queue(number), &memory.rx, packed).inspect_err(|_| {
            // The first pair exists however they are counted.
            let wrong = number > 0 && !lasting.counts_rings.load(Ordering::Relaxed);
            lasting.counts_rings.store(wrong, Ordering::Relaxed);
        })?;
        let tx = self.set_up_vring(tx_queue(number), &memory.tx, packed)?;
        let in_order = self.agreed.features.has(Features::IN_ORDER);
        let pair = (number, memory, [rx, tx]);
        Ok(match (packed, in_order) {
            (true, true) => self.pair(pair, packed::driver::InOrder::new, lasting),
            (true, false) => self.pair(pair, packed::driver::Driver::new, lasting),
            (false, true) => self.pair(pair, split::driver::InOrder::new, lasting),
            (false, false) => self.pair(pair, split::driver::Driver::new, lasting),
        })
    }

    fn pair<Q: DriverQueue + 'static>(
        &self,
        (number, memory, [rx, tx]): (u16, PairMemory, [Bells; 2]),
        make: impl Fn(u16, u16, [Table; 3], bool) -> Q,
        lasting: &Lasting,
    ) -> Box<dyn Pair> {
        let event_idx = self.agreed.features.has(Features::EVENT_IDX);
        let make = |number, ring: RingMemory| make(number, ring.size, ring.tables, event_idx);
        let at = usize::from(number);
        let (stats, own) = (lasting.stats[at].clone(), lasting.own[at].clone());
        let wish = lasting.wish.clone();
        let PairMemory { rx: rx_ring, tx: tx_ring, pool, slots, slots_at } = memory;
        let buffers = Buffers::new(pool, self.agreed.mode, self.agreed.mtu_max, rx_ring.size);
        let takes = self.agreed.features.taken_by_driver();
        let parts = RxParts { kick: rx.kick, wish, stats: stats.clone(), own, takes };
        let mergeable = self.agreed.mode == Mode::Mergeable;
        let rx_core = RxCore::new(make(rx_queue(number), rx_ring), buffers, mergeable, parts);
        let queue = make(tx_queue(number), tx_ring);
        let tx_core = TxCore::new(queue, slots, slots_at, tx.kick, stats.clone());
        Box::new(Queues {
            rx: Arc::new(Slot::new(rx_core)),
            tx: Arc::new(Slot::new(tx_core)),
            rx_event: rx.call,
            tx_event: tx.call,
            stats,
        })
    }

    fn set_up_vring(&self, vring: u16, ring: &RingMemory, packed: bool) -> Result<Bells, String> {
        let (number, frontend) = (usize::from(vring), &self.frontend);
        let [desc_table_addr, avail_ring_addr, used_ring_addr] = ring.addresses;
        let config = VringConfigData {
            queue_max_size: ring.size,
            queue_size: ring.size,
            flags: 0,
            desc_table_addr,
            used_ring_addr,
            avail_ring_addr,
            log_addr: None,
        };
        // A packed ring begins with its wrap counter set.
        let base = if packed { 0x8000 } else { 0 };
        frontend.set_vring_num(number, ring.size).map_err(said("size of a ring"))?;
        frontend.set_vring_base(number, base).map_err(said("start of a ring"))?;
        frontend.set_vring_addr(number, &config).map_err(said("address of a ring"))?;
        // Non-blocking: a full counter must not stop the device, or us.
        let bell = || {
            let made = VmmEventFd::new(NONBLOCK).and_then(|there| {
                let here = EventFd::duplicate(&there)?;
                Ok((there, Arc::new(here)))
            });
            made.map_err(|e| format!("eventfd: {e}"))
        };
        let ((call_there, call), (kick_there, kick)) = (bell()?, bell()?);
        frontend.set_vring_call(number, &call_there).map_err(said("call of a ring"))?;
        frontend.set_vring_kick(number, &kick_there).map_err(said("kick of a ring"))?;
        Ok(Bells { kick, call })
    }

    /// Lets the device use vrings, or not any more. When it returns, the device does as asked; all
    /// of them together have the time of one answer.
    pub(crate) fn enable(
        &mut self,
        vrings: impl Iterator<Item = u16>,
        on: bool,
    ) -> Result<(), String> {
        let numbers = vrings.map(usize::from).filter(|&number| self.enabled[number] != on);
        let numbers: Vec<usize> = numbers.collect();
        if !self.agreed.enables || numbers.is_empty() {
            return Ok(());
        }
        let (frontend, answers) = (&mut self.frontend, self.agreed.answers);
        let enabled = &mut self.enabled;
        watched(&self.stream, ANSWER_TIMEOUT, || {
            for &number in &numbers {
                frontend.set_vring_enable(number, on).map_err(said("enabling a ring"))?;
                // One by one: what was done before a refusal can be taken back.
                enabled[number] = on;
            }
            if !answers {
                // Messages are worked off in order: an answer to this one is one to all before it.
                frontend.get_features().map_err(said("enabling a ring"))?;
            }
            Ok(())
        })
    }

    /// The device broke the rules, and its rings go no further.
    pub(crate) fn is_broken(&self) -> bool {
        self.pairs.iter().any(|pair| pair.is_broken())
    }

    /// True while the device is there.
    pub(crate) fn is_alive(&self) -> bool {
        is_quiet(self.stream.as_fd())
    }

    /// Readable when the device goes away.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// `EFD_NONBLOCK | EFD_CLOEXEC`.
const NONBLOCK: i32 = 0o2004000;

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: without checksums nothing is left to a device that would do everything, and what it
    // may leave to us is the same.
    #[test]
    fn a_driver_may_leave_nothing_to_the_device() {
        let device = Features::of_device_that_takes(Offloads::ALL);
        let offered = Features::VERSION_1.or(device);
        let offered = offered.or(Features::of_driver_that_takes(Offloads::ALL));
        for (csum, sends) in [(true, Offloads::ALL), (false, Offloads::NONE)] {
            let config = VirtioUserConfig { csum, ..VirtioUserConfig::new("/x") };
            let agreed = choose(offered, &config, Offloads::ALL).unwrap();
            assert_eq!((agreed.sent_by_driver(), agreed.taken_by_driver()), (sends, Offloads::ALL));
            assert_eq!(agreed.and(device), if csum { device } else { Features::default() });
        }
    }
}
