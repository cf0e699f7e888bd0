//! Errors of senders and receivers, and the reason why a port was closed.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Error of a send or a receive operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// All slots are in use, and no frame was sent. Try again when a slot is free, or use `send`,
    /// which waits.
    #[error("the queue is full")]
    Full,
    /// The channel is not in use, because the device has fewer channels at present. No frame was
    /// sent. Use another channel, or wait with `arm` until this channel is in use again.
    #[error("the queue is not in use: the device has fewer channels; send on another queue")]
    NotInUse,
    /// The frame is empty or longer than the MTU allows.
    #[error("a frame of {len} bytes: 1 to {max} are possible (mtu)")]
    Length {
        /// Length of the frame in bytes.
        len: usize,
        /// Largest length in bytes.
        max: usize,
    },
    /// The owner has closed the port.
    #[error("the device was closed")]
    Closed,
    /// The link has failed.
    #[error("the device has failed: {0}")]
    Failed(String),
    /// A system call failed.
    #[error("waiting for frames: {0}")]
    System(String),
}

/// Reason why a port was closed; `None` while the port is open.
#[derive(Debug, Default)]
pub(crate) struct CloseReason(Mutex<Option<Error>>);

impl CloseReason {
    fn lock(&self) -> MutexGuard<'_, Option<Error>> {
        // Recover from poisoning: every change under the lock is one statement, so a panic leaves
        // no partial state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the reason. Later reasons are ignored.
    pub(crate) fn set(&self, error: Error) {
        self.lock().get_or_insert(error);
    }

    pub(crate) fn get(&self) -> Option<Error> {
        self.lock().clone()
    }

    /// Returns the reason for closed rings: [`Error::Closed`] unless another reason is set.
    pub(crate) fn reason(&self) -> Error {
        self.get().unwrap_or(Error::Closed)
    }
}
