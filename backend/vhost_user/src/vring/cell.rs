//! Hand-over cell of a ring.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use mqnet_netdev::{Fault, RecallCell};
use mqnet_sysio::eventfd::EventFd;
use mqnet_virtio::Broken;

use super::Vring;

/// Hand-over cell of a ring. A half takes an offered ring, and returns a recalled one.
#[derive(Debug)]
pub struct VringCell {
    parked: RecallCell<Vring>,
    /// Wakes the half after an offer or a recall.
    wake_event: EventFd,
    /// Last violation of the guest in this ring, until it is taken.
    violation: Mutex<Option<String>>,
}

impl VringCell {
    /// Creates an empty cell.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            parked: RecallCell::empty(),
            wake_event: EventFd::new()?,
            violation: Mutex::new(None),
        })
    }

    /// Offers a ring to the half that serves this cell.
    pub fn offer(&self, vring: Box<Vring>) -> io::Result<()> {
        self.parked.offer(vring);
        self.wake_event.ring()
    }

    /// Withdraws the offer. A half that has the ring returns it at its next poll; see
    /// [`take`](Self::take).
    pub fn recall(&self) -> io::Result<()> {
        self.parked.recall();
        self.wake_event.ring()
    }

    /// Takes the ring for the control thread; `None` if a half has it or there is none.
    pub fn take(&self) -> Option<Box<Vring>> {
        self.parked.take()
    }

    /// Takes the ring for a half; `None` if no ring is offered.
    #[inline]
    pub(crate) fn take_offered(&self) -> Option<Box<Vring>> {
        self.parked.take_offered()
    }

    /// True if a half must return the ring.
    #[inline]
    pub(crate) fn is_recalled(&self) -> bool {
        self.parked.is_recalled()
    }

    /// Returns the ring from a half, and offers the ring to the next half unless it was recalled.
    pub(crate) fn put_back(&self, vring: Box<Vring>) {
        self.parked.put_back(vring);
    }

    /// Records a violation of the guest, and returns the fault, which closes the link. A recorded
    /// violation shows that the guest, not the other endpoint of the link, caused the fault.
    #[cold]
    pub(crate) fn fault(&self, channel: u16, broken: &Broken) -> Fault {
        let mut noted = self.violation.lock().unwrap_or_else(PoisonError::into_inner);
        *noted = Some(broken.to_string());
        Fault { channel, what: format!("the guest: {broken}") }
    }

    /// Takes the recorded violation, if any.
    pub fn take_violation(&self) -> Option<String> {
        self.violation.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// True if a recorded violation has not been taken.
    pub(crate) fn is_violated(&self) -> bool {
        self.violation.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Wakes the half that serves this cell.
    pub(crate) fn wake(&self) {
        // An error is ignored: writing to this process's own eventfd does not fail.
        let _ = self.wake_event.ring();
    }

    pub(crate) fn wake_event(&self) -> BorrowedFd<'_> {
        self.wake_event.as_fd()
    }
}
