//! A bounded ring with one producer and one consumer in private memory.
//!
//! The two halves are `Send` and not `Clone`: the type system is the one-producer, one-consumer
//! rule. Each half keeps the other's index in its [`Cursor`] and reads the shared one only when
//! the kept one says "not enough"; entries move in bursts and the index is published once a burst.

use std::mem::MaybeUninit;
use std::ptr;

use arrayvec::ArrayVec;

use crate::cursor::Cursor;
use crate::lines::Lines;
use crate::prefetch;
use crate::primitive::cell::UnsafeCell;
use crate::primitive::sync::Arc;
use crate::primitive::sync::atomic::{AtomicU32, Ordering};

/// 128 bytes: a cache line and the one that the adjacent-line prefetcher brings with it.
#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(T);

#[derive(Debug)]
struct Shared<T> {
    /// Written by the producer only.
    tail: Padded<AtomicU32>,
    /// Written by the consumer only.
    head: Padded<AtomicU32>,
    slots: Lines<Slot<T>>,
}

// SAFETY: a slot is touched by one side at a time: by the producer while it is free, by the
// consumer while it is published; the index stores below hand it over.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: as above; T: Send moves with its slot.
unsafe impl<T: Send> Send for Shared<T> {}

type Slot<T> = UnsafeCell<MaybeUninit<T>>;

/// Slots of a burst up to the ring's end, and the others, from its begin on.
type Burst<'a, T> = (&'a [Slot<T>], &'a [Slot<T>]);

impl<T> Shared<T> {
    /// The slots of `n` entries from `position` on.
    #[inline(always)]
    fn burst(&self, position: u32, n: usize) -> Burst<'_, T> {
        let (slots, at): (&[Slot<T>], _) = (&self.slots, position as usize);
        let first = n.min(slots.len() - at);
        (&slots[at..at + first], &slots[..n - first])
    }
}

/// The half that fills the ring.
#[derive(Debug)]
pub struct Producer<T> {
    cursor: Cursor,
    shared: Arc<Shared<T>>,
}

/// The half that empties the ring.
#[derive(Debug)]
pub struct Consumer<T> {
    cursor: Cursor,
    shared: Arc<Shared<T>>,
}

/// An empty ring of `size` entries.
///
/// # Panics
/// When `size` is 0 or above [`crate::cursor::SIZE_MAX`].
pub fn ring<T: Send>(size: u32) -> (Producer<T>, Consumer<T>) {
    let slots = Lines::new(size as usize, || UnsafeCell::new(MaybeUninit::uninit()));
    let (tail, head) = (Padded(AtomicU32::new(0)), Padded(AtomicU32::new(0)));
    let shared = Arc::new(Shared { tail, head, slots });
    let producer = Producer { cursor: Cursor::producer(size), shared: shared.clone() };
    (producer, Consumer { cursor: Cursor::consumer(size), shared })
}

/// The two sides are one program: an impossible index is a bug, not a peer's violation.
#[cold]
fn broken(violation: crate::IndexViolation) -> u32 {
    unreachable!("both halves are ours: {violation}")
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        if !std::mem::needs_drop::<T>() {
            return;
        }
        let mut left = Cursor::consumer(self.slots.len() as u32);
        // Both halves are gone: their last indices say what is left. The head catches up first.
        let (head, tail) =
            (self.head.0.load(Ordering::Acquire), self.tail.0.load(Ordering::Acquire));
        left.jump(head);
        for _ in 0..left.refresh(tail).unwrap_or_else(broken) {
            let slot = &self.slots[left.position() as usize];
            // SAFETY: between head and tail every slot is initialised, and nobody else is left.
            slot.with_mut(|p| unsafe { (*p).assume_init_drop() });
            left.advance(1);
        }
    }
}

impl<T: Send> Producer<T> {
    /// Entries that fit now.
    #[inline]
    pub fn free(&mut self) -> usize {
        // Pairs with the Release store in Consumer::pop: the slots below `head` are free.
        let head = self.shared.head.0.load(Ordering::Acquire);
        self.cursor.refresh(head).unwrap_or_else(broken) as usize
    }

    /// Appends one entry, or hands it back when the ring is full.
    #[inline]
    pub fn push_one(&mut self, entry: T) -> Result<(), T> {
        if self.cursor.available() == 0 && self.free() == 0 {
            return Err(entry);
        }
        let slot = &self.shared.slots[self.cursor.position() as usize];
        // SAFETY: the cursor says that this slot is free: only the producer touches it.
        slot.with_mut(|p| unsafe {
            (*p).write(entry);
        });
        self.publish(1);
        Ok(())
    }

