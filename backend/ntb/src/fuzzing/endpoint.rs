//! Fuzz target: a complete function with an emulated PCI device. The input acts as a VMM, the
//! guest's driver and its `ntb_transport`: messages, registers, scratchpads, DMA ranges and slots.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;

use mqnet_netdev::fuzzing::Input;
use mqnet_shmem::{AtomicTable, Region};
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::listen::Access;
use mqnet_sysio::memory::memory_file;
use mqnet_vfio_user::fuzzing::{Bytes, FuzzClient, socket_path};

use super::transport::{MTU, Victim, write_header};
use crate::NtbFunction;
use crate::hw::vfio_user::{BoardModel, VfioUser, VfioUserConfig, places};
use crate::transport::geometry::WindowPart;
use crate::transport::handshake::{pad, writes};

const PAGE: u64 = 4096;
const WINDOW: u32 = 1 << 16;
const VECTORS: u16 = 8;
const PAIRS: u16 = 2;
/// Largest number of steps of one input.
const STEPS: usize = 150;
/// Bytes of guest memory, at guest address 0.
const MEMORY: u64 = 1 << 18;
/// Commands of vfio-user messages.
const VERSION: u16 = 1;
const DMA_MAP: u16 = 2;
const DMA_UNMAP: u16 = 3;
const GET_REGION_INFO: u16 = 5;
const SET_IRQS: u16 = 8;
const REGION_WRITE: u16 = 10;
const RESET: u16 = 13;

struct World {
    victim: Victim,
    path: PathBuf,
    client: FuzzClient,
    endpoint: BoardModel,
    registers: AtomicTable,
    /// Scratchpads that the driver writes, and their offset in the table.
    spads: (AtomicTable, u32),
    window: AtomicTable,
    memory: OwnedFd,
}

fn fields(fields: &[u32]) -> Vec<u8> {
    fields.iter().flat_map(|field| field.to_le_bytes()).collect()
}

fn range(first: [u32; 2], rest: &[u64]) -> Vec<u8> {
    let mut bytes = fields(&first);
    bytes.extend(rest.iter().flat_map(|field| field.to_le_bytes()));
    bytes
}

impl World {
    fn new(endpoint: BoardModel) -> Option<Self> {
        let path = socket_path();
        let config = VfioUserConfig {
            path: path.clone(),
            access: Access::default(),
            endpoint,
            windows: 1,
            window: WINDOW,
            vectors: VECTORS,
        };
        let hw = VfioUser::new(&config).ok()?;
        let function = NtbFunction::with_hw("ntb:".to_owned(), Box::new(hw), None, 1);
        let mut victim = Victim::new(function.with_transport_mtu(MTU));
        victim.poll(1);
        let client = FuzzClient::connect(&path).ok()?;
        let scratch = || Region::private(WINDOW as usize, false, None).ok().map(Arc::new);
        let table = || AtomicTable::new(scratch()?, 0, WINDOW);
        let mut world = Self {
            victim,
            path,
            client,
            endpoint,
            registers: table()?,
            spads: (table()?, 0),
            window: table()?,
            memory: memory_file("fuzz", MEMORY as usize, false).ok()?,
        };
        world.introduce()?;
        Some(world)
    }

    /// Sends the messages that QEMU sends before the guest runs.
    fn introduce(&mut self) -> Option<()> {
        self.client.send(VERSION, 0, &[0; 4], &[]);
        let place = places(self.endpoint, WINDOW);
        let (registers, _) = self.region(0, PAGE)?;
        self.spads = match place.spad_bar {
            Some(bar) => (AtomicTable::new(self.region(bar as u32, PAGE)?.0, 0, PAGE as u32)?, 0),
            None => (AtomicTable::new(registers.clone(), 0, PAGE as u32)?, place.spads_at),
        };
        self.registers = AtomicTable::new(registers, 0, PAGE as u32)?;
        let end = place.window_at + WINDOW;
        let (window, _) = self.region(place.window_bar as u32, end.into())?;
        self.window = AtomicTable::new(window, place.window_at as usize, WINDOW)?;
        let events = (0..VECTORS).map(|_| EventFd::new()?.try_clone());
        let events: Vec<OwnedFd> = events.collect::<Result<_, _>>().ok()?;
        let fds: Vec<BorrowedFd<'_>> = events.iter().map(AsFd::as_fd).collect();
        self.client.send(SET_IRQS, 0, &fields(&[20, 0x24, 2, 0, VECTORS.into()]), &fds);
        self.map(0, MEMORY);
        Some(())
    }

    /// Maps the memory of BAR `index`, like a client. Returns the memory and the offset of the BAR
    /// in that memory; `None` on failure.
    fn region(&mut self, index: u32, len: u64) -> Option<(Arc<Region>, usize)> {
        self.client.fds.clear();
        let body = fields(&[128, 0, index, 0, 0, 0, 0, 0]);
        self.client.send(GET_REGION_INFO, 0, &body, &[]);
        self.victim.poll(1);
        self.client.read();
        let (region, skip) = Region::of_guest(self.client.fds.pop()?, 0, len).ok()?;
        Some((Arc::new(region), skip))
    }

