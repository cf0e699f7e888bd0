//! The driver's end of a packed virtqueue.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use mqnet_shmem::{Column, Table};

use crate::Broken;
use crate::driver::{Buffers, DriverQueue, Piece, Used, passes};
use crate::layout::{flag, packed as at};
use crate::packed::cold;

/// A position in the ring, with the wrap counter that goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    index: u16,
    /// The flags of a descriptor that is made available here: `AVAIL` where the wrap counter is
    /// set, else `USED`.
    mark: u16,
}

impl Position {
    const START: Self = Self { index: 0, mark: flag::AVAIL };

    fn wrap(self) -> bool {
        self.mark == flag::AVAIL
    }

    /// `by` descriptors further; at most one round.
    #[inline(always)]
    fn advanced(self, by: u16, size: u16) -> Self {
        // Twice the longest queue is no more than fits.
        let index = self.index.wrapping_add(by);
        if index < size {
            return Self { index, ..self };
        }
        cold();
        Self { index: index - size, mark: self.mark ^ (flag::AVAIL | flag::USED) }
    }

    /// As event areas have it.
    fn packed(self) -> u16 {
        self.index | u16::from(self.wrap()) << 15
    }
}

/// Which buffer a used descriptor is of.
#[inline]
fn id_of(word: u64) -> u16 {
    (word >> 32) as u16
}

/// The driver's end of a packed virtqueue.
#[derive(Debug)]
pub struct Driver {
    desc: Column<[AtomicU64; 2]>,
    /// What we want to be told of, and what the device does.
    ours: Table,
    theirs: Table,
    size: u16,
    event_idx: bool,
    /// Free ids; the last is used next.
    ids: Vec<u16>,
    free: u16,
    buffers: Buffers,
    /// Where the next buffer is added, and where the next one comes back.
    add: Position,
    take: Position,
    /// The first descriptor that the device must not see yet, and its second half.
    hidden: Option<(u16, u64)>,
    /// Descriptors since the device was asked whether it wants to be notified.
    unasked: u32,
    /// Every buffer has had one descriptor so far.
    singles: bool,
}

impl Driver {
    /// A fresh queue of `size` descriptors (at most 32768) in three tables as long as
    /// [`areas`](crate::layout::packed::areas) says, all zero.
    pub fn new(queue: u16, size: u16, areas: [Table; 3], event_idx: bool) -> Self {
        assert!((1..=crate::layout::SIZE_MAX).contains(&size), "queue size {size}");
        let [desc, ours, theirs] = areas;
        let Some(desc) = Column::new(&desc, at::desc(0), size) else {
            panic!("the area of a queue of {size} descriptors is too short or not aligned");
        };
        let mut driver = Self {
            desc,
            ours,
            theirs,
            size,
            event_idx,
            ids: (0..size).rev().collect(),
            free: size,
            buffers: Buffers::new(queue, size),
            add: Position::START,
            take: Position::START,
            hidden: None,
            unasked: 0,
            singles: true,
        };
        driver.disarm();
        driver
    }

    /// The second half of the descriptor at `place`, if it has been used by the device.
    #[inline(always)]
    fn used_at(&self, place: Position) -> Option<u64> {
        // Pairs with the Release store of the device: id and length before, or with, the flags. All
        // three are read at once, and never again.
        let word = u64::from_le(self.desc.at(place.index)[1].load(Ordering::Acquire));
        // Both flags are as the wrap counter is: other than when it was made available, USED.
        let change = ((word >> 48) as u16 ^ place.mark) & (flag::AVAIL | flag::USED);
        (change == flag::USED).then_some(word)
    }

    /// Writes one descriptor, and its second half too unless it is the one that hides all after it.
    #[inline(always)]
    fn write(&mut self, piece: Piece, id: u16, flags: u16) {
        let place = self.add;
        let flags = flags | place.mark;
        let [addr, rest] = self.desc.at(place.index);
        // Relaxed: publish orders all of it before the flags of the first.
        addr.store(piece.at.to_le(), Ordering::Relaxed);
        let word = u64::from(piece.len) | u64::from(id) << 32 | u64::from(flags) << 48;
        match self.hidden {
            None => self.hidden = Some((place.index, word)),
            Some(_) => rest.store(word.to_le(), Ordering::Relaxed),
        }
        self.add = place.advanced(1, self.size);
    }

    fn ask(&self, place: u16, flags: u16) {
        let both = u32::from(place) | u32::from(flags) << 16;
        self.ours.word(at::EVENT_OFF_WRAP).store(both.to_le(), Ordering::Relaxed);
    }
}

