//! The side that fills slots.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::slots::{Claim, Slots};
use super::{Closed, Refused, Shared, lock};
use crate::primitive::sync::Arc;

/// A sender; clone it for every thread that sends.
#[derive(Debug)]
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
    /// The ring in use when we looked last.
    slots: Arc<Slots<T>>,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), slots: self.slots.clone() }
    }
}

impl<T> Sender<T> {
    pub(super) fn new(shared: Arc<Shared<T>>, slots: Arc<Slots<T>>) -> Self {
        Self { shared, slots }
    }

    /// A slot of our own, if there is one; nothing was touched if not.
    #[inline]
    pub fn try_reserve(&mut self) -> Result<Permit<'_, T>, Refused> {
        let ticket = self.ticket()?;
        Ok(self.permit(ticket))
    }

    /// A slot of our own; waits for one while the ring is full. `now` is asked only then.
    ///
    /// A thread that waits here while it holds another permit may wait for itself.
    #[inline]
    pub fn reserve(&mut self, now: impl Fn() -> Duration) -> Result<Permit<'_, T>, Closed> {
        let ticket = match self.ticket() {
            Ok(ticket) => ticket,
            Err(Refused::Full) => self.wait_for_ticket(now)?,
            Err(Refused::Closed) => return Err(Closed),
        };
        Ok(self.permit(ticket))
    }

    /// Asks that the bell for room be rung; true when it will be, false when there is room already.
    /// For a sender that sleeps elsewhere.
    #[cold]
    pub fn arm(&mut self) -> Result<bool, Closed> {
        let shared = self.shared.clone();
        let _gate = lock(&shared.gate);
        shared.announce_stop();
        loop {
            match self.slots.look() {
                Ok(()) => return Ok(false),
                Err(Refused::Full) => return Ok(true),
                Err(Refused::Closed) => self.follow().map_err(|_| Closed)?,
            }
        }
    }

    #[inline]
    fn ticket(&mut self) -> Result<u64, Refused> {
        loop {
            match self.slots.claim() {
                Err(Refused::Closed) => self.follow()?,
                other => return other,
            }
        }
    }

    #[inline]
    fn permit(&self, ticket: u64) -> Permit<'_, T> {
        // SAFETY: callers come straight from `ticket`, which took it from the ring in use, and
        // nothing but `ticket` changes that ring.
        let claim = unsafe { self.slots.redeem(ticket) };
        Permit { shared: &self.shared, claim, committed: false }
    }

    /// Our ring gives no more tickets: goes on in the next, if there is one.
    #[cold]
    fn follow(&mut self) -> Result<(), Refused> {
        let chain = lock(&self.shared.chain);
        let last = &chain.rings[chain.rings.len() - 1];
        if Arc::ptr_eq(last, &self.slots) {
            return Err(Refused::Closed);
        }
        self.slots = last.clone();
        Ok(())
    }

    #[cold]
    fn wait_for_ticket(&mut self, now: impl Fn() -> Duration) -> Result<u64, Closed> {
        let shared = self.shared.clone();
        let mut gate = lock(&shared.gate);
        let mut since = None;
        let ticket = loop {
            shared.announce_stop();
            match self.ticket() {
                Ok(ticket) => break Ok(ticket),
                Err(Refused::Closed) => break Err(Closed),
                Err(Refused::Full) => {}
            }
            if since.is_none() {
                since = Some(now());
                gate.stops += 1;
            }
            gate = shared.go.wait(gate).unwrap_or_else(|e| e.into_inner());
        };
        if let Some(since) = since {
            gate.wakes += 1;
            gate.stopped_ns += now().saturating_sub(since).as_nanos() as u64;
        }
        ticket
    }
}

/// A slot that is the holder's own. Dropped without [`commit`](Self::commit), it is passed over.
#[derive(Debug)]
#[must_use = "a slot that is neither committed nor dropped stops the consumer"]
pub struct Permit<'a, T> {
    shared: &'a Shared<T>,
    claim: Claim<'a, T>,
    committed: bool,
}

impl<T> Permit<'_, T> {
    /// Sends what lies in the slot.
    #[inline]
    pub fn commit(mut self) {
        self.committed = true;
    }
}

impl<T> Deref for Permit<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.claim.get()
    }
}

impl<T> DerefMut for Permit<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.claim.get_mut()
    }
}

impl<T> Drop for Permit<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.claim.hand_over(!self.committed);
        // Given up too: what others committed behind it can be seen only now.
        self.shared.wake_consumer();
    }
}
