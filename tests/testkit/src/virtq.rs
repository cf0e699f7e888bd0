//! Minimal driver of split and packed virtqueues for tests. This driver defines every constant
//! itself, so that the project's layouts are tested against an independent source.

mod packed;
mod split;

use std::collections::VecDeque;
use std::sync::Arc;

use mqnet_shmem::{Area, AtomicTable, GuestMemoryView, MemoryMap, Region};

/// Memory of a guest in one file, with a bump allocator.
#[derive(Debug)]
pub struct Memory {
    region: Arc<Region>,
    map: Arc<MemoryMap>,
    free: u64,
}

/// First address of the guest memory.
pub const START: u64 = 0x10_0000;

impl Memory {
    /// Allocates `len` zeroed bytes.
    pub fn new(len: usize) -> Self {
        let region = Arc::new(Region::shared("guest", len, false).expect("memory"));
        let area = Area { start: START, len: len as u64, region: region.clone(), offset: 0 };
        let map = Arc::new(MemoryMap::new(vec![area]).expect("one range"));
        Self { region, map, free: START }
    }

    /// Memory map for the device.
    pub fn map(&self) -> Arc<MemoryMap> {
        self.map.clone()
    }

    /// Region of the memory; its file can be mapped again.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Allocates `len` unused bytes at a multiple of `align`.
    pub fn alloc(&mut self, len: u32, align: u64) -> u64 {
        let at = self.free.next_multiple_of(align);
        self.free = at + u64::from(len);
        assert!(self.map.span(at, len).is_some(), "the test's memory is too small");
        at
    }

    /// Writes bytes.
    pub fn write(&self, at: u64, bytes: &[u8]) {
        let mut lent = GuestMemoryView::new(self.map.clone());
        lent.room(at, bytes.len() as u32).expect("memory").write_header(bytes);
    }

    /// Reads bytes.
    pub fn read(&self, at: u64, len: u32) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        self.map.span(at, len).expect("memory").read_header(&mut bytes);
        bytes
    }

    /// Atomic view of the memory at an address.
    pub fn table(&self, at: u64, len: u32) -> AtomicTable {
        self.map.table(at, len, 2).expect("memory")
    }
}

/// Buffer of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buf {
    /// Guest address.
    pub at: u64,
    /// Length in bytes.
    pub len: u32,
    /// True if the device may write the buffer.
    pub write: bool,
}

/// Layout and features of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// True for the packed layout, false for the split layout.
    pub packed: bool,
    /// Number of descriptors.
    pub size: u16,
    /// True if `EVENT_IDX` was negotiated.
    pub event_idx: bool,
}

/// Driver side of a queue.
#[derive(Debug)]
pub struct Driver {
    /// Layout and features.
    pub shape: Shape,
    areas: [(u64, u32); 3],
    ring: Either,
    /// Address of the indirect tables of 32 entries each. There is one table more than descriptors.
    tables: u64,
    next_table: u16,
}

#[derive(Debug)]
enum Either {
    Split(split::Split),
    Packed(packed::Packed),
}

impl Driver {
    /// Creates a queue in newly allocated memory.
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
    pub fn tables(&self, memory: &Memory) -> [AtomicTable; 3] {
        self.areas.map(|(at, len)| memory.table(at, len))
    }

    /// Addresses of the three areas.
    pub fn addresses(&self) -> [u64; 3] {
        self.areas.map(|(at, _)| at)
    }

    /// Makes buffers available as one chain. Returns the chain's id, or `None` if there are too few
    /// free descriptors.
    pub fn add(&mut self, bufs: &[Buf]) -> Option<u16> {
        let chain = bufs.iter().map(|buf| {
            let flags = if buf.write { 2 } else { 0 };
            (buf.at, buf.len, flags)
        });
        self.add_raw(&chain.collect::<Vec<_>>())
    }

    /// Makes buffers available through an indirect table; the result is that of [`Driver::add`].
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

    /// Makes a chain of descriptors (address, length, flags without NEXT) available; the result is
    /// that of [`Driver::add`].
    pub fn add_raw(&mut self, chain: &[(u64, u32, u16)]) -> Option<u16> {
        match &mut self.ring {
            Either::Split(ring) => ring.add(chain),
            Either::Packed(ring) => ring.add(chain),
        }
    }

    /// Publishes added chains. Returns true if the device requires a notification.
    pub fn publish(&mut self) -> bool {
        match &mut self.ring {
            Either::Split(ring) => ring.publish(),
            Either::Packed(ring) => ring.publish(),
        }
    }

    /// Takes the next used chain. Returns its id and the number of bytes written; `None` if no
    /// chain is used.
    pub fn used(&mut self) -> Option<(u16, u32)> {
        match &mut self.ring {
            Either::Split(ring) => ring.used(),
            Either::Packed(ring) => ring.used(),
        }
    }

    /// Enables used buffer notifications. Returns true if a chain is already used.
    pub fn arm(&mut self) -> bool {
        match &mut self.ring {
            Either::Split(ring) => ring.arm(),
            Either::Packed(ring) => ring.arm(),
        }
    }

    /// Disables used buffer notifications. With `EVENT_IDX` no action is needed, because the device
    /// sends none until the next [`Driver::arm`].
    pub fn disarm(&mut self) {
        match &mut self.ring {
            Either::Split(ring) => ring.disarm(),
            Either::Packed(ring) => ring.disarm(),
        }
    }
}

/// Unused descriptors or ids.
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
