//! Session with a device: handshake, and the queue pairs that result.

use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use mqnet_netdev::limits::{CHANNELS_MAX, MTU_MAX};
use mqnet_netdev::{HandOver, Offloads, QueuePairStats};
use mqnet_shmem::{AtomicTable, Region};
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::socket::is_quiet;
use mqnet_virtio::Features;
use mqnet_virtio::driver::DriverQueue;
use mqnet_virtio::net::ctrl::{CtrlCommand, RxMode};
use mqnet_virtio::net::{CONFIG_LEN, Config, STATUS_ANNOUNCE, ctrl_queue, rx_queue, tx_queue};
use mqnet_virtio::rxbuf::sizes::BufferMode;
use mqnet_virtio::{packed, split};
use vhost::vhost_user::message::{
    FrontendReq, VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserProtocolFeatures as Protocol,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd as VmmEventFd;

use crate::buffers::{Buffers, RxBufferStats, SettingCell};
use crate::config::VirtioUserConfig;
use crate::control::{Control, ControlMemory, SLICE};
use crate::memory::{DeviceMemory, PROVIDED, PairMemory, RingMemory, START, Shape};
use crate::message;
use crate::rx::{RxCore, RxParts};
use crate::shared::{Pair, Queues};
use crate::tx::TxCore;

/// Largest number of rings: those of all pairs, and the control queue.
const RINGS_MAX: u64 = 2 * CHANNELS_MAX as u64 + 1;

/// Time limit of a handshake, which runs in its own thread.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);
/// Time limit of a message after the handshake, which blocks the control thread and so all links.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(150);
/// Feature bit for protocol features. With this bit, vrings are initially disabled.
const PROTOCOL: Features = Features::PROTOCOL_FEATURES;

/// Features of a control queue that this driver accepts.
const BY_COMMAND: Features = Features::CTRL_VQ
    .or(Features::CTRL_RX)
    .or(Features::CTRL_MAC_ADDR)
    .or(Features::CTRL_GUEST_OFFLOADS)
    .or(Features::STATUS)
    .or(Features::GUEST_ANNOUNCE);

/// Features that allow changing offloads by command.
const SWITCHED: Features = Features::CTRL_VQ.or(Features::CTRL_GUEST_OFFLOADS);

/// Features that allow setting the address by command. `CTRL_VQ` alone shows no control queue:
/// devices also offer it for VMMs that implement the control queue themselves.
const ADDRESSED: Features = Features::CTRL_VQ.or(Features::CTRL_MAC_ADDR);

/// State that persists over sessions.
#[derive(Clone)]
pub(crate) struct Persistent {
    pub(crate) stats: Vec<Arc<QueuePairStats>>,
    pub(crate) own: Vec<Arc<RxBufferStats>>,
    pub(crate) requested: Arc<SettingCell>,
    /// True if the device seems to report vrings instead of pairs, which the protocol leaves open.
    /// Set when the device refuses a ring within the reported number, and reset at the next
    /// refusal.
    pub(crate) counts_rings: Arc<AtomicBool>,
}

/// Result of the negotiation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    pub(crate) features: Features,
    pub(crate) pairs: u16,
    pub(crate) mode: BufferMode,
    /// Largest MTU of the device, or the largest possible MTU if it reports none.
    pub(crate) mtu_max: u32,
    /// Number of queue pairs of the device, which determines the index of its control queue.
    device_pairs: u16,
    /// Negotiated protocol features.
    protocol: Protocol,
    /// True if messages have replies (`REPLY_ACK`).
    answers: bool,
    /// True if vrings can be enabled and disabled.
    enables: bool,
}

/// Session with a device.
pub(crate) struct Session {
    frontend: Frontend,
    stream: UnixStream,
    pub(crate) agreed: Agreed,
    /// Number of pages in the pool of each RX queue.
    pub(crate) pool_pages: u32,
    pub(crate) pairs: Vec<Box<dyn Pair>>,
    enabled: Vec<bool>,
    control: Option<Control>,
    /// Memory file that the device maps; the queues have their own mapping.
    _memory: Arc<Region>,
}

