//! Hand-over cell: holds a ring between the control thread and the queues that use the ring.
//!
//! During a channel change, a queue pair has an old and a new queue, but one ring per direction.
//! The queue that is polled takes the ring, and puts it back when it is parked or the ring is
//! recalled.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use mqnet_netdev::RecallCell;
use mqnet_sysio::eventfd::EventFd;

/// Hand-over cell of one ring, with the event that wakes the queues.
#[derive(Debug)]
pub(crate) struct Cell<T> {
    ring: RecallCell<T>,
    /// Wakes the queues of this cell.
    event: EventFd,
}

impl<T> Cell<T> {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { ring: RecallCell::empty(), event: EventFd::new()? })
    }

    /// Offers a ring to the queues.
    pub(crate) fn offer(&self, ring: Box<T>) {
        self.ring.offer(ring);
        self.wake();
    }

    /// Withdraws the offer. A queue that has the ring puts it back at its next poll.
    pub(crate) fn recall(&self) {
        self.ring.recall();
        self.wake();
    }

    /// Takes the ring; `None` if a queue has it or there is none.
    pub(crate) fn take(&self) -> Option<Box<T>> {
        self.ring.take()
    }

    /// Calls `work` with the ring and returns its result; `None` if a queue has the ring or there
    /// is none.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.ring.with(work)
    }

    /// Wakes the queues of this cell.
    pub(crate) fn wake(&self) {
        // Ignore an error: an eventfd with a full counter is readable anyway.
        let _ = self.event.ring();
    }

    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Handle of a queue to the ring of a cell.
#[derive(Debug)]
pub(crate) struct Held<T> {
    cell: Arc<Cell<T>>,
    ring: Option<Box<T>>,
}

impl<T> Held<T> {
    pub(crate) fn new(cell: Arc<Cell<T>>) -> Self {
        Self { cell, ring: None }
    }

    /// Ring for a poll; `None` without one. Takes an offered ring, and puts a recalled ring back.
    #[inline]
    pub(crate) fn ready(&mut self) -> Option<&mut T> {
        if self.ring.is_none() || self.cell.ring.is_recalled() {
            self.change();
        }
        self.ring.as_deref_mut()
    }

    #[cold]
    #[inline(never)]
    fn change(&mut self) {
        self.leave();
        self.ring = self.cell.ring.take_offered();
    }

    /// Ring, if this queue has it; neither takes an offered ring nor puts a recalled ring back.
    #[inline]
    pub(crate) fn ring(&mut self) -> Option<&mut T> {
        self.ring.as_deref_mut()
    }

    /// Ring for reading, if this queue has it; also while the ring is recalled.
    #[inline]
    pub(crate) fn ring_ref(&self) -> Option<&T> {
        self.ring.as_deref()
    }

    /// True if the ring must be put back, or was never offered.
    pub(crate) fn is_recalled(&self) -> bool {
        self.cell.ring.is_recalled()
    }

    pub(crate) fn cell(&self) -> &Cell<T> {
        &self.cell
    }

    /// Puts the ring back, if this queue has it.
    pub(crate) fn leave(&mut self) {
        if let Some(ring) = self.ring.take() {
            self.cell.ring.put_back(ring);
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

    // Rule: a ring has one owner at a time. A recalled ring returns to the control thread at the
    // next poll of its owner.
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
