//! Doorbells in both directions.
//!
//! At each ring the driver reads the doorbell's offset from this end's registers. While no worker
//! sleeps, the offset points to mapped memory, so that a ring causes no event. Arming moves the
//! offset to a trapped page. The next ring is then a vfio-user message, and its handler moves the
//! offset back.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use mqnet_shmem::AtomicTable;
use mqnet_sysio::eventfd::EventFd;
use mqnet_vfio_user::Interrupts;

use super::layout::{FIRST_VECTOR, TRAP, register};
use crate::hw::{Doorbell, DoorbellTrap};

/// Doorbell of this end.
pub(super) struct Own {
    pub(super) event: Arc<EventFd>,
    registers: AtomicTable,
    offset: u32,
}

impl Own {
    pub(super) fn new(registers: AtomicTable, bit: u16) -> io::Result<Self> {
        let offset = register::doorbell_offset(FIRST_VECTOR + bit);
        Ok(Self { event: Arc::new(EventFd::new()?), registers, offset })
    }

    /// Handles a ring at the trapped page.
    pub(super) fn ring(&self) {
        // Disarm before the event is signalled: a worker that this event wakes may arm the doorbell
        // again, and that must not be undone.
        self.disarm();
        // Ignore an error: an eventfd with a full counter is readable anyway.
        let _ = self.event.ring();
    }
}

impl DoorbellTrap for Own {
    fn arm(&self) {
        self.registers.word(self.offset).store(TRAP.to_le(), Ordering::Relaxed);
        // Pairs with the barrier of the guest's driver between the write of its slot and the read
        // of the offset. Either the caller's next poll finds the slot, or the driver rings the
        // trapped page.
        fence(Ordering::SeqCst);
    }

    fn disarm(&self) {
        self.registers.word(self.offset).store(0, Ordering::Relaxed);
    }
}

/// Doorbell of the peer: an MSI-X vector.
pub(super) struct Peer {
    pub(super) interrupts: Arc<Interrupts>,
    pub(super) vector: usize,
}

impl Doorbell for Peer {
    fn ring(&self) -> io::Result<()> {
        self.interrupts.trigger(self.vector)
    }
}
