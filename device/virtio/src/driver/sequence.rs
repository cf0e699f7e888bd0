//! State of buffers that the device returns in the order in which they were added (`IN_ORDER`,
//! virtio 1.3, 2.7.9 and 2.8.9).
//!
//! The id of a buffer is the index of its first descriptor, so that no lookup and no list of ids is
//! needed. A device may write one used entry for several buffers, with the id of the last buffer.
//! The earlier buffers then count as used and as completely written.

use super::{Buffer, MemoryRange, UsedBuffer};
use crate::Broken;

/// State of the buffers of a queue. Positions are descriptor indexes.
#[derive(Debug)]
pub(crate) struct Sequence {
    queue: u16,
    /// State of the buffer that begins at each descriptor; initially one descriptor without
    /// writable bytes.
    list: Box<[Buffer]>,
    /// True as long as every buffer had one descriptor.
    pub(crate) singles: bool,
    /// True as long as every buffer had one device-readable descriptor. The initial `list` is then
    /// valid and needs no update.
    plain: bool,
    /// Last buffer of a batch that one used entry returned, until the buffer is taken.
    batch: Option<UsedBuffer>,
}

impl Sequence {
    pub(crate) fn new(queue: u16, size: u16) -> Self {
        let list = vec![Buffer { count: 1, room: 0 }; usize::from(size)].into();
        Self { queue, list, singles: true, plain: true, batch: None }
    }

    /// Position `by` descriptors after `place`; `by` is at most the queue size.
    #[inline(always)]
    fn after(&self, place: u16, by: u16) -> u16 {
        let (at, size) = (usize::from(place) + usize::from(by), self.list.len());
        (if at < size { at } else { at - size }) as u16
    }

    /// Adds a device-readable buffer of one memory range.
    #[inline(always)]
    pub(crate) fn lend_readable(&mut self, id: u16) {
        if !self.plain {
            self.lend_one(id, 0);
        }
    }

    /// Adds a buffer of one memory range with `room` writable bytes.
    #[inline(always)]
    pub(crate) fn lend_one(&mut self, id: u16, room: u32) {
        self.plain &= room == 0;
        self.list[usize::from(id)] = Buffer { count: 1, room };
    }

    pub(crate) fn lend(&mut self, id: u16, pieces: &[MemoryRange], readable: usize) {
        let buffer = Buffer::of(pieces, readable);
        self.singles &= buffer.count == 1;
        self.plain = false;
        self.list[usize::from(id)] = buffer;
    }

    /// Number of buffers and of descriptors from the buffer at `first` up to the buffer `id`
    /// inclusive. Fails if `id` is not one of the `most` buffers from `first` on.
    #[inline(always)]
    pub(crate) fn up_to(&self, first: u16, id: u32, most: u16) -> Result<(u16, u16), Broken> {
        let size = self.list.len() as u32;
        let way = id.wrapping_sub(first.into());
        let way = if id < first.into() { way.wrapping_add(size) } else { way };
        if self.singles && id < size && way < most.into() {
            return Ok((way as u16 + 1, way as u16 + 1));
        }
        self.walk(first, id, most)
    }

    #[cold]
    #[inline(never)]
    fn walk(&self, first: u16, id: u32, most: u16) -> Result<(u16, u16), Broken> {
        let (mut at, mut slots) = (first, 0u16);
        for buffers in 1..=most {
            let Buffer { count, .. } = self.list[usize::from(at)];
            slots = slots.saturating_add(count);
            if u32::from(at) == id {
                return Ok((buffers, slots));
            }
            at = self.after(at, count);
        }
        let what = if id < self.list.len() as u32 {
            format!("buffer {id} used, but not made available, or out of order (next: {first})")
        } else {
            format!("buffer {id} used, but not made available")
        };
        Err(self.broken(what))
    }

    /// Number of descriptors of the buffer at `place`, and the used buffer. Fails if `len` exceeds
    /// the writable length and the latter is not 0.
    #[inline(always)]
    pub(crate) fn take(&self, place: u16, len: u32) -> Result<(u16, UsedBuffer), Broken> {
        let Buffer { count, room } = self.list[usize::from(place)];
        if len > room && room > 0 {
            return Err(self.too_long(place, room, len));
        }
        Ok((count, UsedBuffer { id: place, len: len.min(room) }))
    }

    /// True if no batch is in progress and `len` is at most the writable length of the buffer at
    /// `place`.
    #[inline(always)]
    pub(crate) fn is_simple(&self, place: u16, len: u32) -> bool {
        self.batch.is_none() && len <= self.list[usize::from(place)].room
    }

    #[inline(always)]
    pub(crate) fn is_in_batch(&self) -> bool {
        self.batch.is_some()
    }

    /// Begins a batch: the device returned several buffers by one used entry with the id and the
    /// length of the last buffer.
    #[cold]
    pub(crate) fn begin_batch(&mut self, id: u16, len: u32) -> Result<(), Broken> {
        self.batch = Some(self.take(id, len)?.1);
        Ok(())
    }

    /// Takes the buffer of the batch at position `place`. Returns its number of descriptors, and
    /// the buffer.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_of_batch(&mut self, place: u16) -> (u16, UsedBuffer) {
        let Buffer { count, room } = self.list[usize::from(place)];
        match self.batch {
            Some(last) if last.id == place => {
                self.batch = None;
                (count, last)
            }
            _ => (count, UsedBuffer { id: place, len: room }),
        }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn not_available(&self, id: u32) -> Broken {
        self.broken(format!("buffer {id} used, but not made available"))
    }

    #[cold]
    #[inline(never)]
    fn too_long(&self, id: u16, room: u32, len: u32) -> Broken {
        self.broken(format!("buffer {id} of {room} bytes used with {len} bytes"))
    }

    #[cold]
    fn broken(&self, what: String) -> Broken {
        Broken { queue: self.queue, what }
    }
}
