//! Interrupt of a ring.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::vduse;

use super::VringError;

/// Interrupt of a ring. The control thread may replace the peer's descriptor at any time without
/// a lock, because `dup3` keeps the descriptor number.
#[derive(Debug)]
pub struct Call {
    queue: u16,
    event: EventFd,
    /// True while a peer's descriptor is set.
    connected: AtomicBool,
    /// VDUSE device of the kernel's driver. An ioctl interrupts that driver, not the eventfd.
    kernel: Option<Arc<OwnedFd>>,
}

impl Call {
    pub(crate) fn new(queue: u16) -> Result<Self, VringError> {
        let event = EventFd::for_peer().map_err(|source| {
            let what = "a descriptor for interrupts";
            VringError::System { queue, what, source }
        })?;
        Ok(Self { queue, event, connected: AtomicBool::new(false), kernel: None })
    }

    /// Interrupt of the kernel's driver.
    pub(crate) fn of_kernel(queue: u16, device: Arc<OwnedFd>) -> Result<Self, VringError> {
        Ok(Self { kernel: Some(device), ..Self::new(queue)? })
    }

    /// Replaces the descriptor and signals the new one once, because an interrupt on the old one
    /// may have been lost. `None` disables the interrupt.
    pub fn replace(&self, with: Option<OwnedFd>) -> Result<(), VringError> {
        self.connect(with)?;
        let what = "the call descriptor";
        self.ring().map_err(|source| VringError::System { queue: self.queue, what, source })
    }

    /// Replaces the descriptor without signalling it; `None` disables the interrupt. Signalling
    /// may block and must not happen under a lock.
    pub(crate) fn connect(&self, with: Option<OwnedFd>) -> Result<(), VringError> {
        let queue = self.queue;
        let Some(with) = with else {
            self.connected.store(false, Ordering::Relaxed);
            return Ok(());
        };
        let with = EventFd::from_peer(with);
        let with = with.ok_or(VringError::NoEventFd { queue, what: "call" })?;
        let system = |source| VringError::System { queue, what: "the call descriptor", source };
        self.event.become_same_as(&with).map_err(system)?;
        self.connected.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Interrupts the guest, if a descriptor is set.
    pub(crate) fn ring(&self) -> std::io::Result<()> {
        match &self.kernel {
            // The kernel refuses to interrupt a driver during its reset; that driver needs no
            // interrupt.
            Some(device) => vduse::interrupt(device.as_fd(), self.queue.into()).map(drop),
            None if self.connected.load(Ordering::Relaxed) => self.event.ring(),
            None => Ok(()),
        }
    }
}
