//! Doorbells in both directions.
//!
//! The driver reads the place of a doorbell from our registers at each ring. A doorbell that no
//! sleeper needs is a word of mapped memory. Arming moves it to a trapped page, so that the next
//! ring becomes a message; the first such ring moves it back.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use mqnet_shmem::AtomicTable;
use mqnet_sysio::eventfd::EventFd;
use mqnet_vfio_user::Interrupts;

use super::layout::{FIRST_VECTOR, TRAP, register};
use crate::hw::{Doorbell, DoorbellTrap};

/// A doorbell of this end.
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

    /// The driver rang it at the trapped page.
    pub(super) fn ring(&self) {
        // Disarmed first: a sleeper that arms it again from here on receives the event below.
        self.disarm();
        // An eventfd of our own: a full counter counts as rung.
        let _ = self.event.ring();
    }
}

impl DoorbellTrap for Own {
    fn arm(&self) {
        self.registers.word(self.offset).store(TRAP.to_le(), Ordering::Relaxed);
        // Pairs with the barrier of the guest's driver between its slot and its read of the offset:
        // either the caller's poll after this finds the slot, or the driver rings the trapped page.
        fence(Ordering::SeqCst);
    }

    fn disarm(&self) {
        self.registers.word(self.offset).store(0, Ordering::Relaxed);
    }
}

/// A doorbell of the peer: an MSI-X vector.
pub(super) struct Peer {
    pub(super) interrupts: Arc<Interrupts>,
    pub(super) vector: usize,
}

impl Doorbell for Peer {
    fn ring(&self) -> io::Result<()> {
        self.interrupts.trigger(self.vector)
    }
}
