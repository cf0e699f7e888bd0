//! Tests of the endpoint with a simulated VMM and driver.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use mqnet_shmem::{AtomicTable, Region};
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::listen::Access;
use mqnet_sysio::memory::memory_file;
use mqnet_sysio::poll;
use mqnet_sysio::socket::StreamSocket;

use super::layout::{STATUS_ERROR, STATUS_OK, command, register};
use super::*;
use crate::hw::{Hw, HwLink, TransportHw};

const WINDOW: u32 = 1 << 16;
const VECTORS: u16 = 8;
/// Bytes of each of the two ranges of guest memory, at guest addresses 0 and `4 * MEMORY`.
const MEMORY: u64 = 1 << 20;

fn config(name: &str, endpoint: BoardModel) -> VfioUserConfig {
    let file = format!("mqnet-epf-{name}-{endpoint}-{}", std::process::id());
    VfioUserConfig {
        path: std::env::temp_dir().join(file),
        access: Access::default(),
        endpoint,
        windows: endpoint.windows_max(),
        window: WINDOW,
        vectors: VECTORS,
    }
}

/// Endpoint with a simulated VMM and driver.
struct World {
    hw: VfioUser,
    now: Duration,
    client: StreamSocket,
    registers: AtomicTable,
    peer_spads: (AtomicTable, u32),
    memory: OwnedFd,
    vectors: Vec<EventFd>,
}

impl World {
    fn new(name: &str, endpoint: BoardModel) -> Self {
        let config = config(name, endpoint);
        let mut hw = VfioUser::new(&config).unwrap();
        let down = hw.poll_link(Duration::from_secs(1));
        assert_eq!(down, HwLink::Down("waiting for a VMM".to_owned()));
        let client = StreamSocket::connect(&config.path).unwrap();
        let scratch = || Arc::new(Region::private(4096, false, None).unwrap());
        let table = |region| AtomicTable::new(region, 0, 4096).unwrap();
        let mut world = Self {
            hw,
            now: Duration::from_secs(1),
            client,
            registers: table(scratch()),
            peer_spads: (table(scratch()), 0),
            memory: memory_file("guest", 2 * MEMORY as usize, false).unwrap(),
            vectors: (0..VECTORS).map(|_| EventFd::new().unwrap()).collect(),
        };
        world.request(1, &[0; 4], &[]);
        let region = |world: &mut Self, index: u32| {
            let info = world.request(5, &fields(&[128, 0, index, 0, 0, 0, 0, 0]), &[]);
            Arc::new(Region::of_guest(info.1.into_iter().next().unwrap(), 0, 4096).unwrap().0)
        };
        let registers = region(&mut world, 0);
        world.registers = table(registers.clone());
        let behind = register::OWN_SPADS + 4 * SPADS as u32;
        world.peer_spads = match endpoint.bars().peer_spads {
            Some(bar) => (table(region(&mut world, bar as u32)), 0),
            None => (table(registers), behind),
        };
        let file = world.memory.try_clone().unwrap();
        for (iova, offset) in [(0, 0), (4 * MEMORY, MEMORY)] {
            world.request(2, &map(iova, offset), &[file.as_fd()]);
        }
        let vectors: Vec<OwnedFd> =
            world.vectors.iter().map(|event| event.try_clone().unwrap()).collect();
        let fds: Vec<BorrowedFd<'_>> = vectors.iter().map(AsFd::as_fd).collect();
        world.request(8, &fields(&[20, 0x24, 2, 0, VECTORS.into()]), &fds);
        world
    }

    /// Endpoint with a driver that has configured doorbells and windows and enabled the link.
    fn up(name: &str, endpoint: BoardModel) -> Self {
        let mut world = Self::new(name, endpoint);
        assert_eq!(world.command(command::CONFIGURE_DOORBELL, 8 | command::MSIX), STATUS_OK);
        for index in 0..endpoint.windows_max() as u32 {
            assert_eq!(world.window(index, 0x1_0000 * u64::from(index), WINDOW.into()), STATUS_OK);
        }
        assert_eq!(world.command(command::LINK_UP, 0), STATUS_OK);
        assert!(matches!(world.poll(), HwLink::Up(_)));
        world
    }

