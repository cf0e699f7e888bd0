//! Test peer: VMM and driver.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use mqnet_netdev::{Burst, Caps, Channel, Function, LinkStatus, Plan, Tx};
use mqnet_shmem::Span;
use mqnet_testkit::until;
use mqnet_testkit::virtq::{Buf, Driver, Memory, START, Shape};
use mqnet_vhost_user::{Meet, VhostUserConfig, VhostUserFunction};
use mqnet_virtio::Features;
use mqnet_virtio::net::ctrl::CtrlCommand;
use mqnet_wire::VnetHdr;
use vhost::vhost_user::message::VhostUserProtocolFeatures as Protocol;
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

pub(crate) const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const PAIRS: u16 = 4;
const SIZE: u16 = 64;
const ROOM: u32 = 2048;

/// Features that the tests negotiate, except packed rings.
pub(crate) fn all() -> Features {
    Features::VERSION_1
        .or(Features::MRG_RXBUF)
        .or(Features::GUEST_CSUM)
        .or(Features::GUEST_TSO4)
        .or(Features::MQ)
        .or(Features::CTRL_VQ)
        .or(Features::CTRL_RX)
        .or(Features::CTRL_RX_EXTRA)
        .or(Features::CTRL_VLAN)
        .or(Features::CTRL_MAC_ADDR)
        .or(Features::CTRL_GUEST_OFFLOADS)
        .or(Features::GUEST_ANNOUNCE)
        .or(Features::RSS)
        .or(Features::HASH_REPORT)
        .or(Features::PROTOCOL_FEATURES)
}

/// Queue with its eventfds.
struct Ring {
    driver: Driver,
    kick: EventFd,
    _call: EventFd,
    /// Buffer addresses by descriptor id.
    buffers: Vec<u64>,
}

pub(crate) struct Peer {
    pub(crate) device: VhostUserFunction,
    pub(crate) memory: Memory,
    pub(crate) frontend: Frontend,
    raw: UnixStream,
    rings: Vec<Ring>,
    hdr: u32,
}

/// Frame that the driver received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) hash: u32,
    pub(crate) report: u16,
    pub(crate) bytes: Vec<u8>,
}

impl Peer {
    /// Creates a device, starts and enables all rings, and posts receive buffers.
    pub(crate) fn new(packed: bool, features: Features) -> Self {
        let (here, there) = UnixStream::pair().unwrap();
        let device = VhostUserFunction::open(VhostUserConfig {
            name: "vhost-user:test".to_owned(),
            meet: Meet::Inherited(OwnedFd::from(there)),
            mac: Some(MAC),
            mtu: None,
            queues: PAIRS,
            packed,
            ctrl: true,
        });
        let raw = here.try_clone().unwrap();
        let rings = 2 * u64::from(PAIRS) + 1;
        let mut frontend = Frontend::from_stream(here, rings);
        let offered = Features(frontend.get_features().unwrap());
        let packed_bit = if packed { Features::RING_PACKED } else { Features::default() };
        let features = features.or(packed_bit);
        assert!(offered.has(features), "{offered}");
        frontend.set_owner().unwrap();
        let protocol = frontend.get_protocol_features().unwrap();
        frontend.set_protocol_features(protocol & (Protocol::MQ | Protocol::CONFIG)).unwrap();
        frontend.set_features(features.0).unwrap();
        let mut memory = Memory::new(16 << 20);
        let range = VhostUserMemoryRegionInfo {
            guest_phys_addr: START,
            memory_size: 16 << 20,
            userspace_addr: START,
            mmap_offset: 0,
            mmap_handle: memory.region().file().unwrap().as_raw_fd(),
        };
        frontend.set_mem_table(&[range]).unwrap();
        let rings = (0..rings as u16).map(|at| Ring::start(at, packed, &mut memory, &mut frontend));
        let rings = rings.collect();
        let hdr = if features.has(Features::HASH_REPORT) { 20 } else { 12 };
        let mut peer = Self { device: device.unwrap(), memory, frontend, raw, rings, hdr };
        (0..PAIRS).for_each(|pair| peer.post(pair, SIZE));
        peer
    }

