//! The driver's end of a split virtqueue.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use mqnet_shmem::{Column, Table};

use crate::Broken;
use crate::driver::{Buffers, DriverQueue, Piece, Used, passes};
use crate::layout::{flag, split as at};

/// The driver's end of a split virtqueue.
#[derive(Debug)]
pub struct Driver {
    desc: Column<[AtomicU64; 2]>,
    available: Column<AtomicU16>,
    entries: Column<[AtomicU32; 2]>,
    /// The areas of driver and device, for what stands around the two rings.
    avail: Table,
    used: Table,
    size: u16,
    event_idx: bool,
    /// Free descriptors; the last is used next.
    free: Vec<u16>,
    /// The descriptor after each, while it is part of a chain.
    next: Box<[u16]>,
    buffers: Buffers,
    /// Entries of the available ring that are written, that the device sees, and that it was seen
    /// to be asked about.
    added: u16,
    published: u16,
    asked: u16,
    /// Entries of the used ring that were taken, and that there are.
    taken: u16,
    seen: u16,
}

impl Driver {
    /// A fresh queue of `size` descriptors (a power of two, at most 32768) in three tables as long
    /// as [`areas`](crate::layout::split::areas) says, all zero.
    pub fn new(queue: u16, size: u16, areas: [Table; 3], event_idx: bool) -> Self {
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
        let mut driver = Self {
            desc,
            available,
            entries,
            avail,
            used,
            size,
            event_idx,
            free: (0..size).rev().collect(),
            next: vec![0; usize::from(size)].into(),
            buffers: Buffers::new(queue, size),
            added: 0,
            published: 0,
            asked: 0,
            taken: 0,
            seen: 0,
        };
        driver.disarm();
        driver
    }

    #[inline(always)]
    fn write(&self, id: u16, piece: Piece, flags: u16, next: u16) {
        let [addr, rest] = self.desc.at(id);
        // Relaxed: publish orders all of it before the index.
        addr.store(piece.at.to_le(), Ordering::Relaxed);
        let word = u64::from(piece.len) | u64::from(flags) << 32 | u64::from(next) << 48;
        rest.store(word.to_le(), Ordering::Relaxed);
    }

    #[inline(always)]
    fn announce(&mut self, head: u16) {
        self.available.round(self.added).store(head.to_le(), Ordering::Relaxed);
        self.added = self.added.wrapping_add(1);
    }

    /// Looks at the used index; how many entries wait.
    #[inline(never)]
    fn look(&mut self) -> Result<u16, Broken> {
        // Pairs with the Release store of the device: its entries before its index.
        let index = u16::from_le(self.used.half(at::USED_IDX).load(Ordering::Acquire));
        let waiting = index.wrapping_sub(self.taken);
        let most = self.published.wrapping_sub(self.taken);
        if waiting > most {
            let what = format!("used index {index} is {waiting} ahead, {most} are possible");
            return Err(self.buffers.broken(what));
        }
        self.seen = index;
        Ok(waiting)
    }

    /// The next entry of the used ring: id and length, read once.
    #[inline(always)]
    fn next_entry(&mut self) -> Result<Option<[u32; 2]>, Broken> {
        if self.taken == self.seen && self.look()? == 0 {
            return Ok(None);
        }
        let entry = self.entries.round(self.taken);
        self.taken = self.taken.wrapping_add(1);
        // The device may go on writing.
        Ok(Some(entry.each_ref().map(|word| u32::from_le(word.load(Ordering::Relaxed)))))
    }

    #[inline(always)]
    fn set_free(&mut self, id: u16, count: u16) {
        if count == 1 {
            self.free.push(id);
        } else {
            self.free_chain(id, count);
        }
    }

    #[cold]
    #[inline(never)]
    fn free_chain(&mut self, head: u16, count: u16) {
        let mut id = head;
        for _ in 1..count {
            let next = self.next[usize::from(id)];
            self.free.push(next);
            id = next;
        }
        // The head last: what belongs to its id is hot.
        self.free.push(head);
    }
}

impl DriverQueue for Driver {
    fn size(&self) -> u16 {
        self.size
    }

    #[inline]
    fn free(&self) -> u16 {
        self.free.len() as u16
    }

    #[inline]
    fn next_id(&self) -> Option<u16> {
        self.free.last().copied()
    }

    #[inline(always)]
    fn add_one(&mut self, piece: Piece, readable: bool) -> Option<u16> {
        let id = self.free.pop()?;
        self.buffers.lend_one(id, piece.len, readable);
        self.write(id, piece, if readable { 0 } else { flag::WRITE }, 0);
        self.announce(id);
        Some(id)
    }

    fn add(&mut self, pieces: &[Piece], readable: usize) -> Option<u16> {
        let left = self.free.len().checked_sub(pieces.len())?;
        let head = *self.free.last().filter(|_| !pieces.is_empty())?;
        self.buffers.lend(head, pieces, readable);
        for (number, piece) in pieces.iter().enumerate() {
            let id = self.free.pop()?;
            let mut flags = if number < readable { 0 } else { flag::WRITE };
            let mut next = 0;
            if self.free.len() > left {
                flags |= flag::NEXT;
                next = *self.free.last()?;
                self.next[usize::from(id)] = next;
            }
            self.write(id, *piece, flags, next);
        }
        self.announce(head);
        Some(head)
    }

    #[inline]
    fn publish(&mut self) {
        // Pairs with the Acquire load of the device: descriptors and entries before the index.
        self.avail.half(at::AVAIL_IDX).store(self.added.to_le(), Ordering::Release);
        self.published = self.added;
    }

    #[inline]
    fn needs_kick(&mut self) -> bool {
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

    #[inline(always)]
    fn take_used(&mut self) -> Result<Option<Used>, Broken> {
        let Some([id, len]) = self.next_entry()? else { return Ok(None) };
        let (count, used) = self.buffers.take_back(id, len)?;
        self.set_free(used.id, count);
        Ok(Some(used))
    }

    #[inline(always)]
    fn take_id(&mut self) -> Option<u16> {
        self.free.pop()
    }

    #[inline(always)]
    fn add_taken(&mut self, id: u16, piece: Piece) {
        self.buffers.lend_one(id, piece.len, true);
        self.write(id, piece, 0, 0);
        self.announce(id);
    }

    #[inline(always)]
    fn take_sent(&mut self) -> Result<Option<u16>, Broken> {
        let Some([id, _]) = self.next_entry()? else { return Ok(None) };
        let count = self.buffers.take_back_sent(id)?;
        self.set_free(id as u16, count);
        Ok(Some(id as u16))
    }

    #[inline(always)]
    fn hold_used(&mut self) -> Result<Option<Used>, Broken> {
        let Some([id, len]) = self.next_entry()? else { return Ok(None) };
        self.buffers.take_back_one(id, len).map(Some)
    }

    #[inline(always)]
    fn add_again(&mut self, id: u16, _piece: Piece) {
        // Its descriptor lies where it was, as it was.
        self.buffers.lend_again(id);
        self.announce(id);
    }

    #[inline(always)]
    fn coming(&self, ahead: u16) -> Option<u16> {
        if self.seen.wrapping_sub(self.taken) <= ahead {
            return None;
        }
        let [id, _] = self.entries.round(self.taken.wrapping_add(ahead));
        Some(u32::from_le(id.load(Ordering::Relaxed)) as u16)
    }

    fn let_go(&mut self, id: u16) {
        self.free.push(id);
    }

    fn arm(&mut self, after: u16) -> bool {
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

    fn disarm(&mut self) {
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
