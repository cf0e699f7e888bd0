//! MSI-X vectors of a device.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mqnet_sysio::eventfd::EventFd;

use crate::MessageError;

/// One vector. Its descriptor can be replaced while other threads trigger the vector.
#[derive(Debug)]
struct Vector {
    event: EventFd,
    is_set: AtomicBool,
}

/// Vectors of a device. An interrupt of a vector without a client's eventfd is discarded.
#[derive(Debug)]
pub struct Interrupts {
    vectors: Vec<Vector>,
    /// Eventfd that replaces a removed eventfd of the client.
    unused: EventFd,
}

impl Interrupts {
    /// Creates `count` vectors without eventfds.
    pub fn new(count: u16) -> io::Result<Arc<Self>> {
        let vector = |_| Ok(Vector { event: EventFd::for_peer()?, is_set: AtomicBool::new(false) });
        let vectors = (0..count).map(vector).collect::<io::Result<_>>()?;
        Ok(Arc::new(Self { vectors, unused: EventFd::new()? }))
    }

    /// Number of vectors.
    pub fn len(&self) -> usize {
        self.vectors.len()
    }

    /// True if the device has no vectors.
    pub fn is_empty(&self) -> bool {
        self.vectors.is_empty()
    }

    /// Triggers a vector; ignores a number that the device lacks.
    pub fn trigger(&self, vector: usize) -> io::Result<()> {
        self.vectors.get(vector).map_or(Ok(()), |vector| vector.event.ring())
    }

    /// True if the client has set an eventfd for the vector.
    pub fn is_set(&self, vector: usize) -> bool {
        self.vectors.get(vector).is_some_and(|vector| vector.is_set.load(Ordering::Relaxed))
    }

    /// Replaces the eventfd of a vector; `None` removes it. Fails if the vector does not exist or
    /// the descriptor is no eventfd.
    pub(crate) fn set(&self, at: u32, fd: Option<OwnedFd>) -> Result<(), MessageError> {
        let Some(vector) = self.vectors.get(at as usize) else {
            let len = self.vectors.len() as u64;
            let start = u64::from(at);
            return Err(MessageError::Range { what: "interrupt", index: at, start, count: 1, len });
        };
        let failed = |e: io::Error| MessageError::Event(at, e.to_string());
        let is_set = fd.is_some();
        match fd {
            Some(fd) => {
                let theirs = EventFd::from_peer(fd).ok_or(MessageError::NotAnEvent(at))?;
                vector.event.become_same_as(&theirs).map_err(failed)?;
            }
            None => vector.event.become_same_as(&self.unused).map_err(failed)?,
        }
        vector.is_set.store(is_set, Ordering::Relaxed);
        Ok(())
    }

    /// Removes all eventfds.
    pub(crate) fn clear(&self) {
        for at in 0..self.vectors.len() as u32 {
            // Ignore the result: the vector exists, and replacing one open descriptor by another
            // does not fail.
            let _ = self.set(at, None);
        }
    }
}