    /// Waits until the device is up and requests this number of channels; returns its
    /// capabilities.
    pub(crate) fn up(&mut self, wanted: u16) -> Caps {
        let device = &mut self.device;
        until("the device", || {
            let status = device.poll_link(mqnet_sysio::clock::monotonic());
            let caps = device.caps();
            let up = matches!(status, LinkStatus::Up { .. }) && caps.wanted == Some(wanted);
            up.then_some(caps)
        })
    }

    /// Opens the given number of channels.
    pub(crate) fn open(&mut self, wanted: u16) -> Vec<Channel> {
        let caps = self.up(wanted);
        let plan = Plan::join(&caps, &Caps { wanted: None, channels: 64, ..caps.clone() });
        self.device.open(&plan.unwrap()).unwrap()
    }

    /// Makes receive buffers available to the device.
    fn post(&mut self, pair: u16, count: u16) {
        let ring = &mut self.rings[usize::from(2 * pair)];
        for _ in 0..count {
            let at = self.memory.alloc(ROOM, 16);
            let id = ring.driver.add(&[Buf { at, len: ROOM, write: true }]).unwrap();
            ring.buffers[usize::from(id)] = at;
        }
        ring.driver.publish();
        ring.kick.write(1).unwrap();
    }

    /// Takes the received frames of a pair's queue, each in one buffer, and posts new buffers.
    pub(crate) fn received(&mut self, pair: u16) -> Vec<Received> {
        let mut all = Vec::new();
        while let Some((id, len)) = self.rings[usize::from(2 * pair)].driver.used() {
            let at = self.rings[usize::from(2 * pair)].buffers[usize::from(id)];
            let hdr = self.memory.read(at, self.hdr);
            let (hash, report) = match hdr.get(12..18) {
                Some(h) => {
                    let hash = u32::from_le_bytes([h[0], h[1], h[2], h[3]]);
                    (hash, u16::from_le_bytes([h[4], h[5]]))
                }
                None => (0, 0),
            };
            let bytes = self.memory.read(at + u64::from(self.hdr), len - self.hdr);
            all.push(Received { hash, report, bytes });
        }
        self.post(pair, all.len() as u16);
        all
    }

    /// Takes the received frames of all pairs; returns their number for each pair.
    pub(crate) fn counts(&mut self) -> Vec<usize> {
        (0..PAIRS).map(|pair| self.received(pair).len()).collect()
    }

    /// Makes a chain of these descriptors available on the control queue; returns its id.
    pub(crate) fn post_raw(&mut self, chain: &[(u64, u32, u16)]) -> Option<u16> {
        let ring = self.rings.last_mut().unwrap();
        let id = ring.driver.add_raw(chain);
        ring.driver.publish();
        ring.kick.write(1).unwrap();
        id
    }

    /// Makes a chain of one buffer of length 0 available on the first pair's transmit queue.
    pub(crate) fn send_nothing(&mut self) {
        let ring = &mut self.rings[1];
        ring.driver.add_raw(&[(START, 0, 0)]).unwrap();
        ring.driver.publish();
    }

    /// Waits for the used entry of the posted chain; returns the written length.
    pub(crate) fn answered(&mut self) -> u32 {
        let ring = self.rings.last_mut().unwrap();
        until("an answer", || ring.driver.used()).1
    }

    /// Sends a command in buffers of these lengths, with the remaining bytes in one more buffer;
    /// returns the status byte.
    pub(crate) fn command_in(&mut self, bytes: &[u8], lens: &[usize]) -> u8 {
        let mut chain = Vec::new();
        let mut rest = bytes;
        for &len in lens.iter().chain([&usize::MAX]) {
            let (piece, after) = rest.split_at(len.min(rest.len()));
            rest = after;
            if !piece.is_empty() {
                let at = self.memory.alloc(piece.len() as u32, 1);
                self.memory.write(at, piece);
                chain.push((at, piece.len() as u32, 0));
            }
        }
        let answer = self.memory.alloc(1, 1);
        self.memory.write(answer, &[0x55]);
        chain.push((answer, 1, 2));
        self.post_raw(&chain).unwrap();
        assert_eq!(self.answered(), 1);
        self.memory.read(answer, 1)[0]
    }

