//! Return ring: many producers return entries to one owner.
//!
//! A producer pushes a batch. It reserves slots with one compare-and-swap, writes them, and
//! publishes the batch by storing its *first* slot last. No producer ever waits for another. The
//! owner executes no atomic read-modify-write.
//!
//! The first slot of a batch holds the batch's length, and in its top bit the parity of the lap,
//! which shows whether the batch is published. So the owner never writes a slot (the line stays
//! with the producers), never reads the producers' index, detects an empty ring with one load, and
//! copies a batch without checking its slots one by one. An owner that reaches a reserved slot that
//! is not yet published stops there and retries later.
//!
//! Entries that find no room can be *parked* on an unbounded list behind a lock, off the fast path.
//! So a producer that exits while the ring is full loses nothing.

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

/// Maximum ring size.
pub const SIZE_MAX: u32 = 1 << 24;

/// 128 bytes: a cache line and the one that the adjacent-line prefetcher fetches with it.
#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(T);

#[derive(Debug)]
struct Shared {
    /// Producers' index: slots below it are reserved. 64-bit, never wraps.
    reserved: Padded<AtomicU64>,
    /// Owner's index: slots below it are drained. Written by the owner only.
    drained: Padded<AtomicU64>,
    /// 1 when `parked` is not empty, so that the owner can skip the lock.
    any_parked: Padded<AtomicU32>,
    parked: Mutex<Vec<u32>>,
    slots: Slots,
}

/// Producer, one clone per thread. Every call pushes a separate batch.
#[derive(Clone, Debug)]
pub struct ReturnRingProducer {
    shared: Arc<Shared>,
    /// Cached copy of the owner's index. The shared index is reloaded only when the cached one
    /// shows too little room, instead of taking its line from the owner for each batch.
    drained: Cell<u64>,
}

/// Owner side.
#[derive(Debug)]
pub struct ReturnRingOwner {
    shared: Arc<Shared>,
    /// Owner's index; `Shared::drained` is its published copy.
    next: u64,
    /// Remaining entries of a batch that did not fit into the last call's buffer.
    left: usize,
}

/// Creates an empty ring of `size` entries, rounded up to a power of two.
///
/// # Panics
/// If `size` is 0 or above [`SIZE_MAX`].
pub fn ring(size: u32) -> (ReturnRingProducer, ReturnRingOwner) {
    assert!((1..=SIZE_MAX).contains(&size), "return ring of {size} entries");
    let shared = Arc::new(Shared {
        reserved: Padded(AtomicU64::new(0)),
        drained: Padded(AtomicU64::new(0)),
        any_parked: Padded(AtomicU32::new(0)),
        parked: Mutex::new(Vec::new()),
        slots: Slots::new(size.next_power_of_two()),
    });
    (ReturnRingProducer::new(shared.clone()), ReturnRingOwner { shared, next: 0, left: 0 })
}

impl ReturnRingProducer {
    fn new(shared: Arc<Shared>) -> Self {
        Self { shared, drained: Cell::new(0) }
    }

    /// Capacity of the ring in entries.
    pub fn size(&self) -> usize {
        self.shared.slots.len()
    }

    /// Pushes as many of `entries` as fit, in order, at most [`BATCH_MAX`]; returns their number.
    /// All entries must be below [`ENTRY_LIMIT`]. Each call executes one atomic read-modify-write,
    /// independent of the batch's length.
    #[inline]
    pub fn push(&self, entries: &[u32]) -> usize {
        let (first, n) = self.reserve(entries.len().min(BATCH_MAX));
        if n > 0 {
            // SAFETY: these slots were just reserved, and the owner has drained them before.
            unsafe { self.shared.slots.publish(first, &entries[..n]) };
        }
        n
    }

    /// Reserves up to `want` slots; returns the first index and their number.
    #[inline]
    fn reserve(&self, want: usize) -> (u64, usize) {
        let size = self.shared.slots.len() as u64;
        loop {
            // Relaxed: only the number matters, each batch is published separately.
            let mut reserved = self.shared.reserved.0.load(Ordering::Relaxed);
            // The cached index is at most the real one, so the room is underestimated at worst.
            let kept = self.drained.get();
            let mut n = size.saturating_sub(reserved - kept).min(want as u64);
            if n < want as u64 {
                // Pairs with the Release store in Consumer::drain: the owner has read the slots
                // below, so they may be written again. Read before `reserved`, which therefore
                // cannot be less; with a stale value the ring only appears fuller.
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

    /// Appends `entries` to the unbounded list, without an order relative to the ring. For entries
    /// that find the ring full and cannot wait: takes a lock and may allocate.
    #[cold]
    pub fn park(&self, entries: &[u32]) {
        if entries.is_empty() {
            return;
        }
        debug_assert!(entries.iter().all(|&entry| entry < ENTRY_LIMIT));
        counted::count();
        let mut parked = self.shared.parked.lock().unwrap_or_else(|e| e.into_inner());
        parked.extend_from_slice(entries);
        // Relaxed: a hint that is only written under the lock, which orders everything else.
        self.shared.any_parked.0.store(1, Ordering::Relaxed);
    }
}

impl ReturnRingOwner {
    /// Creates a producer for this ring.
    pub fn producer(&self) -> ReturnRingProducer {
        ReturnRingProducer::new(self.shared.clone())
    }

    /// Moves published entries to `out`, as many as fit; returns their number. Entries of one batch
    /// stay contiguous and in order. Executes only loads and stores.
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
            // SAFETY: this is the owner, and `left` entries of a published batch remain.
            unsafe { self.shared.slots.read(self.next, &mut out[n..n + now]) };
            self.next += now as u64;
            self.left -= now;
            n += now;
        }
        if n > 0 {
            // Pairs with the Acquire load in Producer::reserve: the reads of these slots come
            // before they are written again.
            self.shared.drained.0.store(self.next, Ordering::Release);
        }
        n
    }

    /// True if parked entries exist. May lag behind [`ReturnRingProducer::park`].
    #[inline]
    pub fn any_parked(&self) -> bool {
        // Relaxed: a hint; take_parked uses the lock.
        self.shared.any_parked.0.load(Ordering::Relaxed) != 0
    }

    /// Moves all parked entries to the end of `out`; returns their number.
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
