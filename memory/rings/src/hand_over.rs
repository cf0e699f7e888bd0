//! Hand-over cells for a resource that exists once per channel.
//!
//! While channels change, a channel has an old and a new queue, but the device has one ring for
//! both. A queue takes the ring for its work, and puts it back after its burst or when it is
//! parked. No queue waits for a cell: to the caller an empty cell is a full or an empty ring.

use std::fmt;
use std::sync::PoisonError;

use crate::primitive::sync::atomic::{AtomicBool, Ordering};
use crate::primitive::sync::{Mutex, MutexGuard};

/// Hand-over cell of a resource that two queues of a channel use in turn; taking the resource never
/// blocks.
pub struct HandOver<T: ?Sized>(Mutex<Option<Box<T>>>);

impl<T> HandOver<T> {
    /// Creates a cell that holds `thing`.
    pub fn new(thing: T) -> Self {
        Self(Mutex::new(Some(Box::new(thing))))
    }
}

impl<T: ?Sized> HandOver<T> {
    /// Creates an empty cell.
    pub fn empty() -> Self {
        Self(Mutex::new(None))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<T>>> {
        // A panic under the lock leaves the resource in its place.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the resource; `None` if the cell is empty, or if another thread accesses the cell now.
    #[inline]
    pub fn take(&self) -> Option<Box<T>> {
        self.0.try_lock().ok()?.take()
    }

    /// Returns the resource to the cell.
    #[inline]
    pub fn put(&self, thing: Box<T>) {
        *self.lock() = Some(thing);
    }

    /// Replaces the content, and returns the previous content. Waits for a concurrent call on the
    /// cell, which is short.
    pub fn replace(&self, thing: Option<Box<T>>) -> Option<Box<T>> {
        std::mem::replace(&mut *self.lock(), thing)
    }

    /// Takes the resource, calls `work` with it, and puts it back. Returns the result of `work`, or
    /// `None` if [`take`](Self::take) finds no resource.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut thing = self.take()?;
        let result = work(&mut thing);
        self.put(thing);
        Some(result)
    }
}

impl<T: ?Sized> fmt::Debug for HandOver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandOver").finish_non_exhaustive()
    }
}

/// Hand-over cell that its control thread can recall. The control thread offers the resource to the
/// queues; a queue that has a recalled resource puts it back at its next poll.
///
/// The lock is taken at hand-overs only; queues read a flag. Flags change under the lock: a change
/// after the unlock could hide the next resource.
#[derive(Debug)]
pub struct RecallCell<T> {
    place: HandOver<T>,
    /// True if a queue may take the resource.
    offered: AtomicBool,
    /// True if the queue that has the resource must put it back.
    recalled: AtomicBool,
}

impl<T> RecallCell<T> {
    /// Creates a cell that offers `thing`.
    pub fn new(thing: T) -> Self {
        let place = HandOver::new(thing);
        Self { place, offered: AtomicBool::new(true), recalled: AtomicBool::new(false) }
    }

    /// Creates an empty cell, in the state of a recalled cell.
    pub fn empty() -> Self {
        let place = HandOver::empty();
        Self { place, offered: AtomicBool::new(false), recalled: AtomicBool::new(true) }
    }

    /// Offers a resource to the queues.
    pub fn offer(&self, thing: Box<T>) {
        let mut place = self.place.lock();
        *place = Some(thing);
        self.recalled.store(false, Ordering::Relaxed);
        // Pairs with the Acquire load in take_offered. The flag is a hint: the lock orders access.
        self.offered.store(true, Ordering::Release);
    }

    /// Withdraws the offer; a queue that has the resource puts it back at its next poll.
    pub fn recall(&self) {
        let _place = self.place.lock();
        self.recalled.store(true, Ordering::Relaxed);
        self.offered.store(false, Ordering::Relaxed);
    }

    /// Takes the resource for the control thread; `None` while a queue has it, or if there is none.
    pub fn take(&self) -> Option<Box<T>> {
        let mut place = self.place.lock();
        self.offered.store(false, Ordering::Relaxed);
        place.take()
    }

    /// Takes the resource for a queue, if it is offered.
    #[inline]
    pub fn take_offered(&self) -> Option<Box<T>> {
        // Pairs with the Release stores in offer and put_back.
        if self.offered.load(Ordering::Acquire) { self.take() } else { None }
    }

    /// True when a queue must put the resource back.
    #[inline]
    pub fn is_recalled(&self) -> bool {
        self.recalled.load(Ordering::Relaxed)
    }

    /// Puts the resource back from a queue, and offers it to the next queue unless the resource was
    /// recalled.
    pub fn put_back(&self, thing: Box<T>) {
        let mut place = self.place.lock();
        *place = Some(thing);
        // Pairs with the Acquire load in take_offered. The flag is a hint only: the lock
        // orders the resource.
        self.offered.store(!self.recalled.load(Ordering::Relaxed), Ordering::Release);
    }

    /// Calls `work` with the resource in its place; `None` while a queue has it.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.place.lock().as_deref_mut().map(work)
    }
}

#[cfg(test)]
mod tests;
