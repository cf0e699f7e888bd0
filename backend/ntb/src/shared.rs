//! State that the TX and RX halves of a queue pair share: control blocks, doorbell, event,
//! counters.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mqnet_netdev::{Fault, QueuePairStats, Trigger, WakeSource};
use mqnet_rings::IndexViolation;
use mqnet_shmem::Region;
use mqnet_sysio::eventfd::EventFd;

use crate::hw::Doorbell;
use crate::layout::{Geometry, index_word, read_index};

/// Control block of one queue pair in one window.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    region: Arc<Region>,
    base: usize,
}

impl Words {
    pub(crate) fn new(region: Arc<Region>, window: usize, geometry: &Geometry, qp: u16) -> Self {
        Self { region, base: window + geometry.control(qp, 0) }
    }

    #[inline]
    pub(crate) fn get(&self, word: usize) -> &std::sync::atomic::AtomicU64 {
        self.region.word(self.base + word)
    }

    /// Index in a word that the peer writes; `Err` with the word if it has another generation and
    /// is not 0.
    #[inline]
    pub(crate) fn index(&self, word: usize, generation: u32) -> Result<u32, u64> {
        // Pairs with the peer's Release store in post: the records that precede the index are
        // visible.
        let value = u64::from_le(self.get(word).load(Ordering::Acquire));
        read_index(value, generation).ok_or(value)
    }

    /// Posts an index into the peer's window.
    #[inline]
    pub(crate) fn post(&self, word: usize, generation: u32, index: u32) {
        // Pairs with the peer's Acquire load in index: the records that precede the index are
        // visible.
        self.get(word).store(index_word(generation, index).to_le(), Ordering::Release);
    }
}

/// State that both halves of a queue pair need.
pub(crate) struct Common {
    pub(crate) channel: u16,
    pub(crate) generation: u32,
    /// Control block in this end's window; the peer writes it.
    pub(crate) inbound: Words,
    /// Control block in the peer's window; this end writes it.
    pub(crate) outbound: Words,
    pub(crate) peer_bell: Arc<dyn Doorbell>,
    pub(crate) event: Arc<EventFd>,
    pub(crate) stats: Arc<QueuePairStats>,
}

impl Common {
    #[cold]
    pub(crate) fn fault(&self, what: impl Into<String>) -> Fault {
        Fault { channel: self.channel, what: what.into() }
    }

    /// Fault for a word for which `Words::index` has returned `Err`.
    #[cold]
    pub(crate) fn stale(&self, word: u64) -> Fault {
        let (theirs, ours) = (word >> 32, self.generation);
        self.fault(format!("stale generation {theirs:#x} in a shared word, the link has {ours:#x}"))
    }

    #[cold]
    pub(crate) fn violated(&self, e: &IndexViolation) -> Fault {
        self.fault(e.to_string())
    }

    /// Fault for an index of the peer that is no multiple of [`UNIT`](crate::layout::UNIT). Every
    /// record begins and ends at such a multiple.
    #[cold]
    pub(crate) fn off_boundary(&self, what: &str, index: u32) -> Fault {
        self.fault(format!("{what} {index} is not at a record's boundary"))
    }

    #[cold]
    pub(crate) fn ring(&self) -> Result<(), Fault> {
        self.peer_bell.ring().map_err(|e| self.fault(format!("the peer's doorbell: {e}")))
    }

    pub(crate) fn watch(&self) -> WakeSource<'_> {
        WakeSource { fd: self.event.as_fd(), trigger: Trigger::Edge }
    }
}