/// Runs `work`, which waits for the device. When the limit expires, shuts the connection down and
/// returns `Err`. The crate `vhost` waits without a limit, regardless of the socket's timeout.
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
            // An error is ignored: the device may have disconnected first.
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

fn failed(what: &'static str) -> impl Fn(vhost::Error) -> String {
    move |e| format!("{what}: {e}")
}

/// Selects the features to accept; `Err` if the device lacks a required one.
fn choose(
    offered: Features,
    config: &VirtioUserConfig,
    takes: Offloads,
) -> Result<Features, String> {
    if !offered.has(Features::VERSION_1) {
        return Err("the device is older than virtio 1, which is not supported".to_owned());
    }
    if config.packed && !offered.has(Features::RING_PACKED) {
        return Err("the device has no packed rings: omit packed".to_owned());
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
        return Err("the device does not accept an address: omit mac=".to_owned());
    }
    // Accept all offloads that commands can disable.
    let takes = if offered.has(SWITCHED) { Offloads::ALL } else { takes };
    // Accept omitted checksums (`DATA_VALID`) for any partner: the receive queue fills them in.
    let takes = takes.or(Offloads::CSUM);
    let guest = offered.and(Features::of_driver_that_takes(takes));
    // Accept only complete sets of offloads that the partner of this function accepts.
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

/// Negotiates features and number of queue pairs; memory is sent later.
fn negotiate(
    stream: &UnixStream,
    config: &VirtioUserConfig,
    takes: Offloads,
    counts_rings: bool,
) -> Result<(Frontend, Agreed), String> {
    let most = config.queues.unwrap_or(CHANNELS_MAX);
    let clone_stream = || stream.try_clone().map_err(|e| format!("its socket: {e}"));
    // A `Frontend` takes the number of queues as one of vrings and refuses further vrings. A
    // network device reports pairs, so read the number with a separate instance.
    let mut queue_counter = Frontend::from_stream(clone_stream()?, RINGS_MAX);
    let mut frontend = Frontend::from_stream(clone_stream()?, RINGS_MAX);
    let offered = Features(frontend.get_features().map_err(failed("features"))?);
    frontend.set_owner().map_err(failed("owner"))?;
    let without = if can_command(&mut frontend, offered)? { Features(0) } else { BY_COMMAND };
    let features = choose(offered.minus(without), config, takes)?;
    let (mut pairs, mut answers, mut mtu_max) = (1, false, MTU_MAX);
    let (mut device_pairs, mut protocol) = (1, Protocol::empty());
    if features.has(PROTOCOL) {
        let known = Protocol::MQ | Protocol::REPLY_ACK | Protocol::CONFIG;
        let known = known | Protocol::MTU | Protocol::STATUS;
        let offered = frontend.get_protocol_features().map_err(failed("protocol features"))?;
        protocol = offered & known;
        frontend.set_protocol_features(protocol).map_err(failed("protocol features"))?;
        if protocol.contains(Protocol::MQ) {
            queue_counter.get_features().map_err(failed("features"))?;
            queue_counter.set_protocol_features(protocol).map_err(failed("protocol features"))?;
            let queues = queue_counter.get_queue_num().map_err(failed("number of queues"))?;
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
    frontend.set_features(features.0).map_err(failed("features"))?;
    let any_large = features.taken_by_driver().any_large();
    let mode = BufferMode::choose(
        features.has(Features::MRG_RXBUF),
        config.mtu.unwrap_or(mqnet_netdev::limits::MTU_DEFAULT),
        any_large,
    );
    let enables = features.has(PROTOCOL);
    let agreed =
        Agreed { features, pairs, mode, mtu_max, device_pairs, protocol, answers, enables };
    Ok((frontend, agreed))
}

/// True if commands can be used: the device offers them, and the config space, which determines the
/// index of the control queue.
fn can_command(frontend: &mut Frontend, offered: Features) -> Result<bool, String> {
    if !offered.has(PROTOCOL.or(ADDRESSED)) {
        return Ok(false);
    }
    let protocol = frontend.get_protocol_features().map_err(failed("protocol features"))?;
    Ok(protocol.contains(Protocol::CONFIG))
}

fn config_of(frontend: &mut Frontend) -> Result<Config, String> {
    let blank = [0; CONFIG_LEN];
    let flags = VhostUserConfigFlags::empty();
    let (_, bytes) =
        frontend.get_config(0, CONFIG_LEN as u32, flags, &blank).map_err(failed("config space"))?;
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

/// Entry of the memory table.
fn area(start: u64, len: u64, file: BorrowedFd<'_>) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        guest_phys_addr: start,
        memory_size: len,
        userspace_addr: start,
        mmap_offset: 0,
        mmap_handle: file.as_raw_fd(),
    }
}

/// Eventfds of one vring.
struct Events {
    kick: Arc<EventFd>,
    call: Arc<EventFd>,
}

impl Session {
    /// Performs the handshake on a new connection, with its time limit.
    pub(crate) fn start(
        stream: UnixStream,
        config: &VirtioUserConfig,
        takes: Offloads,
        persistent: &Persistent,
    ) -> Result<Self, String> {
        let watch = stream.try_clone().map_err(|e| format!("its socket: {e}"))?;
        watched(&watch, HANDSHAKE_TIMEOUT, || Self::handshake(stream, config, takes, persistent))
    }

    fn handshake(
        stream: UnixStream,
        config: &VirtioUserConfig,
        takes: Offloads,
        persistent: &Persistent,
    ) -> Result<Self, String> {
        let counts_rings = persistent.counts_rings.load(Ordering::Relaxed);
        let (frontend, agreed) = negotiate(&stream, config, takes, counts_rings)?;
        let packed = agreed.features.has(Features::RING_PACKED);
        let Agreed { pairs, mode, features, .. } = agreed;
        let provided = config.rx_memory.as_ref();
        let DeviceMemory { region, pairs: memory } =
            Shape { pairs, packed, mode, features }.make(provided)?;
        let file = region.file().ok_or("the memory is not a file")?;
        let control = features.has(Features::CTRL_VQ);
        let control = control.then(|| ControlMemory::new(packed)).transpose()?;
        let mut table = vec![area(START, region.len() as u64, file)];
        table.extend(control.as_ref().map(ControlMemory::range).transpose()?);
        table.extend(provided.map(|memory| area(PROVIDED, memory.len(), memory.file())));
        frontend.set_mem_table(&table).map_err(failed("memory"))?;
        let enabled = vec![!agreed.enables; 2 * usize::from(agreed.pairs)];
        // Pools of all queues have the same size.
        let pool_pages = memory.first().map_or(0, |pair| pair.pool.pages());
        let (pairs, _memory) = (Vec::new(), region);
        let mut session =
            Self { frontend, stream, agreed, pool_pages, pairs, enabled, control: None, _memory };
        for (number, memory) in (0..).zip(memory) {
            let pair = session.set_up(number, memory, packed, persistent)?;
            session.pairs.push(pair);
        }
        if let Some(memory) = control {
            session.set_up_control(memory, config)?;
        }
        session.send_settings(config)?;
        Ok(session)
    }

    /// Sends the MTU and the device status, as far as the device supports the messages.
    fn send_settings(&self, config: &VirtioUserConfig) -> Result<(), String> {
        let Agreed { protocol, answers, .. } = self.agreed;
        let send = |request, number| message::number(&self.stream, request, number, answers);
        if let Some(mtu) = config.mtu.filter(|_| protocol.contains(Protocol::MTU)) {
            send(FrontendReq::NET_SET_MTU, mtu.into())?;
        }
        if protocol.contains(Protocol::STATUS) {
            send(FrontendReq::SET_STATUS, message::READY)?;
        }
        Ok(())
    }

    /// Sets up the control queue and sends the initial commands.
    fn set_up_control(
        &mut self,
        memory: ControlMemory,
        config: &VirtioUserConfig,
    ) -> Result<(), String> {
        let features = self.agreed.features;
        let number = ctrl_queue(self.agreed.device_pairs);
        let packed = features.has(Features::RING_PACKED);
        let Events { kick, call } = self.set_up_vring(number, &memory.ring, packed)?;
        if self.agreed.enables {
            let on = self.frontend.set_vring_enable(number.into(), true);
            on.map_err(failed("enabling the control queue"))?;
        }
        self.control = Some(memory.start(number, features, kick, call));
        // Without a configured address accept all frames: the network behind this driver may use
        // any address.
        let filters = config.mac.is_some();
        if features.has(Features::CTRL_RX) {
            self.command(&CtrlCommand::Rx(RxMode::Promisc, !filters))?;
            self.command(&CtrlCommand::Rx(RxMode::AllMulti, true))?;
        }
        if let Some(mac) = config.mac {
            self.command(&CtrlCommand::MacAddr(mac))?;
        }
        let status = config_of(&mut self.frontend)?.status;
        if features.has(Features::GUEST_ANNOUNCE) && status & STATUS_ANNOUNCE != 0 {
            self.command(&CtrlCommand::AnnounceAck)?;
        }
        Ok(())
    }

    /// Sends a command, if there is a control queue.
    fn command(&mut self, command: &CtrlCommand) -> Result<(), String> {
        let Some(control) = &mut self.control else { return Ok(()) };
        control.command(&self.stream, command, ANSWER_TIMEOUT)
    }

    /// True if commands set the number of pairs: there is a control queue, and `MQ` is
    /// negotiated.
    pub(crate) fn commands_pairs(&self) -> bool {
        self.control.is_some() && self.agreed.features.has(Features::MQ)
    }

    /// Sets the number of pairs by command; see [`commands_pairs`](Self::commands_pairs).
    pub(crate) fn set_pairs(&mut self, pairs: u16) -> Result<(), String> {
        self.command(&CtrlCommand::Pairs(pairs))
    }

    /// Sets the offloads that this driver accepts by command; no effect if commands cannot change
    /// them.
    pub(crate) fn set_taken(&mut self, taken: Offloads) -> Result<(), String> {
        let features = self.agreed.features;
        if !features.has(SWITCHED) {
            return Ok(());
        }
        let taken = Features::of_driver_that_takes(taken).and(features);
        self.command(&CtrlCommand::GuestOffloads(taken))
    }

    /// Sets up the rings of a pair.
    fn set_up(
        &self,
        number: u16,
        memory: PairMemory,
        packed: bool,
        persistent: &Persistent,
    ) -> Result<Box<dyn Pair>, String> {
        let rx = self.set_up_vring(rx_queue(number), &memory.rx, packed).inspect_err(|_| {
            // The first pair exists with either meaning of the number. Only the refusal of a later
            // pair indicates that the number was misread.
            let wrong = number > 0 && !persistent.counts_rings.load(Ordering::Relaxed);
            persistent.counts_rings.store(wrong, Ordering::Relaxed);
        })?;
        let tx = self.set_up_vring(tx_queue(number), &memory.tx, packed)?;
        let in_order = self.agreed.features.has(Features::IN_ORDER);
        let pair = (number, memory, [rx, tx]);
        Ok(match (packed, in_order) {
            (true, true) => self.pair(pair, packed::driver::PackedInOrderQueue::new, persistent),
            (true, false) => self.pair(pair, packed::driver::PackedDriverQueue::new, persistent),
            (false, true) => self.pair(pair, split::driver::SplitInOrderQueue::new, persistent),
            (false, false) => self.pair(pair, split::driver::SplitDriverQueue::new, persistent),
        })
    }

    fn pair<Q: DriverQueue + 'static>(
        &self,
        (number, memory, [rx, tx]): (u16, PairMemory, [Events; 2]),
        make: impl Fn(u16, u16, [AtomicTable; 3], bool) -> Q,
        persistent: &Persistent,
    ) -> Box<dyn Pair> {
        let event_idx = self.agreed.features.has(Features::EVENT_IDX);
        let make = |number, ring: RingMemory| make(number, ring.size, ring.tables, event_idx);
        let at = usize::from(number);
        let (stats, own) = (persistent.stats[at].clone(), persistent.own[at].clone());
        let requested = persistent.requested.clone();
        let PairMemory { rx: rx_ring, tx: tx_ring, pool, slots, slots_at } = memory;
        let buffers = Buffers::new(pool, self.agreed.mode, self.agreed.mtu_max, rx_ring.size);
        let takes = self.agreed.features.taken_by_driver();
        let parts = RxParts { kick: rx.kick, requested, stats: stats.clone(), own, takes };
        let mergeable = self.agreed.mode == BufferMode::Mergeable;
        let rx_core = RxCore::new(make(rx_queue(number), rx_ring), buffers, mergeable, parts);
        let queue = make(tx_queue(number), tx_ring);
        let tx_core = TxCore::new(queue, slots, slots_at, tx.kick, stats.clone());
        Box::new(Queues {
            rx: Arc::new(HandOver::new(rx_core)),
            tx: Arc::new(HandOver::new(tx_core)),
            rx_event: rx.call,
            tx_event: tx.call,
            stats,
        })
    }

    fn set_up_vring(&self, vring: u16, ring: &RingMemory, packed: bool) -> Result<Events, String> {
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
        frontend.set_vring_num(number, ring.size).map_err(failed("size of a ring"))?;
        frontend.set_vring_base(number, base).map_err(failed("start of a ring"))?;
        frontend.set_vring_addr(number, &config).map_err(failed("address of a ring"))?;
        // Use non-blocking eventfds: a full counter must block neither the device nor this
        // process.
        let event = || {
            let made = VmmEventFd::new(NONBLOCK).and_then(|there| {
                let here = EventFd::duplicate(&there)?;
                Ok((there, Arc::new(here)))
            });
            made.map_err(|e| format!("eventfd: {e}"))
        };
        let ((call_there, call), (kick_there, kick)) = (event()?, event()?);
        frontend.set_vring_call(number, &call_there).map_err(failed("call of a ring"))?;
        frontend.set_vring_kick(number, &kick_there).map_err(failed("kick of a ring"))?;
        Ok(Events { kick, call })
    }

    /// Enables or disables vrings; no effect without `PROTOCOL_FEATURES`. The device has processed
    /// the change when this function returns `Ok`. All messages share the time limit of one reply.
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
                frontend.set_vring_enable(number, on).map_err(failed("enabling a ring"))?;
                // Record each change, so that those before a refusal can be reverted.
                enabled[number] = on;
            }
            if !answers {
                // Messages are handled in order, so this reply confirms all messages before.
                frontend.get_features().map_err(failed("enabling a ring"))?;
            }
            Ok(())
        })
    }

    /// True after a violation by the device in a ring; the session is then unusable.
    pub(crate) fn is_broken(&self) -> bool {
        self.pairs.iter().any(|pair| pair.is_broken())
    }

    /// True while the connection is open.
    pub(crate) fn is_alive(&self) -> bool {
        is_quiet(self.stream.as_fd())
    }

    /// Descriptor that is readable when the device disconnects.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Flags `EFD_NONBLOCK | EFD_CLOEXEC` of eventfd(2).
const NONBLOCK: i32 = 0o2004000;

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: without `csum` no offload of the device is accepted, and frames from the device may
    // still need the same offloads.
    #[test]
    fn no_offload_is_requested_without_csum() {
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
