//! Hand-over cell for a resource that exists once per channel.
//!
//! While channels change, a channel has an old and a new queue, but the device has one ring for
//! both. A queue takes the ring for its work, and puts it back after its burst or when it is
//! [parked](crate::Queue::park). No queue waits for the cell: to the caller an empty cell is a full
//! or an empty ring.

use std::sync::{Mutex, PoisonError};

/// Hand-over cell: holds a resource between two queues of a channel. Taking it never waits.
#[derive(Debug)]
pub struct HandOver<T>(Mutex<Option<Box<T>>>);

impl<T> HandOver<T> {
    /// Creates a cell that holds `thing`.
    pub fn new(thing: T) -> Self {
        Self(Mutex::new(Some(Box::new(thing))))
    }

    /// Takes the resource, if it is here.
    #[inline]
    pub fn take(&self) -> Option<Box<T>> {
        self.0.try_lock().ok()?.take()
    }

    /// Puts the resource back.
    #[inline]
    pub fn put(&self, thing: Box<T>) {
        // No code that runs under the lock can panic, so it cannot be poisoned.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(thing);
    }

    /// Calls `work` with the resource, if it is here.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut thing = self.take()?;
        let result = work(&mut thing);
        self.put(thing);
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a resource has one owner at a time, and can be taken again after it was put back.
    #[test]
    fn one_owner_at_a_time() {
        let cell = HandOver::new(1);
        let thing = cell.take().unwrap();
        assert!(cell.take().is_none());
        assert_eq!(cell.with(|_| ()), None);
        cell.put(thing);
        assert_eq!(cell.with(|n| std::mem::replace(n, 2)), Some(1));
        assert_eq!(cell.take().map(|n| *n), Some(2));
    }
}
