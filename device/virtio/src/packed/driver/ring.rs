//! A packed ring, as a driver writes and reads it: what does not depend on the order in which
//! buffers come back.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use mqnet_shmem::{Column, Table};

use crate::driver::{Piece, passes};
use crate::layout::{flag, packed as at};
use crate::packed::cold;

/// A position in the ring, with the wrap counter that goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) index: u16,
    /// The flags of a descriptor that is made available here: `AVAIL` where the wrap counter is
    /// set, else `USED`.
    mark: u16,
}

impl Position {
    pub(super) const START: Self = Self { index: 0, mark: flag::AVAIL };

    fn wrap(self) -> bool {
        self.mark == flag::AVAIL
    }

    /// `by` descriptors further; at most one round.
    #[inline(always)]
    pub(super) fn advanced(self, by: u16, size: u16) -> Self {
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
pub(super) fn id_of(word: u64) -> u16 {
    (word >> 32) as u16
}

/// See the module.
#[derive(Debug)]
pub(super) struct Ring {
    desc: Column<[AtomicU64; 2]>,
    /// What we want to be told of, and what the device does.
    ours: Table,
    theirs: Table,
    pub(super) size: u16,
    event_idx: bool,
    /// Where the next buffer is added, and where the next one comes back.
    pub(super) add: Position,
    pub(super) take: Position,
    /// The first descriptor that the device must not see yet, and its second half.
    hidden: Option<(u16, u64)>,
    /// Descriptors since the device was asked whether it wants to be notified.
    unasked: u32,
}

impl Ring {
    /// A fresh ring, whose device is not to interrupt.
    pub(super) fn new(size: u16, areas: [Table; 3], event_idx: bool) -> Self {
        assert!((1..=crate::layout::SIZE_MAX).contains(&size), "queue size {size}");
        let [desc, ours, theirs] = areas;
        let Some(desc) = Column::new(&desc, at::desc(0), size) else {
            panic!("the area of a queue of {size} descriptors is too short or not aligned");
        };
        let (add, take) = (Position::START, Position::START);
        let ring =
            Self { desc, ours, theirs, size, event_idx, add, take, hidden: None, unasked: 0 };
        ring.disarm();
        ring
    }

    /// The second half of the descriptor at `place`, if it has been used by the device.
    #[inline(always)]
    pub(super) fn used_at(&self, place: Position) -> Option<u64> {
        // Pairs with the Release store of the device: id and length before, or with, the flags. All
        // three are read at once, and never again.
        let word = u64::from_le(self.desc.at(place.index)[1].load(Ordering::Acquire));
        // Both flags are as the wrap counter is: other than when it was made available, USED.
        let change = ((word >> 48) as u16 ^ place.mark) & (flag::AVAIL | flag::USED);
        (change == flag::USED).then_some(word)
    }

    /// Writes one descriptor, and its second half too unless it is the one that hides all after it.
    #[inline(always)]
    pub(super) fn write(&mut self, piece: Piece, id: u16, flags: u16) {
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
        self.unasked = self.unasked.wrapping_add(1);
    }

    fn ask(&self, place: u16, flags: u16) {
        let both = u32::from(place) | u32::from(flags) << 16;
        self.ours.word(at::EVENT_OFF_WRAP).store(both.to_le(), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn publish(&mut self) {
        if let Some((index, word)) = self.hidden.take() {
            // Pairs with the Acquire load of the device: every descriptor of the batch before the
            // flags of its first, which is where the device looks next.
            self.desc.at(index)[1].store(word.to_le(), Ordering::Release);
        }
    }

    #[inline]
    pub(super) fn needs_kick(&mut self) -> bool {
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

    /// Asks for an interrupt when the device is past the `after`th descriptor (at least one) from
    /// the next one on. Which one that is.
    pub(super) fn arm(&self, after: u16) -> Position {
        let last = self.take.advanced(after - 1, self.size);
        if self.event_idx {
            self.ask(last.packed(), at::DESC);
        } else {
            self.ask(0, at::ENABLE);
        }
        // Pairs with the barrier of the device between its used flags and its look at what we ask:
        // what we ask before our last look.
        fence(Ordering::SeqCst);
        last
    }

    pub(super) fn disarm(&self) {
        self.ask(0, at::DISABLE);
    }
}
