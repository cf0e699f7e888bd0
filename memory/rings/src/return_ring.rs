//! The way home for what other threads have finished with: many producers, one owner.
//!
//! A producer brings a batch. It reserves its slots with one compare-and-swap, writes them, and
//! publishes the batch with the store of its *first* slot, which it writes last; no producer ever
//! waits for another one. The owner spends no atomic read-modify-write at all.
//!
//! Whether a batch is published is written in its first slot, beside its length: the top bit is
//! the parity of the lap in which it was filled. So the owner never writes a slot (the line stays
//! where the producers write), never reads the producers' index, finds an empty ring with one load,
//! and copies a batch without looking at its slots one by one (which was a third of the time that
//! numbers took through this ring: near each other 350 to 400 million a second, 500 since). An
//! owner that meets a reserved slot whose producer has not got round to it stops there and comes
//! back later.
//!
//! What finds no room can be *parked*: an unbounded list behind a lock, off the fast path, so that
//! a producer that goes away while the ring is full loses nothing.

mod slots;
#[cfg(test)]
mod tests;

use std::cell::Cell;
#[cfg(not(loom))]
use std::sync::Mutex;

#[cfg(loom)]
use loom::sync::Mutex;

use crate::primitive::counted::{self, AtomicU32, AtomicU64};
use crate::primitive::sync::Arc;
use crate::primitive::sync::atomic::Ordering;
use slots::Slots;

pub use slots::{BATCH_MAX, ENTRY_LIMIT};

/// Largest ring.
pub const SIZE_MAX: u32 = 1 << 24;

/// 128 bytes: a cache line and the one that the adjacent-line prefetcher brings with it.
#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(T);

#[derive(Debug)]
struct Shared {
    /// The producers' index: slots below it are reserved. Runs on for ever, never wraps.
    reserved: Padded<AtomicU64>,
    /// The owner's index: slots below it are drained. Written by the owner only.
    drained: Padded<AtomicU64>,
    /// 1 when `parked` holds something: lets the owner pass by without the lock.
    any_parked: Padded<AtomicU32>,
    parked: Mutex<Vec<u32>>,
    slots: Slots,
}

/// A producer, one clone per thread: every call is a batch of its own.
#[derive(Clone, Debug)]
pub struct Producer {
    shared: Arc<Shared>,
    /// The owner's index as it was read last: its line is only asked for again when that says that
    /// there is no room, instead of taking it from the owner at each batch.
    drained: Cell<u64>,
}

/// The owner's half.
#[derive(Debug)]
pub struct Consumer {
    shared: Arc<Shared>,
    /// Our index; `Shared::drained` is its published copy.
    next: u64,
    /// What is left there of a batch that did not fit into the room of the last call.
    left: usize,
}

/// An empty ring of `size` entries, rounded up to a power of two.
///
/// # Panics
/// When `size` is 0 or above [`SIZE_MAX`].
pub fn ring(size: u32) -> (Producer, Consumer) {
    assert!((1..=SIZE_MAX).contains(&size), "return ring of {size} entries");
    let shared = Arc::new(Shared {
        reserved: Padded(AtomicU64::new(0)),
        drained: Padded(AtomicU64::new(0)),
        any_parked: Padded(AtomicU32::new(0)),
        parked: Mutex::new(Vec::new()),
        slots: Slots::new(size.next_power_of_two()),
    });
    (Producer::new(shared.clone()), Consumer { shared, next: 0, left: 0 })
}

impl Producer {
    fn new(shared: Arc<Shared>) -> Self {
        Self { shared, drained: Cell::new(0) }
    }

    /// Entries that the ring holds when full.
    pub fn size(&self) -> usize {
        self.shared.slots.len()
    }

    /// Hands over as many of `entries` as fit, in order, [`BATCH_MAX`] at most; returns how many.
    /// All entries must be below [`ENTRY_LIMIT`]. One atomic read-modify-write a call, however long
    /// the batch.
    #[inline]
    pub fn push(&self, entries: &[u32]) -> usize {
        let (first, n) = self.reserve(entries.len().min(BATCH_MAX));
        if n > 0 {
            // SAFETY: reserved just now, with room that the owner has made.
            unsafe { self.shared.slots.publish(first, &entries[..n]) };
        }
        n
    }

