//! Memory that the device maps: one sealed file, and optionally a file of the caller for received
//! frames.

use std::sync::Arc;

use mqnet_netdev::limits::{FRAME_MAX, room_for};
use mqnet_pktbuf::{PagePool, PoolConfig};
use mqnet_shmem::{AtomicTable, Region, RegionPart, Window};
use mqnet_virtio::Features;
use mqnet_virtio::layout;
use mqnet_virtio::net::HDR_LEN;
use mqnet_virtio::rxbuf::mapping;
use mqnet_virtio::rxbuf::sizes::BufferMode;

use crate::provided::ProvidedMemory;

/// Number of descriptors of a receive ring.
pub(crate) const RX_RING: u16 = 512;
/// Number of descriptors of a transmit ring.
pub(crate) const TX_RING: u16 = 256;

/// Device address of the first byte of the file. Address 0 is avoided, because devices may treat
/// it as invalid.
pub(crate) const START: u64 = 1 << 32;

/// Device address of the first byte of the caller's file.
pub(crate) const PROVIDED: u64 = 1 << 40;

/// Bytes before a frame in a TX slot: 4 bytes of alignment and the header. Rejected: a separate
/// cache line for the header, as in RX buffers. A device that prefetches the start of a buffer
/// would then not prefetch the first bytes of the frame.
pub(crate) const TX_FRONT: u32 = 16;

const PAGE: usize = 4096;

/// Device address of an offset in the file.
pub(crate) fn address(offset: usize) -> u64 {
    START + offset as u64
}

/// Location of a ring, as device addresses and as local tables.
pub(crate) struct RingMemory {
    pub(crate) size: u16,
    pub(crate) addresses: [u64; 3],
    pub(crate) tables: [AtomicTable; 3],
}

fn take(rest: &mut RegionPart, len: usize) -> Result<RegionPart, String> {
    let part = rest.take(len.next_multiple_of(PAGE));
    part.ok_or_else(|| "the memory file is too short".to_owned())
}

/// Memory of one queue pair.
pub(crate) struct PairMemory {
    pub(crate) rx: RingMemory,
    pub(crate) tx: RingMemory,
    pub(crate) pool: PagePool,
    pub(crate) slots: Window,
    /// Device address of the first slot.
    pub(crate) slots_at: u64,
}

/// Parameters of the memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) pairs: u16,
    pub(crate) packed: bool,
    pub(crate) mode: BufferMode,
    /// Negotiated features, which determine the device mapping of pages.
    pub(crate) features: Features,
}

/// All memory that the device maps.
pub(crate) struct DeviceMemory {
    pub(crate) region: Arc<Region>,
    pub(crate) pairs: Vec<PairMemory>,
}

/// Memory of the caller, from which each queue takes a part.
struct Provided {
    rest: RegionPart,
    pages: u32,
}

impl Shape {
    fn areas(&self, size: u16) -> [u32; 3] {
        if self.packed { layout::packed::areas(size) } else { layout::split::areas(size) }
    }

    fn ring_len(&self, size: u16) -> usize {
        self.areas(size).iter().map(|len| (*len as usize).next_multiple_of(64)).sum()
    }

    fn page_size(&self) -> u32 {
        match self.mode {
            BufferMode::Small | BufferMode::Mergeable => PAGE as u32,
            BufferMode::Big => (HDR_LEN + room_for(FRAME_MAX)).next_power_of_two(),
        }
    }

    /// Bytes of a pool in the driver's file: whole pages for a full ring, and as many for frames
    /// in use.
    fn pool_len(&self) -> usize {
        2 * usize::from(RX_RING) * self.page_size() as usize
    }

    /// Maps the caller's memory; `Err` if each queue would have fewer pages than half a ring.
    fn provided(&self, memory: &ProvidedMemory) -> Result<Provided, String> {
        let what = |e: String| format!("the memory for received frames: {e}");
        let page = u64::from(self.page_size());
        let pages = memory.len() / page / u64::from(self.pairs);
        let least = u64::from(RX_RING) / 2;
        if pages < least {
            let (len, pairs, need) = (memory.len(), self.pairs, least * page);
            return Err(what(format!(
                "{len} bytes are too few for {pairs} queues: at least {need} are needed for each, \
                 or set queues="
            )));
        }
        let file = memory.file().try_clone_to_owned().map_err(|e| what(e.to_string()))?;
        let (region, _) =
            Region::of_guest(file, 0, memory.len()).map_err(|e| what(e.to_string()))?;
        Ok(Provided { rest: RegionPart::whole(region), pages: pages.min(1 << 20) as u32 })
    }

    fn slots_len(&self) -> usize {
        usize::from(TX_RING) * (TX_FRONT + room_for(FRAME_MAX)).next_multiple_of(64) as usize
    }

    /// Bytes of the file. Most of the file is never touched and uses no memory.
    fn len(&self, provided: bool) -> usize {
        let rings = self.ring_len(RX_RING) + self.ring_len(TX_RING);
        let pages = if provided { 0 } else { self.pool_len() };
        let pair = [rings, pages, self.slots_len()].map(|len| len.next_multiple_of(PAGE));
        usize::from(self.pairs) * pair.iter().sum::<usize>()
    }

