//! Return ring: many producers return entries to one owner.
//!
//! A producer pushes a batch: it reserves slots by a compare-and-swap, writes them, and publishes
//! the batch by storing its *first* slot last. No producer waits for another. The owner executes no
//! atomic read-modify-write.
//!
//! The first slot of a batch holds the batch's length, and in its top bit the parity of the lap,
//! which shows if the batch is published. The owner therefore never writes a slot, so that the line
//! stays with the producers, and never reads the producers' index. It detects an empty ring with
//! one load, and copies a batch without checking each slot. An owner that reaches a reserved slot
//! that is not published stops there and retries later.
//!
//! Entries for which the ring has no space can be *parked* on an unbounded list behind a lock, off
//! the fast path. A producer that exits while the ring is full therefore loses nothing.

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

/// Value on separate cache lines; 128 bytes include the adjacent line that the prefetcher fetches.
#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(T);

#[derive(Debug)]
struct Shared {
    /// Index of the producers: slots below it are reserved. The index has 64 bits and never wraps.
    reserved: Padded<AtomicU64>,
    /// Index of the owner, which alone writes it: slots below it are drained.
    drained: Padded<AtomicU64>,
    /// 1 if `parked` is not empty, so that the owner can skip the lock otherwise.
    any_parked: Padded<AtomicU32>,
    parked: Mutex<Vec<u32>>,
    slots: Slots,
}

/// Producer, one clone per thread. Each push is a separate batch.
#[derive(Clone, Debug)]
pub struct ReturnRingProducer {
    shared: Arc<Shared>,
    /// Cached copy of the owner's index. The shared index is reloaded only if the cached one shows
    /// too little space, so that its line is not taken from the owner for each batch.
    drained: Cell<u64>,
}

/// Owner of a return ring.
#[derive(Debug)]
pub struct ReturnRingOwner {
    shared: Arc<Shared>,
    /// Index of the owner; `Shared::drained` is its published copy.
    next: u64,
    /// Number of entries that remain of a batch that did not fit into the last call's buffer.
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

    /// Pushes as many of `entries` as fit, in order, at most [`BATCH_MAX`]. Returns their number.
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

    /// Reserves up to `want` slots. Returns the first index and their number.
    #[inline]
    fn reserve(&self, want: usize) -> (u64, usize) {
        let size = self.shared.slots.len() as u64;
        loop {
            // Read with relaxed order: only the number matters, and each batch is published
            // separately.
            let mut reserved = self.shared.reserved.0.load(Ordering::Relaxed);
            // Use the cached index: it is at most the real index, so that the space is never
            // overestimated.
            let kept = self.drained.get();
            let mut n = size.saturating_sub(reserved - kept).min(want as u64);
            if n < want as u64 {
                // Pairs with the release store in `ReturnRingOwner::drain`: the owner has read the
                // slots below, which may be written again. The index is read before `reserved`,
                // which therefore is not less; a stale value only makes the ring appear fuller.
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

    /// Appends `entries` to the unbounded list, without an order relative to the ring. The call
    /// takes a lock and may allocate memory; it is for entries that find the ring full and cannot
    /// wait.
    #[cold]
    pub fn park(&self, entries: &[u32]) {
        if entries.is_empty() {
            return;
        }
        debug_assert!(entries.iter().all(|&entry| entry < ENTRY_LIMIT));
        counted::count();
        let mut parked = self.shared.parked.lock().unwrap_or_else(|e| e.into_inner());
        parked.extend_from_slice(entries);
        // Set with relaxed order: the flag is a hint, and the lock orders everything else.
        self.shared.any_parked.0.store(1, Ordering::Relaxed);
    }
}

impl ReturnRingOwner {
    /// Creates a producer for this ring.
    pub fn producer(&self) -> ReturnRingProducer {
        ReturnRingProducer::new(self.shared.clone())
    }

    /// Moves published entries to `out`, as many as fit. Returns their number. Entries of one batch
    /// stay contiguous and in order. The call executes only loads and stores.
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
            // SAFETY: the caller is the owner, and `left` entries of a published batch remain.
            unsafe { self.shared.slots.read(self.next, &mut out[n..n + now]) };
            self.next += now as u64;
            self.left -= now;
            n += now;
        }
        if n > 0 {
            // Pairs with the acquire load in `ReturnRingProducer::reserve`: the reads of these
            // slots are complete before they are written again.
            self.shared.drained.0.store(self.next, Ordering::Release);
        }
        n
    }

    /// True if parked entries exist. The value may lag behind [`ReturnRingProducer::park`].
    #[inline]
    pub fn any_parked(&self) -> bool {
        // Read with relaxed order: the value is a hint, and `take_parked` takes the lock.
        self.shared.any_parked.0.load(Ordering::Relaxed) != 0
    }

    /// Moves all parked entries to the end of `out`. Returns their number.
    #[cold]
    pub fn take_parked(&mut self, out: &mut Vec<u32>) -> usize {
        counted::count();
        let mut parked = self.shared.parked.lock().unwrap_or_else(|e| e.into_inner());
        let n = parked.len();
        out.append(&mut parked);
        // Clear with relaxed order: the lock orders everything else.
        self.shared.any_parked.0.store(0, Ordering::Relaxed);
        n
    }
}