    /// Reserves up to `want` slots; returns the first one's index and how many.
    #[inline]
    fn reserve(&self, want: usize) -> (u64, usize) {
        let size = self.shared.slots.len() as u64;
        loop {
            // Relaxed: only the number matters, each batch is published by itself.
            let mut reserved = self.shared.reserved.0.load(Ordering::Relaxed);
            // What is kept is at most as much as there is, and so is the room.
            let kept = self.drained.get();
            let mut n = size.saturating_sub(reserved - kept).min(want as u64);
            if n < want as u64 {
                // Pairs with the Release store in Consumer::drain: the owner has read the slots
                // below it, so they may be written again. Read before `reserved`, which therefore
                // cannot be behind it; a stale value only makes the ring look fuller.
                let drained = self.shared.drained.0.load(Ordering::Acquire);
                self.drained.set(drained);
                reserved = self.shared.reserved.0.load(Ordering::Relaxed);
                n = size.saturating_sub(reserved - drained).min(want as u64);
            }
            if n == 0 {
                return (reserved, 0);
            }
            let claim = self.shared.reserved.0.compare_exchange_weak(
                reserved,
                reserved + n,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            if claim.is_ok() {
                return (reserved, n as usize);
            }
        }
    }

    /// Leaves `entries` on the unbounded list beside the ring, in no order with what the ring
    /// holds. Takes a lock and may allocate: for what finds the ring full and cannot wait.
    #[cold]
    pub fn park(&self, entries: &[u32]) {
        if entries.is_empty() {
            return;
        }
        debug_assert!(entries.iter().all(|&entry| entry < ENTRY_LIMIT));
        counted::count();
        let mut parked = self.shared.parked.lock().unwrap_or_else(|e| e.into_inner());
        parked.extend_from_slice(entries);
        // Relaxed: a hint that is only ever written under the lock, which orders everything else.
        self.shared.any_parked.0.store(1, Ordering::Relaxed);
    }
}

impl Consumer {
    /// A new producer for this ring.
    pub fn producer(&self) -> Producer {
        Producer::new(self.shared.clone())
    }

    /// Takes as many entries as are published and fit into `out`; returns how many. Entries of
    /// one batch stay together and in order. Loads and stores only.
    #[inline]
    pub fn drain(&mut self, out: &mut [u32]) -> usize {
        let mut n = 0;
        while n < out.len() {
            if self.left == 0 {
                self.left = self.shared.slots.published(self.next);
            }
            let now = self.left.min(out.len() - n);
            if now == 0 {
                break;
            }
            // SAFETY: we are the owner, and so many are left of a published batch.
            unsafe { self.shared.slots.read(self.next, &mut out[n..n + now]) };
            self.next += now as u64;
            self.left -= now;
            n += now;
        }
        if n > 0 {
            // Pairs with the Acquire load in Producer::reserve: our reads of these slots come
            // before they are written again.
            self.shared.drained.0.store(self.next, Ordering::Release);
        }
        n
    }

    /// True when something is parked beside the ring. May lag behind [`Producer::park`].
    #[inline]
    pub fn any_parked(&self) -> bool {
        // Relaxed: a hint; take_parked goes through the lock.
        self.shared.any_parked.0.load(Ordering::Relaxed) != 0
    }

    /// Moves everything that was parked to the end of `out`; returns how many entries.
    #[cold]
    pub fn take_parked(&mut self, out: &mut Vec<u32>) -> usize {
        counted::count();
        let mut parked = self.shared.parked.lock().unwrap_or_else(|e| e.into_inner());
        let n = parked.len();
        out.append(&mut parked);
        // Relaxed: written under the lock, see Producer::park.
        self.shared.any_parked.0.store(0, Ordering::Relaxed);
        n
    }
}
