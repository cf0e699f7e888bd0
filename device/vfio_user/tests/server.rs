//! Tests of the server with a client that sends the messages of QEMU, and messages that no client
//! should send.

#[path = "server/clients.rs"]
mod clients;

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use mqnet_shmem::{AtomicTable, Region};
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::listen::Access;
use mqnet_sysio::memory::memory_file;
use mqnet_sysio::poll;
use mqnet_sysio::socket::StreamSocket;
use mqnet_vfio_user::{
    Bar, DeviceModel, Identity, MessageError, Model, MsixLocation, Status, VfioUserServer,
};

const VERSION: u16 = 1;
const DMA_MAP: u16 = 2;
const DMA_UNMAP: u16 = 3;
const GET_INFO: u16 = 4;
const GET_REGION_INFO: u16 = 5;
const GET_IRQ_INFO: u16 = 7;
const SET_IRQS: u16 = 8;
const REGION_READ: u16 = 9;
const REGION_WRITE: u16 = 10;
const RESET: u16 = 13;

const EINVAL: u32 = 22;
const NO_REPLY: u32 = 0x10;

/// A device that records its calls.
#[derive(Default)]
struct Recorder {
    writes: Vec<(usize, u64, Vec<u8>)>,
    resets: u32,
    unmapped: Vec<(u64, u64)>,
    /// Number of calls that the device does not finish.
    busy: u32,
}

impl Recorder {
    fn is_done(&mut self) -> bool {
        let is_done = self.busy == 0;
        self.busy = self.busy.saturating_sub(1);
        is_done
    }
}

impl DeviceModel for Recorder {
    fn read(&mut self, bar: usize, offset: u64, data: &mut [u8]) {
        data.fill(bar as u8 ^ offset as u8);
    }

    fn write(&mut self, bar: usize, offset: u64, data: &[u8]) {
        self.writes.push((bar, offset, data.to_vec()));
    }

    fn reset(&mut self) -> bool {
        self.resets += 1;
        self.is_done()
    }

    fn unmapped(&mut self, iova: u64, len: u64) -> bool {
        self.unmapped.push((iova, len));
        self.is_done()
    }
}

fn model() -> Model {
    let memory = || Arc::new(Region::shared("test", 0x2000, false).unwrap());
    let mut bars: [Bar; 6] = std::array::from_fn(|_| Bar::default());
    bars[0] = Bar {
        len: 0x2000,
        memory: Some(memory()),
        mapped: std::iter::once(0..0x1000).collect(),
        is_prefetchable: false,
    };
    bars[2] = Bar::mapped(memory(), 0x2000);
    bars[5] = Bar::trapped(0x1000);
    Model {
        identity: Identity { vendor: 0x1912, device: 0x0030, class: 0x05_0000, revision: 3 },
        bars,
        vectors: 8,
        msix: MsixLocation { bar: 0, table: 0x1000, pending: 0x1800 },
    }
}

/// A server with its device and a client.
struct World {
    path: PathBuf,
    server: VfioUserServer,
    device: Recorder,
    now: Duration,
    client: StreamSocket,
    id: u16,
}

/// A received reply.
#[derive(Debug)]
struct Reply {
    id: u16,
    command: u16,
    error: u32,
    body: Vec<u8>,
    fds: Vec<OwnedFd>,
}

impl Reply {
    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.body[at..at + 4].try_into().unwrap())
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.body[at..at + 8].try_into().unwrap())
    }
}

fn body(fields: &[u32]) -> Vec<u8> {
    fields.iter().flat_map(|field| field.to_le_bytes()).collect()
}

fn dma(first: [u32; 2], rest: &[u64]) -> Vec<u8> {
    let mut bytes = body(&first);
    bytes.extend(rest.iter().flat_map(|field| field.to_le_bytes()));
    bytes
}

fn access(offset: u64, region: u32, count: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = offset.to_le_bytes().to_vec();
    bytes.extend(body(&[region, count]));
    bytes.extend(data);
    bytes
}

