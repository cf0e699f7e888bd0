//! Bounded ring with one producer and one consumer, in private memory.
//!
//! The two halves are `Send` and not `Clone`, so that the type system enforces one producer and one
//! consumer. Each half caches the index of the other half in its [`Cursor`], and reloads that index
//! only if the cached value is insufficient. Entries move in bursts, and the index is published
//! once per burst.

use std::mem::MaybeUninit;
use std::ptr;

use arrayvec::ArrayVec;

use crate::cursor::Cursor;
use crate::lines::Lines;
use crate::prefetch;
use crate::primitive::cell::UnsafeCell;
use crate::primitive::sync::Arc;
use crate::primitive::sync::atomic::{AtomicU32, Ordering};

/// Value on separate cache lines; 128 bytes include the adjacent line that the prefetcher fetches.
#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(T);

#[derive(Debug)]
struct Shared<T> {
    /// Index of the producer, which alone writes it.
    tail: Padded<AtomicU32>,
    /// Index of the consumer, which alone writes it.
    head: Padded<AtomicU32>,
    slots: Lines<Slot<T>>,
}

// SAFETY: one side at a time accesses a slot: the producer while the slot is free, the consumer
// while the slot is published. The index stores below hand the slot over.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: as above; T: Send moves with its slot.
unsafe impl<T: Send> Send for Shared<T> {}

type Slot<T> = UnsafeCell<MaybeUninit<T>>;

/// Slots of a burst: those up to the ring's end, and those from the ring's start.
type Burst<'a, T> = (&'a [Slot<T>], &'a [Slot<T>]);

impl<T> Shared<T> {
    /// Slots of `n` entries from position `position` on.
    #[inline(always)]
    fn burst(&self, position: u32, n: usize) -> Burst<'_, T> {
        let (slots, at): (&[Slot<T>], _) = (&self.slots, position as usize);
        let first = n.min(slots.len() - at);
        (&slots[at..at + first], &slots[..n - first])
    }
}

/// Producer half of a ring.
#[derive(Debug)]
pub struct SpscProducer<T> {
    cursor: Cursor,
    shared: Arc<Shared<T>>,
}

/// Consumer half of a ring.
#[derive(Debug)]
pub struct SpscConsumer<T> {
    cursor: Cursor,
    shared: Arc<Shared<T>>,
}

/// Creates an empty ring of `size` entries.
///
/// # Panics
/// If `size` is 0 or above [`crate::cursor::SIZE_MAX`].
pub fn ring<T: Send>(size: u32) -> (SpscProducer<T>, SpscConsumer<T>) {
    let slots = Lines::new(size as usize, || UnsafeCell::new(MaybeUninit::uninit()));
    let (tail, head) = (Padded(AtomicU32::new(0)), Padded(AtomicU32::new(0)));
    let shared = Arc::new(Shared { tail, head, slots });
    let producer = SpscProducer { cursor: Cursor::producer(size), shared: shared.clone() };
    (producer, SpscConsumer { cursor: Cursor::consumer(size), shared })
}

/// Panics for an invalid index: this program writes both indexes, so that an invalid one is a bug.
#[cold]
fn broken(violation: crate::IndexViolation) -> u32 {
    unreachable!("both halves belong to this process: {violation}")
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        if !std::mem::needs_drop::<T>() {
            return;
        }
        let mut left = Cursor::consumer(self.slots.len() as u32);
        // Drop the entries between the last indexes: both halves are dropped.
        let (head, tail) =
            (self.head.0.load(Ordering::Acquire), self.tail.0.load(Ordering::Acquire));
        left.jump(head);
        for _ in 0..left.refresh(tail).unwrap_or_else(broken) {
            let slot = &self.slots[left.position() as usize];
            // SAFETY: every slot between head and tail is initialised, and no other thread has
            // access.
            slot.with_mut(|p| unsafe { (*p).assume_init_drop() });
            left.advance(1);
        }
    }
}

impl<T: Send> SpscProducer<T> {
    /// Number of entries that fit now.
    #[inline]
    pub fn free(&mut self) -> usize {
        // Pairs with the release store in `SpscConsumer::release`: the slots below `head` are free.
        let head = self.shared.head.0.load(Ordering::Acquire);
        self.cursor.refresh(head).unwrap_or_else(broken) as usize
    }

    /// Appends one entry. Returns the entry if the ring is full.
    #[inline]
    pub fn push_one(&mut self, entry: T) -> Result<(), T> {
        if self.cursor.available() == 0 && self.free() == 0 {
            return Err(entry);
        }
        let slot = &self.shared.slots[self.cursor.position() as usize];
        // SAFETY: the slot is free by the cursor, so only the producer accesses it.
        slot.with_mut(|p| unsafe {
            (*p).write(entry);
        });
        self.publish(1);
        Ok(())
    }

