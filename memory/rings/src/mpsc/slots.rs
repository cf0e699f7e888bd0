//! One ring of slots: tickets, marks, and who may touch a slot when.
//!
//! Indices are 64-bit and never wrap. A slot carries a mark that says up to which ticket it was
//! handed over, and how; so the consumer learns everything from the slot that it looks at and
//! writes nothing but its own index.

use std::iter::FusedIterator;

use super::{Padded, Refused, SIZE_MAX};
use crate::primitive::cell::UnsafeCell;
use crate::primitive::sync::Arc;
use crate::primitive::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// In `tail`: no more tickets.
const CLOSED: u64 = 1 << 63;

#[derive(Debug)]
struct Slot<T> {
    /// Twice the number of the last ticket that was handed over (tickets count from 1 here), plus
    /// 1 if it was given up.
    mark: AtomicU64,
    value: UnsafeCell<T>,
}

/// The ring.
#[derive(Debug)]
pub(super) struct Slots<T> {
    /// Tickets given out, and [`CLOSED`].
    tail: Padded<AtomicU64>,
    /// Slots below it are free again. Written by the consumer only.
    head: Padded<AtomicU64>,
    /// 1 while there is a consumer.
    taken: AtomicU32,
    slots: Box<[Slot<T>]>,
}

// SAFETY: a slot's value is touched by one side at a time: by the holder of its ticket until the
// mark says that it was handed over, by the one consumer until its index says that it is free.
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

    /// The next ticket, if there is one.
    #[inline]
    fn next(&self) -> Result<u64, Refused> {
        // Pairs with the Release store in Front::free: the consumer has read the slots below. Read
        // before `tail`, which therefore cannot be behind it; a stale value only makes the ring
        // look fuller.
        let head = self.head.0.load(Ordering::Acquire);
        // Relaxed: only the number matters, slots are handed over one by one.
        let tail = self.tail.0.load(Ordering::Relaxed);
        if tail & CLOSED != 0 {
            return Err(Refused::Closed);
        }
        if tail - head >= self.size() { Err(Refused::Full) } else { Ok(tail) }
    }

    /// Whether there is a ticket now.
    pub(super) fn look(&self) -> Result<(), Refused> {
        self.next().map(drop)
    }

    /// Takes a ticket.
    #[inline]
    pub(super) fn claim(&self) -> Result<u64, Refused> {
        loop {
            let ticket = self.next()?;
            let (order, fail) = (Ordering::Relaxed, Ordering::Relaxed);
            if self.tail.0.compare_exchange_weak(ticket, ticket + 1, order, fail).is_ok() {
                return Ok(ticket);
            }
        }
    }

    /// What a ticket is good for.
    ///
    /// # Safety
    /// `ticket` must come from [`claim`](Self::claim) of this ring, and be used here once.
    #[inline]
    pub(super) unsafe fn redeem(&self, ticket: u64) -> Claim<'_, T> {
        Claim { slots: self, ticket }
    }

    /// No more tickets. Those that are out stay good.
    pub(super) fn close(&self) {
        // Relaxed: whoever must know of it is told under a lock.
        self.tail.0.fetch_or(CLOSED, Ordering::Relaxed);
    }
}

/// A slot that belongs to the holder of its ticket.
#[derive(Debug)]
pub(super) struct Claim<'a, T> {
    slots: &'a Slots<T>,
    ticket: u64,
}

impl<T> Claim<'_, T> {
    #[inline]
    pub(super) fn get(&self) -> &T {
        // SAFETY: the ticket makes the slot ours until hand_over.
        self.slots.slot(self.ticket).value.with(|p| unsafe { &*p })
    }

    #[inline]
    pub(super) fn get_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `self` is exclusive.
        self.slots.slot(self.ticket).value.with_mut(|p| unsafe { &mut *p })
    }

    /// Hands the slot to the consumer. Not used afterwards.
    #[inline]
    pub(super) fn hand_over(&mut self, given_up: bool) {
        let mark = (self.ticket + 1) << 1 | u64::from(given_up);
        // Pairs with the Acquire load in Front::mark: what we wrote into the slot comes first.
        self.slots.slot(self.ticket).mark.store(mark, Ordering::Release);
    }
}

/// How far a ticket has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Out,
    Committed,
    GivenUp,
}

/// The consumer's end of a ring: there is at most one.
#[derive(Debug)]
pub(super) struct Front<T> {
    slots: Arc<Slots<T>>,
    /// Our index; `Slots::head` is its published copy.
    next: u64,
}

impl<T> Front<T> {
    /// Becomes the consumer; `None` while there is one.
    pub(super) fn attach(slots: &Arc<Slots<T>>) -> Option<Self> {
        // Pairs with the Release store in Drop: the last consumer's index and its reads.
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
        // Pairs with the Release store in Claim::hand_over: what the sender wrote.
        let mark = self.slots.slot(ticket).mark.load(Ordering::Acquire);
        if mark >> 1 != ticket + 1 {
            return Mark::Out;
        }
        if mark & 1 == 0 { Mark::Committed } else { Mark::GivenUp }
    }

    /// True when the first slot was handed over, one way or the other.
    #[inline]
    pub(super) fn has_first(&self) -> bool {
        self.mark(self.next) != Mark::Out
    }

    /// True when every ticket that was given out has been dealt with.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.slots.tail.0.load(Ordering::Relaxed) & !CLOSED == self.next
    }

    /// True when nothing will ever come any more.
    pub(super) fn is_finished(&self) -> bool {
        self.slots.tail.0.load(Ordering::Relaxed) == CLOSED | self.next
    }

    /// What was committed, in order, up to the first slot that is still being filled.
    #[inline]
    pub(super) fn waiting(&mut self) -> Waiting<'_, T> {
        Waiting { next: self.next, front: self }
    }

    /// Frees the first `frames` committed slots, and those given up before, between and behind
    /// them. Returns how many slots that were.
    #[inline]
    pub(super) fn free(&mut self, frames: usize) -> u64 {
        let (begin, mut left) = (self.next, frames);
        loop {
            match self.mark(self.next) {
                Mark::Committed if left > 0 => left -= 1,
                Mark::GivenUp => {}
                _ => break,
            }
            self.next += 1;
        }
        debug_assert!(left == 0, "{left} frames released that were never shown");
        if self.next != begin {
            // Pairs with the Acquire load in Slots::claim: our reads of these slots come first.
            self.slots.head.0.store(self.next, Ordering::Release);
        }
        self.next - begin
    }
}

impl<T> Drop for Front<T> {
    fn drop(&mut self) {
        // Pairs with the Acquire swap in attach.
        self.slots.taken.store(0, Ordering::Release);
    }
}

/// Committed slots, in order. They stay until they are released.
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
                Mark::Out => return None,
                Mark::GivenUp => self.next += 1,
                Mark::Committed => {
                    self.next += 1;
                    // SAFETY: handed over and not freed: freeing needs the consumer that we
                    // borrow.
                    let value = self.front.slots.slot(ticket).value.with(|p| unsafe { &*p });
                    return Some(value);
                }
            }
        }
    }
}

impl<T> FusedIterator for Waiting<'_, T> {}
