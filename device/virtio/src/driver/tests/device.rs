//! Minimal device for each layout, written from the specification without the code under test.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use mqnet_shmem::AtomicTable;

use super::SIZE;
use crate::driver::MemoryRange;

/// A chain as the device found it: its id, and each memory range with its writable flag.
pub(super) type Found = (u16, Vec<(MemoryRange, bool)>);

pub(super) trait Device {
    fn take(&mut self) -> Option<Found>;
    fn give(&mut self, id: u16, len: u32, count: u16);
    /// Returns `buffers` buffers with `count` descriptors in total, by one used entry. The entry
    /// has the id `last` and the length `len`.
    fn give_many(&mut self, last: u16, len: u32, buffers: u16, count: u16);
    /// True if the driver requests an interrupt for the buffers returned since the last call.
    fn interrupts(&mut self) -> bool;
    fn want_kicks(&mut self, on: bool);
}

pub(super) struct SplitDevice {
    pub(super) areas: [AtomicTable; 3],
    pub(super) event_idx: bool,
    pub(super) taken: u16,
    pub(super) given: u16,
    pub(super) checked: u16,
}

impl Device for SplitDevice {
    fn take(&mut self) -> Option<Found> {
        let [desc, avail, _] = &self.areas;
        if avail.half(2).load(Acquire) == self.taken {
            return None;
        }
        let head = avail.half(4 + 2 * u32::from(self.taken % SIZE)).load(Relaxed);
        self.taken = self.taken.wrapping_add(1);
        let (mut id, mut pieces) = (head, Vec::new());
        loop {
            let place = u32::from(id) * 16;
            let flags = desc.half(place + 12).load(Relaxed);
            let piece = MemoryRange {
                at: desc.double(place).load(Relaxed),
                len: desc.word(place + 8).load(Relaxed),
            };
            pieces.push((piece, flags & 2 != 0));
            if flags & 1 == 0 {
                return Some((head, pieces));
            }
            id = desc.half(place + 14).load(Relaxed);
        }
    }

    fn give(&mut self, id: u16, len: u32, _count: u16) {
        let used = &self.areas[2];
        let place = 4 + 8 * u32::from(self.given % SIZE);
        used.word(place).store(id.into(), Relaxed);
        used.word(place + 4).store(len, Relaxed);
        self.given = self.given.wrapping_add(1);
        used.half(2).store(self.given, Release);
    }

    fn give_many(&mut self, last: u16, len: u32, buffers: u16, _count: u16) {
        // Write the entry at the position of the first buffer, and advance the index past all
        // buffers.
        let used = &self.areas[2];
        let place = 4 + 8 * u32::from(self.given % SIZE);
        used.word(place).store(last.into(), Relaxed);
        used.word(place + 4).store(len, Relaxed);
        self.given = self.given.wrapping_add(buffers);
        used.half(2).store(self.given, Release);
    }

    fn interrupts(&mut self) -> bool {
        let avail = &self.areas[1];
        let old = std::mem::replace(&mut self.checked, self.given);
        if !self.event_idx {
            return old != self.given && avail.half(0).load(Relaxed) & 1 == 0;
        }
        let event = avail.half(4 + 2 * u32::from(SIZE)).load(Relaxed);
        (0..self.given.wrapping_sub(old)).any(|n| old.wrapping_add(n) == event)
    }

    fn want_kicks(&mut self, on: bool) {
        let used = &self.areas[2];
        if !self.event_idx {
            return used.half(0).store(u16::from(!on), Relaxed);
        }
        let event = if on { self.taken } else { self.taken.wrapping_sub(1) };
        used.half(4 + 8 * u32::from(SIZE)).store(event, Relaxed);
    }
}

pub(super) struct PackedDevice {
    pub(super) areas: [AtomicTable; 3],
    pub(super) event_idx: bool,
    pub(super) take: (u16, bool),
    pub(super) give: (u16, bool),
    /// Positions of the used descriptors since the last check for an interrupt.
    pub(super) unchecked: Vec<(u16, bool)>,
}

fn step((at, wrap): (u16, bool), by: u16) -> (u16, bool) {
    if at + by >= SIZE { (at + by - SIZE, !wrap) } else { (at + by, wrap) }
}

impl Device for PackedDevice {
    fn take(&mut self) -> Option<Found> {
        let mut pieces = Vec::new();
        loop {
            let (at, wrap) = self.take;
            let (desc, place) = (&self.areas[0], u32::from(at) * 16);
            let flags = desc.half(place + 14).load(Acquire);
            let there = (flags & 0x80 != 0) == wrap && (flags & 0x8000 != 0) != wrap;
            if !there {
                assert!(pieces.is_empty(), "a part of a chain was shown");
                return None;
            }
            let piece = MemoryRange {
                at: desc.double(place).load(Relaxed),
                len: desc.word(place + 8).load(Relaxed),
            };
            pieces.push((piece, flags & 2 != 0));
            self.take = step(self.take, 1);
            if flags & 1 == 0 {
                return Some((desc.half(place + 12).load(Relaxed), pieces));
            }
        }
    }

    fn give(&mut self, id: u16, len: u32, count: u16) {
        let ((at, wrap), desc) = (self.give, &self.areas[0]);
        let place = u32::from(at) * 16;
        desc.word(place + 8).store(len, Relaxed);
        desc.half(place + 12).store(id, Relaxed);
        desc.half(place + 14).store(if wrap { 0x8080 } else { 0 }, Release);
        self.unchecked.push(self.give);
        self.give = step(self.give, count);
    }

    fn give_many(&mut self, last: u16, len: u32, _buffers: u16, count: u16) {
        self.give(last, len, count);
    }

    fn interrupts(&mut self) -> bool {
        let places = std::mem::take(&mut self.unchecked);
        let ours = self.areas[1].word(0).load(Relaxed);
        match ours >> 16 {
            0 => !places.is_empty(),
            1 => false,
            _ => {
                assert!(self.event_idx);
                places.contains(&((ours & 0x7fff) as u16, ours & 0x8000 != 0))
            }
        }
    }

    fn want_kicks(&mut self, on: bool) {
        let asks = match (on, self.event_idx) {
            (false, _) => 1 << 16,
            (true, false) => 0,
            (true, true) => 2 << 16 | u32::from(self.take.0) | u32::from(self.take.1) << 15,
        };
        self.areas[2].word(0).store(asks, Relaxed);
    }
}