    fn send(&mut self, command: u16, body: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut bytes = vec![1, 0];
        bytes.extend(command.to_le_bytes());
        bytes.extend((16 + body.len() as u32).to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend(body);
        self.client.send(&bytes, fds).unwrap();
    }

    fn receive(&self) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
        let mut bytes = vec![0; 4096];
        let received = self.client.receive_here(&mut bytes).unwrap()?;
        assert_eq!(bytes[12..16], [0; 4], "an error");
        Some((bytes[16..received.len].to_vec(), received.fds))
    }

    fn request(
        &mut self,
        command: u16,
        body: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> (Vec<u8>, Vec<OwnedFd>) {
        self.send(command, body, fds);
        self.poll();
        self.receive().expect("a reply")
    }

    fn poll(&mut self) -> HwLink {
        self.now += Duration::from_millis(1);
        self.hw.poll_link(self.now)
    }

    fn why(&mut self) -> String {
        match self.poll() {
            HwLink::Down(why) => why,
            HwLink::Up(session) => panic!("up: {session}"),
        }
    }

    fn word(&self, at: u32) -> &AtomicU32 {
        self.registers.word(at)
    }

    /// Writes a command like the driver; [`status`](Self::status) reads its status.
    fn start(&mut self, number: u32, argument: u32) {
        self.word(register::ARGUMENT).store(argument, SeqCst);
        self.word(register::COMMAND).store(number, SeqCst);
    }

    fn status(&self) -> u16 {
        self.registers.half(register::STATUS).swap(0, SeqCst)
    }

    /// Writes a command and returns its status after one poll.
    fn command(&mut self, number: u32, argument: u32) -> u16 {
        self.start(number, argument);
        self.poll();
        assert_eq!(self.word(register::COMMAND).load(SeqCst), 0, "taken once");
        self.status()
    }

    fn set_window(&mut self, at: u64, len: u64) {
        for (place, value) in [(register::ADDRESS, at), (register::SIZE, len)] {
            self.word(place[0]).store(value as u32, SeqCst);
            self.word(place[1]).store((value >> 32) as u32, SeqCst);
        }
    }

    fn window(&mut self, index: u32, at: u64, len: u64) -> u16 {
        self.set_window(at, len);
        self.command(command::CONFIGURE_WINDOW, index)
    }

    /// Vectors triggered since the last call.
    fn triggered(&self) -> Vec<usize> {
        let is_rung = |event: &EventFd| {
            let rung = poll::is_readable(event.as_fd()).unwrap();
            event.drain();
            rung
        };
        (0..self.vectors.len()).filter(|&at| is_rung(&self.vectors[at])).collect()
    }
}

fn fields(fields: &[u32]) -> Vec<u8> {
    fields.iter().flat_map(|field| field.to_le_bytes()).collect()
}

fn map(iova: u64, offset: u64) -> Vec<u8> {
    let mut bytes = fields(&[32, 3]);
    bytes.extend([offset, iova, MEMORY].iter().flat_map(|field| field.to_le_bytes()));
    bytes
}

fn unmap(iova: u64) -> Vec<u8> {
    let mut bytes = fields(&[24, 0]);
    bytes.extend([iova, MEMORY].iter().flat_map(|field| field.to_le_bytes()));
    bytes
}

// Rule: the registers contain the constants of each endpoint. Both ends of every window have the
// configured size, and a write through the translation reaches guest memory.
#[test]
fn registers_describe_the_endpoint() {
    for endpoint in BoardModel::ALL {
        let world = World::up("registers", endpoint);
        let get = |at: u32| world.word(at).load(SeqCst);
        assert_eq!(get(register::WINDOWS) as usize, endpoint.windows_max());
        let first = if endpoint == BoardModel::J721e { WINDOW } else { 0 };
        assert_eq!(get(register::WINDOW_OFFSET), first);
        assert_eq!((get(register::SPAD_COUNT), get(register::DOORBELL_ENTRY)), (32, 4));
        assert!((0..8).all(|vector| get(register::doorbell_data(vector)) != 0));
        for index in 0..endpoint.windows_max() {
            let window = world.hw.window(index).unwrap();
            assert_eq!(
                (window.inbound_len, window.outbound.as_ref().unwrap().len),
                (WINDOW, WINDOW)
            );
            let at = if index == 0 { first as usize } else { 0 };
            assert_eq!(window.inbound_at, at);
            // Write the last word of the window, and read it from guest memory.
            let map = window.outbound.unwrap().map;
            map.table(u64::from(WINDOW) - 4, 4, 4).unwrap().word(0).store(index as u32 + 7, SeqCst);
            let mut word = [0; 4];
            let file = std::fs::File::from(world.memory.try_clone().unwrap());
            let end = u64::from(WINDOW) * (index as u64 + 1) - 4;
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut word, end).unwrap();
            assert_eq!(u32::from_le_bytes(word), index as u32 + 7);
        }
        assert!(world.hw.window(endpoint.windows_max()).is_none());
        let doorbells = world.hw.doorbells();
        assert_eq!((doorbells.link, doorbells.first_pair, doorbells.count), (None, 0, 6));
    }
}

