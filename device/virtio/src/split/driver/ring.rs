//! Driver side of a split ring, independent of the order in which buffers return.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use mqnet_shmem::{AtomicTable, Column};

use crate::Broken;
use crate::driver::MemoryRange;
use crate::layout::split as at;
use crate::ring::passes;

/// Areas and indexes of a split ring.
#[derive(Debug)]
pub(super) struct Ring {
    queue: u16,
    desc: Column<[AtomicU64; 2]>,
    available: Column<AtomicU16>,
    entries: Column<[AtomicU32; 2]>,
    /// Driver area, for `flags`, `idx` and `used_event`.
    avail: AtomicTable,
    /// Device area, for `flags`, `idx` and `avail_event`.
    used: AtomicTable,
    pub(super) size: u16,
    event_idx: bool,
    /// Index of the available ring up to which entries are written.
    pub(super) added: u16,
    /// Index of the available ring up to which entries are published.
    pub(super) published: u16,
    /// Published index at the last check for a notification.
    checked: u16,
    /// Index of the used ring up to which entries are taken.
    pub(super) taken: u16,
    /// Used index that was read last.
    pub(super) seen: u16,
}

impl Ring {
    /// Creates a ring with interrupts suppressed.
    pub(super) fn new(queue: u16, size: u16, areas: [AtomicTable; 3], event_idx: bool) -> Self {
        assert!(size.is_power_of_two() && size <= crate::layout::SIZE_MAX, "queue size {size}");
        let [desc, avail, used] = areas;
        let columns = (
            Column::new(&desc, at::desc(0), size),
            Column::new(&avail, at::avail_ring(0), size),
            Column::new(&used, at::used_ring(0), size),
        );
        let (Some(desc), Some(available), Some(entries)) = columns else {
            panic!("the areas of a queue of {size} descriptors are too short or not aligned");
        };
        let mut ring = Self {
            queue,
            desc,
            available,
            entries,
            avail,
            used,
            size,
            event_idx,
            added: 0,
            published: 0,
            checked: 0,
            taken: 0,
            seen: 0,
        };
        ring.disarm();
        ring
    }

    #[inline(always)]
    pub(super) fn write(&self, id: u16, piece: MemoryRange, flags: u16, next: u16) {
        let [addr, rest] = self.desc.at(id);
        // Store with relaxed order: `publish` orders the descriptors before the index.
        addr.store(piece.at.to_le(), Ordering::Relaxed);
        let word = u64::from(piece.len) | u64::from(flags) << 32 | u64::from(next) << 48;
        rest.store(word.to_le(), Ordering::Relaxed);
    }

    /// Writes a device-readable descriptor only if the table has another content. Without a store,
    /// the cache line stays shared by both sides, and a polling device does not miss it. A value
    /// that the device wrote in violation of the protocol is overwritten.
    #[inline(always)]
    pub(super) fn write_if_new(&self, id: u16, piece: MemoryRange) {
        let [addr, rest] = self.desc.at(id);
        // Compare with flags and next of 0: the range is device-readable and not chained.
        let (at, word) = (piece.at.to_le(), u64::from(piece.len).to_le());
        if addr.load(Ordering::Relaxed) != at || rest.load(Ordering::Relaxed) != word {
            self.write(id, piece, 0, 0);
        }
    }

    /// Writes the next entry of the available ring, without publishing it.
    #[inline(always)]
    pub(super) fn announce(&mut self, head: u16) {
        self.available.round(self.added).store(head.to_le(), Ordering::Relaxed);
        self.added = self.added.wrapping_add(1);
    }

