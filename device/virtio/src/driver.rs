//! Driver side of a virtqueue, for every ring layout.
//!
//! A buffer has an *id* below the queue size. The next id is known before the buffer is added.
//! Memory can therefore belong permanently to an id, without an allocation per frame. Ids that
//! returned last are reused first, because their memory is in the cache. With `IN_ORDER`, ids are
//! used cyclically.

pub(crate) mod sequence;

use crate::Broken;

/// A range of memory in the device's address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// First address.
    pub at: u64,
    /// Length in bytes.
    pub len: u32,
}

/// A used buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedBuffer {
    /// Buffer id.
    pub id: u16,
    /// Number of bytes that the device wrote, at most the device-writable length. Always 0 for a
    /// buffer that is only device-readable, regardless of the device's value.
    pub len: u32,
}

/// Driver side of a virtqueue.
pub trait DriverQueue: Send {
    /// Number of descriptors.
    fn size(&self) -> u16;

    /// True if the device returns buffers in the order in which they were added (`IN_ORDER`).
    fn in_order(&self) -> bool {
        false
    }

    /// Number of free descriptors.
    fn free(&self) -> u16;

    /// Number of descriptors in use.
    fn in_flight(&self) -> u16 {
        self.size() - self.free()
    }

    /// Id of the next buffer; `None` if no descriptor is free. With `IN_ORDER`, the id may be that
    /// of a [held](Self::hold_used) buffer if a later buffer was released. Therefore add or release
    /// every held buffer first.
    fn next_id(&self) -> Option<u16>;

    /// Adds a buffer of one or more memory ranges; the first `readable` ranges are device-readable,
    /// the others device-writable. Returns the id, or `None` without effect if `pieces` is empty or
    /// too few descriptors are free. The buffer becomes visible to the device with
    /// [`publish`](Self::publish).
    fn add(&mut self, pieces: &[MemoryRange], readable: usize) -> Option<u16>;

    /// Adds a buffer of one memory range; see [`add`](Self::add).
    fn add_one(&mut self, piece: MemoryRange, readable: bool) -> Option<u16>;

    /// Reserves the next id for [`add_taken`](Self::add_taken); `None` if no descriptor is free.
    fn take_id(&mut self) -> Option<u16>;

    /// Adds a device-readable buffer of one memory range with a reserved id.
    fn add_taken(&mut self, id: u16, piece: MemoryRange);

    /// Makes all added buffers available to the device.
    fn publish(&mut self);

    /// True if the device requests a notification for the buffers published since the last call.
    /// Call the function after [`publish`](Self::publish).
    fn needs_kick(&mut self) -> bool;

    /// Takes the next used buffer; `None` if there is no used buffer.
    fn take_used(&mut self) -> Result<Option<UsedBuffer>, Broken>;

    /// Takes used buffers of a queue with device-readable buffers only. Returns the id of the last
    /// buffer taken, or `None` if no buffer is used. One buffer is taken, or with
    /// [`IN_ORDER`](Self::in_order) all buffers up to this id.
    fn take_sent(&mut self) -> Result<Option<u16>, Broken>;

    /// Takes the next used buffer, which must have one device-writable memory range; `None` if no
    /// buffer is used. The id stays reserved until the buffer is [added again](Self::add_again) or
    /// the id is [released](Self::let_go).
    fn hold_used(&mut self) -> Result<Option<UsedBuffer>, Broken>;

    /// Adds the buffer of a held id again; `piece` is its unchanged memory range. Returns the
    /// buffer's id, which with `IN_ORDER` differs from `id` if an earlier id was released. Held
    /// buffers must then be added in the order in which they were taken.
    fn add_again(&mut self, id: u16, piece: MemoryRange) -> u16;

    /// Id of the used buffer `ahead` positions after the next one; `None` if it is not known. The
    /// id is a hint: the entry is read again and checked when the buffer is taken.
    fn coming(&self, ahead: u16) -> Option<u16>;

    /// Releases a held id.
    fn let_go(&mut self, id: u16);

