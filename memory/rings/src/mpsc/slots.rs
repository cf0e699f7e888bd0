//! One ring of slots: tickets, marks, and ownership of slots.
//!
//! Indexes have 64 bits and never wrap. The mark of a slot contains the last ticket that was handed
//! over, and a flag for an aborted slot. The consumer therefore reads the state of a slot from the
//! slot, and writes only its index.

use std::iter::FusedIterator;

use super::{Padded, ReserveError, SIZE_MAX};
use crate::primitive::cell::UnsafeCell;
use crate::primitive::sync::Arc;
use crate::primitive::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Flag in `tail`: no more tickets are given.
const CLOSED: u64 = 1 << 63;

#[derive(Debug)]
struct Slot<T> {
    /// Twice the number of the last ticket that was handed over (counted from 1), plus 1 if
    /// aborted.
    mark: AtomicU64,
    value: UnsafeCell<T>,
}

/// Ring of slots.
#[derive(Debug)]
pub(super) struct Slots<T> {
    /// Number of tickets taken, and [`CLOSED`].
    tail: Padded<AtomicU64>,
    /// Index of the consumer, which alone writes it: slots below it are free again.
    head: Padded<AtomicU64>,
    /// 1 if a consumer is attached.
    taken: AtomicU32,
    slots: Box<[Slot<T>]>,
}

// SAFETY: one side at a time accesses a slot's value: the holder of its ticket until the mark shows
// the hand-over, then the one consumer until its index shows that the slot is free.
unsafe impl<T: Send> Sync for Slots<T> {}

impl<T> Slots<T> {
    pub(super) fn new(size: u32, mut make: impl FnMut() -> T) -> Self {
        assert!((1..=SIZE_MAX).contains(&size), "ring of {size} slots");
        let slot = |_| Slot { mark: AtomicU64::new(0), value: UnsafeCell::new(make()) };
        Self {
            tail: Padded(AtomicU64::new(0)),
            head: Padded(AtomicU64::new(0)),
            taken: AtomicU32::new(0),
            slots: (0..size).map(slot).collect(),
        }
    }

    #[inline]
    pub(super) fn size(&self) -> u64 {
        self.slots.len() as u64
    }

    #[inline]
    fn slot(&self, ticket: u64) -> &Slot<T> {
        &self.slots[(ticket % self.slots.len() as u64) as usize]
    }

    /// Returns the next ticket without taking it; fails if the ring is full or closed.
    #[inline]
    fn next(&self) -> Result<u64, ReserveError> {
        // Pairs with the release store in `Front::free`: the consumer's reads of the slots below
        // are complete. `head` is read before `tail`, so that `tail` is not less; a stale value
        // only makes the ring appear fuller.
        let head = self.head.0.load(Ordering::Acquire);
        // Read with relaxed order: only the number matters, and slots are handed over one by one.
        let tail = self.tail.0.load(Ordering::Relaxed);
        if tail & CLOSED != 0 {
            return Err(ReserveError::Closed);
        }
        if tail - head >= self.size() { Err(ReserveError::Full) } else { Ok(tail) }
    }

    /// Fails if the ring is full or closed; takes no ticket.
    pub(super) fn check_room(&self) -> Result<(), ReserveError> {
        self.next().map(drop)
    }

    /// Takes a ticket; fails if the ring is full or closed.
    #[inline]
    pub(super) fn claim(&self) -> Result<u64, ReserveError> {
        loop {
            let ticket = self.next()?;
            let (order, fail) = (Ordering::Relaxed, Ordering::Relaxed);
            if self.tail.0.compare_exchange_weak(ticket, ticket + 1, order, fail).is_ok() {
                return Ok(ticket);
            }
        }
    }

    /// Returns the slot of a ticket.
    ///
    /// # Safety
    /// `ticket` must come from [`claim`](Self::claim) of this ring, and be passed to this function
    /// only once.
    #[inline]
    pub(super) unsafe fn redeem(&self, ticket: u64) -> Claim<'_, T> {
        Claim { slots: self, ticket }
    }

    /// Stops the issue of tickets; tickets already taken stay valid.
    pub(super) fn close(&self) {
        // Set with relaxed order: threads that depend on the flag synchronise through a lock.
        self.tail.0.fetch_or(CLOSED, Ordering::Relaxed);
    }
}

/// Slot owned by the holder of its ticket.
#[derive(Debug)]
pub(super) struct Claim<'a, T> {
    slots: &'a Slots<T>,
    ticket: u64,
}