    fn map(&mut self, iova: u64, len: u64) {
        let fds = [self.memory.as_fd()];
        self.client.send(DMA_MAP, 0, &range([32, 3], &[0, iova, len]), &fds);
    }

    fn set(&self, at: u32, value: u32) {
        self.registers.word(at).store(value, Release);
    }

    fn command(&self, number: u32, argument: u32) {
        self.set(4, argument);
        self.set(0, number);
    }

    /// Writes address and length of the window that a later command configures.
    fn set_window(&self, at: u64, len: u64) {
        for (word, value) in [(0x10, at), (0x18, len)] {
            self.set(word, value as u32);
            self.set(word + 4, (value >> 32) as u32);
        }
    }

    fn set_spad(&self, number: usize, value: u32) {
        let place = self.spads.1 + 4 * (number as u32 % 32);
        self.spads.0.word(place).store(value, Release);
    }

    fn greet(&self) {
        let all = writes(PAIRS, &[WINDOW]).filter(|(at, _)| *at != pad::QP_LINKS);
        all.for_each(|(at, value)| self.set_spad(at, value));
    }

    fn poll(&mut self, milliseconds: u8) {
        self.victim.poll(milliseconds);
        self.client.read();
    }

    /// Acts as a correct driver until the queue pairs are open.
    fn open(&mut self) {
        for (number, argument) in [(1, 1 << 16 | u32::from(VECTORS)), (3, 0), (5, 0)] {
            self.set_window(0, WINDOW.into());
            self.command(number, argument);
            self.poll(2);
        }
        self.greet();
        for _ in 0..3 {
            self.poll(10);
            self.set_spad(pad::QP_LINKS, (1 << PAIRS) - 1);
        }
        self.poll(10);
    }

    fn step(&mut self, input: &mut Input<'_>) -> Option<()> {
        let (step, more) = (input.u8(), input.u8());
        let part = WindowPart::of(&[WINDOW], PAIRS, u16::from(more) % PAIRS, MTU);
        match step % 20 {
            0 => self.set(u32::from(input.u16()) % 1024 * 4, input.u16().into()),
            1 => self.command((more % 8).into(), u32::from(input.u8()) | u32::from(more & 1) << 16),
            2 => self.command(1, 1 << 16 | u32::from(more % 10)),
            3 => {
                let mut edges = Bytes(input.0);
                self.set_window(edges.edge(), edges.edge());
                self.command(3, (more % 3).into());
            }
            4 => {
                self.set_window(u64::from(more % 64) * PAGE, WINDOW.into());
                self.command(3, 0);
            }
            5 => self.set_spad(more.into(), input.u64() as u32),
            6 => self.greet(),
            7 | 8 => self.set_spad(pad::QP_LINKS, more.into()),
            9 => self.map(u64::from(more % 4) * MEMORY, u64::from(more / 4) * PAGE),
            10 => {
                let at = u64::from(more % 4) * MEMORY;
                let body = range([24, 0], &[at, MEMORY]);
                self.client.send(DMA_UNMAP, 0, &body, &[]);
            }
            11 if more < 8 => {
                let _ = File::from(self.memory.try_clone().ok()?).set_len(more.into());
            }
            12 if more < 16 => self.client.send(RESET, 0, &[], &[]),
            13 if more < 8 => {
                self.client = FuzzClient::connect(&self.path).ok()?;
                self.introduce();
            }
            14 => {
                let doorbells = places(self.endpoint, WINDOW).doorbell_bar as u32;
                let mut body = (PAGE + 4 * u64::from(more % 40)).to_le_bytes().to_vec();
                body.extend(fields(&[doorbells, 4, 1]));
                self.client.send(REGION_WRITE, 0, &body, &[]);
            }
            15 => write_header(input, &part?, &self.window),
            16 => {
                let part = part?;
                self.window.byte(part.credit_at()).store(more, Release);
            }
            17 => self.open(),
            _ if self.victim.work(more).is_err() => self.victim.take_down(),
            _ => {}
        }
        Some(())
    }
}

/// Runs the input. Panics if the link is down without a reason, or a frame breaks the contract of
/// `OwningRx`.
pub fn endpoint(data: &[u8]) {
    let mut input = Input(data);
    let first = input.u8();
    let endpoint = BoardModel::ALL[usize::from(first) % BoardModel::ALL.len()];
    // Test nothing if the machine is out of descriptors or memory.
    let Some(mut world) = World::new(endpoint) else { return };
    if first < 0xc0 {
        world.open();
    }
    for _ in 0..STEPS {
        let _ = world.step(&mut input);
        let time = input.u8();
        world.poll(if time < 8 { 250 } else { time % 12 });
        if input.0.is_empty() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rule: `World::open`, the correct start of most inputs, opens channels for each board model.
    #[test]
    fn honest_driver_opens_channels() {
        for endpoint in BoardModel::ALL {
            let mut world = World::new(endpoint).unwrap();
            world.open();
            assert!(!world.victim.channels.is_empty(), "{endpoint}");
        }
    }
}
