//! How a port ends, and what its users hear of it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Why a frame was not sent, or none received.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Every slot is taken: try again when there is room, or wait with `send`. The frame was not
    /// touched.
    #[error("the queue is full")]
    Full,
    /// The frame is longer than the MTU allows, or has no byte at all.
    #[error("a frame of {len} bytes: 1 to {max} are possible (mtu)")]
    Length {
        /// Its bytes.
        len: usize,
        /// Most bytes.
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

/// The end of a port, when it comes.
#[derive(Debug, Default)]
pub(crate) struct End(Mutex<Option<Error>>);

impl End {
    fn lock(&self) -> MutexGuard<'_, Option<Error>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first end is the one that counts.
    pub(crate) fn set(&self, error: Error) {
        self.lock().get_or_insert(error);
    }

    pub(crate) fn get(&self) -> Option<Error> {
        self.lock().clone()
    }

    /// The reason of an end that has been noticed.
    pub(crate) fn reason(&self) -> Error {
        self.get().unwrap_or(Error::Closed)
    }
}
