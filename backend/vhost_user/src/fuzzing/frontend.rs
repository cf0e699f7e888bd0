//! Messages of a front end, composed from fuzzer input: headers, bodies and descriptors.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use mqnet_netdev::fuzzing::Input;
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::memory::memory_file;
use mqnet_virtio::Features;

/// Bytes of the guest's memory.
pub(super) const MEMORY: u64 = 64 << 10;
/// Guest address of the memory.
pub(super) const GUEST: u64 = 0x4000;
/// Address of the memory in the front end's process.
const USER: u64 = 0x7f00_0000_0000;
/// Bytes between two rings in the memory.
pub(super) const RING: u64 = 1024;
/// Number of entries of a ring.
pub(super) const SIZE: u16 = 8;
/// Offsets of the descriptor, driver and device area in a ring.
pub(super) const AREAS: [u64; 3] = [0, 256, 512];
/// Request number of `GET_STATUS`, which is answered in every state.
pub(super) const GET_STATUS: u32 = 40;

/// Message with the descriptors that accompany it.
pub(super) struct Message {
    pub(super) request: u32,
    /// Bytes of header and body.
    pub(super) bytes: Vec<u8>,
    pub(super) fds: Vec<OwnedFd>,
    /// True if the length in the header is not that of the body.
    pub(super) is_torn: bool,
}

/// Kind of a request's body.
#[derive(Clone, Copy)]
enum Body {
    Empty,
    Features,
    Number,
    Vring,
    VringAddress,
    VringFd,
    Regions,
    Region,
    Log,
    Inflight,
    Config,
}

/// Requests (vhost-user, front-end message types) with their bodies.
const REQUESTS: [(u32, Body); 45] = [
    (1, Body::Empty),
    (2, Body::Features),
    (3, Body::Empty),
    (4, Body::Empty),
    (5, Body::Regions),
    (6, Body::Log),
    (7, Body::Empty),
    (8, Body::Vring),
    (9, Body::VringAddress),
    (10, Body::Vring),
    (11, Body::Vring),
    (12, Body::VringFd),
    (13, Body::VringFd),
    (14, Body::VringFd),
    (15, Body::Empty),
    (16, Body::Features),
    (17, Body::Empty),
    (18, Body::Vring),
    (19, Body::Number),
    (20, Body::Number),
    (21, Body::Empty),
    (22, Body::Log),
    (23, Body::Vring),
    (24, Body::Config),
    (25, Body::Config),
    (26, Body::Number),
    (27, Body::Number),
    (28, Body::Empty),
    (29, Body::Empty),
    (30, Body::Empty),
    (31, Body::Inflight),
    (32, Body::Inflight),
    (33, Body::Empty),
    (34, Body::Empty),
    (35, Body::Vring),
    (36, Body::Empty),
    (37, Body::Region),
    (38, Body::Region),
    (39, Body::Number),
    (40, Body::Empty),
    (41, Body::Log),
    (42, Body::Vring),
    (43, Body::Empty),
    (44, Body::Empty),
    (0xffff_ffff, Body::Number),
];

/// Front end with its input and the objects behind its descriptors.
pub(super) struct Frontend<'a> {
    pub(super) input: Input<'a>,
    pub(super) memory: OwnedFd,
    /// Kick eventfds of the rings.
    pub(super) kicks: Vec<EventFd>,
    call: EventFd,
    /// Offered features.
    pub(super) offered: Features,
    /// Inode numbers of the pipes and sockets that were sent; the device refuses all of them.
    pub(super) refused: Vec<u64>,
}

impl<'a> Frontend<'a> {
    pub(super) fn new(input: Input<'a>, offered: Features, rings: u16) -> Option<Self> {
        let kicks = (0..rings).map(|_| EventFd::new().ok()).collect::<Option<_>>()?;
        let memory = memory_file("fuzz-guest", MEMORY as usize, false).ok()?;
        let call = EventFd::new().ok()?;
        Some(Self { input, memory, kicks, call, offered, refused: Vec::new() })
    }

    /// Next message: usually a request with its body, rarely with one wrong part.
    pub(super) fn message(&mut self) -> Message {
        let (pick, odd) = (self.input.u8(), self.input.u8());
        let (mut request, body) = REQUESTS[usize::from(pick) % REQUESTS.len()];
        let (bytes, mut fds) = self.body(body);
        let mut flags = if odd & 1 == 1 { 9 } else { 1 };
        let mut declared = bytes.len() as u32;
        match odd >> 3 {
            31 => {
                declared = [0, 1, 8, 40, 4096, 4097, u32::MAX][usize::from(self.input.u8()) % 7];
            }
            30 => {
                let count = self.input.u8() % 10;
                fds = (0..count).filter_map(|_| self.descriptor()).collect();
            }
            29 => request = self.input.u8().into(),
            28 => flags = self.input.u8().into(),
            _ => {}
        }
        Message::new(request, flags, declared, &bytes, fds)
    }

    /// Message of raw input bytes.
    pub(super) fn raw(&mut self) -> Message {
        let len = self.input.u8() % 64;
        let bytes: Vec<u8> = (0..len).map(|_| self.input.u8()).collect();
        Message { request: 0, bytes, fds: Vec::new(), is_torn: true }
    }

