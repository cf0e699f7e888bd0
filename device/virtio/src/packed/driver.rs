//! Driver side of a packed virtqueue.

pub mod in_order;
mod ring;

use mqnet_shmem::AtomicTable;

use crate::Broken;
use crate::driver::{Buffers, DriverQueue, MemoryRange, UsedBuffer};
use crate::layout::flag;
use ring::{Ring, id_of};

pub use in_order::PackedInOrderQueue;

/// Driver side of a packed virtqueue whose device returns buffers in any order.
#[derive(Debug)]
pub struct PackedDriverQueue {
    ring: Ring,
    /// Free ids; the last id is used next.
    ids: Vec<u16>,
    free: u16,
    buffers: Buffers,
    /// True as long as every buffer had one descriptor.
    singles: bool,
}

impl PackedDriverQueue {
    /// Creates a queue of `size` descriptors (at most 32768) in three zeroed tables with the
    /// lengths of [`areas`](crate::layout::packed::areas).
    pub fn new(queue: u16, size: u16, areas: [AtomicTable; 3], event_idx: bool) -> Self {
        Self {
            ring: Ring::new(size, areas, event_idx),
            ids: (0..size).rev().collect(),
            free: size,
            buffers: Buffers::new(queue, size),
            singles: true,
        }
    }

    /// Second 64 bits of the next descriptor to return; `None` if the device has not used it.
    #[inline(always)]
    fn next_used(&self) -> Option<u64> {
        self.ring.used_at(self.ring.take)
    }

    #[inline(always)]
    fn pass(&mut self, count: u16) {
        self.ring.take = self.ring.take.advanced(count, self.ring.size);
    }
}

impl DriverQueue for PackedDriverQueue {
    fn size(&self) -> u16 {
        self.ring.size
    }

    #[inline]
    fn free(&self) -> u16 {
        self.free
    }

    #[inline]
    fn next_id(&self) -> Option<u16> {
        self.ids.last().copied().filter(|_| self.free > 0)
    }

    #[inline(always)]
    fn add_one(&mut self, piece: MemoryRange, readable: bool) -> Option<u16> {
        if self.free == 0 {
            return None;
        }
        let id = self.ids.pop()?;
        self.buffers.lend_one(id, piece.len, readable);
        self.ring.write(piece, id, if readable { 0 } else { flag::WRITE });
        self.free -= 1;
        Some(id)
    }

    fn add(&mut self, pieces: &[MemoryRange], readable: usize) -> Option<u16> {
        if pieces.is_empty() || pieces.len() > usize::from(self.free) {
            return None;
        }
        let id = self.ids.pop()?;
        self.buffers.lend(id, pieces, readable);
        let last = pieces.len() - 1;
        for (number, piece) in pieces.iter().enumerate() {
            let next = if number < last { flag::NEXT } else { 0 };
            let write = if number < readable { 0 } else { flag::WRITE };
            self.ring.write(*piece, id, next | write);
        }
        self.free -= pieces.len() as u16;
        self.singles &= last == 0;
        Some(id)
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
        let Some(word) = self.next_used() else { return Ok(None) };
        let (count, used) = self.buffers.take_back(id_of(word).into(), word as u32)?;
        self.pass(count);
        self.free += count;
        self.ids.push(used.id);
        Ok(Some(used))
    }

    #[inline(always)]
    fn take_id(&mut self) -> Option<u16> {
        if self.free == 0 {
            return None;
        }
        let id = self.ids.pop()?;
        self.free -= 1;
        Some(id)
    }

    #[inline(always)]
    fn add_taken(&mut self, id: u16, piece: MemoryRange) {
        self.buffers.lend_one(id, piece.len, true);
        self.ring.write(piece, id, 0);
    }

    #[inline(always)]
    fn take_sent(&mut self) -> Result<Option<u16>, Broken> {
        let Some(word) = self.next_used() else { return Ok(None) };
        let id = id_of(word);
        let count = self.buffers.take_back_sent(id.into())?;
        self.pass(count);
        self.free += count;
        self.ids.push(id);
        Ok(Some(id))
    }

    #[inline(always)]
    fn hold_used(&mut self) -> Result<Option<UsedBuffer>, Broken> {
        let Some(word) = self.next_used() else { return Ok(None) };
        let used = self.buffers.take_back_one(id_of(word).into(), word as u32)?;
        self.pass(1);
        Ok(Some(used))
    }

    #[inline(always)]
    fn add_again(&mut self, id: u16, piece: MemoryRange) -> u16 {
        self.buffers.lend_again(id);
        self.ring.write(piece, id, flag::WRITE);
        id
    }

    /// Returns `None`: reading one more descriptor per frame costs more than the hint saves.
    #[inline(always)]
    fn coming(&self, _ahead: u16) -> Option<u16> {
        None
    }

    fn let_go(&mut self, id: u16) {
        self.free += 1;
        self.ids.push(id);
    }

    fn arm(&mut self, after: u16) -> bool {
        // Compute the position after this number of used buffers. If buffers have several
        // descriptors, only the next position is known.
        let most = if self.singles { self.in_flight().max(1) } else { 1 };
        let last = self.ring.arm(after.clamp(1, most));
        self.free < self.ring.size && self.ring.used_at(last).is_some()
    }

    fn disarm(&mut self) {
        self.ring.disarm();
    }
}