// Rule: the link is up between LINK_UP and LINK_DOWN, if doorbells are configured. Each session
// begins with scratchpads of 0, and the driver receives a link event for each change.
#[test]
fn link_follows_the_driver() {
    for endpoint in BoardModel::ALL {
        let mut world = World::new("link", endpoint);
        assert!(world.why().contains("waiting for the guest's driver"));
        assert_eq!(world.command(command::LINK_UP, 0), STATUS_OK);
        assert!(world.why().contains("waiting for the guest's driver"), "no doorbells");
        assert_eq!(world.command(command::LINK_DOWN, 0), STATUS_OK);
        assert_eq!(world.command(command::CONFIGURE_DOORBELL, 4 | command::MSIX), STATUS_OK);
        assert!(world.why().contains("disabled"));
        assert!(world.hw.window(0).is_none() && world.hw.peer_doorbell(0).is_none());
        let own = register::OWN_SPADS;
        for session in 1..=3 {
            world.word(own).store(1, SeqCst);
            world.peer_spads.0.word(world.peer_spads.1 + 4).store(1, SeqCst);
            assert_eq!(world.command(command::LINK_UP, 0), STATUS_OK);
            assert_eq!(world.triggered(), [0]);
            assert_eq!(world.poll(), HwLink::Up(session));
            assert!(world.triggered().is_empty());
            assert_eq!(world.registers.half(register::LINK).load(SeqCst), 1);
            assert!((0..SPADS).all(|pad| world.hw.spad_read(pad) == 0));
            assert!((0..SPADS).all(|pad| world.hw.peer_spad_read(pad) == 0));
            // Each end reads the scratchpads that the other end writes.
            world.peer_spads.0.word(world.peer_spads.1 + 4 * 31).store(0x1234_5678, SeqCst);
            assert_eq!(world.hw.spad_read(31), 0x1234_5678);
            assert_eq!(world.hw.spad_swap(31, 5), 0x1234_5678);
            assert_eq!(world.hw.spad_read(31), 5);
            world.hw.peer_spad_write(31, 0x8765_4321);
            assert_eq!(world.word(own + 4 * 31).load(SeqCst), 0x8765_4321);
            assert_eq!((world.hw.spad_read(32), world.hw.spad_swap(32, 1)), (0, 0));
            world.hw.peer_spad_write(32, 1);
            assert_eq!(world.command(command::LINK_DOWN, 0), STATUS_OK);
            assert_eq!((world.triggered(), world.hw.spad_read(31)), (vec![0], 0));
            assert_eq!(world.registers.half(register::LINK).load(SeqCst), 0);
        }
        // A reset by this end takes the link down for the delay. The link then comes up without a
        // command of the driver.
        world.command(command::LINK_UP, 0);
        world.triggered();
        world.hw.reset(world.now, Duration::from_millis(500));
        assert!(world.why().contains("restarting"));
        assert_eq!(world.triggered(), [0]);
        world.now += Duration::from_millis(490);
        assert!(matches!(world.poll(), HwLink::Down(_)));
        world.now += Duration::from_millis(20);
        assert!(matches!(world.poll(), HwLink::Up(_)));
        assert_eq!(world.triggered(), [0]);
    }
}

