//! In-flight region of a device (vhost-user `INFLIGHT_SHMFD`), with which a restarted device
//! neither loses nor repeats a chain.
//!
//! Chains are used in order, so that none is in flight between two polls. A split ring therefore
//! needs no record: `used.idx` is sufficient. In a packed ring, used descriptors overwrite
//! available ones, and a device that ends in the middle of a batch leaves a mixture of both. Each
//! batch is therefore recorded before it is written. The restarted device either completes the
//! batch or restores the overwritten descriptors.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use mqnet_shmem::AtomicTable;

use crate::layout::packed as ring_at;
use crate::ring::UsedChain;

const VERSION: u16 = 1;
/// Alignment of each queue's region.
const ALIGN: u32 = 64;

/// Offsets of the version and the number of descriptors (u16 each), which follow the features (u64)
/// in every region.
mod head {
    pub(super) const VERSION: u32 = 8;
    pub(super) const SIZE: u32 = 10;
}

/// Layout for a split ring: a header of 16 bytes, and 16 bytes for each descriptor. The first byte
/// of an entry is 1 if the descriptor is in flight.
mod split {
    pub(super) const fn entry(i: u16) -> u32 {
        16 + 16 * i as u32
    }
}

/// Layout for a packed ring: a header of 32 bytes, and 32 bytes for each descriptor.
mod packed {
    /// Offset of one 64-bit word: used_idx and old_used_idx (u16 each), and their wrap counters
    /// (one byte each).
    pub(super) const USED: u32 = 16;
    /// Offset of entry `i`; its first 64-bit word is inflight and padding (one byte each), next,
    /// last, num (u16 each).
    pub(super) const fn entry(i: u16) -> u32 {
        32 + 32 * i as u32
    }
    /// Offset in an entry: the counter that gives the order of the chains.
    pub(super) const COUNTER: u32 = 8;
    /// Offset in an entry: a 64-bit word of id, flags (u16 each) and len (u32).
    pub(super) const REST: u32 = 16;
    /// Offset in an entry: the address of the descriptor.
    pub(super) const ADDR: u32 = 24;
}

/// Bytes of the region of a queue.
pub const fn region_len(is_packed: bool, size: u16) -> u32 {
    let len = if is_packed { packed::entry(size) } else { split::entry(size) };
    len.next_multiple_of(ALIGN)
}

/// Error for a region with an invalid header, size or alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "inflight region: version {version} for {found} descriptors in {len} bytes, the queue has \
         {size}"
)]
pub struct BadRegion {
    version: u16,
    found: u16,
    len: u32,
    size: u16,
}

/// Checks a region, or initializes it if its version is 0. Returns true if the region was
/// initialized.
fn open(region: &AtomicTable, is_packed: bool, size: u16) -> Result<bool, BadRegion> {
    let len = region.len();
    if len < region_len(is_packed, size) || !region.is_aligned(8) {
        return Err(BadRegion { version: 0, found: 0, len, size });
    }
    let version = u16::from_le(region.half(head::VERSION).load(Acquire));
    if version == 0 {
        region.half(head::SIZE).store(size.to_le(), Relaxed);
        region.half(head::VERSION).store(VERSION.to_le(), Release);
        return Ok(true);
    }
    let found = u16::from_le(region.half(head::SIZE).load(Relaxed));
    if version == VERSION && found == size {
        Ok(false)
    } else {
        Err(BadRegion { version, found, len, size })
    }
}

/// Initializes or takes over the region of a split ring, and clears its entries. Chains that
/// another program had in flight are still available, because the ring resumes at `used.idx`.
pub fn take_over_split(region: &AtomicTable, size: u16) -> Result<(), BadRegion> {
    if !open(region, false, size)? {
        for i in 0..size {
            region.double(split::entry(i)).store(0, Relaxed);
        }
    }
    Ok(())
}

/// In-flight region of a packed ring.
#[derive(Debug)]
pub struct PackedInflight {
    region: AtomicTable,
    size: u16,
    /// True if this device initialized the region, which then has no state of the ring.
    blank: bool,
    counter: u64,
    /// Number of entries that the last batch recorded.
    recorded: u16,
    /// `used_idx` with its wrap counter, as last recorded.
    used: u16,
}

/// Encodes the positions `used` and `old`, with their wrap counters, in the format of the region.
fn used_word(used: u16, old: u16) -> u64 {
    let at = |place: u16| u64::from(place & 0x7fff);
    let wrap = |place: u16| u64::from(place >> 15);
    at(used) | at(old) << 16 | wrap(used) << 32 | wrap(old) << 40
}

impl PackedInflight {
    /// Takes over, or initializes, the region of a ring of `size` descriptors.
    pub fn new(region: AtomicTable, size: u16) -> Result<Self, BadRegion> {
        let blank = open(&region, true, size)?;
        let record = Self { region, size, blank, counter: 0, recorded: 0, used: 0 };
        if blank {
            record.free(0..size);
        }
        Ok(record)
    }

    /// Marks entries as free and links each to the next entry.
    fn free(&self, entries: impl Iterator<Item = u16>) {
        for entry in entries {
            let next = u64::from(entry + 1) << 16;
            self.region.double(packed::entry(entry)).store(next.to_le(), Relaxed);
        }
    }

