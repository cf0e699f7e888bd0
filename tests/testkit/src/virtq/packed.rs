//! Packed virtqueue (virtio 1.3, 2.8).

use std::collections::HashMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

use mqnet_shmem::AtomicTable;

use super::{Free, Shape};

#[derive(Debug)]
pub(super) struct Packed {
    ring: AtomicTable,
    driver: AtomicTable,
    device: AtomicTable,
    size: u16,
    event_idx: bool,
    ids: Free,
    room: u16,
    slots: HashMap<u16, u16>,
    /// Number of descriptors made available. Position and wrap counter follow from this number.
    avail: u64,
    told: u64,
    used: u64,
}

impl Packed {
    pub(super) fn new(
        ring: AtomicTable,
        driver: AtomicTable,
        device: AtomicTable,
        shape: Shape,
    ) -> Self {
        Self {
            ring,
            driver,
            device,
            size: shape.size,
            event_idx: shape.event_idx,
            ids: Free::all(shape.size),
            room: shape.size,
            slots: HashMap::new(),
            avail: 0,
            told: 0,
            used: 0,
        }
    }

    /// Position and wrap counter of a descriptor count.
    fn place(&self, count: u64) -> (u16, bool) {
        let size = u64::from(self.size);
        ((count % size) as u16, (count / size).is_multiple_of(2))
    }

    pub(super) fn add(&mut self, chain: &[(u64, u32, u16)]) -> Option<u16> {
        let n = chain.len() as u16;
        if self.room < n {
            return None;
        }
        let id = self.ids.take(1)?[0];
        for (i, &(addr, len, flags)) in chain.iter().enumerate().rev() {
            let (at, wrap) = self.place(self.avail + i as u64);
            let at = u32::from(at) * 16;
            let mark = if wrap { 0x80 } else { 0x8000 };
            let next = u16::from(i + 1 < chain.len());
            self.ring.double(at).store(addr.to_le(), Relaxed);
            self.ring.word(at + 8).store(len.to_le(), Relaxed);
            // Only the id in the last descriptor is valid (virtio 1.3, 2.8.6).
            let shown = if next == 0 { id } else { 0xeeee };
            self.ring.half(at + 12).store(shown.to_le(), Relaxed);
            self.ring.half(at + 14).store((flags | next | mark).to_le(), Release);
        }
        self.avail += u64::from(n);
        self.room -= n;
        self.slots.insert(id, n);
        Some(id)
    }

    pub(super) fn publish(&mut self) -> bool {
        fence(SeqCst);
        let told = std::mem::replace(&mut self.told, self.avail);
        let word = u32::from_le(self.device.word(0).load(Relaxed));
        match word >> 16 & 3 {
            0 => true,
            1 => false,
            _ => {
                assert!(self.event_idx);
                let event = (word as u16 & 0x7fff, word >> 15 & 1 == 1);
                (told..self.avail).any(|count| self.place(count) == event)
            }
        }
    }

    pub(super) fn used(&mut self) -> Option<(u16, u32)> {
        let (at, wrap) = self.place(self.used);
        let at = u32::from(at) * 16;
        let flags = u16::from_le(self.ring.half(at + 14).load(Acquire));
        if (flags & 0x80 != 0, flags & 0x8000 != 0) != (wrap, wrap) {
            return None;
        }
        let id = u16::from_le(self.ring.half(at + 12).load(Relaxed));
        let len = u32::from_le(self.ring.word(at + 8).load(Relaxed));
        let slots = self.slots.remove(&id).expect("a chain that is in use");
        self.used += u64::from(slots);
        self.room += slots;
        self.ids.give(id);
        Some((id, len))
    }

    pub(super) fn arm(&mut self) -> bool {
        let (at, wrap) = self.place(self.used);
        let flags = if self.event_idx { 2 } else { 0 };
        let word = u32::from(at) | u32::from(wrap) << 15 | flags << 16;
        self.driver.word(0).store(word.to_le(), Relaxed);
        fence(SeqCst);
        let flags = u16::from_le(self.ring.half(u32::from(at) * 16 + 14).load(Acquire));
        (flags & 0x80 != 0, flags & 0x8000 != 0) == (wrap, wrap)
    }

    pub(super) fn disarm(&mut self) {
        if !self.event_idx {
            self.driver.word(0).store((1u32 << 16).to_le(), Relaxed);
        }
    }
}
