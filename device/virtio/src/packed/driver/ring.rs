//! Driver side of a packed ring, independent of the order in which buffers return.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use mqnet_shmem::{AtomicTable, Column};

use crate::driver::MemoryRange;
use crate::layout::{flag, packed as at};
use crate::packed::cold;
use crate::ring::passes;

/// A position in the ring with its wrap counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) index: u16,
    /// Flags of a descriptor that is made available at this position: `AVAIL` if the wrap counter
    /// is set, otherwise `USED`.
    mark: u16,
}

impl Position {
    pub(super) const START: Self = Self { index: 0, mark: flag::AVAIL };

    fn wrap(self) -> bool {
        self.mark == flag::AVAIL
    }

    /// Position `by` descriptors further; `by` is at most `size`.
    #[inline(always)]
    pub(super) fn advanced(self, by: u16, size: u16) -> Self {
        // The sum cannot overflow: `u16` holds twice the maximum size.
        let index = self.index.wrapping_add(by);
        if index < size {
            return Self { index, ..self };
        }
        cold();
        Self { index: index - size, mark: self.mark ^ (flag::AVAIL | flag::USED) }
    }

    /// Encodes the position as in an event offset: index, and wrap counter in bit 15.
    fn packed(self) -> u16 {
        self.index | u16::from(self.wrap()) << 15
    }
}

/// Buffer id in the second 64 bits of a used descriptor.
#[inline]
pub(super) fn id_of(word: u64) -> u16 {
    (word >> 32) as u16
}

/// Areas and positions of a packed ring.
#[derive(Debug)]
pub(super) struct Ring {
    desc: Column<[AtomicU64; 2]>,
    /// Event suppression area of the driver.
    ours: AtomicTable,
    /// Event suppression area of the device.
    theirs: AtomicTable,
    pub(super) size: u16,
    event_idx: bool,
    /// Position of the next buffer to add.
    pub(super) add: Position,
    /// Position of the next buffer to return.
    pub(super) take: Position,
    /// First descriptor that is not published: index, and the value of its second 64 bits.
    first_added: Option<(u16, u64)>,
    /// Number of descriptors since the last check for a notification.
    unchecked: u32,
}

impl Ring {
    /// Creates a ring with interrupts suppressed.
    pub(super) fn new(size: u16, areas: [AtomicTable; 3], event_idx: bool) -> Self {
        assert!((1..=crate::layout::SIZE_MAX).contains(&size), "queue size {size}");
        let [desc, ours, theirs] = areas;
        let Some(desc) = Column::new(&desc, at::desc(0), size) else {
            panic!("the area of a queue of {size} descriptors is too short or not aligned");
        };
        let (add, take) = (Position::START, Position::START);
        let ring = Self {
            desc,
            ours,
            theirs,
            size,
            event_idx,
            add,
            take,
            first_added: None,
            unchecked: 0,
        };
        ring.disarm();
        ring
    }

    /// Second 64 bits of the descriptor at `place`; `None` if the device has not used it.
    #[inline(always)]
    pub(super) fn used_at(&self, place: Position) -> Option<u64> {
        // Pairs with the device's release of the flags: the rest of the batch and the payload are
        // visible. Id, length and flags are read in one access, and only once.
        let word = u64::from_le(self.desc.at(place.index)[1].load(Ordering::Acquire));
        // Compare with `mark`: both flags of a used descriptor equal the wrap counter, so that only
        // USED differs from an available descriptor.
        let change = ((word >> 48) as u16 ^ place.mark) & (flag::AVAIL | flag::USED);
        (change == flag::USED).then_some(word)
    }

    /// Writes one descriptor. The second 64 bits of the first unpublished descriptor are kept until
    /// the batch is published.
    #[inline(always)]
    pub(super) fn write(&mut self, piece: MemoryRange, id: u16, flags: u16) {
        let place = self.add;
        let flags = flags | place.mark;
        let [addr, rest] = self.desc.at(place.index);
        // Store with relaxed order: `publish` orders the descriptors before the flags of the first.
        addr.store(piece.at.to_le(), Ordering::Relaxed);
        let word = u64::from(piece.len) | u64::from(id) << 32 | u64::from(flags) << 48;
        match self.first_added {
            None => self.first_added = Some((place.index, word)),
            Some(_) => rest.store(word.to_le(), Ordering::Relaxed),
        }
        self.add = place.advanced(1, self.size);
        self.unchecked = self.unchecked.wrapping_add(1);
    }

    fn write_event(&self, place: u16, flags: u16) {
        let both = u32::from(place) | u32::from(flags) << 16;
        self.ours.word(at::EVENT_OFF_WRAP).store(both.to_le(), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn publish(&mut self) {
        if let Some((index, word)) = self.first_added.take() {
            // Pairs with the device's acquire of the flags of the first descriptor: every
            // descriptor of the batch is visible before them.
            self.desc.at(index)[1].store(word.to_le(), Ordering::Release);
        }
    }

    #[inline]
    pub(super) fn needs_kick(&mut self) -> bool {
        // Pairs with the device's full barrier between its request for a notification and its
        // second read of the ring: our descriptors precede our read of the request.
        fence(Ordering::SeqCst);
        let added = std::mem::take(&mut self.unchecked).min(u16::MAX.into()) as u16;
        if added == 0 {
            return false;
        }
        let request = u32::from_le(self.theirs.word(at::EVENT_OFF_WRAP).load(Ordering::Relaxed));
        match (request >> 16) as u16 & 3 {
            at::DISABLE => false,
            at::DESC if self.event_idx => {
                let (event, wrap) = (request as u16 & 0x7fff, request & 0x8000 != 0);
                // Convert the event to the current round; an event of the previous round has a
                // lower number.
                let round = if wrap == self.add.wrap() { 0 } else { self.size };
                let new = self.add.index;
                passes(event.wrapping_sub(round), new, new.wrapping_sub(added))
            }
            _ => true,
        }
    }

    /// Requests an interrupt when the device has used `after` more descriptors (at least one), or
    /// without `EVENT_IDX` for every used descriptor. Returns the position of the last of the
    /// `after` descriptors.
    pub(super) fn arm(&self, after: u16) -> Position {
        let last = self.take.advanced(after - 1, self.size);
        if self.event_idx {
            self.write_event(last.packed(), at::DESC);
        } else {
            self.write_event(0, at::ENABLE);
        }
        // Pairs with the device's full barrier between its used flags and its read of our request:
        // our request precedes our last read of the ring.
        fence(Ordering::SeqCst);
        last
    }

    pub(super) fn disarm(&self) {
        self.write_event(0, at::DISABLE);
    }
}
