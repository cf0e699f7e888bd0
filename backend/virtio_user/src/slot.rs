//! What there is only one of goes from queue to queue.
//!
//! While channels change, a channel has an old and a new queue, but the device has one ring for
//! both. Whoever works with it takes it, and puts it back when its burst is done (TX) or when it
//! is parked (RX). Nobody waits: an empty slot is a full or an empty queue.

use std::sync::{Mutex, PoisonError};

/// A place for one thing.
#[derive(Debug)]
pub(crate) struct Slot<T>(Mutex<Option<Box<T>>>);

impl<T> Slot<T> {
    pub(crate) fn new(thing: T) -> Self {
        Self(Mutex::new(Some(Box::new(thing))))
    }

    /// Takes the thing, if it is there.
    #[inline]
    pub(crate) fn take(&self) -> Option<Box<T>> {
        self.0.try_lock().ok()?.take()
    }

    /// Puts it back.
    #[inline]
    pub(crate) fn put(&self, thing: Box<T>) {
        // Nothing can panic while the lock is held, so that it cannot be poisoned.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(thing);
    }

    /// Does something with the thing, if it is there.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut thing = self.take()?;
        let result = work(&mut thing);
        self.put(thing);
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a thing is with one owner at a time and can be taken again when it was put back.
    #[test]
    fn one_owner_at_a_time() {
        let slot = Slot::new(1);
        let thing = slot.take().unwrap();
        assert!(slot.take().is_none());
        assert_eq!(slot.with(|_| ()), None);
        slot.put(thing);
        assert_eq!(slot.with(|n| std::mem::replace(n, 2)), Some(1));
        assert_eq!(slot.take().map(|n| *n), Some(2));
    }
}