    /// Messages of a correct negotiation, until all rings are in service.
    pub(super) fn negotiation(&mut self, pairs: u16, rings: u16) -> Vec<Message> {
        let choice = self.input.u8();
        let when = |bit: u8, of: Features| match choice >> bit & 1 {
            1 => of,
            _ => Features::default(),
        };
        let wanted = Features::VERSION_1
            .or(Features::PROTOCOL_FEATURES)
            .or(when(0, Features::RING_PACKED))
            .or(when(1, Features::EVENT_IDX.or(Features::INDIRECT_DESC)))
            .or(when(2, Features::MRG_RXBUF.or(Features::GUEST_CSUM).or(Features::GUEST_TSO4)))
            .or(when(3, Features::CTRL_VQ.or(Features::MQ).or(Features::CTRL_RX)))
            .or(when(4, Features::CSUM.or(Features::HOST_TSO4).or(Features::HOST_TSO6)))
            .or(when(5, Features::IN_ORDER))
            .or(when(6, Features::RSS.or(Features::HASH_REPORT).or(Features::GUEST_ANNOUNCE)))
            .or(when(7, Features::LOG_ALL));
        let features = Features(wanted.0 & self.offered.0);
        let message = |request, body: &[u64], fds| {
            let bytes: Vec<u8> = body.iter().flat_map(|n| n.to_ne_bytes()).collect();
            Message::new(request, 1, bytes.len() as u32, &bytes, fds)
        };
        let memory = self.memory.try_clone().into_iter().collect();
        let mut all = vec![
            message(3, &[], Vec::new()),
            message(16, &[u64::MAX], Vec::new()),
            message(2, &[features.0], Vec::new()),
            message(5, &[1, GUEST, MEMORY, USER, 0], memory),
        ];
        let is_packed = features.has(Features::RING_PACKED);
        let control = if features.has(Features::MQ) { 2 * pairs } else { 2 };
        for ring in (0..rings).filter(|&ring| ring < 2 * pairs || ring == control) {
            let (number, at) = (u64::from(ring), USER + RING * u64::from(ring));
            let base = if is_packed { 0x8000_8000 } else { 0 };
            let fd = |event: &EventFd| event.try_clone().into_iter().collect::<Vec<_>>();
            all.extend([
                message(8, &[number | u64::from(SIZE) << 32], Vec::new()),
                message(10, &[number | base << 32], Vec::new()),
                message(9, &[number, at, at + AREAS[2], at + AREAS[1], 0], Vec::new()),
                message(13, &[number], fd(&self.call)),
                message(12, &[number], fd(&self.kicks[usize::from(ring)])),
                message(18, &[number | 1 << 32], Vec::new()),
            ]);
        }
        all
    }

    fn body(&mut self, body: Body) -> (Vec<u8>, Vec<OwnedFd>) {
        let mut fds = Vec::new();
        let numbers = match body {
            Body::Empty => vec![],
            Body::Features => vec![self.features()],
            Body::Number => vec![match self.input.u8() {
                0 => 1500,
                byte @ 1..200 => byte.into(),
                _ => self.input.u64(),
            }],
            Body::Vring => vec![self.ring() | self.vring_value() << 32],
            Body::VringAddress => self.vring_address().to_vec(),
            Body::VringFd => {
                let ring = self.ring();
                let has_fd = self.input.u8();
                match has_fd {
                    0 => {}
                    1..=15 => fds.extend(self.descriptor()),
                    _ => {
                        let event = self.kicks.get(ring as usize).filter(|_| has_fd & 1 == 0);
                        fds.extend(event.unwrap_or(&self.call).try_clone());
                    }
                }
                vec![ring | u64::from(fds.is_empty()) << 8]
            }
            Body::Regions => {
                let count = u64::from(self.input.u8() % 10);
                let regions = (0..count).flat_map(|at| self.region(at, count));
                let numbers = [count].into_iter().chain(regions.collect::<Vec<_>>()).collect();
                (0..count).for_each(|_| fds.extend(self.memory_descriptor()));
                numbers
            }
            Body::Region => {
                let at = u64::from(self.input.u8());
                let region = self.region(at % 4, 4);
                if at < 128 {
                    fds.extend(self.memory_descriptor());
                }
                [0].into_iter().chain(region).collect()
            }
            Body::Log => {
                fds.extend(self.memory_descriptor());
                vec![self.length(), self.offset()]
            }
            Body::Inflight => {
                if self.input.u8() & 1 == 1 {
                    fds.extend(self.memory_descriptor());
                }
                let queues = [1_u64, 2, 4, 5, 200, 0xffff][usize::from(self.input.u8()) % 6];
                let size = [8_u64, 1, 0, 256, 0x8000, 0xffff][usize::from(self.input.u8()) % 6];
                vec![self.length(), self.offset(), queues | size << 16]
            }
            Body::Config => {
                let (offset, len) = (u64::from(self.input.u8()), u64::from(self.input.u8()));
                let mut bytes = (offset | len << 32).to_ne_bytes().to_vec();
                bytes.extend(u32::from(self.input.u8() % 3).to_ne_bytes());
                bytes.extend((0..len).map(|_| 0));
                return (bytes, fds);
            }
        };
        let mut bytes: Vec<u8> = numbers.into_iter().flat_map(u64::to_ne_bytes).collect();
        if let Body::Inflight = body {
            bytes.truncate(20);
        }
        (bytes, fds)
    }

