//! Consumer side of an MPSC ring.

use super::slots::Front;
use super::{Shared, Waiting, lock};
use crate::primitive::sync::Arc;
use crate::primitive::sync::atomic::{Ordering, fence};

/// The only consumer of a ring. When it is dropped, frames that were not released stay in the ring.
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

    /// Iterates over committed slots in order, without releasing them. After a resize, the
    /// remaining slots of the old ring come in separate calls before those of the new ring.
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

    /// Announces that the consumer will sleep, so that the next arrival wakes it. Returns false,
    /// and wakes nothing, if a slot is ready or the ring is closed and empty.
    #[cold]
    pub fn arm(&mut self) -> bool {
        // Swap instead of store, as the senders do. A late sender that answers the previous arming
        // is ordered before this arming, or wakes the consumer for this arming.
        self.shared.armed.0.swap(1, Ordering::AcqRel);
        // Pairs with the fence in `Shared::wake_consumer`: the flag is visible to the sender, or
        // the sender's slot is visible to the second check of the ring.
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

    /// Frees aborted slots, and moves to the next ring at the end of a closed one.
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
            // Expect success: consumers attach only to the first ring of the chain.
            let Some(front) = Front::attach(&chain.rings[1]) else { return };
            self.front = front;
            chain.rings.pop_front();
            // Free leading aborted slots: a ring with only aborted slots is finished too.
            freed += self.front.free(0);
        }
        drop(chain);
        if freed > 0 {
            self.publish_freed(freed);
        }
    }

    #[inline]
    fn publish_freed(&mut self, slots: u64) {
        // Pairs with the fence in `Shared::announce_stop`: the consumer's index is visible to the
        // sender's second check of the ring, or the sender's flag is visible to this load.
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
