//! What the driver's end of a virtqueue does, whatever its layout.
//!
//! A buffer is known by its *id*, a number below the queue's size. The next id is known before the
//! buffer is added, so that memory can belong to an id for good: whoever keeps one slot per id
//! allocates nothing per frame. Ids that came back last are used first, while they are hot; where
//! the device keeps the order (`IN_ORDER`), they go round.

pub(crate) mod sequence;

use crate::Broken;

/// A range of memory, by the address that the device uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its first address.
    pub at: u64,
    /// Its length in bytes.
    pub len: u32,
}

/// A buffer that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// Which one.
    pub id: u16,
    /// Bytes that the device wrote, no more than it had room for; 0 for a buffer that it could
    /// only read, whatever it says.
    pub len: u32,
}

/// The driver's end of a virtqueue.
pub trait DriverQueue: Send {
    /// Descriptors in all.
    fn size(&self) -> u16;

    /// Buffers come back in the order in which they were added.
    fn in_order(&self) -> bool {
        false
    }

    /// Descriptors that can be made available.
    fn free(&self) -> u16;

    /// Descriptors that are not free.
    fn in_flight(&self) -> u16 {
        self.size() - self.free()
    }

    /// The id that the next buffer will have, if there is a free descriptor. Where they go round it
    /// may be the id of one that is [held](Self::hold_used), while a later one was let go: a new
    /// buffer may be added only when that one has been added again or let go as well.
    fn next_id(&self) -> Option<u16>;

    /// Adds a buffer of one or more pieces: the device reads the first `readable` of them and
    /// writes the others. `None`, and nothing is added, when there are too few free descriptors
    /// (or no piece). The device does not see it before [`publish`](Self::publish).
    fn add(&mut self, pieces: &[Piece], readable: usize) -> Option<u16>;

    /// The same for a buffer of one piece.
    fn add_one(&mut self, piece: Piece, readable: bool) -> Option<u16>;

    /// Takes the next id, whose buffer is added [later](Self::add_taken).
    fn take_id(&mut self) -> Option<u16>;

    /// Adds a buffer of one piece, which the device reads, by an id that was taken.
    fn add_taken(&mut self, id: u16, piece: Piece);

    /// Shows everything that was added to the device.
    fn publish(&mut self);

    /// After publishing: does the device want to be notified? Answers for everything since the
    /// last answer.
    fn needs_kick(&mut self) -> bool;

    /// Takes the next buffer that came back.
    fn take_used(&mut self) -> Result<Option<Used>, Broken>;

    /// The same where the device could only read: which one it was. Where they come
    /// [in order](Self::in_order), all up to this one have come back.
    fn take_sent(&mut self) -> Result<Option<u16>, Broken>;

    /// The same as [`take_used`](Self::take_used) in a queue in which every buffer has one piece:
    /// its id stays taken, until it is added [again](Self::add_again) or [let go](Self::let_go).
    fn hold_used(&mut self) -> Result<Option<Used>, Broken>;

    /// Adds the buffer of an id that is held, unchanged: the piece is the one that it was added
    /// with. Answers under which id: another one where they go round and there are free ones
    /// before it, which must be held in the order in which they came.
    fn add_again(&mut self, id: u16, piece: Piece) -> u16;

    /// A hint: which buffer comes back `ahead` after the next one, if that is known already. It is
    /// read again when it is taken, and checked then.
    fn coming(&self, ahead: u16) -> Option<u16>;

    /// An id that is held is free.
    fn let_go(&mut self, id: u16);

    /// Asks for an interrupt when `after` more buffers (at least one) have come back. True when
    /// they have already: nothing may come then.
    fn arm(&mut self, after: u16) -> bool;

    /// Wants no interrupt any more. One or two may come all the same.
    fn disarm(&mut self);
}

/// What is known of one id.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Buffer {
    /// Its descriptors; 0: not with the device.
    pub(crate) count: u16,
    /// Bytes that the device may write.
    pub(crate) room: u32,
}

impl Buffer {
    /// A buffer of these pieces, of which the device may write those after the first `readable`.
    #[inline]
    fn of(pieces: &[Piece], readable: usize) -> Self {
        let room = pieces.iter().skip(readable).fold(0, |sum: u32, p| sum.saturating_add(p.len));
        Self { count: pieces.len() as u16, room }
    }
}

/// All ids of a queue.
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
    pub(crate) fn lend(&mut self, id: u16, pieces: &[Piece], readable: usize) {
        self.list[usize::from(id)] = Buffer::of(pieces, readable);
    }

    #[inline(always)]
    pub(crate) fn lend_one(&mut self, id: u16, len: u32, readable: bool) {
        self.list[usize::from(id)] = Buffer { count: 1, room: if readable { 0 } else { len } };
    }

    /// The same as last time.
    #[inline(always)]
    pub(crate) fn lend_again(&mut self, id: u16) {
        self.list[usize::from(id)].count = 1;
    }

    /// Takes back what the device says it has used: how many descriptors it had, and what came.
    #[inline(always)]
    pub(crate) fn take_back(&mut self, id: u32, len: u32) -> Result<(u16, Used), Broken> {
        let Some(buffer) = self.list.get_mut(id as usize).filter(|b| b.count > 0) else {
            return Err(self.not_available(id));
        };
        let Buffer { count, room } = *buffer;
        // The room stays, for who lends the same again.
        buffer.count = 0;
        if len > room && room > 0 {
            return Err(self.too_long(id, room, len));
        }
        Ok((count, Used { id: id as u16, len: len.min(room) }))
    }

    /// The same of a buffer of one piece that the device has written.
    #[inline(always)]
    pub(crate) fn take_back_one(&mut self, id: u32, len: u32) -> Result<Used, Broken> {
        let Some(buffer) = self.list.get_mut(id as usize).filter(|b| b.count > 0) else {
            return Err(self.not_available(id));
        };
        buffer.count = 0;
        if len > buffer.room {
            let room = buffer.room;
            return Err(self.too_long(id, room, len));
        }
        Ok(Used { id: id as u16, len })
    }

    /// The same of a buffer that the device could only read: how many descriptors it had.
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
        self.broken(format!("buffer {id} used, which was not made available"))
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

/// True when an index that moves from `old` to `new` passes `event` (2.7.7.1).
#[inline]
pub(crate) fn passes(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

#[cfg(test)]
mod tests;
