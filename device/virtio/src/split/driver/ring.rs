//! The three areas of a split ring, as a driver writes and reads them: what does not depend on the
//! order in which buffers come back.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use mqnet_shmem::{Column, Table};

use crate::Broken;
use crate::driver::{Piece, passes};
use crate::layout::split as at;

/// See the module.
#[derive(Debug)]
pub(super) struct Ring {
    queue: u16,
    desc: Column<[AtomicU64; 2]>,
    available: Column<AtomicU16>,
    entries: Column<[AtomicU32; 2]>,
    /// The areas of driver and device, for what stands around the two rings.
    avail: Table,
    used: Table,
    pub(super) size: u16,
    event_idx: bool,
    /// Entries of the available ring that are written, that the device sees, and that it was seen
    /// to be asked about.
    pub(super) added: u16,
    pub(super) published: u16,
    asked: u16,
    /// Entries of the used ring that were taken, and that there are.
    pub(super) taken: u16,
    pub(super) seen: u16,
}

impl Ring {
    /// A fresh ring, whose device is not to interrupt.
    pub(super) fn new(queue: u16, size: u16, areas: [Table; 3], event_idx: bool) -> Self {
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
            asked: 0,
            taken: 0,
            seen: 0,
        };
        ring.disarm();
        ring
    }

    #[inline(always)]
    pub(super) fn write(&self, id: u16, piece: Piece, flags: u16, next: u16) {
        let [addr, rest] = self.desc.at(id);
        // Relaxed: publish orders all of it before the index.
        addr.store(piece.at.to_le(), Ordering::Relaxed);
        let word = u64::from(piece.len) | u64::from(flags) << 32 | u64::from(next) << 48;
        rest.store(word.to_le(), Ordering::Relaxed);
    }

    /// The same of one that the device reads, where it is likely to lie there already: a line that
    /// is not stored to stays in the caches of both sides, and a device that waits for frames would
    /// wait for it, too (64 B: 19 and 28 M frames a second). What a device has written there, which
    /// it may not, is written over.
    #[inline(always)]
    pub(super) fn write_if_new(&self, id: u16, piece: Piece) {
        let [addr, rest] = self.desc.at(id);
        // The device reads all of it, and `next` is nothing: flags and next are 0.
        let (at, word) = (piece.at.to_le(), u64::from(piece.len).to_le());
        if addr.load(Ordering::Relaxed) != at || rest.load(Ordering::Relaxed) != word {
            self.write(id, piece, 0, 0);
        }
    }

    /// Writes the next entry of the available ring.
    #[inline(always)]
    pub(super) fn announce(&mut self, head: u16) {
        self.available.round(self.added).store(head.to_le(), Ordering::Relaxed);
        self.added = self.added.wrapping_add(1);
    }

    /// Looks at the used index; how many entries wait.
    #[inline(never)]
    pub(super) fn look(&mut self) -> Result<u16, Broken> {
        // Pairs with the Release store of the device: its entries before its index.
        let index = u16::from_le(self.used.half(at::USED_IDX).load(Ordering::Acquire));
        let waiting = index.wrapping_sub(self.taken);
        let most = self.published.wrapping_sub(self.taken);
        // One that has gone back is found again when all that was seen before is taken.
        let least = self.seen.wrapping_sub(self.taken);
        if waiting > most || waiting < least {
            let what = format!("used index {index} is {waiting} ahead, {most} are possible");
            return Err(Broken { queue: self.queue, what });
        }
        self.seen = index;
        Ok(waiting)
    }

    /// The next entry of the used ring, without taking it: id and length, read once.
    #[inline(always)]
    pub(super) fn entry(&mut self) -> Result<Option<[u32; 2]>, Broken> {
        if self.taken == self.seen && self.look()? == 0 {
            return Ok(None);
        }
        Ok(Some(self.entry_at(self.taken)))
    }

    /// The device may go on writing.
    #[inline(always)]
    fn entry_at(&self, number: u16) -> [u32; 2] {
        let entry = self.entries.round(number);
        entry.each_ref().map(|word| u32::from_le(word.load(Ordering::Relaxed)))
    }

    /// The id of the entry `ahead` of the next one, if it is known to be there.
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
        // Pairs with the Acquire load of the device: descriptors and entries before the index.
        self.avail.half(at::AVAIL_IDX).store(self.added.to_le(), Ordering::Release);
        self.published = self.added;
    }

    #[inline]
    pub(super) fn needs_kick(&mut self) -> bool {
        // Pairs with the barrier of the device between its asking for a notification and its last
        // look at the available index: our index before our look at what it asks.
        fence(Ordering::SeqCst);
        let old = std::mem::replace(&mut self.asked, self.published);
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
        // Pairs with the barrier of the device between its used index and its look at what we ask:
        // what we ask before our last look.
        fence(Ordering::SeqCst);
        // An index that lies counts as work: the next take finds it out.
        self.look().map_or(true, |waiting| waiting > after)
    }

    pub(super) fn disarm(&mut self) {
        if self.event_idx {
            // An index just passed is passed again after 65,536 buffers.
            let behind = self.taken.wrapping_sub(1);
            let place = self.avail.half(at::used_event(self.size));
            place.store(behind.to_le(), Ordering::Relaxed);
        } else {
            let flags = at::NO_INTERRUPT.to_le();
            self.avail.half(at::AVAIL_FLAGS).store(flags, Ordering::Relaxed);
        }
    }
}
