//! Errors of senders and receivers, and the reason why a port was closed.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Reason why a frame was not sent, or none was received.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// All slots are in use. The frame is unchanged: try again when there is room, or wait with
    /// `send`.
    #[error("the queue is full")]
    Full,
    /// The queue is not in use: the device has fewer channels at present. The frame is unchanged:
    /// send it on another queue, or wait with `arm` until the queue is in use again.
    #[error("the queue is not in use: the device has fewer channels; send on another queue")]
    NotInUse,
    /// The frame is longer than the MTU allows, or empty.
    #[error("a frame of {len} bytes: 1 to {max} are possible (mtu)")]
    Length {
        /// Length of the frame in bytes.
        len: usize,
        /// Largest length in bytes.
        max: usize,
    },
    /// The port was closed by its owner.
    #[error("the device was closed")]
    Closed,
    /// The link has failed.
    #[error("the device has failed: {0}")]
    Failed(String),
    /// A system call failed.
    #[error("waiting for frames: {0}")]
    System(String),
}

/// Reason why a port was closed; empty while it is open.
#[derive(Debug, Default)]
pub(crate) struct CloseReason(Mutex<Option<Error>>);

impl CloseReason {
    fn lock(&self) -> MutexGuard<'_, Option<Error>> {
        // Every change under the lock is one statement: a panic leaves no partial state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the reason. Later reasons are ignored.
    pub(crate) fn set(&self, error: Error) {
        self.lock().get_or_insert(error);
    }

    pub(crate) fn get(&self) -> Option<Error> {
        self.lock().clone()
    }

    /// Reason why the rings of a port are closed.
    pub(crate) fn reason(&self) -> Error {
        self.get().unwrap_or(Error::Closed)
    }
}