// Rule: commands with invalid values fail with a reason and change nothing.
#[test]
fn impossible_commands_are_refused() {
    let mut world = World::up("refused", BoardModel::Imx8);
    let msix = command::MSIX;
    let window = u64::from(WINDOW);
    for (number, argument, at, len, words) in [
        (command::CONFIGURE_DOORBELL, msix, 0, 0, "0 vectors"),
        (command::CONFIGURE_DOORBELL, 9 | msix, 0, 0, "9 vectors"),
        (command::CONFIGURE_DOORBELL, 8, 0, 0, "of MSI-X"),
        (command::CONFIGURE_DOORBELL, u32::MAX, 0, 0, "65535 vectors"),
        (command::CONFIGURE_WINDOW, 2, 0, window, "window 2, allowed are 0 to 1"),
        (command::CONFIGURE_WINDOW, u32::MAX, 0, window, "window 4294967295"),
        (command::CONFIGURE_WINDOW, 0, 0x800, window, "whole pages"),
        (command::CONFIGURE_WINDOW, 0, 0, 0, "0 bytes"),
        (command::CONFIGURE_WINDOW, 0, 0, window + 1, "1 to 65536 bytes"),
        (command::CONFIGURE_WINDOW, 0, 0, u64::MAX, "1 to 65536 bytes"),
        (command::TEARDOWN_WINDOW, 7, 0, 0, "window 7"),
        (7, 0, 0, 0, "command 7"),
        (u32::MAX, 0, 0, 0, "command 4294967295"),
    ] {
        world.set_window(at, len);
        assert_eq!(world.command(number, argument), STATUS_ERROR, "{words}");
        assert!(world.why().contains(words), "{words}: {}", world.why());
        world.now += Duration::from_secs(2);
        assert!(matches!(world.poll(), HwLink::Up(_)), "{words}");
        assert!((0..2).all(|index| world.hw.window(index).unwrap().outbound.is_some()));
    }
    // Ranges outside guest memory fail too, and remove the former translation.
    for at in [MEMORY, MEMORY - 0x1000, 8 * MEMORY, !0xfff] {
        world.set_window(at, window);
        world.start(command::CONFIGURE_WINDOW, 0);
        let whys: Vec<_> = (0..2).map(|_| world.why()).collect();
        assert!(whys.iter().any(|why| why.contains("no guest memory")), "{at:#x}: {whys:?}");
        assert_eq!(world.status(), STATUS_ERROR);
        world.now += Duration::from_secs(2);
        assert!(world.poll() != HwLink::Up(0) && world.hw.window(0).unwrap().outbound.is_none());
    }
}

// Rule: a translation is removed, and the command for it completes, only when no worker can use the
// translation. The link is down until then.
#[test]
fn teardown_waits_for_workers() {
    let mut world = World::up("teardown", BoardModel::Rcar);
    let held = world.hw.window(0).unwrap();
    world.start(command::TEARDOWN_WINDOW, 0);
    assert!(world.why().contains("changes the translation of window 0"));
    assert!(matches!(world.poll(), HwLink::Down(_)));
    assert_eq!(world.status(), 0, "not complete");
    drop(held);
    world.poll();
    assert_eq!(world.status(), STATUS_OK);
    world.now += Duration::from_secs(1);
    assert!(matches!(world.poll(), HwLink::Up(_)));
    assert!(world.hw.window(0).unwrap().outbound.is_none());
    // The first translation of a window keeps the session.
    assert_eq!(world.window(0, 4 * MEMORY, 4096), STATUS_OK);
    assert!(matches!(world.poll(), HwLink::Up(_)));
    let held = world.hw.window(0).unwrap();
    assert_eq!(held.outbound.as_ref().unwrap().len, 4096);
    // A second translation of the window ends the session.
    world.set_window(0, WINDOW.into());
    world.start(command::CONFIGURE_WINDOW, 0);
    for _ in 0..3 {
        assert!(matches!(world.poll(), HwLink::Down(_)));
    }
    drop(held);
    // A driver that has stopped waiting receives no late status.
    world.now += Duration::from_secs(2);
    world.poll();
    assert_eq!(world.status(), 0);
    assert_eq!(world.hw.window(0).unwrap().outbound.unwrap().len, WINDOW);
}