impl World {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mqnet-vfu-{name}-{}", std::process::id()));
        let mut server = VfioUserServer::new(&path, Access::default(), model()).unwrap();
        let mut device = Recorder::default();
        let waiting = server.poll(Duration::ZERO, &mut device);
        assert_eq!(waiting, Status::Waiting("waiting for a VMM".to_owned()));
        let client = StreamSocket::connect(&path).unwrap();
        Self { path, server, device, now: Duration::from_secs(1), client, id: 0 }
    }

    /// Creates a world in which the version is negotiated.
    fn connected(name: &str) -> Self {
        let mut world = Self::new(name);
        let reply = world.request(VERSION, b"\0\0\0\0{\"capabilities\":{}}\0", &[]);
        assert_eq!((reply.error, &reply.body[..4]), (0, &[0; 4][..]));
        let text = std::str::from_utf8(&reply.body[4..reply.body.len() - 1]).unwrap();
        assert!(text.contains("\"max_msg_fds\":16"), "{text}");
        world
    }

    fn poll(&mut self) -> Status {
        self.server.poll(self.now, &mut self.device)
    }

    fn send(&mut self, command: u16, flags: u32, body: &[u8], fds: &[BorrowedFd<'_>]) -> u16 {
        self.id = self.id.wrapping_add(1);
        let mut bytes = self.id.to_le_bytes().to_vec();
        bytes.extend(command.to_le_bytes());
        bytes.extend((16 + body.len() as u32).to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(body);
        assert_eq!(self.client.send(&bytes, fds).unwrap(), bytes.len());
        self.id
    }

    fn receive(&mut self) -> Option<Reply> {
        let mut bytes = vec![0; 128 << 10];
        let received = self.client.receive_here(&mut bytes).ok()??;
        if received.len == 0 {
            return None;
        }
        bytes.truncate(received.len);
        let field = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(field(4) as usize, bytes.len(), "one reply at a time");
        let is_error = field(8) == 0x21;
        assert!(is_error || field(8) == 1, "flags {:#x}", field(8));
        assert_eq!(is_error, field(12) != 0);
        Some(Reply {
            id: u16::from_le_bytes([bytes[0], bytes[1]]),
            command: u16::from_le_bytes([bytes[2], bytes[3]]),
            error: field(12),
            body: bytes[16..].to_vec(),
            fds: received.fds,
        })
    }

    /// Sends a command. Returns its reply.
    fn request(&mut self, command: u16, body: &[u8], fds: &[BorrowedFd<'_>]) -> Reply {
        let id = self.send(command, 0, body, fds);
        self.poll();
        let reply = self.receive().expect("a reply");
        assert_eq!((reply.id, reply.command), (id, command));
        reply
    }

    /// Sends a command that must be rejected. Returns the error number and the reason.
    fn refused(&mut self, command: u16, body: &[u8], fds: &[BorrowedFd<'_>]) -> (u32, String) {
        let reply = self.request(command, body, fds);
        assert!(reply.error != 0 && reply.body.is_empty(), "command {command}: {reply:?}");
        (reply.error, self.server.last_refusal().map(ToString::to_string).unwrap())
    }

    /// True if the server closed the connection.
    fn is_closed(&mut self) -> bool {
        self.client.receive_bytes(&mut [0]).is_ok_and(|len| len == Some(0))
            || self.client.send(&[0], &[]).is_err()
    }
}

// Rule: the descriptions of device, regions and interrupts match the model. For a BAR with trapped
// pages, the reply lists the mapped pages and has the memory file.
#[test]
fn model_is_described() {
    let mut world = World::connected("info");
    let info = world.request(GET_INFO, &body(&[16, 0, 0, 0]), &[]);
    assert_eq!(info.body, body(&[16, 3, 9, 5]));

    let ask = |world: &mut World, argsz, index| {
        world.request(GET_REGION_INFO, &body(&[argsz, 0, index, 0, 0, 0, 0, 0]), &[])
    };
    let small = ask(&mut world, 32, 0);
    assert_eq!((small.u32(0), small.u32(4), small.fds.len()), (64, 3, 0), "no room for the list");
    let sparse = ask(&mut world, 64, 0);
    assert_eq!((sparse.u32(0), sparse.u32(4), sparse.u32(12)), (64, 0xf, 32));
    assert_eq!((sparse.u64(16), sparse.u64(24), sparse.fds.len()), (0x2000, 0, 1));
    assert_eq!(sparse.body[32..48], body(&[1 << 16 | 1, 0, 1, 0]));
    assert_eq!((sparse.u64(48), sparse.u64(56)), (0, 0x1000));
    let mut whole = ask(&mut world, 32, 2);
    assert_eq!((whole.u32(0), whole.u32(4), whole.u64(16)), (32, 7, 0x2000));
    // Check that client and server share the memory.
    let theirs = Arc::new(Region::of_guest(whole.fds.pop().unwrap(), 0, 0x2000).unwrap().0);
    AtomicTable::new(theirs, 0, 0x2000).unwrap().word(8).store(77, SeqCst);
    let read = world.request(REGION_READ, &access(8, 2, 4, &[]), &[]);
    assert_eq!(read.u32(16), 77);
    for (index, len, flags) in [(1, 0, 0), (5, 0x1000, 3), (6, 0, 0), (7, 256, 3), (8, 0, 0)] {
        let other = ask(&mut world, 32, index);
        assert_eq!((other.u64(16), other.u32(4), other.fds.len()), (len, flags, 0), "{index}");
    }
    for (index, count, flags) in [(0, 0, 1), (1, 0, 1), (2, 8, 9), (3, 0, 1), (4, 0, 1)] {
        let irq = world.request(GET_IRQ_INFO, &body(&[16, 0, index, 0]), &[]);
        assert_eq!(irq.body, body(&[16, flags, index, count]));
    }
    for (command, index) in [(GET_REGION_INFO, 9), (GET_IRQ_INFO, 5), (6, 9)] {
        let (error, why) = world.refused(command, &body(&[32, 0, index, 0, 0, 0, 0, 0]), &[]);
        assert_eq!((error, why.contains("outside")), (EINVAL, true), "{why}");
    }
}

// Rule: mapped memory is read and written in place, accesses to other ranges are passed to the
// device, and accesses beyond a region are rejected.
#[test]
fn regions_are_accessed() {
    let mut world = World::connected("access");
    for (at, data) in [(0u64, &[1u8, 2, 3, 4][..]), (5, &[9; 11]), (0xff8, &[7; 8])] {
        let count = data.len() as u32;
        let wrote = world.request(REGION_WRITE, &access(at, 0, count, data), &[]);
        assert_eq!(wrote.body, access(at, 0, count, &[]));
        let read = world.request(REGION_READ, &access(at, 0, count, &[]), &[]);
        assert_eq!(read.body, access(at, 0, count, data));
    }
    assert!(world.device.writes.is_empty());
    world.request(REGION_WRITE, &access(0x1008, 0, 4, &[1, 0, 0, 0]), &[]);
    world.request(REGION_WRITE, &access(0xffe, 0, 4, &[5; 4]), &[]);
    world.request(REGION_WRITE, &access(4, 5, 1, &[6]), &[]);
    let expected = [(0, 0x1008, vec![1, 0, 0, 0]), (0, 0xffe, vec![5; 4]), (5, 4, vec![6])];
    assert_eq!(world.device.writes, expected);
    assert_eq!(world.request(REGION_READ, &access(0x20, 5, 2, &[]), &[]).body[16..], [0x25; 2]);
    // Expect no reply to posted writes, even if they are rejected.
    world.send(REGION_WRITE, NO_REPLY, &access(0, 5, 1, &[8]), &[]);
    world.send(REGION_WRITE, NO_REPLY, &access(0, 99, 1, &[8]), &[]);
    world.poll();
    assert!(world.receive().is_none());
    assert_eq!((world.device.writes.len(), world.server.refusals()), (4, 1));
    for (at, region, count) in [
        (0x2000, 0, 1),
        (0x1fff, 0, 2),
        (u64::MAX, 0, 1),
        (0, 1, 1),
        (0, 9, 1),
        (0, u32::MAX, 1),
        (0, 2, u32::MAX),
        (253, 7, 4),
    ] {
        for command in [REGION_READ, REGION_WRITE] {
            let (error, why) = world.refused(command, &access(at, region, count, &[0; 4]), &[]);
            assert_eq!((error, why.contains("outside")), (EINVAL, true), "{why}");
        }
    }
    let (_, why) = world.refused(REGION_WRITE, &access(0, 0, 8, &[0; 7]), &[]);
    assert!(why.contains("too short"), "{why}");
}

// Rule: the configuration space has the identity, reports BAR sizes as PCI does, and preserves
// read-only bits.
#[test]
fn configuration_space_behaves() {
    let mut world = World::connected("config");
    let read = |world: &mut World, at: u64, count: u32| {
        world.request(REGION_READ, &access(at, 7, count, &[]), &[]).body[16..].to_vec()
    };
    assert_eq!(read(&mut world, 0, 4), [0x12, 0x19, 0x30, 0x00]);
    assert_eq!(read(&mut world, 8, 4), [3, 0, 0, 5]);
    assert_eq!(read(&mut world, 0x34, 1), [0x40]);
    assert_eq!(read(&mut world, 0x40, 12), [0x11, 0, 7, 0, 0, 0x10, 0, 0, 0, 0x18, 0, 0]);
    world.request(REGION_WRITE, &access(0, 7, 64, &[0xff; 64]), &[]);
    assert_eq!(read(&mut world, 0, 8), [0x12, 0x19, 0x30, 0x00, 0x06, 0x04, 0x10, 0]);
    let sizes = [0xffff_e000u32, 0, 0xffff_e000, 0, 0, 0xffff_f000];
    assert_eq!(read(&mut world, 0x10, 24), body(&sizes));
    world.request(RESET, &[], &[]);
    assert_eq!((read(&mut world, 0x10, 24), world.device.resets), (vec![0; 24], 1));
}

// Rule: a vector triggers the eventfd that was set last, and no eventfd after its removal.
#[test]
fn vectors_are_triggered() {
    let mut world = World::connected("irqs");
    let events: Vec<EventFd> = (0..3).map(|_| EventFd::new().unwrap()).collect();
    let fds: Vec<BorrowedFd<'_>> = events.iter().map(AsFd::as_fd).collect();
    let is_rung = |event: &EventFd| {
        let rung = poll::is_readable(event.as_fd()).unwrap();
        event.drain();
        rung
    };
    let set = |flags, start, count| body(&[20, flags, 2, start, count]);
    let interrupts = world.server.interrupts().clone();
    assert_eq!(world.request(SET_IRQS, &set(0x24, 5, 3), &fds).error, 0);
    assert!(interrupts.is_set(5) && interrupts.is_set(7) && !interrupts.is_set(4));
    interrupts.trigger(6).unwrap();
    assert_eq!([0, 1, 2].map(|at| is_rung(&events[at])), [false, true, false]);
    // Trigger vectors by the client.
    world.request(SET_IRQS, &set(0x21, 5, 2), &[]);
    assert_eq!([0, 1, 2].map(|at| is_rung(&events[at])), [true, true, false]);
    let mut chosen = set(0x22, 5, 3);
    chosen.extend([0, 0, 1]);
    world.request(SET_IRQS, &chosen, &[]);
    assert_eq!([0, 1, 2].map(|at| is_rung(&events[at])), [false, false, true]);
    // Remove the eventfd of one vector, then all.
    world.request(SET_IRQS, &set(0x24, 6, 1), &[]);
    assert!(!interrupts.is_set(6) && interrupts.is_set(5));
    world.request(SET_IRQS, &set(0x21, 0, 0), &[]);
    for vector in 0..9 {
        interrupts.trigger(vector).unwrap();
    }
    assert_eq!([0, 1, 2].map(|at| is_rung(&events[at])), [false; 3]);
    for (flags, index, start, count, words) in [
        (0x24, 2, 7, 2, "outside"),
        (0x24, 2, u32::MAX, u32::MAX, "outside"),
        (0x24, 0, 0, 1, "outside"),
        (0x24, 2, 0, 2, "3 descriptors"),
        (0x28, 2, 0, 1, "flags 0x28"),
        (0, 2, 0, 1, "flags 0x0"),
        (0x22, 2, 0, 1, "too short"),
    ] {
        let (_, why) = world.refused(SET_IRQS, &body(&[20, flags, index, start, count]), &fds);
        assert!(why.contains(words), "{why}");
    }
    let no_event = memory_file("test", 4096, false).unwrap();
    let (_, why) = world.refused(SET_IRQS, &set(0x24, 0, 1), &[no_event.as_fd()]);
    assert!(why.contains("not an eventfd"), "{why}");
}

// Rule: guest memory is translated only while it is mapped.
#[test]
fn memory_is_mapped() {
    let mut world = World::connected("dma");
    let file = memory_file("test", 0x4000, false).unwrap();
    let fds = [file.as_fd()];
    let map = |offset, iova, len| dma([32, 3], &[offset, iova, len]);
    assert_eq!(world.request(DMA_MAP, &map(0x1000, 0x8000, 0x2000), &fds).error, 0);
    let ours = world.server.dma().segments(0x8800, 4).unwrap().remove(0);
    let table = AtomicTable::new(ours.region, ours.offset, 4).unwrap();
    table.word(0).store(0x6c6c_6568, SeqCst);
    let mut read = [0; 4];
    std::os::unix::fs::FileExt::read_exact_at(
        &File::from(file.try_clone().unwrap()),
        &mut read,
        0x1800,
    )
    .unwrap();
    assert_eq!(&read, b"hell");
    // Expect that ranges without a descriptor and read-only ranges are recorded but not mapped.
    assert_eq!(world.request(DMA_MAP, &map(0, 0x10_0000, 0x1000), &[]).error, 0);
    assert_eq!(world.request(DMA_MAP, &dma([32, 1], &[0, 0x20_0000, 0x1000]), &fds).error, 0);
    for iova in [0x10_0000, 0x20_0000] {
        assert_eq!(world.server.dma().segments(iova, 1).unwrap_err(), iova);
    }
    for (flags, offset, iova, len, words) in [
        (3, 0, 0x9fff, 1, "overlaps"),
        (3, 0, 0, 0, "empty"),
        (3, 0, u64::MAX, 2, "empty or beyond"),
        (3, 0x3001, 0x40_0000, 0x1000, "announced"),
        (3, u64::MAX, 0x40_0000, 0x1000, "announced"),
        (4, 0, 0x40_0000, 0x1000, "flags"),
    ] {
        let (_, why) = world.refused(DMA_MAP, &dma([32, flags], &[offset, iova, len]), &fds);
        assert!(why.contains(words), "{why}");
    }
    let two = [file.as_fd(), file.as_fd()];
    assert!(world.refused(DMA_MAP, &map(0, 0x40_0000, 0x1000), &two).1.contains("2 descriptors"));
}

// Rule: the device is called before memory is unmapped, and the client waits for a limited time
// until the device has finished.
#[test]
fn memory_is_unmapped_after_its_use() {
    let mut world = World::connected("unmap");
    let file = memory_file("test", 0x4000, false).unwrap();
    let map = dma([32, 3], &[0x1000, 0x8000, 0x2000]);
    assert_eq!(world.request(DMA_MAP, &map, &[file.as_fd()]).error, 0);
    let unmap = |iova, len| dma([24, 0], &[iova, len]);
    for (iova, len, words) in [
        (0x8000, 0x1000, "divides"),
        (0x9000, 0x1000, "divides"),
        (0x40_0000, 0x1000, "nothing is mapped"),
        (0x8000, 0, "empty"),
    ] {
        let (_, why) = world.refused(DMA_UNMAP, &unmap(iova, len), &[]);
        assert!(why.contains(words), "{why}");
    }
    assert!(world.device.unmapped.is_empty());
    // Keep the device busy for two polls: there is no reply, and the memory stays mapped.
    world.device.busy = 2;
    let id = world.send(DMA_UNMAP, 0, &unmap(0x8000, 0x2000), &[]);
    let after = world.send(GET_INFO, 0, &[0; 16], &[]);
    for _ in 0..2 {
        world.poll();
        assert!(world.server.is_pending() && world.receive().is_none());
        assert!(world.server.dma().segments(0x8000, 1).is_ok());
    }
    world.server.poll(world.now, &mut world.device);
    let mut bytes = [0; 40 + 32];
    assert_eq!(world.client.receive_bytes(&mut bytes).unwrap(), Some(72), "both replies, in order");
    assert_eq!([bytes[0], bytes[40]], [id as u8, after as u8]);
    assert_eq!(world.server.dma().segments(0x8000, 1).unwrap_err(), 0x8000);
    assert_eq!(world.device.unmapped, [(0x8000, 0x2000); 3]);
    // Check that a device that never finishes delays the client for a limited time.
    world.device.busy = u32::MAX;
    world.send(RESET, 0, &[], &[]);
    world.poll();
    assert!(world.receive().is_none());
    world.now += Duration::from_secs(3);
    world.poll();
    assert_eq!(world.receive().unwrap().command, RESET);
    world.device.busy = 0;
    // Unmap all ranges by one message.
    let all = world.request(DMA_UNMAP, &dma([24, 2], &[0, 0]), &[]);
    assert_eq!((all.error, world.server.dma().ranges()), (0, 0));
}
