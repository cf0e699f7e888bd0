//! A bounded ring with one producer and one consumer in private memory.
//!
//! The two halves are `Send` and not `Clone`: the type system is the one-producer, one-consumer
//! rule. Each half keeps the other's index in its [`Cursor`] and reads the shared one only when
//! the kept one says "not enough"; entries move in bursts and the index is published once a burst.

use std::mem::MaybeUninit;

use crate::cursor::Cursor;
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
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: a slot is touched by one side at a time: by the producer while it is free, by the
// consumer while it is published; the index stores below hand it over.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: as above; T: Send moves with its slot.
unsafe impl<T: Send> Send for Shared<T> {}

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
pub fn ring<T: Copy + Send>(size: u32) -> (Producer<T>, Consumer<T>) {
    let slots = (0..size).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
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

impl<T: Copy + Send> Producer<T> {
    /// Entries that fit now.
    #[inline]
    pub fn free(&mut self) -> usize {
        // Pairs with the Release store in Consumer::pop: the slots below `head` are free.
        let head = self.shared.head.0.load(Ordering::Acquire);
        self.cursor.refresh(head).unwrap_or_else(broken) as usize
    }

    /// Appends as many of `entries` as fit, in order; returns how many.
    #[inline]
    pub fn push(&mut self, entries: &[T]) -> usize {
        let mut n = self.cursor.available() as usize;
        if n < entries.len() {
            n = self.free();
        }
        let n = n.min(entries.len());
        let at = self.cursor.position() as usize;
        let first = n.min(self.shared.slots.len() - at);
        let (one, two) = entries[..n].split_at(first);
        fill(&self.shared.slots[at..at + first], one);
        fill(&self.shared.slots[..n - first], two);
        self.cursor.advance(n as u32);
        // Pairs with the Acquire load in Consumer::len: the slots before the index.
        self.shared.tail.0.store(self.cursor.index(), Ordering::Release);
        n
    }
}

impl<T: Copy + Send> Consumer<T> {
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

    /// Takes as many entries as are there and fit into `out`, in order; returns how many.
    #[inline]
    pub fn pop(&mut self, out: &mut [T]) -> usize {
        let mut n = self.cursor.available() as usize;
        if n < out.len() {
            n = self.len();
        }
        let n = n.min(out.len());
        let at = self.cursor.position() as usize;
        let first = n.min(self.shared.slots.len() - at);
        let (one, two) = out[..n].split_at_mut(first);
        take(&self.shared.slots[at..at + first], one);
        take(&self.shared.slots[..n - first], two);
        self.cursor.advance(n as u32);
        // Pairs with the Acquire load in Producer::free: our reads of the slots come first.
        self.shared.head.0.store(self.cursor.index(), Ordering::Release);
        n
    }
}

#[inline]
fn fill<T: Copy>(slots: &[UnsafeCell<MaybeUninit<T>>], from: &[T]) {
    for (slot, &entry) in slots.iter().zip(from) {
        // SAFETY: the cursor says that these slots are free: only the producer touches them.
        slot.with_mut(|p| unsafe { (*p).write(entry) });
    }
}

#[inline]
fn take<T: Copy>(slots: &[UnsafeCell<MaybeUninit<T>>], into: &mut [T]) {
    for (slot, out) in slots.iter().zip(into) {
        // SAFETY: the cursor says that these slots are published: initialised, and only the
        // consumer touches them.
        *out = slot.with(|p| unsafe { (*p).assume_init() });
    }
}

#[cfg(test)]
mod tests;
