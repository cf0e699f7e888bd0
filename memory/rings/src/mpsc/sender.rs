//! Sender side of an MPSC ring.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::slots::{Claim, Slots};
use super::{Closed, ReserveError, Shared, lock};
use crate::primitive::sync::Arc;

/// Sender of a ring, one clone per sending thread.
#[derive(Debug)]
pub struct MpscSender<T> {
    shared: Arc<Shared<T>>,
    /// Ring in use at the last check.
    slots: Arc<Slots<T>>,
}

impl<T> Clone for MpscSender<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), slots: self.slots.clone() }
    }
}

impl<T> MpscSender<T> {
    pub(super) fn new(shared: Arc<Shared<T>>, slots: Arc<Slots<T>>) -> Self {
        Self { shared, slots }
    }

    /// Reserves a slot; fails without a change if no slot is free or the ring is closed.
    #[inline]
    pub fn try_reserve(&mut self) -> Result<Permit<'_, T>, ReserveError> {
        let ticket = self.ticket()?;
        Ok(self.permit(ticket))
    }

    /// Reserves a slot; waits while the ring is full. `now` is called only for a wait. Fails if the
    /// ring is closed.
    ///
    /// A thread that waits here while it holds another permit may deadlock.
    #[inline]
    pub fn reserve(&mut self, now: impl Fn() -> Duration) -> Result<Permit<'_, T>, Closed> {
        let ticket = match self.ticket() {
            Ok(ticket) => ticket,
            Err(ReserveError::Full) => self.wait_for_ticket(now, || false).map_err(|_| Closed)?,
            Err(ReserveError::Closed) => return Err(Closed),
        };
        Ok(self.permit(ticket))
    }

    /// Reserves a slot as [`reserve`](Self::reserve) does, but fails with [`ReserveError::Full`] if
    /// the ring is full and `gives_up` returns true. A waiting sender checks the condition again
    /// after [`Control::wake_senders`](super::Control::wake_senders).
    #[inline]
    pub fn reserve_unless(
        &mut self,
        now: impl Fn() -> Duration,
        gives_up: impl Fn() -> bool,
    ) -> Result<Permit<'_, T>, ReserveError> {
        let ticket = match self.ticket() {
            Err(ReserveError::Full) => self.wait_for_ticket(now, gives_up)?,
            other => other?,
        };
        Ok(self.permit(ticket))
    }

    /// Requests a wake-up once there is space, for a sender that sleeps outside of the ring.
    /// Returns false if there is space already; a wake-up is then not guaranteed. Fails if the ring
    /// is closed.
    #[cold]
    pub fn arm(&mut self) -> Result<bool, Closed> {
        let shared = self.shared.clone();
        let _gate = lock(&shared.gate);
        shared.announce_stop();
        loop {
            match self.slots.check_room() {
                Ok(()) => return Ok(false),
                Err(ReserveError::Full) => return Ok(true),
                Err(ReserveError::Closed) => self.follow().map_err(|_| Closed)?,
            }
        }
    }

    #[inline]
    fn ticket(&mut self) -> Result<u64, ReserveError> {
        loop {
            match self.slots.claim() {
                Err(ReserveError::Closed) => self.follow()?,
                other => return other,
            }
        }
    }

    #[inline]
    fn permit(&self, ticket: u64) -> Permit<'_, T> {
        // SAFETY: callers pass the result of `ticket`, which took the ticket from the ring in use,
        // and only `ticket` changes the ring in use.
        let claim = unsafe { self.slots.redeem(ticket) };
        Permit { shared: &self.shared, claim, committed: false }
    }

    /// Moves from a closed ring to the newest ring; fails if the closed ring is the newest.
    #[cold]
    fn follow(&mut self) -> Result<(), ReserveError> {
        let chain = lock(&self.shared.chain);
        let last = &chain.rings[chain.rings.len() - 1];
        if Arc::ptr_eq(last, &self.slots) {
            return Err(ReserveError::Closed);
        }
        self.slots = last.clone();
        Ok(())
    }

    #[cold]
    fn wait_for_ticket(
        &mut self,
        now: impl Fn() -> Duration,
        gives_up: impl Fn() -> bool,
    ) -> Result<u64, ReserveError> {
        let shared = self.shared.clone();
        let mut gate = lock(&shared.gate);
        let mut since = None;
        let ticket = loop {
            shared.announce_stop();
            match self.ticket() {
                Err(ReserveError::Full) if !gives_up() => {}
                other => break other,
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

/// Exclusive access to a reserved slot. Dropping the permit without [`commit`](Self::commit) aborts
/// the slot.
#[derive(Debug)]
#[must_use = "a slot that is neither committed nor dropped stops the consumer"]
pub struct Permit<'a, T> {
    shared: &'a Shared<T>,
    claim: Claim<'a, T>,
    committed: bool,
}

impl<T> Permit<'_, T> {
    /// Sends the content of the slot.
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
        // Wake for aborted slots too: only now can the consumer reach committed slots after this
        // one.
        self.shared.wake_consumer();
    }
}