    /// Moves as many of `entries` as fit into the ring, in order; the others stay where they are,
    /// moved up. Returns how many.
    #[inline]
    pub fn push_from<const N: usize>(&mut self, entries: &mut ArrayVec<T, N>) -> usize {
        let n = self.room_for(entries.len());
        let (slots, more) = self.shared.burst(self.cursor.position(), n);
        let left = entries.len() - n;
        prefetch::burst(slots, more, prefetch::for_writing);
        // SAFETY: an entry is in one place only: `entries` forgets all before the first is copied
        // and gets back those behind the n; the cursor says that so many slots are free.
        unsafe {
            // First: it borrows all of `entries`, and would end an older pointer's right to it.
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

    /// Moves all of `entries` into the ring, or none when they do not all fit; returns whether.
    /// More than the ring holds never fit.
    #[inline]
    pub fn push_bulk_from<const N: usize>(&mut self, entries: &mut ArrayVec<T, N>) -> bool {
        let fits = self.room_for(entries.len()) == entries.len();
        if fits {
            self.push_from(entries);
        }
        fits
    }

    /// How many of `wanted` entries fit. Asks for the consumer's index only when those that are
    /// known to be free are not enough.
    #[inline]
    fn room_for(&mut self, wanted: usize) -> usize {
        let known = self.cursor.available() as usize;
        let n = if known < wanted { self.free() } else { known };
        n.min(wanted)
    }

    #[inline]
    fn publish(&mut self, n: usize) {
        self.cursor.advance(n as u32);
        // Pairs with the Acquire load in Consumer::len: the slots before the index.
        self.shared.tail.0.store(self.cursor.index(), Ordering::Release);
    }
}

impl<T: Copy + Send> Producer<T> {
    /// Appends as many of `entries` as fit, in order; returns how many.
    #[inline]
    pub fn push(&mut self, entries: &[T]) -> usize {
        let n = self.room_for(entries.len());
        let (slots, more) = self.shared.burst(self.cursor.position(), n);
        let (one, two) = entries[..n].split_at(slots.len());
        prefetch::burst(slots, more, prefetch::for_writing);
        // SAFETY: the cursor says that these slots are free, and what is copied stays what it is.
        unsafe {
            move_in(slots, one.as_ptr());
            move_in(more, two.as_ptr());
        }
        self.publish(n);
        n
    }

    /// Appends all of `entries`, or none when they do not all fit; returns whether. See
    /// [`push_bulk_from`](Self::push_bulk_from).
    #[inline]
    pub fn push_bulk(&mut self, entries: &[T]) -> bool {
        let fits = self.room_for(entries.len()) == entries.len();
        if fits {
            self.push(entries);
        }
        fits
    }
}

impl<T: Send> Consumer<T> {
    /// Entries that are there now.
    #[inline]
    pub fn len(&mut self) -> usize {
        // Pairs with the Release store in Producer::push: the slots before the index.
        let tail = self.shared.tail.0.load(Ordering::Acquire);
        self.cursor.refresh(tail).unwrap_or_else(broken) as usize
    }

    /// True when nothing is there now.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        self.len() == 0
    }

    /// Takes one entry, if there is one.
    #[inline]
    pub fn pop_one(&mut self) -> Option<T> {
        if self.cursor.available() == 0 && self.is_empty() {
            return None;
        }
        let slot = &self.shared.slots[self.cursor.position() as usize];
        // SAFETY: the cursor says that this slot is published: initialised, and only the consumer
        // touches it; the index store below makes it free, so nobody reads it again.
        let entry = slot.with(|p| unsafe { (*p).assume_init_read() });
        self.give_back(1);
        Some(entry)
    }

    /// Moves as many entries as are there, and as `out` has room for, to its end, in order; returns
    /// how many.
    #[inline]
    pub fn pop_into<const N: usize>(&mut self, out: &mut ArrayVec<T, N>) -> usize {
        let n = self.there_of(out.remaining_capacity());
        let (slots, more) = self.shared.burst(self.cursor.position(), n);
        let len = out.len();
        self.ask_for_what_follows(n);
        // SAFETY: `out` has room for n more, and counts them when all are there; the cursor says
        // that so many slots are published, and the index store below makes them free, so that
        // nobody reads them again.
        unsafe {
            let into = out.as_mut_ptr().add(len);
            move_out(slots, into);
            move_out(more, into.add(slots.len()));
            out.set_len(len + n);
        }
        self.give_back(n);
        n
    }

    /// Moves as many entries as `out` has room for to its end, or none when there are not so many;
    /// returns whether. See [`Producer::push_bulk_from`].
    #[inline]
    pub fn pop_bulk_into<const N: usize>(&mut self, out: &mut ArrayVec<T, N>) -> bool {
        let are_there = self.there_of(out.remaining_capacity()) == out.remaining_capacity();
        if are_there {
            self.pop_into(out);
        }
        are_there
    }

    /// How many of `wanted` entries are there; see `Producer::room_for`.
    #[inline]
    fn there_of(&mut self, wanted: usize) -> usize {
        let known = self.cursor.available() as usize;
        let n = if known < wanted { self.len() } else { known };
        n.min(wanted)
    }

    /// Where the entries behind the next `n` lie: as many more, as far as they are known to be
    /// there. (What is not published yet would be taken from the producer.)
    #[inline(always)]
    fn burst_after(&self, n: usize) -> Burst<'_, T> {
        let more = self.cursor.available() as usize - n;
        self.shared.burst(self.cursor.position_after(n as u32), more.min(n))
    }

