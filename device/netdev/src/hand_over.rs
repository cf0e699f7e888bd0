//! Hand-over cell for a resource that exists once per channel.
//!
//! During a channel change, a channel has an old and a new queue, but the device has one ring for
//! both. A queue takes the ring for its work, and returns it after its burst or when it is
//! [parked](crate::Queue::park). No queue waits for the cell: if the cell is empty, the queue
//! reports a full or an empty ring to its caller.

use std::sync::{Mutex, PoisonError};

/// Hand-over cell of a resource that two queues of a channel use in turn; taking it never blocks.
#[derive(Debug)]
pub struct HandOver<T>(Mutex<Option<Box<T>>>);

impl<T> HandOver<T> {
    /// Creates a cell that holds `thing`.
    pub fn new(thing: T) -> Self {
        Self(Mutex::new(Some(Box::new(thing))))
    }

    /// Takes the resource; `None` if another queue has it.
    #[inline]
    pub fn take(&self) -> Option<Box<T>> {
        self.0.try_lock().ok()?.take()
    }

    /// Returns the resource to the cell.
    #[inline]
    pub fn put(&self, thing: Box<T>) {
        // Ignore poisoning: no code that runs under the lock can panic.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(thing);
    }

    /// Calls `work` with the resource. Returns `None` if another queue has it.
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

    // Goal: a resource has one owner at a time, and can be taken again after it was returned.
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