    fn set_used(&mut self, used: u16, old: u16) {
        self.used = used;
        self.region.double(packed::USED).store(used_word(used, old).to_le(), Release);
    }

    /// Repairs the ring after its device ended. Returns the position at which the new device
    /// resumes, with the wrap counter in bit 15. The result is `base` if the region was blank.
    pub(crate) fn recover(&mut self, ring: &AtomicTable, base: u16) -> u16 {
        if self.blank {
            self.set_used(base, base);
            return base;
        }
        let word = u64::from_le(self.region.double(packed::USED).load(Acquire));
        let place = |at: u64, wrap: u64| at as u16 & 0x7fff | (wrap as u16) << 15;
        let (used, old) = (place(word, word >> 32), place(word >> 16, word >> 40));
        let is_written = used != old && !self.is_available(ring, old);
        let at = if is_written { used } else { old };
        let mut heads = self.heads();
        if !is_written {
            heads.sort_by_key(|&(counter, _, _)| counter);
            self.restore(ring, old, &heads);
        }
        self.free(0..self.size);
        self.set_used(at, at);
        at
    }

    fn is_available(&self, ring: &AtomicTable, place: u16) -> bool {
        let at = place & 0x7fff;
        if at >= self.size {
            return false;
        }
        let rest = u64::from_le(ring.double(ring_at::desc(at) + 8).load(Acquire));
        ring_at::is_available((rest >> 48) as u16, place >> 15 != 0)
    }

    /// Chains in flight: counter, index of the first entry, number of entries.
    fn heads(&self) -> Vec<(u64, u16, u16)> {
        let head = |i: u16| {
            let entry = packed::entry(i);
            let word = u64::from_le(self.region.double(entry).load(Acquire));
            let counter =
                || u64::from_le(self.region.double(entry + packed::COUNTER).load(Relaxed));
            (word & 0xff == 1).then(|| (counter(), i, (word >> 48) as u16))
        };
        (0..self.size).filter_map(head).collect()
    }

    /// Restores the recorded descriptors from position `from` on. The driver wrote these
    /// descriptors and does not read them until they are used.
    fn restore(&self, ring: &AtomicTable, from: u16, heads: &[(u64, u16, u16)]) {
        let mut at = from & 0x7fff;
        let mut left = self.size;
        for &(_, head, num) in heads {
            let mut entry = head;
            for _ in 0..num.min(left) {
                if at >= self.size || entry >= self.size {
                    return;
                }
                let offset = packed::entry(entry);
                let rest = u64::from_le(self.region.double(offset + packed::REST).load(Relaxed));
                let addr = self.region.double(offset + packed::ADDR).load(Relaxed);
                let (id, flags, len) = (rest as u16, (rest >> 16) as u16, (rest >> 32) as u32);
                let rest = u64::from(len) | u64::from(id) << 32 | u64::from(flags) << 48;
                ring.double(ring_at::desc(at)).store(addr, Relaxed);
                ring.double(ring_at::desc(at) + 8).store(rest.to_le(), Release);
                entry = u16::from_le(self.region.half(offset + 2).load(Relaxed));
                at = if at + 1 == self.size { 0 } else { at + 1 };
            }
            left -= num.min(left);
        }
    }

    /// Records a batch before it is written, from position `from` up to `to`, both with wrap
    /// counters.
    pub(crate) fn begin(&mut self, ring: &AtomicTable, batch: &[UsedChain], from: u16, to: u16) {
        let mut at = from & 0x7fff;
        let mut entry = 0;
        for used in batch {
            let head = entry;
            for _ in 0..used.slots.min(self.size - entry) {
                let offset = packed::entry(entry);
                let rest = u64::from_le(ring.double(ring_at::desc(at) + 8).load(Relaxed));
                let addr = ring.double(ring_at::desc(at)).load(Relaxed);
                let (len, id, flags) = (rest as u32, (rest >> 32) as u16, (rest >> 48) as u16);
                let rest = u64::from(id) | u64::from(flags) << 16 | u64::from(len) << 32;
                self.region.double(offset + packed::ADDR).store(addr, Relaxed);
                self.region.double(offset + packed::REST).store(rest.to_le(), Relaxed);
                at = if at + 1 == self.size { 0 } else { at + 1 };
                entry += 1;
            }
            if entry == head {
                break;
            }
            let offset = packed::entry(head);
            self.counter += 1;
            let counter = self.counter.to_le();
            self.region.double(offset + packed::COUNTER).store(counter, Relaxed);
            let (next, last, num) = (head + 1, entry - 1, entry - head);
            let word = 1 | u64::from(next) << 16 | u64::from(last) << 32 | u64::from(num) << 48;
            // Write the in-flight byte last, so that an entry in flight is always complete.
            self.region.double(offset).store(word.to_le(), Release);
        }
        self.recorded = entry;
        self.set_used(to, from);
    }

    /// Marks the recorded batch as written.
    pub(crate) fn end(&mut self) {
        self.free(0..self.recorded);
        self.set_used(self.used, self.used);
    }
}
