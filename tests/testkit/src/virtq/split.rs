//! Split virtqueue (virtio 1.3, 2.7).

use std::collections::HashMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

use mqnet_shmem::AtomicTable;

use super::{Free, Shape};

#[derive(Debug)]
pub(super) struct Split {
    desc: AtomicTable,
    avail: AtomicTable,
    used: AtomicTable,
    size: u16,
    event_idx: bool,
    free: Free,
    /// Descriptors of each chain, by its head.
    chains: HashMap<u16, Vec<u16>>,
    avail_idx: u16,
    told: u16,
    used_idx: u16,
}

impl Split {
    pub(super) fn new(
        desc: AtomicTable,
        avail: AtomicTable,
        used: AtomicTable,
        shape: Shape,
    ) -> Self {
        Self {
            desc,
            avail,
            used,
            size: shape.size,
            event_idx: shape.event_idx,
            free: Free::all(shape.size),
            chains: HashMap::new(),
            avail_idx: 0,
            told: 0,
            used_idx: 0,
        }
    }

    pub(super) fn add(&mut self, chain: &[(u64, u32, u16)]) -> Option<u16> {
        let indices = self.free.take(chain.len())?;
        for (i, &(addr, len, flags)) in chain.iter().enumerate() {
            let at = u32::from(indices[i]) * 16;
            let next = indices.get(i + 1);
            let flags = flags | u16::from(next.is_some());
            self.desc.double(at).store(addr.to_le(), Relaxed);
            self.desc.word(at + 8).store(len.to_le(), Relaxed);
            self.desc.half(at + 12).store(flags.to_le(), Relaxed);
            self.desc.half(at + 14).store(next.unwrap_or(&0).to_le(), Relaxed);
        }
        let head = indices[0];
        let slot = u32::from(self.avail_idx % self.size);
        self.avail.half(4 + 2 * slot).store(head.to_le(), Relaxed);
        self.avail_idx = self.avail_idx.wrapping_add(1);
        self.chains.insert(head, indices);
        Some(head)
    }

    pub(super) fn publish(&mut self) -> bool {
        self.avail.half(2).store(self.avail_idx.to_le(), Release);
        fence(SeqCst);
        let (old, new) = (self.told, self.avail_idx);
        self.told = new;
        if !self.event_idx {
            return u16::from_le(self.used.half(0).load(Relaxed)) & 1 == 0;
        }
        let event = u16::from_le(self.used.half(4 + 8 * u32::from(self.size)).load(Relaxed));
        // Notify when the event index is in `old..new`.
        event.wrapping_sub(old) < new.wrapping_sub(old)
    }

    pub(super) fn used(&mut self) -> Option<(u16, u32)> {
        if u16::from_le(self.used.half(2).load(Acquire)) == self.used_idx {
            return None;
        }
        let slot = u32::from(self.used_idx % self.size);
        let id = u32::from_le(self.used.word(4 + 8 * slot).load(Relaxed)) as u16;
        let len = u32::from_le(self.used.word(8 + 8 * slot).load(Relaxed));
        self.used_idx = self.used_idx.wrapping_add(1);
        let indices = self.chains.remove(&id).expect("a chain that is in use");
        indices.into_iter().for_each(|index| self.free.give(index));
        Some((id, len))
    }

    pub(super) fn arm(&mut self) -> bool {
        self.avail.half(0).store(0, Relaxed);
        let event = 4 + 2 * u32::from(self.size);
        self.avail.half(event).store(self.used_idx.to_le(), Relaxed);
        fence(SeqCst);
        u16::from_le(self.used.half(2).load(Acquire)) != self.used_idx
    }

    pub(super) fn disarm(&mut self) {
        if !self.event_idx {
            self.avail.half(0).store(1u16.to_le(), Relaxed);
        }
    }
}