impl DriverQueue for Driver {
    fn size(&self) -> u16 {
        self.size
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
    fn add_one(&mut self, piece: Piece, readable: bool) -> Option<u16> {
        if self.free == 0 {
            return None;
        }
        let id = self.ids.pop()?;
        self.buffers.lend_one(id, piece.len, readable);
        self.write(piece, id, if readable { 0 } else { flag::WRITE });
        self.free -= 1;
        self.unasked = self.unasked.wrapping_add(1);
        Some(id)
    }

    fn add(&mut self, pieces: &[Piece], readable: usize) -> Option<u16> {
        if pieces.is_empty() || pieces.len() > usize::from(self.free) {
            return None;
        }
        let id = self.ids.pop()?;
        self.buffers.lend(id, pieces, readable);
        let last = pieces.len() - 1;
        for (number, piece) in pieces.iter().enumerate() {
            let next = if number < last { flag::NEXT } else { 0 };
            let write = if number < readable { 0 } else { flag::WRITE };
            self.write(*piece, id, next | write);
        }
        self.free -= pieces.len() as u16;
        self.unasked = self.unasked.wrapping_add(pieces.len() as u32);
        self.singles &= last == 0;
        Some(id)
    }

    #[inline]
    fn publish(&mut self) {
        if let Some((index, word)) = self.hidden.take() {
            // Pairs with the Acquire load of the device: every descriptor of the batch before the
            // flags of its first, which is where the device looks next.
            self.desc.at(index)[1].store(word.to_le(), Ordering::Release);
        }
    }

    #[inline]
    fn needs_kick(&mut self) -> bool {
        // Pairs with the barrier of the device between its asking for a notification and its last
        // look at the ring: our descriptors before our look at what it asks.
        fence(Ordering::SeqCst);
        let added = std::mem::take(&mut self.unasked).min(u16::MAX.into()) as u16;
        if added == 0 {
            return false;
        }
        let asks = u32::from_le(self.theirs.word(at::EVENT_OFF_WRAP).load(Ordering::Relaxed));
        match (asks >> 16) as u16 & 3 {
            at::DISABLE => false,
            at::DESC if self.event_idx => {
                let (event, wrap) = (asks as u16 & 0x7fff, asks & 0x8000 != 0);
                // In the numbers of this round; what is asked of the last one lies before it.
                let round = if wrap == self.add.wrap() { 0 } else { self.size };
                let new = self.add.index;
                passes(event.wrapping_sub(round), new, new.wrapping_sub(added))
            }
            _ => true,
        }
    }

    #[inline(always)]
    fn take_used(&mut self) -> Result<Option<Used>, Broken> {
        let Some(word) = self.used_at(self.take) else { return Ok(None) };
        let (count, used) = self.buffers.take_back(id_of(word).into(), word as u32)?;
        self.take = self.take.advanced(count, self.size);
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
    fn add_taken(&mut self, id: u16, piece: Piece) {
        self.buffers.lend_one(id, piece.len, true);
        self.write(piece, id, 0);
        self.unasked = self.unasked.wrapping_add(1);
    }

    #[inline(always)]
    fn take_sent(&mut self) -> Result<Option<u16>, Broken> {
        let Some(word) = self.used_at(self.take) else { return Ok(None) };
        let id = id_of(word);
        let count = self.buffers.take_back_sent(id.into())?;
        self.take = self.take.advanced(count, self.size);
        self.free += count;
        self.ids.push(id);
        Ok(Some(id))
    }

    #[inline(always)]
    fn hold_used(&mut self) -> Result<Option<Used>, Broken> {
        let Some(word) = self.used_at(self.take) else { return Ok(None) };
        let used = self.buffers.take_back_one(id_of(word).into(), word as u32)?;
        self.take = self.take.advanced(1, self.size);
        Ok(Some(used))
    }

    #[inline(always)]
    fn add_again(&mut self, id: u16, piece: Piece) {
        self.buffers.lend_again(id);
        self.write(piece, id, flag::WRITE);
        self.unasked = self.unasked.wrapping_add(1);
    }

    /// Nothing: to look at one descriptor more for each costs 57 instructions a frame, and was not
    /// faster between CPUs that share a cache.
    #[inline(always)]
    fn coming(&self, _ahead: u16) -> Option<u16> {
        None
    }

    fn let_go(&mut self, id: u16) {
        self.free += 1;
        self.ids.push(id);
    }

    fn arm(&mut self, after: u16) -> bool {
        // Where the device will be when it has used so many. Where longer ones come back to is not
        // known but of the next.
        let most = if self.singles { self.in_flight().max(1) } else { 1 };
        let after = after.clamp(1, most) - 1;
        let last = self.take.advanced(after, self.size);
        if self.event_idx {
            self.ask(last.packed(), at::DESC);
        } else {
            self.ask(0, at::ENABLE);
        }
        // Pairs with the barrier of the device between its used flags and its look at what we ask:
        // what we ask before our last look.
        fence(Ordering::SeqCst);
        self.free < self.size && self.used_at(last).is_some()
    }

    fn disarm(&mut self) {
        self.ask(0, at::DISABLE);
    }
}