    /// Moves as many of `entries` as fit into the ring, in order. Returns their number. The other
    /// entries stay in `entries`, at its start.
    #[inline]
    pub fn push_from<const N: usize>(&mut self, entries: &mut ArrayVec<T, N>) -> usize {
        let n = self.room_for(entries.len());
        let (slots, more) = self.shared.burst(self.cursor.position(), n);
        let left = entries.len() - n;
        prefetch::burst(slots, more, prefetch::for_writing);
        // SAFETY: each entry has one owner: the length of `entries` is 0 before the first entry is
        // copied, and then covers the entries after the first n. By the cursor, n slots are free.
        unsafe {
            // Set the length first: the call borrows all of `entries`, and would invalidate an
            // older pointer.
            entries.set_len(0);
            let from = entries.as_mut_ptr();
            move_in(slots, from);
            move_in(more, from.add(slots.len()));
            if left > 0 {
                ptr::copy(from.add(n), from, left);
                entries.set_len(left);
            }
        }
        self.publish(n);
        n
    }

    /// Moves all of `entries` into the ring, or none if they do not all fit. Returns true if they
    /// were moved. More entries than the ring's size never fit.
    #[inline]
    pub fn push_bulk_from<const N: usize>(&mut self, entries: &mut ArrayVec<T, N>) -> bool {
        let fits = self.room_for(entries.len()) == entries.len();
        if fits {
            self.push_from(entries);
        }
        fits
    }

    /// Number of `wanted` entries that fit. Reloads the consumer's index only if the cached one
    /// shows too little space.
    #[inline]
    fn room_for(&mut self, wanted: usize) -> usize {
        let known = self.cursor.available() as usize;
        let n = if known < wanted { self.free() } else { known };
        n.min(wanted)
    }

    #[inline]
    fn publish(&mut self, n: usize) {
        self.cursor.advance(n as u32);
        // Pairs with the acquire load in `SpscConsumer::len`: the slots are visible before the
        // index.
        self.shared.tail.0.store(self.cursor.index(), Ordering::Release);
    }
}

impl<T: Copy + Send> SpscProducer<T> {
    /// Appends as many of `entries` as fit, in order. Returns their number.
    #[inline]
    pub fn push(&mut self, entries: &[T]) -> usize {
        let n = self.room_for(entries.len());
        let (slots, more) = self.shared.burst(self.cursor.position(), n);
        let (one, two) = entries[..n].split_at(slots.len());
        prefetch::burst(slots, more, prefetch::for_writing);
        // SAFETY: these slots are free by the cursor, and the entries are `Copy`.
        unsafe {
            move_in(slots, one.as_ptr());
            move_in(more, two.as_ptr());
        }
        self.publish(n);
        n
    }

    /// Appends all of `entries`, or none if they do not all fit. Returns true if they were
    /// appended. See [`push_bulk_from`](Self::push_bulk_from).
    #[inline]
    pub fn push_bulk(&mut self, entries: &[T]) -> bool {
        let fits = self.room_for(entries.len()) == entries.len();
        if fits {
            self.push(entries);
        }
        fits
    }
}

impl<T: Send> SpscConsumer<T> {
    /// Number of entries available now.
    #[inline]
    pub fn len(&mut self) -> usize {
        // Pairs with the release store in `SpscProducer::publish`: the slots are visible before the
        // index.
        let tail = self.shared.tail.0.load(Ordering::Acquire);
        self.cursor.refresh(tail).unwrap_or_else(broken) as usize
    }

    /// True if no entry is available now.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        self.len() == 0
    }

    /// Removes one entry; `None` if the ring is empty.
    #[inline]
    pub fn pop_one(&mut self) -> Option<T> {
        if self.cursor.available() == 0 && self.is_empty() {
            return None;
        }
        let slot = &self.shared.slots[self.cursor.position() as usize];
        // SAFETY: the slot is published by the cursor, so it is initialised and only the consumer
        // accesses it; the index store below frees it, so it is not read again.
        let entry = slot.with(|p| unsafe { (*p).assume_init_read() });
        self.release(1);
        Some(entry)
    }

    /// Moves available entries to the end of `out`, in order, as many as fit. Returns their number.
    #[inline]
    pub fn pop_into<const N: usize>(&mut self, out: &mut ArrayVec<T, N>) -> usize {
        let n = self.available_of(out.remaining_capacity());
        let (slots, more) = self.shared.burst(self.cursor.position(), n);
        let len = out.len();
        self.prefetch_next_burst(n);
        // SAFETY: `out` has space for n more, and its length is set after all are copied; that many
        // slots are published by the cursor, and the index store below frees them, so they are not
        // read again.
        unsafe {
            let into = out.as_mut_ptr().add(len);
            move_out(slots, into);
            move_out(more, into.add(slots.len()));
            out.set_len(len + n);
        }
        self.release(n);
        n
    }

    /// Fills the remaining capacity of `out`, or moves nothing if there are fewer entries; returns
    /// true if `out` was filled. See [`SpscProducer::push_bulk_from`].
    #[inline]
    pub fn pop_bulk_into<const N: usize>(&mut self, out: &mut ArrayVec<T, N>) -> bool {
        let enough = self.available_of(out.remaining_capacity()) == out.remaining_capacity();
        if enough {
            self.pop_into(out);
        }
        enough
    }

    /// Number of `wanted` entries that are available. Reloads the producer's index only if the
    /// cached one shows too few.
    #[inline]
    fn available_of(&mut self, wanted: usize) -> usize {
        let known = self.cursor.available() as usize;
        let n = if known < wanted { self.len() } else { known };
        n.min(wanted)
    }

    /// Slots of the burst after the next `n` entries: at most `n` slots, only those known to be
    /// published. (Prefetching unpublished slots would take their lines from the producer.)
    #[inline(always)]
    fn burst_after(&self, n: usize) -> Burst<'_, T> {
        let more = self.cursor.available() as usize - n;
        self.shared.burst(self.cursor.position_after(n as u32), more.min(n))
    }

    /// Prefetches the next burst while the current `n` entries are read. (Prefetching the current
    /// burst is slower, because its loads are independent.)
    #[inline(always)]
    fn prefetch_next_burst(&self, n: usize) {
        let (slots, more) = self.burst_after(n);
        prefetch::burst(slots, more, prefetch::for_reading);
    }

    #[inline]
    fn release(&mut self, n: usize) {
        self.cursor.advance(n as u32);
        // Pairs with the acquire load in `SpscProducer::free`: the reads of the slots are complete.
        self.shared.head.0.store(self.cursor.index(), Ordering::Release);
    }
}