    fn vring_address(&mut self) -> [u64; 5] {
        let ring = self.ring();
        let mut areas = AREAS.map(|area| USER + RING * ring + area);
        let pick = usize::from(self.input.u8());
        if pick < 3 {
            areas[pick] = self.address(USER);
        }
        [ring | u64::from(pick & 4 != 0) << 32, areas[0], areas[2], areas[1], GUEST]
    }

    fn features(&mut self) -> u64 {
        match self.input.u8() {
            0..100 => self.offered.0,
            100..180 => self.offered.0 & self.input.u64(),
            180..220 => self.offered.0 & (Features::VERSION_1.or(Features::PROTOCOL_FEATURES)).0,
            220..240 => self.offered.minus(Features::RING_PACKED).0,
            _ => self.input.u64(),
        }
    }

    fn ring(&mut self) -> u64 {
        match self.input.u8() {
            byte @ 0..250 => u64::from(byte) % self.kicks.len() as u64,
            byte => u64::from(byte),
        }
    }

    fn vring_value(&mut self) -> u64 {
        match self.input.u8() {
            0..60 => SIZE.into(),
            60..120 => 1,
            120..160 => 0,
            160..180 => 0x8000_8000,
            180..200 => 0x8000,
            200..220 => 256,
            byte @ 220..240 => byte.into(),
            _ => self.input.u64() & 0xffff_ffff,
        }
    }

    fn address(&mut self, start: u64) -> u64 {
        let pick = self.input.u8();
        match pick & 7 {
            0..=3 => start + u64::from(pick >> 3) * 256,
            4 => start + u64::from(self.input.u16()),
            5 => u64::MAX - u64::from(pick >> 3),
            6 => pick.into(),
            _ => self.input.u64(),
        }
    }

    fn length(&mut self) -> u64 {
        let pick = self.input.u8();
        let more = u64::from(pick >> 3);
        match pick & 7 {
            0 | 1 => MEMORY,
            2 => 4096 * more,
            3 => MEMORY / 2,
            4 => more,
            5 => 1 << (2 * more),
            6 => u64::MAX - more,
            _ => self.input.u64(),
        }
    }

    fn offset(&mut self) -> u64 {
        match self.input.u8() {
            0..200 => 0,
            byte @ 200..220 => u64::from(byte - 200) * 4096,
            byte @ 220..240 => byte.into(),
            _ => self.length(),
        }
    }

    /// Region with one of three contents: part `at` of the memory in `count` parts, the whole
    /// memory, or arbitrary values.
    fn region(&mut self, at: u64, count: u64) -> [u64; 4] {
        let part = MEMORY / count.next_power_of_two().max(1);
        match self.input.u8() {
            0..150 => [GUEST + at * part, part, USER + at * part, at * part],
            150..200 => [GUEST, MEMORY, USER, 0],
            _ => [self.address(GUEST), self.length(), self.address(USER), self.offset()],
        }
    }

    fn memory_descriptor(&mut self) -> Option<OwnedFd> {
        match self.input.u8() {
            0..220 => self.memory.try_clone().ok(),
            _ => self.descriptor(),
        }
    }

    /// Descriptor of any kind.
    fn descriptor(&mut self) -> Option<OwnedFd> {
        match self.input.u8() % 8 {
            0 | 1 => self.memory.try_clone().ok(),
            2 => memory_file("fuzz-short", 100, false).ok(),
            3 => memory_file("fuzz-empty", 0, false).ok(),
            4 | 5 => EventFd::new().ok()?.try_clone().ok(),
            6 => {
                let (read, _write) = nix::unistd::pipe().ok()?;
                self.refuse(read)
            }
            _ => {
                let (one, _other) = UnixStream::pair().ok()?;
                self.refuse(one.into())
            }
        }
    }

    /// Records the inode of a descriptor that the function refuses and keeps open; returns the
    /// descriptor.
    fn refuse(&mut self, fd: OwnedFd) -> Option<OwnedFd> {
        self.refused.push(nix::sys::stat::fstat(fd.as_fd()).ok()?.st_ino);
        Some(fd)
    }
}

impl Message {
    fn new(request: u32, flags: u32, declared: u32, body: &[u8], fds: Vec<OwnedFd>) -> Self {
        let mut bytes: Vec<u8> =
            [request, flags, declared].into_iter().flat_map(u32::to_ne_bytes).collect();
        bytes.extend(body);
        Self { request, bytes, fds, is_torn: declared as usize != body.len() }
    }

    /// Request for the status.
    pub(super) fn get_status() -> Self {
        Self::new(GET_STATUS, 1, 0, &[], Vec::new())
    }
}