    /// Creates and divides the file. Every possible queue gets its pool here, in the caller's
    /// memory if there is some.
    pub(crate) fn make(&self, memory: Option<&ProvidedMemory>) -> Result<DeviceMemory, String> {
        let mut provided = memory.map(|memory| self.provided(memory)).transpose()?;
        let region = Region::shared("mqnet-virtio-user", self.len(provided.is_some()), false);
        let region = region.map_err(|e| e.to_string())?;
        region.prefer_huge_pages();
        let (region, mut rest) = RegionPart::whole(region).shared();
        let pairs = (0..self.pairs).map(|_| self.pair(&mut rest, provided.as_mut()));
        Ok(DeviceMemory { region, pairs: pairs.collect::<Result<_, String>>()? })
    }

    fn pair(
        &self,
        rest: &mut RegionPart,
        provided: Option<&mut Provided>,
    ) -> Result<PairMemory, String> {
        let mut rings = take(rest, self.ring_len(RX_RING) + self.ring_len(TX_RING))?;
        let page_size = self.page_size();
        let (memory, start) = match provided {
            Some(Provided { rest, pages }) => {
                (take(rest, *pages as usize * page_size as usize)?, PROVIDED)
            }
            None => (take(rest, self.pool_len())?, START),
        };
        let pages = (memory.len() / page_size as usize) as u32;
        let mapping = mapping::of(self.features, start + memory.offset() as u64);
        let config = PoolConfig { pages, page_size, mapping, ..PoolConfig::default() };
        let slots = take(rest, self.slots_len())?;
        Ok(PairMemory {
            rx: self.ring(&mut rings, RX_RING)?,
            tx: self.ring(&mut rings, TX_RING)?,
            pool: PagePool::over(memory, &config).map_err(|e| e.to_string())?,
            slots_at: address(slots.offset()),
            slots: slots.into_window(),
        })
    }

    fn ring(&self, part: &mut RegionPart, size: u16) -> Result<RingMemory, String> {
        let mut addresses = [0; 3];
        let mut tables = Vec::with_capacity(3);
        for (at, len) in addresses.iter_mut().zip(self.areas(size)) {
            let area = part.take((len as usize).next_multiple_of(64));
            let area = area.ok_or("the memory of rings is too short")?;
            *at = address(area.offset());
            tables.push(area.into_table());
        }
        let tables = tables.try_into().map_err(|_| "a ring has three areas")?;
        Ok(RingMemory { size, addresses, tables })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use mqnet_pktbuf::Mapping;

    use super::*;

    fn shape(pairs: u16, packed: bool, mode: BufferMode) -> Shape {
        Shape { pairs, packed, mode, features: Features::VERSION_1 }
    }

    fn file(len: usize) -> std::os::fd::OwnedFd {
        mqnet_sysio::memory::memory_file("mqnet-test", len, false).unwrap()
    }

    /// Length of a mapping of `len` bytes.
    fn whole_pages(len: usize) -> usize {
        len.next_multiple_of(mqnet_sysio::memory::small_page())
    }

    // Goal: for every shape the file has exactly the length of its parts. Each possible queue has
    // its own pool at the mapped address, and rings have the alignment that the specification
    // requires.
    #[test]
    fn file_is_divided_completely() {
        for mode in [BufferMode::Small, BufferMode::Mergeable, BufferMode::Big] {
            for (pairs, packed) in [(1, false), (3, true), (64, false)] {
                let shape = shape(pairs, packed, mode);
                let DeviceMemory { region, pairs: all } = shape.make(None).unwrap();
                assert_eq!(all.len(), usize::from(pairs));
                let end = all.last().unwrap().slots_at - START + shape.slots_len() as u64;
                assert_eq!(whole_pages(end as usize), region.len());
                for pair in &all {
                    for ring in [&pair.rx, &pair.tx] {
                        for (at, align) in ring.addresses.iter().zip(layout::ALIGN) {
                            assert_eq!(at % align as u64, 0);
                        }
                    }
                    let start = START + pair.pool.start() as u64;
                    assert_eq!(pair.pool.mapping(), Mapping::Device(start));
                }
                let starts: BTreeSet<usize> = all.iter().map(|pair| pair.pool.start()).collect();
                assert_eq!(starts.len(), all.len());
            }
        }
    }

    // Goal: the caller's memory is divided equally among all possible queues, at its own device
    // addresses. The driver's file then has no pages. Too little memory is refused with the
    // required amount.
    #[test]
    fn provided_memory_is_shared_out() {
        let shape = shape(3, false, BufferMode::Mergeable);
        let len = 3 * 700 * 4096 + 8192;
        let memory = ProvidedMemory::new(file(len), len as u64);
        let made = shape.make(Some(&memory)).unwrap();
        assert_eq!(made.region.len(), whole_pages(shape.len(true)));
        for (number, pair) in (0u64..).zip(&made.pairs) {
            let start = number * 700 * 4096;
            assert_eq!((pair.pool.pages(), pair.pool.start() as u64), (700, start));
            assert_eq!(pair.pool.mapping(), Mapping::Device(PROVIDED + start));
        }
        for (len, words) in
            [(3 * 255 * 4096, "at least 1048576 are needed for each"), (1 << 30, "has")]
        {
            let memory = ProvidedMemory::new(file(1 << 22), len);
            let refused = shape.make(Some(&memory)).err().unwrap();
            assert!(refused.contains(words), "{refused}");
        }
    }
}
