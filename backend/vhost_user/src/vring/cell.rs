//! Where a ring waits between its owners.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use mqnet_netdev::Fault;
use mqnet_sysio::eventfd::EventFd;
use mqnet_virtio::Broken;

use super::Vring;

/// The place in which a ring changes hands. The lock is taken at hand-overs only; a half that waits
/// for its ring, or is asked for it, looks at a flag. Flags change under the lock: one that was
/// changed after it could hide the ring that came next.
#[derive(Debug)]
pub struct VringCell {
    parked: Mutex<Option<Box<Vring>>>,
    /// A half may take what is parked.
    offered: AtomicBool,
    /// The half that has it shall put it back.
    recalled: AtomicBool,
    /// Wakes the half when one of the two changed.
    bell: EventFd,
    /// How the guest broke the rules in this ring.
    violation: Mutex<Option<String>>,
}

impl VringCell {
    /// An empty one.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            parked: Mutex::new(None),
            offered: AtomicBool::new(false),
            recalled: AtomicBool::new(false),
            bell: EventFd::new()?,
            violation: Mutex::new(None),
        })
    }

    /// Offers a ring to the half that serves this cell.
    pub fn offer(&self, vring: Box<Vring>) -> io::Result<()> {
        let mut parked = self.lock();
        *parked = Some(vring);
        self.recalled.store(false, Ordering::Relaxed);
        // Pairs with the Acquire in `take_offered`: only a hint, the lock orders the ring.
        self.offered.store(true, Ordering::Release);
        drop(parked);
        self.bell.ring()
    }

    /// Asks for the ring: it is not offered any more, and a half that has it puts it back at its
    /// next poll. See [`take`](Self::take).
    pub fn recall(&self) -> io::Result<()> {
        let parked = self.lock();
        self.recalled.store(true, Ordering::Relaxed);
        self.offered.store(false, Ordering::Relaxed);
        drop(parked);
        self.bell.ring()
    }

    /// Takes the ring out, for the control thread; `None` while a half has it, or when there is
    /// none.
    pub fn take(&self) -> Option<Box<Vring>> {
        let mut parked = self.lock();
        self.offered.store(false, Ordering::Relaxed);
        parked.take()
    }

    /// For a half: the ring, if it is offered.
    #[inline]
    pub(crate) fn take_offered(&self) -> Option<Box<Vring>> {
        if self.offered.load(Ordering::Acquire) { self.take() } else { None }
    }

    /// For a half: the ring is wanted elsewhere.
    #[inline]
    pub(crate) fn is_recalled(&self) -> bool {
        self.recalled.load(Ordering::Relaxed)
    }

    /// From a half: for the next one, unless it was recalled.
    pub(crate) fn put_back(&self, vring: Box<Vring>) {
        let mut parked = self.lock();
        *parked = Some(vring);
        // Pairs with the Acquire in `take_offered`: only a hint, the lock orders the ring.
        self.offered.store(!self.is_recalled(), Ordering::Release);
    }

    /// From a half: the guest broke the rules in this ring. The fault closes the link; the function
    /// must tell its own guest's violations from its neighbour's, so they are noted here, too.
    #[cold]
    pub(crate) fn fault(&self, channel: u16, broken: &Broken) -> Fault {
        let mut noted = self.violation.lock().unwrap_or_else(PoisonError::into_inner);
        *noted = Some(broken.to_string());
        Fault { channel, what: format!("the guest: {broken}") }
    }

    /// How the guest broke the rules here, said once.
    pub fn take_violation(&self) -> Option<String> {
        self.violation.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The guest broke the rules here, and that was not said yet.
    pub(crate) fn is_violated(&self) -> bool {
        self.violation.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Wakes whoever serves this cell.
    pub(crate) fn wake(&self) {
        // An eventfd of our own cannot fail to be rung.
        let _ = self.bell.ring();
    }

    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Box<Vring>>> {
        // A half that panicked did so outside of the lock: what lies here is whole.
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