// Rule: guest memory is unmapped, and a reset completes, only when no worker can use the memory.
#[test]
fn unmapping_and_reset_wait_for_workers() {
    let mut world = World::up("unmap", BoardModel::Rcar);
    // Memory behind no window may be unmapped at any time.
    world.request(3, &unmap(4 * MEMORY), &[]);
    assert!(matches!(world.poll(), HwLink::Up(_)));
    let held = world.hw.window(0).unwrap();
    world.send(3, &unmap(0), &[]);
    assert!(world.why().contains("memory of window 0 was unmapped"));
    assert!(matches!(world.poll(), HwLink::Down(_)));
    assert!(world.receive().is_none());
    drop(held);
    world.poll();
    assert!(world.receive().is_some() && world.hw.server().dma().ranges() == 0);
    world.now += Duration::from_secs(1);
    assert!(matches!(world.poll(), HwLink::Up(_)));
    assert!(world.hw.window(0).unwrap().outbound.is_none());
    let file = world.memory.try_clone().unwrap();
    world.request(2, &map(0, 0), &[file.as_fd()]);
    assert_eq!(world.window(0, 0, 4096), STATUS_OK);
    let held = world.hw.window(0).unwrap();
    world.send(13, &[], &[]);
    assert!(matches!(world.poll(), HwLink::Down(_)));
    assert!(world.receive().is_none() && world.hw.window(0).is_none());
    drop(held);
    world.poll();
    assert!(world.receive().is_some());
    assert!(world.why().contains("waiting for the guest's driver"));
    // A new client does not wait: memory of the former client is released later.
    let mut world = World::up("gone", BoardModel::Rcar);
    let held = world.hw.window(0).unwrap();
    world.client = StreamSocket::connect(&config("gone", BoardModel::Rcar).path).unwrap();
    assert!(matches!(world.poll(), HwLink::Down(_)));
    drop(held);
    world.poll();
    assert!(world.hw.function.window(0).is_none());
}

// Rule: a doorbell is a word of mapped memory until it is armed. The first ring afterwards signals
// one event and disarms the doorbell.
#[test]
fn doorbells_are_armed() {
    for endpoint in BoardModel::ALL {
        let mut world = World::up("doorbells", endpoint);
        let bar = endpoint.bars().doorbells as u32;
        let ring = |world: &mut World, entry: u32| {
            let mut body = (0x1000 + 4 * u64::from(entry)).to_le_bytes().to_vec();
            body.extend(fields(&[bar, 4, 1]));
            world.request(10, &body, &[]);
        };
        let offset = |world: &World, bit: u16| {
            world.word(register::doorbell_offset(FIRST_VECTOR + bit)).load(SeqCst)
        };
        for bit in [0u16, 3, 5] {
            let event = world.hw.doorbell_event(bit.into()).unwrap();
            let trap = world.hw.doorbell_trap(bit.into()).unwrap();
            assert_eq!(offset(&world, bit), 0);
            trap.arm();
            assert_eq!(offset(&world, bit), 0x1000);
            trap.disarm();
            assert_eq!(offset(&world, bit), 0);
            trap.arm();
            ring(&mut world, u32::from(bit) + 2);
            assert_eq!(offset(&world, bit), 0, "disarmed by the ring");
            assert!(poll::is_readable(event.as_fd()).unwrap());
            event.drain();
            let others = (0..6).filter_map(|bit| world.hw.doorbell_event(bit));
            assert!(others.into_iter().all(|event| !poll::is_readable(event.as_fd()).unwrap()));
            // The peer's doorbell triggers the vector.
            world.triggered();
            world.hw.peer_doorbell(bit.into()).unwrap().ring().unwrap();
            assert_eq!(world.triggered(), [usize::from(bit) + 2]);
        }
        // Entries without a doorbell are ignored.
        for entry in [0, 1, 8, 1023] {
            ring(&mut world, entry);
        }
        assert!(world.hw.peer_doorbell(6).is_none() && world.hw.doorbell_event(6).is_none());
        // Vectors that the driver did not configure have no doorbell.
        assert_eq!(world.command(command::CONFIGURE_DOORBELL, 4 | command::MSIX), STATUS_OK);
        assert!(world.hw.peer_doorbell(1).is_some() && world.hw.peer_doorbell(2).is_none());
    }
}