    /// Has them fetched while these `n` are read. (These are loaded all at once as it is: to ask
    /// for them instead was slower, 630 million entries a second for 850.)
    #[inline(always)]
    fn ask_for_what_follows(&self, n: usize) {
        let (slots, more) = self.burst_after(n);
        prefetch::burst(slots, more, prefetch::for_reading);
    }

    #[inline]
    fn give_back(&mut self, n: usize) {
        self.cursor.advance(n as u32);
        // Pairs with the Acquire load in Producer::free: our reads of the slots come first.
        self.shared.head.0.store(self.cursor.index(), Ordering::Release);
    }
}

impl<T: Copy + Send> Consumer<T> {
    /// Takes as many entries as are there and fit into `out`, in order; returns how many.
    #[inline]
    pub fn pop(&mut self, out: &mut [T]) -> usize {
        let n = self.there_of(out.len());
        let (slots, more) = self.shared.burst(self.cursor.position(), n);
        let (one, two) = out[..n].split_at_mut(slots.len());
        self.ask_for_what_follows(n);
        // SAFETY: the cursor says that these slots are published; both rooms are as long.
        unsafe {
            move_out(slots, one.as_mut_ptr());
            move_out(more, two.as_mut_ptr());
        }
        self.give_back(n);
        n
    }

    /// Fills `out`, or takes nothing when there are not so many entries; returns whether. See
    /// [`Producer::push_bulk_from`].
    #[inline]
    pub fn pop_bulk(&mut self, out: &mut [T]) -> bool {
        let are_there = self.there_of(out.len()) == out.len();
        if are_there {
            self.pop(out);
        }
        are_there
    }
}

/// Entries that are moved at a time, all of them read before the first is written: in steps of 16
/// bytes then, as the compiler makes them. Left to itself it calls libc's `memcpy`, which loads up
/// to 64 bytes of what has just been stored in steps of 16 (a batch that a page pool has filled):
/// no store that has not left the core yet serves such a load, so that it waits for all of them,
/// those into the other side's lines among them. (What is left of a burst is the compiler's.)
const ROUND: usize = 16;

/// Of larger entries a round would not stay in registers.
const fn in_rounds<T>() -> bool {
    size_of::<T>() <= 8
}

/// # Safety
/// The slots are free, and `from` points to as many entries, which nobody uses any more.
#[inline]
unsafe fn move_in<T>(slots: &[Slot<T>], mut from: *const T) {
    let mut rest = slots;
    while in_rounds::<T>()
        && let Some((round, more)) = rest.split_first_chunk::<ROUND>()
    {
        // SAFETY: the caller's word.
        let entries = unsafe { from.cast::<[MaybeUninit<T>; ROUND]>().read() };
        for (slot, entry) in round.iter().zip(entries) {
            // SAFETY: the caller's word: only the producer touches a free slot.
            slot.with_mut(|p| unsafe { p.write(entry) });
        }
        // SAFETY: as many are left as slots.
        from = unsafe { from.add(ROUND) };
        rest = more;
    }
    for (i, slot) in rest.iter().enumerate() {
        // SAFETY: as above.
        slot.with_mut(|p| unsafe { (*p).write(from.add(i).read()) });
    }
}

/// # Safety
/// The slots are published and not read again, and `into` points to room for as many entries.
#[inline]
unsafe fn move_out<T>(slots: &[Slot<T>], mut into: *mut T) {
    let mut rest = slots;
    while in_rounds::<T>()
        && let Some((round, more)) = rest.split_first_chunk::<ROUND>()
    {
        let mut entries = [const { MaybeUninit::<T>::uninit() }; ROUND];
        for (slot, entry) in round.iter().zip(&mut entries) {
            // SAFETY: the caller's word: initialised, and only the consumer touches it.
            *entry = slot.with(|p| unsafe { p.read() });
        }
        // SAFETY: the caller's word; as much room is left as slots.
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