    /// Requests an interrupt after `after` more used buffers (at least one). Returns true if these
    /// buffers are used already, or if some are and the ring does not show their number. An
    /// interrupt is then not guaranteed.
    fn arm(&mut self, after: u16) -> bool;

    /// Suppresses interrupts; one or two may still follow.
    fn disarm(&mut self);
}

/// State of one buffer id.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Buffer {
    /// Number of descriptors. Without `IN_ORDER`, 0 if the device does not own the buffer.
    pub(crate) count: u16,
    /// Number of device-writable bytes.
    pub(crate) room: u32,
}

impl Buffer {
    /// Creates the state of a buffer; the first `readable` memory ranges are device-readable.
    #[inline]
    fn of(pieces: &[MemoryRange], readable: usize) -> Self {
        let room = pieces.iter().skip(readable).fold(0, |sum: u32, p| sum.saturating_add(p.len));
        Self { count: pieces.len() as u16, room }
    }
}

/// State of all buffer ids of a queue.
#[derive(Debug)]
pub(crate) struct Buffers {
    queue: u16,
    list: Box<[Buffer]>,
}

impl Buffers {
    pub(crate) fn new(queue: u16, size: u16) -> Self {
        Self { queue, list: vec![Buffer::default(); usize::from(size)].into() }
    }

    #[inline]
    pub(crate) fn lend(&mut self, id: u16, pieces: &[MemoryRange], readable: usize) {
        self.list[usize::from(id)] = Buffer::of(pieces, readable);
    }

    #[inline(always)]
    pub(crate) fn lend_one(&mut self, id: u16, len: u32, readable: bool) {
        self.list[usize::from(id)] = Buffer { count: 1, room: if readable { 0 } else { len } };
    }

    /// Marks the buffer as available again, with the same writable length.
    #[inline(always)]
    pub(crate) fn lend_again(&mut self, id: u16) {
        self.list[usize::from(id)].count = 1;
    }

    /// Marks a used buffer as returned after a check of id and length. Returns its number of
    /// descriptors, and the buffer.
    #[inline(always)]
    pub(crate) fn take_back(&mut self, id: u32, len: u32) -> Result<(u16, UsedBuffer), Broken> {
        let Some(buffer) = self.list.get_mut(id as usize).filter(|b| b.count > 0) else {
            return Err(self.not_available(id));
        };
        let Buffer { count, room } = *buffer;
        // Keep `room` for `lend_again`.
        buffer.count = 0;
        if len > room && room > 0 {
            return Err(self.too_long(id, room, len));
        }
        Ok((count, UsedBuffer { id: id as u16, len: len.min(room) }))
    }

    /// Marks a used buffer of one device-writable memory range as returned.
    #[inline(always)]
    pub(crate) fn take_back_one(&mut self, id: u32, len: u32) -> Result<UsedBuffer, Broken> {
        let Some(buffer) = self.list.get_mut(id as usize).filter(|b| b.count > 0) else {
            return Err(self.not_available(id));
        };
        buffer.count = 0;
        if len > buffer.room {
            let room = buffer.room;
            return Err(self.too_long(id, room, len));
        }
        Ok(UsedBuffer { id: id as u16, len })
    }

    /// Marks a used device-readable buffer as returned. Returns its number of descriptors.
    #[inline(always)]
    pub(crate) fn take_back_sent(&mut self, id: u32) -> Result<u16, Broken> {
        let Some(buffer) = self.list.get_mut(id as usize).filter(|b| b.count > 0) else {
            return Err(self.not_available(id));
        };
        Ok(std::mem::take(&mut buffer.count))
    }

    #[cold]
    #[inline(never)]
    fn not_available(&self, id: u32) -> Broken {
        self.broken(format!("buffer {id} used, but not made available"))
    }

    #[cold]
    #[inline(never)]
    fn too_long(&self, id: u32, room: u32, len: u32) -> Broken {
        self.broken(format!("buffer {id} of {room} bytes used with {len} bytes"))
    }

    #[cold]
    fn broken(&self, what: String) -> Broken {
        Broken { queue: self.queue, what }
    }
}

#[cfg(test)]
mod tests;