    /// Reads and checks the used index. Returns the number of entries to take.
    #[inline(never)]
    pub(super) fn read_used_idx(&mut self) -> Result<u16, Broken> {
        // Pairs with the device's release of used.idx: its entries are visible before the index.
        let index = u16::from_le(self.used.half(at::USED_IDX).load(Ordering::Acquire));
        let waiting = index.wrapping_sub(self.taken);
        let most = self.published.wrapping_sub(self.taken);
        // Detect an index that moved backwards, relative to the index read before.
        let least = self.seen.wrapping_sub(self.taken);
        if waiting > most || waiting < least {
            let what =
                format!("used index {index} is {waiting} ahead, at most {most} are possible");
            return Err(Broken { queue: self.queue, what });
        }
        self.seen = index;
        Ok(waiting)
    }

    /// Reads the next entry of the used ring, id and length, without taking it; `None` if the
    /// device has published no further entry.
    #[inline(always)]
    pub(super) fn entry(&mut self) -> Result<Option<[u32; 2]>, Broken> {
        if self.taken == self.seen && self.read_used_idx()? == 0 {
            return Ok(None);
        }
        Ok(Some(self.entry_at(self.taken)))
    }

    /// Reads an entry once: the device may write it concurrently.
    #[inline(always)]
    fn entry_at(&self, number: u16) -> [u32; 2] {
        let entry = self.entries.round(number);
        entry.each_ref().map(|word| u32::from_le(word.load(Ordering::Relaxed)))
    }

    /// Id of the entry `ahead` positions after the next one; `None` if the last read used index
    /// does not include that entry.
    #[inline(always)]
    pub(super) fn coming(&self, ahead: u16) -> Option<u16> {
        if self.seen.wrapping_sub(self.taken) <= ahead {
            return None;
        }
        let [id, _] = self.entries.round(self.taken.wrapping_add(ahead));
        Some(u32::from_le(id.load(Ordering::Relaxed)) as u16)
    }

    #[inline]
    pub(super) fn publish(&mut self) {
        // Pairs with the device's acquire of avail.idx: descriptors and entries are visible before
        // the index.
        self.avail.half(at::AVAIL_IDX).store(self.added.to_le(), Ordering::Release);
        self.published = self.added;
    }

    #[inline]
    pub(super) fn needs_kick(&mut self) -> bool {
        // Pairs with the device's full barrier between its request for a notification and its
        // second read of avail.idx: our index precedes our read of the request.
        fence(Ordering::SeqCst);
        let old = std::mem::replace(&mut self.checked, self.published);
        if old == self.published {
            return false;
        }
        if self.event_idx {
            let event = self.used.half(at::avail_event(self.size)).load(Ordering::Relaxed);
            return passes(u16::from_le(event), self.published, old);
        }
        let flags = u16::from_le(self.used.half(at::USED_FLAGS).load(Ordering::Relaxed));
        flags & at::NO_NOTIFY == 0
    }

    pub(super) fn arm(&mut self, after: u16) -> bool {
        let outstanding = self.published.wrapping_sub(self.taken).max(1);
        let after = after.clamp(1, outstanding) - 1;
        if self.event_idx {
            let event = self.taken.wrapping_add(after);
            let place = self.avail.half(at::used_event(self.size));
            place.store(event.to_le(), Ordering::Relaxed);
        } else {
            self.avail.half(at::AVAIL_FLAGS).store(0, Ordering::Relaxed);
        }
        // Pairs with the device's full barrier between used.idx and its read of our request: our
        // request precedes our last read of used.idx.
        fence(Ordering::SeqCst);
        // Count an invalid index as used buffers: the next take reports the error.
        self.read_used_idx().map_or(true, |waiting| waiting > after)
    }

    pub(super) fn disarm(&mut self) {
        if self.event_idx {
            // Request an interrupt at the index that was just passed: the device passes that index
            // again only after 65,536 buffers.
            let behind = self.taken.wrapping_sub(1);
            let place = self.avail.half(at::used_event(self.size));
            place.store(behind.to_le(), Ordering::Relaxed);
        } else {
            let flags = at::NO_INTERRUPT.to_le();
            self.avail.half(at::AVAIL_FLAGS).store(flags, Ordering::Relaxed);
        }
    }
}
