//! Consumer side.

use super::slots::Front;
use super::{Shared, Waiting, lock};
use crate::primitive::sync::Arc;
use crate::primitive::sync::atomic::{Ordering, fence};

/// The only consumer. Frames that were not released stay in the ring when it is dropped.
#[derive(Debug)]
pub struct MpscConsumer<T> {
    shared: Arc<Shared<T>>,
    front: Front<T>,
    /// Number of slots freed while a sender waited.
    freed: u64,
}

impl<T> MpscConsumer<T> {
    pub(super) fn new(shared: Arc<Shared<T>>, front: Front<T>) -> Self {
        Self { shared, front, freed: 0 }
    }

    /// Iterates over committed slots in order, without releasing them. After a resize the rest of
    /// the old ring comes first, separately.
    #[inline]
    pub fn peek(&mut self) -> Waiting<'_, T> {
        self.skip_aborted();
        self.front.waiting()
    }

    /// Frees the first `frames` slots of the last [`peek`](Self::peek).
    #[inline]
    pub fn release(&mut self, frames: usize) {
        let freed = self.front.free(frames);
        if freed > 0 {
            self.publish_freed(freed);
        }
    }

    /// Announces that the consumer will sleep, so that the next arrival wakes it. Returns false
    /// when a slot is ready already.
    #[cold]
    pub fn arm(&mut self) -> bool {
        // A swap, as in the senders: a late sender that answers the previous arming is ordered
        // before this one, or wakes for it.
        self.shared.armed.0.swap(1, Ordering::AcqRel);
        // Pairs with the fence in Shared::wake_consumer: orders this flag before the re-check of
        // the ring, against the sender's slot before its load of the flag.
        fence(Ordering::SeqCst);
        self.skip_aborted();
        if self.front.has_first() || self.is_closed() {
            self.shared.armed.0.swap(0, Ordering::AcqRel);
            return false;
        }
        true
    }

    /// True if the ring was closed and every slot has been released.
    pub fn is_closed(&mut self) -> bool {
        self.front.is_finished() && lock(&self.shared.chain).closed
    }

    /// Frees aborted slots, and moves to the next ring at the end of this one.
    #[inline]
    fn skip_aborted(&mut self) {
        self.release(0);
        if !self.front.has_first() && self.front.is_finished() {
            self.next_ring();
        }
    }

    #[cold]
    fn next_ring(&mut self) {
        let shared = self.shared.clone();
        let mut chain = lock(&shared.chain);
        let mut freed = 0;
        while chain.rings.len() > 1 && self.front.is_finished() {
            // No other consumer can be attached to it: consumers attach to the first ring of the
            // chain.
            let Some(front) = Front::attach(&chain.rings[1]) else { return };
            self.front = front;
            chain.rings.pop_front();
            // A ring that contains only aborted slots is finished too.
            freed += self.front.free(0);
        }
        drop(chain);
        if freed > 0 {
            self.publish_freed(freed);
        }
    }

    #[inline]
    fn publish_freed(&mut self, slots: u64) {
        // Pairs with the fence in Shared::announce_stop: orders the consumer's index before the
        // load of the flag, against the sender's flag before its re-check of the ring.
        fence(Ordering::SeqCst);
        if self.shared.stopped.0.load(Ordering::Relaxed) != 0 {
            self.wake_when_due(slots);
        }
    }

    #[cold]
    fn wake_when_due(&mut self, slots: u64) {
        self.freed += slots;
        if self.freed >= self.front.size() / 2 || self.front.is_empty() {
            self.freed = 0;
            self.shared.wake_senders();
        }
    }
}
