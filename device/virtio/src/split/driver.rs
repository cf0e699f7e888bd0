//! Driver side of a split virtqueue.

pub mod in_order;
mod ring;

use mqnet_shmem::AtomicTable;

use crate::Broken;
use crate::driver::{Buffers, DriverQueue, MemoryRange, UsedBuffer};
use crate::layout::flag;
use ring::Ring;

pub use in_order::SplitInOrderQueue;

/// Driver side of a split virtqueue whose device returns buffers in any order.
#[derive(Debug)]
pub struct SplitDriverQueue {
    ring: Ring,
    /// Free descriptors; the last one is used next.
    free: Vec<u16>,
    /// Next descriptor of each descriptor that is part of a chain.
    next: Box<[u16]>,
    buffers: Buffers,
}

impl SplitDriverQueue {
    /// Creates a queue of `size` descriptors (a power of two, at most 32768) in three zeroed tables
    /// with the lengths of [`areas`](crate::layout::split::areas).
    pub fn new(queue: u16, size: u16, areas: [AtomicTable; 3], event_idx: bool) -> Self {
        Self {
            ring: Ring::new(queue, size, areas, event_idx),
            free: (0..size).rev().collect(),
            next: vec![0; usize::from(size)].into(),
            buffers: Buffers::new(queue, size),
        }
    }

    /// Takes the next entry of the used ring, id and length; `None` if no further entry is
    /// published.
    #[inline(always)]
    fn next_entry(&mut self) -> Result<Option<[u32; 2]>, Broken> {
        let entry = self.ring.entry()?;
        if entry.is_some() {
            self.ring.taken = self.ring.taken.wrapping_add(1);
        }
        Ok(entry)
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
        // Free the head last, so that its id is used next: the memory of the id is in the cache.
        self.free.push(head);
    }
}

impl DriverQueue for SplitDriverQueue {
    fn size(&self) -> u16 {
        self.ring.size
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
    fn add_one(&mut self, piece: MemoryRange, readable: bool) -> Option<u16> {
        let id = self.free.pop()?;
        self.buffers.lend_one(id, piece.len, readable);
        self.ring.write(id, piece, if readable { 0 } else { flag::WRITE }, 0);
        self.ring.announce(id);
        Some(id)
    }

    fn add(&mut self, pieces: &[MemoryRange], readable: usize) -> Option<u16> {
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
            self.ring.write(id, *piece, flags, next);
        }
        self.ring.announce(head);
        Some(head)
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
    fn add_taken(&mut self, id: u16, piece: MemoryRange) {
        self.buffers.lend_one(id, piece.len, true);
        self.ring.write(id, piece, 0, 0);
        self.ring.announce(id);
    }

    #[inline(always)]
    fn take_sent(&mut self) -> Result<Option<u16>, Broken> {
        let Some([id, _]) = self.next_entry()? else { return Ok(None) };
        let count = self.buffers.take_back_sent(id)?;
        self.set_free(id as u16, count);
        Ok(Some(id as u16))
    }

    #[inline(always)]
    fn hold_used(&mut self) -> Result<Option<UsedBuffer>, Broken> {
        let Some([id, len]) = self.next_entry()? else { return Ok(None) };
        self.buffers.take_back_one(id, len).map(Some)
    }

    #[inline(always)]
    fn add_again(&mut self, id: u16, _piece: MemoryRange) -> u16 {
        // Keep the descriptor, which is unchanged.
        self.buffers.lend_again(id);
        self.ring.announce(id);
        id
    }

    #[inline(always)]
    fn coming(&self, ahead: u16) -> Option<u16> {
        self.ring.coming(ahead)
    }

    fn let_go(&mut self, id: u16) {
        self.free.push(id);
    }

    fn arm(&mut self, after: u16) -> bool {
        self.ring.arm(after)
    }

    fn disarm(&mut self) {
        self.ring.disarm();
    }
}
