//! A driver of virtqueues for tests, split and packed, as plain as can be: every number is spelled
//! out here once more, so that the project's own layouts are tested against something.

mod packed;
mod split;

use std::collections::VecDeque;
use std::sync::Arc;

use mqnet_shmem::{Area, Lent, MemoryMap, Region, Table};

/// A guest's memory in one file, and who hands it out.
#[derive(Debug)]
pub struct Memory {
    region: Arc<Region>,
    map: Arc<MemoryMap>,
    free: u64,
}

/// Where a guest's memory begins.
pub const START: u64 = 0x10_0000;

impl Memory {
    /// `len` bytes, zeroed.
    pub fn new(len: usize) -> Self {
        let region = Arc::new(Region::shared("guest", len, false).expect("memory"));
        let area = Area { start: START, len: len as u64, region: region.clone(), offset: 0 };
        let map = Arc::new(MemoryMap::new(vec![area]).expect("one range"));
        Self { region, map, free: START }
    }

    /// As a device sees it.
    pub fn map(&self) -> Arc<MemoryMap> {
        self.map.clone()
    }

    /// Its file, for others that map it.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Takes `len` bytes that nobody has, at a multiple of `align`.
    pub fn alloc(&mut self, len: u32, align: u64) -> u64 {
        let at = self.free.next_multiple_of(align);
        self.free = at + u64::from(len);
        assert!(self.map.span(at, len).is_some(), "the test's memory is too small");
        at
    }

    /// Writes bytes.
    pub fn write(&self, at: u64, bytes: &[u8]) {
        let mut lent = Lent::new(self.map.clone());
        lent.room(at, bytes.len() as u32).expect("memory").write_header(bytes);
    }

    /// Reads bytes.
    pub fn read(&self, at: u64, len: u32) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        self.map.span(at, len).expect("memory").read_header(&mut bytes);
        bytes
    }

    /// The numbers at an address.
    pub fn table(&self, at: u64, len: u32) -> Table {
        self.map.table(at, len, 2).expect("memory")
    }
}

/// A buffer: where, how long, and whether the device writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buf {
    /// Its address.
    pub at: u64,
    /// Its length.
    pub len: u32,
    /// The device writes it.
    pub write: bool,
}

/// How a queue is laid out and used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Packed, not split.
    pub packed: bool,
    /// Descriptors.
    pub size: u16,
    /// `EVENT_IDX` was negotiated.
    pub event_idx: bool,
}

/// The driver's side of a queue.
#[derive(Debug)]
pub struct Driver {
    /// Its shape.
    pub shape: Shape,
    areas: [(u64, u32); 3],
    ring: Either,
    /// Where indirect tables lie: one of 32 entries for each descriptor, and one more.
    tables: u64,
    next_table: u16,
}

#[derive(Debug)]
enum Either {
    Split(split::Split),
    Packed(packed::Packed),
}

impl Driver {
    /// A queue in freshly taken memory.
    pub fn new(memory: &mut Memory, shape: Shape) -> Self {
        let size = u32::from(shape.size);
        let lens =
            if shape.packed { [16 * size, 4, 4] } else { [16 * size, 6 + 2 * size, 6 + 8 * size] };
        let areas = lens.map(|len| (memory.alloc(len, 16), len));
        let [desc, driver, device] = areas.map(|(at, len)| memory.table(at, len));
        let ring = if shape.packed {
            Either::Packed(packed::Packed::new(desc, driver, device, shape))
        } else {
            Either::Split(split::Split::new(desc, driver, device, shape))
        };
        let tables = memory.alloc((size + 1) * 32 * 16, 16);
        Self { shape, areas, ring, tables, next_table: 0 }
    }

    /// The three areas, for the device.
    pub fn tables(&self, memory: &Memory) -> [Table; 3] {
        self.areas.map(|(at, len)| memory.table(at, len))
    }

    /// The addresses of the three areas.
    pub fn addresses(&self) -> [u64; 3] {
        self.areas.map(|(at, _)| at)
    }

    /// Makes buffers available as one chain; `None` when there are not enough descriptors.
    pub fn add(&mut self, bufs: &[Buf]) -> Option<u16> {
        let chain = bufs.iter().map(|buf| {
            let flags = if buf.write { 2 } else { 0 };
            (buf.at, buf.len, flags)
        });
        self.add_raw(&chain.collect::<Vec<_>>())
    }

    /// The same through an indirect table.
    pub fn add_indirect(&mut self, memory: &Memory, bufs: &[Buf]) -> Option<u16> {
        assert!(bufs.len() <= 32);
        let table = self.tables + u64::from(self.next_table) * 32 * 16;
        for (i, buf) in bufs.iter().enumerate() {
            let write = if buf.write { 2u16 } else { 0 };
            let next = if i + 1 < bufs.len() { 1u16 } else { 0 };
            let mut raw = Vec::new();
            raw.extend(buf.at.to_le_bytes());
            raw.extend(buf.len.to_le_bytes());
            let last = if self.shape.packed {
                [7, write]
            } else {
                [write | next, if next == 1 { i as u16 + 1 } else { 0 }]
            };
            raw.extend(last.iter().flat_map(|half| half.to_le_bytes()));
            memory.write(table + 16 * i as u64, &raw);
        }
        let id = self.add_raw(&[(table, 16 * bufs.len() as u32, 4)])?;
        self.next_table = (self.next_table + 1) % (self.shape.size + 1);
        Some(id)
    }

    /// Makes a chain of descriptors (address, length, flags but NEXT) available.
    pub fn add_raw(&mut self, chain: &[(u64, u32, u16)]) -> Option<u16> {
        match &mut self.ring {
            Either::Split(ring) => ring.add(chain),
            Either::Packed(ring) => ring.add(chain),
        }
    }

    /// Shows the device what was added; true when it wants to be told.
    pub fn publish(&mut self) -> bool {
        match &mut self.ring {
            Either::Split(ring) => ring.publish(),
            Either::Packed(ring) => ring.publish(),
        }
    }

    /// The next chain that was used: its id, and how much was written.
    pub fn used(&mut self) -> Option<(u16, u32)> {
        match &mut self.ring {
            Either::Split(ring) => ring.used(),
            Either::Packed(ring) => ring.used(),
        }
    }

    /// Asks for an interrupt at the next used chain; true when there is one already.
    pub fn arm(&mut self) -> bool {
        match &mut self.ring {
            Either::Split(ring) => ring.arm(),
            Either::Packed(ring) => ring.arm(),
        }
    }

    /// Wants no interrupt. (With `EVENT_IDX` there is none anyway until it is armed again.)
    pub fn disarm(&mut self) {
        match &mut self.ring {
            Either::Split(ring) => ring.disarm(),
            Either::Packed(ring) => ring.disarm(),
        }
    }
}

/// Descriptors or ids that nobody uses.
#[derive(Debug)]
struct Free(VecDeque<u16>);

impl Free {
    fn all(size: u16) -> Self {
        Self((0..size).collect())
    }

    fn take(&mut self, n: usize) -> Option<Vec<u16>> {
        (self.0.len() >= n).then(|| self.0.drain(..n).collect())
    }

    fn give(&mut self, index: u16) {
        self.0.push_back(index);
    }
}