impl<T: Copy + Send> SpscConsumer<T> {
    /// Moves available entries to `out`, in order, as many as fit. Returns their number.
    #[inline]
    pub fn pop(&mut self, out: &mut [T]) -> usize {
        let n = self.available_of(out.len());
        let (slots, more) = self.shared.burst(self.cursor.position(), n);
        let (one, two) = out[..n].split_at_mut(slots.len());
        self.prefetch_next_burst(n);
        // SAFETY: these slots are published by the cursor, and both destinations have the same
        // lengths.
        unsafe {
            move_out(slots, one.as_mut_ptr());
            move_out(more, two.as_mut_ptr());
        }
        self.release(n);
        n
    }

    /// Fills `out`, or moves nothing if there are fewer entries. Returns true if `out` was filled.
    /// See [`SpscProducer::push_bulk_from`].
    #[inline]
    pub fn pop_bulk(&mut self, out: &mut [T]) -> bool {
        let enough = self.available_of(out.len()) == out.len();
        if enough {
            self.pop(out);
        }
        enough
    }
}

/// Number of entries moved per round. All entries of a round are read before the first is written,
/// which compiles to steps of 16 bytes. Otherwise the compiler calls libc's `memcpy`, which loads
/// up to 64 bytes of data that a page pool has just stored in steps of 16. Store-to-load forwarding
/// then fails, and the load waits for all earlier stores, including those to lines of the other
/// side. (The rest of a burst is left to the compiler.)
const ROUND: usize = 16;

/// True if a round of entries fits the registers.
const fn in_rounds<T>() -> bool {
    size_of::<T>() <= 8
}

/// # Safety
/// The slots are free, and `from` points to as many entries, which are not used any more.
#[inline]
unsafe fn move_in<T>(slots: &[Slot<T>], mut from: *const T) {
    let mut rest = slots;
    while in_rounds::<T>()
        && let Some((round, more)) = rest.split_first_chunk::<ROUND>()
    {
        // SAFETY: required of the caller.
        let entries = unsafe { from.cast::<[MaybeUninit<T>; ROUND]>().read() };
        for (slot, entry) in round.iter().zip(entries) {
            // SAFETY: required of the caller: only the producer accesses a free slot.
            slot.with_mut(|p| unsafe { p.write(entry) });
        }
        // SAFETY: as many entries as slots are left.
        from = unsafe { from.add(ROUND) };
        rest = more;
    }
    for (i, slot) in rest.iter().enumerate() {
        // SAFETY: as above.
        slot.with_mut(|p| unsafe { (*p).write(from.add(i).read()) });
    }
}

/// # Safety
/// The slots are published and not read again, and `into` points to space for as many entries.
#[inline]
unsafe fn move_out<T>(slots: &[Slot<T>], mut into: *mut T) {
    let mut rest = slots;
    while in_rounds::<T>()
        && let Some((round, more)) = rest.split_first_chunk::<ROUND>()
    {
        let mut entries = [const { MaybeUninit::<T>::uninit() }; ROUND];
        for (slot, entry) in round.iter().zip(&mut entries) {
            // SAFETY: required of the caller: the slot is initialised, and only the consumer
            // accesses it.
            *entry = slot.with(|p| unsafe { p.read() });
        }
        // SAFETY: required of the caller; there is space for as many entries as slots are left.
        unsafe {
            into.cast::<[MaybeUninit<T>; ROUND]>().write(entries);
            into = into.add(ROUND);
        }
        rest = more;
    }
    for (i, slot) in rest.iter().enumerate() {
        // SAFETY: as above.
        slot.with(|p| unsafe { into.add(i).write((*p).assume_init_read()) });
    }
}

#[cfg(test)]
mod tests;