impl<T> Claim<'_, T> {
    #[inline]
    pub(super) fn get(&self) -> &T {
        // SAFETY: the ticket gives exclusive access to the slot until hand_over.
        self.slots.slot(self.ticket).value.with(|p| unsafe { &*p })
    }

    #[inline]
    pub(super) fn get_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `self` is exclusive.
        self.slots.slot(self.ticket).value.with_mut(|p| unsafe { &mut *p })
    }

    /// Hands the slot over to the consumer, after which the claim must not be used.
    #[inline]
    pub(super) fn hand_over(&mut self, aborted: bool) {
        let mark = (self.ticket + 1) << 1 | u64::from(aborted);
        // Pairs with the acquire load in `Front::mark`: the writes to the slot are visible.
        self.slots.slot(self.ticket).mark.store(mark, Ordering::Release);
    }
}

/// State of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Pending,
    Committed,
    Aborted,
}

/// Consumer's side of a ring; at most one exists.
#[derive(Debug)]
pub(super) struct Front<T> {
    slots: Arc<Slots<T>>,
    /// Consumer index; `Slots::head` is its published copy.
    next: u64,
}

impl<T> Front<T> {
    /// Attaches the consumer; `None` if one is attached.
    pub(super) fn attach(slots: &Arc<Slots<T>>) -> Option<Self> {
        // Pairs with the release store in `Drop`: the previous consumer's index is visible, and its
        // reads are complete.
        if slots.taken.swap(1, Ordering::Acquire) != 0 {
            return None;
        }
        let next = slots.head.0.load(Ordering::Relaxed);
        Some(Self { slots: slots.clone(), next })
    }

    #[inline]
    pub(super) fn size(&self) -> u64 {
        self.slots.size()
    }

    #[inline]
    fn mark(&self, ticket: u64) -> Mark {
        // Pairs with the release store in `Claim::hand_over`: the sender's writes are visible.
        let mark = self.slots.slot(ticket).mark.load(Ordering::Acquire);
        if mark >> 1 != ticket + 1 {
            return Mark::Pending;
        }
        if mark & 1 == 0 { Mark::Committed } else { Mark::Aborted }
    }

    /// True if the first slot was handed over, as committed or aborted.
    #[inline]
    pub(super) fn has_first(&self) -> bool {
        self.mark(self.next) != Mark::Pending
    }

    /// True if all slots for which tickets were taken are freed.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.slots.tail.0.load(Ordering::Relaxed) & !CLOSED == self.next
    }

    /// True if the ring is closed and empty.
    pub(super) fn is_finished(&self) -> bool {
        self.slots.tail.0.load(Ordering::Relaxed) == CLOSED | self.next
    }

    /// Iterates over committed slots in order. Skips aborted slots, and stops at the first pending
    /// slot.
    #[inline]
    pub(super) fn waiting(&mut self) -> Waiting<'_, T> {
        Waiting { next: self.next, front: self }
    }

    /// Frees the first `frames` committed slots, and the aborted slots before, between and directly
    /// after them. Returns the number of freed slots.
    #[inline]
    pub(super) fn free(&mut self, frames: usize) -> u64 {
        let (begin, mut left) = (self.next, frames);
        loop {
            match self.mark(self.next) {
                Mark::Committed if left > 0 => left -= 1,
                Mark::Aborted => {}
                _ => break,
            }
            self.next += 1;
        }
        debug_assert!(left == 0, "{left} frames released that were never received");
        if self.next != begin {
            // Pairs with the acquire load in `Slots::next`: the reads of these slots are complete.
            self.slots.head.0.store(self.next, Ordering::Release);
        }
        self.next - begin
    }
}

impl<T> Drop for Front<T> {
    fn drop(&mut self) {
        // Pairs with the acquire swap in `attach`.
        self.slots.taken.store(0, Ordering::Release);
    }
}

/// Iterator over committed slots in order. The slots stay occupied until they are released.
#[derive(Debug)]
pub struct Waiting<'a, T> {
    front: &'a Front<T>,
    next: u64,
}

impl<'a, T> Iterator for Waiting<'a, T> {
    type Item = &'a T;

    #[inline]
    fn next(&mut self) -> Option<&'a T> {
        loop {
            let ticket = self.next;
            match self.front.mark(ticket) {
                Mark::Pending => return None,
                Mark::Aborted => self.next += 1,
                Mark::Committed => {
                    self.next += 1;
                    // SAFETY: the slot is handed over and not freed; freeing needs the consumer,
                    // which is borrowed here.
                    let value = self.front.slots.slot(ticket).value.with(|p| unsafe { &*p });
                    return Some(value);
                }
            }
        }
    }
}

impl<T> FusedIterator for Waiting<'_, T> {}
