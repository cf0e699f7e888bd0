//! Hand-over cell: where a ring waits between the control thread and the queues that use it.
//!
//! While channels change, a queue pair has an old and a new queue, but one ring for each direction.
//! The queue that is polled takes the ring, and puts it back when it is parked or recalled.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mqnet_sysio::eventfd::EventFd;

/// The place of one ring. The lock is taken at hand-overs only; queues read a flag.
#[derive(Debug)]
pub(crate) struct Cell<T> {
    ring: Mutex<Option<Box<T>>>,
    /// A queue may take the ring. Written under the lock.
    offered: AtomicBool,
    /// The queue that has the ring is to put it back; set until the first offer. Written under the
    /// lock.
    recalled: AtomicBool,
    /// Wakes the queues of this cell.
    event: EventFd,
}

impl<T> Cell<T> {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            ring: Mutex::new(None),
            offered: AtomicBool::new(false),
            recalled: AtomicBool::new(true),
            event: EventFd::new()?,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<T>>> {
        // No code under the lock panics: the state is whole.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offers a ring to the queues.
    pub(crate) fn offer(&self, ring: Box<T>) {
        let mut place = self.lock();
        *place = Some(ring);
        self.recalled.store(false, Ordering::Relaxed);
        // Pairs with the Acquire load in take_offered. A hint only: the lock orders the ring.
        self.offered.store(true, Ordering::Release);
        drop(place);
        self.wake();
    }

    /// Withdraws the offer; a queue that has the ring puts it back at its next poll.
    pub(crate) fn recall(&self) {
        let place = self.lock();
        self.recalled.store(true, Ordering::Relaxed);
        self.offered.store(false, Ordering::Relaxed);
        drop(place);
        self.wake();
    }

    /// Takes the ring; `None` while a queue has it.
    pub(crate) fn take(&self) -> Option<Box<T>> {
        let mut place = self.lock();
        self.offered.store(false, Ordering::Relaxed);
        place.take()
    }

    /// Uses the ring in its place; `None` while a queue has it.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.lock().as_deref_mut().map(work)
    }

    /// Wakes the queues of this cell.
    pub(crate) fn wake(&self) {
        // An eventfd of our own does not fail.
        let _ = self.event.ring();
    }

    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn put_back(&self, ring: Box<T>) {
        let mut place = self.lock();
        *place = Some(ring);
        // As in offer.
        self.offered.store(!self.recalled.load(Ordering::Relaxed), Ordering::Release);
    }
}

/// The ring of a cell, while a queue has it.
#[derive(Debug)]
pub(crate) struct Held<T> {
    cell: Arc<Cell<T>>,
    ring: Option<Box<T>>,
}

impl<T> Held<T> {
    pub(crate) fn new(cell: Arc<Cell<T>>) -> Self {
        Self { cell, ring: None }
    }

    /// The ring: taken if it is offered, put back if it is recalled.
    #[inline]
    pub(crate) fn ready(&mut self) -> Option<&mut T> {
        if self.ring.is_none() || self.cell.recalled.load(Ordering::Relaxed) {
            self.change();
        }
        self.ring.as_deref_mut()
    }

    #[cold]
    #[inline(never)]
    fn change(&mut self) {
        self.leave();
        // Pairs with the Release stores in offer and put_back.
        if self.cell.offered.load(Ordering::Acquire) {
            self.ring = self.cell.take();
        }
    }

    /// The ring, if the queue has it.
    #[inline]
    pub(crate) fn ring(&mut self) -> Option<&mut T> {
        self.ring.as_deref_mut()
    }

    /// The ring, if the queue has it and it is not recalled.
    #[inline]
    pub(crate) fn ring_ref(&self) -> Option<&T> {
        self.ring.as_deref()
    }

    /// True when the ring is to be put back for good.
    pub(crate) fn is_recalled(&self) -> bool {
        self.cell.recalled.load(Ordering::Relaxed)
    }

    pub(crate) fn cell(&self) -> &Cell<T> {
        &self.cell
    }

    /// Puts the ring back.
    pub(crate) fn leave(&mut self) {
        if let Some(ring) = self.ring.take() {
            self.cell.put_back(ring);
        }
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a ring has one owner at a time, and a recalled ring returns to the control thread.
    #[test]
    fn one_owner_at_a_time() {
        let cell = Arc::new(Cell::new().unwrap());
        let (mut old, mut new) = (Held::new(cell.clone()), Held::new(cell.clone()));
        assert!(old.ready().is_none());
        cell.offer(Box::new(1));
        assert_eq!(old.ready().copied(), Some(1));
        assert!(new.ready().is_none() && cell.take().is_none());
        old.leave();
        assert_eq!(new.ready().copied(), Some(1));
        cell.recall();
        assert!(cell.take().is_none(), "not before the next poll");
        assert!(new.ready().is_none() && old.ready().is_none());
        assert_eq!(cell.take().as_deref(), Some(&1));
    }
}
