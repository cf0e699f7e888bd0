//! What is known of the buffers of a queue that come back in the order in which they were added
//! (`IN_ORDER`, virtio 1.3, 2.7.9 and 2.8.9).
//!
//! There the id of a buffer is the place of its first descriptor: nothing has to be looked up, and
//! ids need no list. A device may name only the last of several buffers, so that the others count
//! as used with it, and as written to the end.

use super::{Buffer, Piece, Used};
use crate::Broken;

/// See the module. Positions are those of descriptors.
#[derive(Debug)]
pub(crate) struct Sequence {
    queue: u16,
    /// The buffer that begins at each descriptor. One descriptor and nothing to write, until it is
    /// said otherwise.
    list: Box<[Buffer]>,
    /// All buffers so far had one descriptor.
    pub(crate) singles: bool,
    /// They were also for reading.
    plain: bool,
    /// The last of those that were named together, until it is taken.
    batch: Option<Used>,
}

impl Sequence {
    pub(crate) fn new(queue: u16, size: u16) -> Self {
        let list = vec![Buffer { count: 1, room: 0 }; usize::from(size)].into();
        Self { queue, list, singles: true, plain: true, batch: None }
    }

    /// The position `by` after one in the ring; at most one round.
    #[inline(always)]
    fn after(&self, place: u16, by: u16) -> u16 {
        let (at, size) = (usize::from(place) + usize::from(by), self.list.len());
        (if at < size { at } else { at - size }) as u16
    }

    /// A buffer of one piece, which the device reads.
    #[inline(always)]
    pub(crate) fn lend_readable(&mut self, id: u16) {
        if !self.plain {
            self.lend_one(id, 0);
        }
    }

    /// A buffer of one piece, of which the device may write `room` bytes.
    #[inline(always)]
    pub(crate) fn lend_one(&mut self, id: u16, room: u32) {
        self.plain &= room == 0;
        self.list[usize::from(id)] = Buffer { count: 1, room };
    }

    pub(crate) fn lend(&mut self, id: u16, pieces: &[Piece], readable: usize) {
        let buffer = Buffer::of(pieces, readable);
        self.singles &= buffer.count == 1;
        self.plain = false;
        self.list[usize::from(id)] = buffer;
    }

    /// How many buffers, and descriptors, lie between the one at `first` and the one that a device
    /// named, these two included: at most `most` buffers.
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
            format!("buffer {id} used, which was not made available, or not after buffer {first}")
        } else {
            format!("buffer {id} used, which was not made available")
        };
        Err(self.broken(what))
    }

    /// What came in the buffer at `place`, and how many descriptors it had.
    #[inline(always)]
    pub(crate) fn take(&self, place: u16, len: u32) -> Result<(u16, Used), Broken> {
        let Buffer { count, room } = self.list[usize::from(place)];
        if len > room && room > 0 {
            return Err(self.too_long(place, room, len));
        }
        Ok((count, Used { id: place, len: len.min(room) }))
    }

    /// True when `len` bytes fit into the buffer at `place`, and the device names each by itself.
    #[inline(always)]
    pub(crate) fn is_simple(&self, place: u16, len: u32) -> bool {
        self.batch.is_none() && len <= self.list[usize::from(place)].room
    }

    #[inline(always)]
    pub(crate) fn is_in_batch(&self) -> bool {
        self.batch.is_some()
    }

    /// Several were used, of which the device named the last.
    #[cold]
    pub(crate) fn begin_batch(&mut self, id: u16, len: u32) -> Result<(), Broken> {
        self.batch = Some(self.take(id, len)?.1);
        Ok(())
    }

    /// The next one of those: that at `place`.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_of_batch(&mut self, place: u16) -> (u16, Used) {
        let Buffer { count, room } = self.list[usize::from(place)];
        match self.batch {
            Some(last) if last.id == place => {
                self.batch = None;
                (count, last)
            }
            _ => (count, Used { id: place, len: room }),
        }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn not_available(&self, id: u32) -> Broken {
        self.broken(format!("buffer {id} used, which was not made available"))
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