// Rule: truncated guest memory takes the link down with a reason.
#[test]
fn truncated_memory_is_reported() {
    let mut world = World::up("truncated", BoardModel::Rcar);
    std::fs::File::from(world.memory.try_clone().unwrap()).set_len(4096).unwrap();
    assert!(world.why().contains("memory of window 0 was truncated"));
}

// Rule: a new command and a write to a scratchpad make an event ready without a message, earlier
// than the idle poll period.
#[test]
fn writes_are_events() {
    for endpoint in BoardModel::ALL {
        let mut world = World::new("events", endpoint);
        for round in 0..3 {
            world.start(command::CONFIGURE_DOORBELL, 8 | command::MSIX);
            while world.status() == 0 {
                poll::wait_readable(&world.hw.events(), Duration::from_secs(5)).unwrap();
                world.poll();
            }
            // Advance the endpoint's time beyond `QUIET`.
            world.now += Duration::from_secs(5);
            let is_readable =
                |world: &World| world.hw.events().iter().any(|fd| poll::is_readable(*fd).unwrap());
            while is_readable(&world) {
                world.poll();
                poll::pause(Duration::from_millis(20));
            }
            world.peer_spads.0.word(world.peer_spads.1 + 4 * round).store(round + 1, SeqCst);
            let waited = std::time::Instant::now();
            poll::wait_readable(&world.hw.events(), Duration::from_secs(5)).unwrap();
            assert!(is_readable(&world) && waited.elapsed() < Duration::from_millis(60));
        }
    }
}

// Rule: no values in registers, scratchpads and messages cause a panic, or a window over memory
// that the guest has not mapped.
#[test]
fn any_registers_are_survived() {
    const EDGES: [u64; 12] = [
        0,
        1,
        2,
        3,
        0x1000,
        0xffff,
        WINDOW as u64,
        MEMORY,
        4 * MEMORY,
        1 << 32,
        u64::MAX - 1,
        u64::MAX,
    ];
    for seed in 1u64..=30 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut world = World::new("random", BoardModel::ALL[seed as usize % 3]);
        let mut held = None;
        for _ in 0..400 {
            let edge =
                EDGES[next() as usize % EDGES.len()].wrapping_add(next() % 3).wrapping_sub(1);
            match next() % 8 {
                0 => world.word((next() % 1024 * 4) as u32).store(edge as u32, SeqCst),
                1 => world.set_window(edge, EDGES[next() as usize % EDGES.len()]),
                2 => held = world.hw.window(next() as usize % 5),
                3 => world.hw.reset(world.now, Duration::from_millis(next() % 300)),
                4 => {
                    let file = world.memory.try_clone().unwrap();
                    let iova = [0, MEMORY, 4 * MEMORY][next() as usize % 3];
                    let body = if next() % 2 == 0 { map(iova, 0) } else { unmap(iova) };
                    let number = if body.len() == 32 { 2 } else { 3 };
                    world.send(number, &body, &[file.as_fd()]);
                }
                5 => {
                    world.set_window([0, MEMORY - 0x1000, 4 * MEMORY][next() as usize % 3], 0x1000);
                    world.start(command::CONFIGURE_WINDOW, (next() % 5) as u32);
                }
                _ => {
                    let argument = [0, 1, 8 | command::MSIX, 4 | command::MSIX, edge as u32];
                    world.start((next() % 8) as u32, argument[next() as usize % 5]);
                }
            }
            world.now += Duration::from_millis(next() % 400);
            world.poll();
            world.status();
            let mut room = [0; 4096];
            let _ = world.client.receive_bytes(&mut room);
            for index in 0..4 {
                let outbound = world.hw.window(index).and_then(|window| window.outbound);
                let Some(outbound) = outbound else { continue };
                assert!(outbound.len > 0 && outbound.len <= WINDOW);
                assert!(outbound.map.span(0, outbound.len.min(4096)).is_some());
            }
        }
        drop(held);
    }
}
