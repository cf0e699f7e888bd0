//! Driver side of a packed virtqueue with `IN_ORDER`.

use mqnet_shmem::AtomicTable;

use super::ring::{Ring, id_of};
use crate::Broken;
use crate::driver::sequence::Sequence;
use crate::driver::{DriverQueue, MemoryRange, UsedBuffer};
use crate::layout::flag;

/// Driver side of a packed virtqueue with `IN_ORDER`.
#[derive(Debug)]
pub struct PackedInOrderQueue {
    ring: Ring,
    free: u16,
    /// Number of descriptors that the device owns.
    lent: u16,
    buffers: Sequence,
}

impl PackedInOrderQueue {
    /// Creates a queue; see [`PackedDriverQueue::new`](super::PackedDriverQueue::new).
    pub fn new(queue: u16, size: u16, areas: [AtomicTable; 3], event_idx: bool) -> Self {
        let ring = Ring::new(size, areas, event_idx);
        Self { ring, free: size, lent: 0, buffers: Sequence::new(queue, size) }
    }

    #[inline(always)]
    fn write(&mut self, piece: MemoryRange, id: u16, flags: u16) {
        self.ring.write(piece, id, flags);
        self.lent += 1;
    }

    #[inline(always)]
    fn pass(&mut self, slots: u16) {
        self.ring.take = self.ring.take.advanced(slots, self.ring.size);
        self.lent -= slots;
    }

    /// Slow path of [`hold_used`](DriverQueue::hold_used), for any used entry.
    #[inline(never)]
    fn hold_next(&mut self) -> Result<Option<UsedBuffer>, Broken> {
        Ok(self.take_next()?.map(|(_, used)| used))
    }

    /// Takes the next used buffer: returns its number of descriptors and the buffer, or `None`.
    #[inline(always)]
    fn take_next(&mut self) -> Result<Option<(u16, UsedBuffer)>, Broken> {
        let first = self.ring.take.index;
        let next = if self.buffers.is_in_batch() {
            self.buffers.take_of_batch(first)
        } else {
            let Some(word) = self.ring.used_at(self.ring.take) else { return Ok(None) };
            if id_of(word) != first || self.lent == 0 {
                self.batch(word)?
            } else {
                self.buffers.take(first, word as u32)?
            }
        };
        self.pass(next.0);
        Ok(Some(next))
    }

    #[cold]
    #[inline(never)]
    fn batch(&mut self, word: u64) -> Result<(u16, UsedBuffer), Broken> {
        let (first, id) = (self.ring.take.index, id_of(word));
        self.up_to(id)?;
        self.buffers.begin_batch(id, word as u32)?;
        Ok(self.buffers.take_of_batch(first))
    }

    /// Number of descriptors from the next buffer up to the end of the buffer `id`. Fails if the
    /// device does not own the buffer `id`.
    #[inline(always)]
    fn up_to(&self, id: u16) -> Result<u16, Broken> {
        let (_, slots) = self.buffers.up_to(self.ring.take.index, id.into(), self.lent)?;
        // Reject more than `lent` descriptors: the state of further buffers may be that of the
        // previous round.
        if slots > self.lent { Err(self.buffers.not_available(id.into())) } else { Ok(slots) }
    }
}

impl DriverQueue for PackedInOrderQueue {
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
        (self.free > 0).then_some(self.ring.add.index)
    }

    #[inline(always)]
    fn add_one(&mut self, piece: MemoryRange, readable: bool) -> Option<u16> {
        self.free = self.free.checked_sub(1)?;
        let id = self.ring.add.index;
        self.buffers.lend_one(id, if readable { 0 } else { piece.len });
        self.write(piece, id, if readable { 0 } else { flag::WRITE });
        Some(id)
    }

    fn add(&mut self, pieces: &[MemoryRange], readable: usize) -> Option<u16> {
        if pieces.is_empty() || pieces.len() > usize::from(self.free) {
            return None;
        }
        self.free -= pieces.len() as u16;
        let id = self.ring.add.index;
        self.buffers.lend(id, pieces, readable);
        let last = pieces.len() - 1;
        for (number, piece) in pieces.iter().enumerate() {
            let next = if number < last { flag::NEXT } else { 0 };
            let write = if number < readable { 0 } else { flag::WRITE };
            self.write(*piece, id, next | write);
        }
        Some(id)
    }

    #[inline(always)]
    fn take_id(&mut self) -> Option<u16> {
        self.free = self.free.checked_sub(1)?;
        Some(self.ring.add.index)
    }

    #[inline(always)]
    fn add_taken(&mut self, id: u16, piece: MemoryRange) {
        self.buffers.lend_readable(id);
        self.write(piece, id, 0);
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
        let Some(word) = self.ring.used_at(self.ring.take) else { return Ok(None) };
        let id = id_of(word);
        let slots = self.up_to(id)?;
        self.pass(slots);
        self.free += slots;
        Ok(Some(id))
    }

    #[inline(always)]
    fn hold_used(&mut self) -> Result<Option<UsedBuffer>, Broken> {
        let first = self.ring.take.index;
        let Some(word) = self.ring.used_at(self.ring.take) else { return self.hold_next() };
        let len = word as u32;
        if id_of(word) != first || self.lent == 0 || !self.buffers.is_simple(first, len) {
            return self.hold_next();
        }
        self.pass(1);
        Ok(Some(UsedBuffer { id: first, len }))
    }

    #[inline(always)]
    fn add_again(&mut self, id: u16, piece: MemoryRange) -> u16 {
        let at = self.ring.add.index;
        if at != id {
            // Write the buffer at its new position: an earlier buffer was released.
            self.buffers.lend_one(at, piece.len);
        }
        self.write(piece, at, flag::WRITE);
        at
    }

    /// Returns `None`: the id of the next buffer is known, but a hint must also show that the
    /// device has used the buffer.
    #[inline(always)]
    fn coming(&self, _ahead: u16) -> Option<u16> {
        None
    }

    fn let_go(&mut self, _id: u16) {
        self.free += 1;
    }

    fn arm(&mut self, after: u16) -> bool {
        let most = if self.buffers.singles { self.lent.max(1) } else { 1 };
        self.ring.arm(after.clamp(1, most));
        // Read only the next position: the device may write no used entry at later positions.
        self.buffers.is_in_batch() || self.lent > 0 && self.ring.used_at(self.ring.take).is_some()
    }

    fn disarm(&mut self) {
        self.ring.disarm();
    }
}