    /// Sends a command; returns the status byte.
    pub(crate) fn command(&mut self, command: &CtrlCommand) -> u8 {
        self.command_in(&command.to_bytes(), &[2])
    }

    /// Restarts the control queue at this position.
    pub(crate) fn restart_commands(&mut self, base: u16) {
        let (number, ring) = (2 * usize::from(PAIRS), self.rings.last().unwrap());
        self.frontend.set_vring_base(number, base).unwrap();
        self.frontend.set_vring_kick(number, &ring.kick).unwrap();
    }

    /// Sends a message that the crate `vhost` cannot send; returns the reply if `wants` is true.
    pub(crate) fn message(&mut self, request: u32, body: Option<u64>, wants: bool) -> Option<u64> {
        let mut bytes = Vec::new();
        let size = body.map_or(0, |_| 8);
        for word in [request, if wants { 9 } else { 1 }, size] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(body.into_iter().flat_map(u64::to_ne_bytes));
        self.raw.write_all(&bytes).unwrap();
        if !wants {
            return None;
        }
        let mut answer = [0; 20];
        self.raw.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        self.raw.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..4], request.to_ne_bytes());
        assert_eq!(answer[4..12], [5, 0, 0, 0, 8, 0, 0, 0]);
        Some(u64::from_ne_bytes(answer[12..].try_into().unwrap()))
    }
}

impl Ring {
    fn start(at: u16, packed: bool, memory: &mut Memory, frontend: &mut Frontend) -> Self {
        let shape = Shape { packed, size: SIZE, event_idx: false };
        let driver = Driver::new(memory, shape);
        let [desc, avail, used] = driver.addresses();
        let config = VringConfigData {
            queue_max_size: SIZE,
            queue_size: SIZE,
            flags: 0,
            desc_table_addr: desc,
            used_ring_addr: used,
            avail_ring_addr: avail,
            log_addr: None,
        };
        let number = usize::from(at);
        let event = || EventFd::new(0o2004000).unwrap();
        let (kick, call) = (event(), event());
        frontend.set_vring_num(number, SIZE).unwrap();
        frontend.set_vring_base(number, if packed { 0x8000 } else { 0 }).unwrap();
        frontend.set_vring_addr(number, &config).unwrap();
        frontend.set_vring_call(number, &call).unwrap();
        frontend.set_vring_kick(number, &kick).unwrap();
        frontend.set_vring_enable(number, true).unwrap();
        Self { driver, kick, _call: call, buffers: vec![0; usize::from(SIZE)] }
    }
}

/// Sends a frame by copy, or through a reservation if `in_place` is true. Returns false if the
/// queue is full.
pub(crate) fn send(tx: &mut Tx, bytes: &[u8], in_place: bool) -> bool {
    let Tx::Owning(queue) = tx else { panic!("it owns its memory") };
    let taken = if in_place {
        let len = bytes.len() as u32;
        let reserved = queue.reserve(len).unwrap().map(|mut room| {
            room.head.write_header(bytes);
        });
        if reserved.is_some() {
            let hdr = VnetHdr::default();
            queue.commit(&mqnet_netdev::FrameMeta { len, hdr });
        }
        reserved.is_some()
    } else {
        let mut burst = Burst::new();
        burst.push(VnetHdr::default(), bytes.len() as u32, Span::of(bytes));
        queue.submit(&burst, 0).unwrap() == 1
    };
    queue.flush().unwrap();
    taken
}

/// Frame of a UDP flow to an address, with or without a VLAN tag.
pub(crate) fn frame(to: [u8; 6], vlan: Option<u16>, port: u16) -> Vec<u8> {
    let mut frame = [to, [2, 0, 0, 0, 0, 9]].concat();
    if let Some(vlan) = vlan {
        frame.extend([0x81, 0]);
        frame.extend(vlan.to_be_bytes());
    }
    frame.extend([8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(port.to_be_bytes());
    frame.extend([0, 53, 0, 12, 0, 0, 1, 2, 3, 4]);
    frame
}
