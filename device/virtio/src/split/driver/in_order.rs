//! Driver side of a split virtqueue with `IN_ORDER`.
//!
//! Descriptors are used in ring order (virtio 1.3, 2.7.9). While all buffers have one descriptor,
//! the available ring has the same content in every round. The available ring is then written once,
//! and its cache lines stay shared by both sides. A device-readable descriptor is written only if
//! its address or length changes.

use mqnet_shmem::AtomicTable;

use super::ring::Ring;
use crate::Broken;
use crate::driver::sequence::Sequence;
use crate::driver::{DriverQueue, MemoryRange, UsedBuffer};
use crate::layout::flag;

/// Driver side of a split virtqueue with `IN_ORDER`.
#[derive(Debug)]
pub struct SplitInOrderQueue {
    ring: Ring,
    /// Mask that converts an index to a descriptor.
    mask: u16,
    free: u16,
    /// Index of the next descriptor to add; wraps.
    add: u16,
    /// Index of the next descriptor to return; wraps.
    back: u16,
    buffers: Sequence,
}

impl SplitInOrderQueue {
    /// Creates a queue; see [`SplitDriverQueue::new`](super::SplitDriverQueue::new).
    pub fn new(queue: u16, size: u16, areas: [AtomicTable; 3], event_idx: bool) -> Self {
        let mut ring = Ring::new(queue, size, areas, event_idx);
        for head in 0..size {
            ring.announce(head);
        }
        ring.added = 0;
        let buffers = Sequence::new(queue, size);
        Self { ring, mask: size - 1, free: size, add: 0, back: 0, buffers }
    }

    /// Appends the buffer at `head`, which has `slots` descriptors, to the available ring.
    #[inline(always)]
    fn announce(&mut self, head: u16, slots: u16) {
        if self.buffers.singles {
            self.ring.added = self.ring.added.wrapping_add(1);
        } else {
            self.ring.announce(head);
        }
        self.add = self.add.wrapping_add(slots);
    }

    /// Slow path of [`hold_used`](DriverQueue::hold_used), for any used entry.
    #[inline(never)]
    fn hold_next(&mut self) -> Result<Option<UsedBuffer>, Broken> {
        Ok(self.take_next()?.map(|(_, used)| used))
    }

    /// Takes the next used buffer: returns its number of descriptors and the buffer, or `None`.
    #[inline(always)]
    fn take_next(&mut self) -> Result<Option<(u16, UsedBuffer)>, Broken> {
        let first = self.back & self.mask;
        let next = if self.buffers.is_in_batch() {
            self.buffers.take_of_batch(first)
        } else {
            let Some([id, len]) = self.ring.entry()? else { return Ok(None) };
            if id == u32::from(first) {
                self.buffers.take(first, len)?
            } else {
                self.batch(id, len)?
            }
        };
        self.ring.taken = self.ring.taken.wrapping_add(1);
        self.back = self.back.wrapping_add(next.0);
        Ok(Some(next))
    }

    #[cold]
    #[inline(never)]
    fn batch(&mut self, id: u32, len: u32) -> Result<(u16, UsedBuffer), Broken> {
        let (first, waiting) = (self.back & self.mask, self.waiting());
        self.buffers.up_to(first, id, waiting)?;
        self.buffers.begin_batch(id as u16, len)?;
        Ok(self.buffers.take_of_batch(first))
    }

    /// Number of used buffers that are published by the device and not taken.
    #[inline(always)]
    fn waiting(&self) -> u16 {
        self.ring.seen.wrapping_sub(self.ring.taken)
    }
}

impl DriverQueue for SplitInOrderQueue {
    fn size(&self) -> u16 {
        self.ring.size
    }

    #[inline(always)]
    fn in_order(&self) -> bool {
        true
    }

    #[inline]
    fn free(&self) -> u16 {
        self.free
    }

    #[inline]
    fn next_id(&self) -> Option<u16> {
        (self.free > 0).then_some(self.add & self.mask)
    }

