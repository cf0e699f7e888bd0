//! The side that takes.

use super::slots::Front;
use super::{Shared, Waiting, lock};
use crate::primitive::sync::Arc;
use crate::primitive::sync::atomic::{Ordering, fence};

/// The one consumer. Dropped, it leaves everything that it has not released.
#[derive(Debug)]
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    front: Front<T>,
    /// Slots freed while a sender waited.
    freed: u64,
}

impl<T> Consumer<T> {
    pub(super) fn new(shared: Arc<Shared<T>>, front: Front<T>) -> Self {
        Self { shared, front, freed: 0 }
    }

    /// Shows what was committed, in order, without taking it. After a resize, what is left in the
    /// old ring comes first and alone.
    #[inline]
    pub fn peek(&mut self) -> Waiting<'_, T> {
        self.pass_over();
        self.front.waiting()
    }

    /// Frees the first `frames` of the last [`peek`](Self::peek).
    #[inline]
    pub fn release(&mut self, frames: usize) {
        let freed = self.front.free(frames);
        if freed > 0 {
            self.give_back(freed);
        }
    }

    /// Says that the consumer is about to sleep: the bell for arrivals will ring. False when there
    /// is something to take already.
    #[cold]
    pub fn arm(&mut self) -> bool {
        // A swap, as at the senders: a late one that answers the last arming comes before this one
        // or rings for it.
        self.shared.armed.0.swap(1, Ordering::AcqRel);
        // Pairs with the fence in Shared::wake_consumer: our flag before our second look, against
        // the sender's slot before its look at our flag.
        fence(Ordering::SeqCst);
        self.pass_over();
        if self.front.has_first() || self.is_closed() {
            self.shared.armed.0.swap(0, Ordering::AcqRel);
            return false;
        }
        true
    }

    /// True when the ring was closed and everything has been released.
    pub fn is_closed(&mut self) -> bool {
        self.front.is_finished() && lock(&self.shared.chain).closed
    }

    /// Frees slots that were given up, and goes on to the next ring at the end of this one.
    #[inline]
    fn pass_over(&mut self) {
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
            // Nobody else is its consumer: whoever attaches goes by the first of the chain.
            let Some(front) = Front::attach(&chain.rings[1]) else { return };
            self.front = front;
            chain.rings.pop_front();
            // A ring of nothing but given-up slots is finished too.
            freed += self.front.free(0);
        }
        drop(chain);
        if freed > 0 {
            self.give_back(freed);
        }
    }

    #[inline]
    fn give_back(&mut self, slots: u64) {
        // Pairs with the fence in Shared::announce_stop: our index before our look at the flag,
        // against the sender's flag before its second look at the ring.
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
