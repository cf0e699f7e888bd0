//! Memory of a peer, from its messages. Each range has a guest address, and an address in the
//! VMM's process.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mqnet_shmem::{Area, AtomicTable, MemoryMap, Region};
use vhost::vhost_user::message::VhostUserMemoryRegion;

/// Maximum number of ranges.
pub(crate) const SLOTS_MAX: usize = 64;
/// Default of [`set_memory_max`].
pub const MEMORY_DEFAULT: u64 = 1 << 40;

/// Largest number of bytes of one guest's memory.
static BYTES_MAX: AtomicU64 = AtomicU64::new(MEMORY_DEFAULT);

/// Sets the limit of memory that one VMM may share with this process; `None` restores the default.
/// Existing mappings are not affected.
pub fn set_memory_max(bytes: Option<u64>) {
    BYTES_MAX.store(bytes.unwrap_or(MEMORY_DEFAULT), Ordering::Relaxed);
}

/// One memory range.
#[derive(Clone, Debug)]
struct Slot {
    guest: u64,
    user: u64,
    len: u64,
    region: Arc<Region>,
    /// Offset of the range in the region.
    offset: usize,
}

/// Memory of a peer.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    slots: Vec<Slot>,
    guest: Arc<MemoryMap>,
    user: MemoryMap,
}

impl Memory {
    /// Maps the memory of a `SET_MEM_TABLE` message.
    pub(crate) fn of(ranges: &[VhostUserMemoryRegion], files: Vec<File>) -> Result<Self, String> {
        // Check before mapping: even a temporary mapping takes address space from other VMMs.
        check_bytes(ranges.iter().map(|range| range.memory_size))?;
        let slots = ranges.iter().zip(files).map(|(range, file)| Slot::new(range, file));
        Self::with(slots.collect::<Result<_, _>>()?)
    }

    fn with(slots: Vec<Slot>) -> Result<Self, String> {
        if slots.len() > SLOTS_MAX {
            return Err(format!("{} ranges of memory, allowed are {SLOTS_MAX}", slots.len()));
        }
        check_bytes(slots.iter().map(|slot| slot.len))?;
        let map = |start: fn(&Slot) -> u64| {
            let area = |slot: &Slot| Area {
                start: start(slot),
                len: slot.len,
                region: slot.region.clone(),
                offset: slot.offset,
            };
            MemoryMap::new(slots.iter().map(area).collect()).map_err(|e| format!("memory: {e}"))
        };
        let (guest, user) = (map(|slot| slot.guest)?, map(|slot| slot.user)?);
        Ok(Self { slots, guest: Arc::new(guest), user })
    }

    /// Adds the ranges of another memory; `Err` if the result is invalid.
    pub(crate) fn with_more(&self, more: Self) -> Result<Self, String> {
        let mut slots = self.slots.clone();
        slots.extend(more.slots);
        Self::with(slots)
    }

    /// Removes one range; `Err` if there is no such range.
    pub(crate) fn with_less(&self, range: &VhostUserMemoryRegion) -> Result<Self, String> {
        let it = (range.guest_phys_addr, range.user_addr, range.memory_size);
        let mut slots = self.slots.clone();
        slots.retain(|slot| (slot.guest, slot.user, slot.len) != it);
        if slots.len() == self.slots.len() {
            return Err(format!("no range of memory at {:#x} to remove", it.0));
        }
        Self::with(slots)
    }

    /// Memory map by guest addresses.
    pub(crate) fn by_guest(&self) -> &Arc<MemoryMap> {
        &self.guest
    }

    /// Memory of a ring area: `len` bytes at an address of the VMM's process. `None` if the area
    /// is not in one range, or not aligned to `align`.
    pub(crate) fn table(&self, user: u64, len: u32, align: usize) -> Option<AtomicTable> {
        self.user.table(user, len, align)
    }

    /// Guest address for an address of the VMM's process; `None` if no range contains it.
    pub(crate) fn guest_address(&self, user: u64) -> Option<u64> {
        let inside = |slot: &&Slot| user.wrapping_sub(slot.user) < slot.len;
        let slot = self.slots.iter().find(inside)?;
        Some(slot.guest + (user - slot.user))
    }

    /// True if the peer has removed pages of a mapped region.
    pub(crate) fn is_lost(&self) -> bool {
        self.slots.iter().any(|slot| slot.region.is_lost())
    }
}

fn check_bytes(lens: impl Iterator<Item = u64>) -> Result<(), String> {
    let bytes = lens.fold(0, u64::saturating_add);
    let most = BYTES_MAX.load(Ordering::Relaxed);
    if bytes > most {
        return Err(format!("{bytes} bytes of memory, allowed are {most}"));
    }
    Ok(())
}

impl Slot {
    fn new(range: &VhostUserMemoryRegion, file: File) -> Result<Self, String> {
        let (guest, user, len) = (range.guest_phys_addr, range.user_addr, range.memory_size);
        let mapped = Region::of_guest(file.into(), range.mmap_offset, len);
        let (region, offset) = mapped.map_err(|e| format!("memory at {guest:#x}: {e}"))?;
        Ok(Self { guest, user, len, region: Arc::new(region), offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(len: usize) -> File {
        mqnet_sysio::memory::memory_file("test", len, false).unwrap().into()
    }

    // Goal: the guest address and the VMM address of a range refer to the same byte. Ranges can be
    // added and removed, and a refused change leaves the memory unchanged.
    #[test]
    fn ranges_are_added_and_removed() {
        let low = VhostUserMemoryRegion::new(0, 8192, 0x7000_0000, 4096);
        let high = VhostUserMemoryRegion::new(1 << 32, 4096, 0x8000_0000, 0);
        let memory = Memory::of(&[low], vec![file(3 * 4096)]).unwrap();
        let more = |range| Memory::of(&[range], vec![file(4096)]).unwrap();
        let memory = memory.with_more(more(high)).unwrap();
        let table = memory.table(0x7000_1000, 16, 16).unwrap();
        table.half(0).store(0x1234, std::sync::atomic::Ordering::Relaxed);
        let mut seen = [0; 2];
        memory.by_guest().span(4096, 2).unwrap().read_header(&mut seen);
        assert_eq!(seen, [0x34, 0x12]);
        assert_eq!(memory.guest_address(0x8000_0010), Some((1 << 32) + 0x10));
        assert_eq!(memory.guest_address(0x8000_1000), None);
        let memory = memory.with_less(&low).unwrap();
        assert!(memory.by_guest().span(4096, 2).is_none());
        assert!(memory.with_less(&low).unwrap_err().contains("no range"));
        assert!(memory.by_guest().span(1 << 32, 2).is_some());
        let overlap = VhostUserMemoryRegion::new((1 << 32) + 1, 4096, 0, 0);
        assert!(memory.with_more(more(overlap)).unwrap_err().contains("overlaps"));
        assert!(Memory::of(&[low], vec![file(4096)]).unwrap_err().contains("announced"));
        let huge = VhostUserMemoryRegion::new(0, MEMORY_DEFAULT, 0, 0);
        let both = Memory::of(&[huge, high], vec![file(4096), file(4096)]);
        assert!(both.unwrap_err().contains("allowed are"));
    }
}