    #[inline(always)]
    fn add_one(&mut self, piece: MemoryRange, readable: bool) -> Option<u16> {
        self.free = self.free.checked_sub(1)?;
        let id = self.add & self.mask;
        self.buffers.lend_one(id, if readable { 0 } else { piece.len });
        if readable {
            self.ring.write_if_new(id, piece);
        } else {
            self.ring.write(id, piece, flag::WRITE, 0);
        }
        self.announce(id, 1);
        Some(id)
    }

    fn add(&mut self, pieces: &[MemoryRange], readable: usize) -> Option<u16> {
        let count = pieces.len() as u16;
        if pieces.is_empty() || pieces.len() > usize::from(self.free) {
            return None;
        }
        self.free -= count;
        let head = self.add & self.mask;
        self.buffers.lend(head, pieces, readable);
        for (number, piece) in (0..).zip(pieces) {
            let id = self.add.wrapping_add(number) & self.mask;
            let next = id.wrapping_add(1) & self.mask;
            let write = if usize::from(number) < readable { 0 } else { flag::WRITE };
            let (more, next) = if number + 1 < count { (flag::NEXT, next) } else { (0, 0) };
            self.ring.write(id, *piece, write | more, next);
        }
        self.announce(head, count);
        Some(head)
    }

    #[inline(always)]
    fn take_id(&mut self) -> Option<u16> {
        self.free = self.free.checked_sub(1)?;
        Some(self.add & self.mask)
    }

    #[inline(always)]
    fn add_taken(&mut self, id: u16, piece: MemoryRange) {
        self.buffers.lend_readable(id);
        self.ring.write_if_new(id, piece);
        self.announce(id, 1);
    }

    #[inline]
    fn publish(&mut self) {
        self.ring.publish();
    }

    #[inline]
    fn needs_kick(&mut self) -> bool {
        self.ring.needs_kick()
    }

    #[inline(always)]
    fn take_used(&mut self) -> Result<Option<UsedBuffer>, Broken> {
        let Some((count, used)) = self.take_next()? else { return Ok(None) };
        self.free += count;
        Ok(Some(used))
    }

    #[inline(always)]
    fn take_sent(&mut self) -> Result<Option<u16>, Broken> {
        let Some([id, _]) = self.ring.entry()? else { return Ok(None) };
        let (first, waiting) = (self.back & self.mask, self.waiting());
        let (buffers, slots, last) = match self.buffers.up_to(first, id, waiting)? {
            // Read only the first entry: the index gives the number of buffers, and the order is
            // guaranteed. The cache lines of the other entries stay with the device.
            _ if self.buffers.singles => {
                (waiting, waiting, first.wrapping_add(waiting - 1) & self.mask)
            }
            (buffers, slots) => (buffers, slots, id as u16),
        };
        self.ring.taken = self.ring.taken.wrapping_add(buffers);
        self.back = self.back.wrapping_add(slots);
        self.free += slots;
        Ok(Some(last))
    }

    #[inline(always)]
    fn hold_used(&mut self) -> Result<Option<UsedBuffer>, Broken> {
        let first = self.back & self.mask;
        let Some([id, len]) = self.ring.entry()? else { return Ok(None) };
        if id != u32::from(first) || !self.buffers.is_simple(first, len) {
            return self.hold_next();
        }
        self.ring.taken = self.ring.taken.wrapping_add(1);
        self.back = self.back.wrapping_add(1);
        Ok(Some(UsedBuffer { id: first, len }))
    }

    #[inline(always)]
    fn add_again(&mut self, id: u16, piece: MemoryRange) -> u16 {
        let at = self.add & self.mask;
        if at != id {
            // Write the buffer at its new position: an earlier buffer was released.
            self.buffers.lend_one(at, piece.len);
            self.ring.write(at, piece, flag::WRITE, 0);
        }
        self.announce(at, 1);
        at
    }

    #[inline(always)]
    fn coming(&self, ahead: u16) -> Option<u16> {
        (self.waiting() > ahead).then(|| self.back.wrapping_add(ahead) & self.mask)
    }

    fn let_go(&mut self, _id: u16) {
        self.free += 1;
    }

    fn arm(&mut self, after: u16) -> bool {
        self.ring.arm(after) || self.buffers.is_in_batch()
    }

    fn disarm(&mut self) {
        self.ring.disarm();
    }
}
