//! Many senders, one consumer, a bounded number of slots that stay where they are.
//!
//! A sender takes a ticket for a slot *before* it touches anything: it learns "full" while its
//! frame is still its own, so that any number of senders lose nothing. The ticket is a [`Permit`]
//! that lends the slot out; committed, the consumer sees the slot in ticket order; dropped, the
//! consumer passes over it. No sender ever waits for another one to get on with a slot, but the
//! consumer does: it stops at a slot that is still being filled.
//!
//! # Stop and wake
//! A sender that finds the ring full and wants to wait says so, looks once more, and sleeps. The
//! consumer counts what it frees while somebody waits, and wakes everybody when that is half the
//! ring, or when the ring is empty: waking at every slot is dear, waking at the last one late.
//! The consumer sleeps in the same way. Both pairs are store-buffering patterns, each with a full
//! barrier on either side; loom is their judge.
//!
//! # A ring that changes
//! [`Control::close`] ends it: senders hear [`Refused::Closed`], and what they hold permits for is
//! still delivered. [`Control::resize`] puts another ring behind the one in use: senders go on in
//! the new one, and the consumer takes what is left in the old one first, so that the order of each
//! sender is kept. A consumer that goes away leaves everything in its place for the next
//! ([`Control::attach`]).

mod consumer;
mod sender;
mod slots;

use std::collections::VecDeque;
use std::fmt;

use crate::primitive::sync::atomic::{AtomicU32, Ordering, fence};
use crate::primitive::sync::{Arc, Condvar, Mutex, MutexGuard};

pub use consumer::Consumer;
pub use sender::{Permit, Sender};
pub use slots::Waiting;
use slots::{Front, Slots};

/// Largest ring.
pub const SIZE_MAX: u32 = 1 << 24;

/// Why there is no slot for a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Every slot is taken: an outcome, not an error.
    #[error("the ring is full")]
    Full,
    /// The ring was closed, for ever.
    #[error("the ring is closed")]
    Closed,
}

/// The ring was closed, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ring is closed")]
pub struct Closed;

/// How a sleeper is woken. Called outside of the hot path; ringing twice does no harm.
pub trait Bell: Send + Sync {
    /// Wakes whoever sleeps, or will sleep next.
    fn ring(&self);
}

/// Wakes nobody: for a side that polls, or waits inside the ring.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Bell for Silent {
    fn ring(&self) {}
}

/// Waiting of senders, in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stops {
    /// Times that a sender found the ring full and went to sleep.
    pub stops: u64,
    /// Times that one went on; the difference to `stops` sleeps now.
    pub wakes: u64,
    /// Nanoseconds slept.
    pub stopped_ns: u64,
}

/// 128 bytes: a cache line and the one that the adjacent-line prefetcher brings with it.
#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(T);

/// The rings that there are: senders use the last one, the consumer the first.
#[derive(Debug)]
struct Chain<T> {
    rings: VecDeque<Arc<Slots<T>>>,
    closed: bool,
}

struct Shared<T> {
    /// 1 while a sender waits for room. Written under the gate's lock.
    stopped: Padded<AtomicU32>,
    /// 1 while the consumer sleeps.
    armed: Padded<AtomicU32>,
    /// Wakes the consumer.
    arrival: Box<dyn Bell>,
    /// Wakes senders that do not sleep at the gate.
    room: Box<dyn Bell>,
    gate: Mutex<Stops>,
    go: Condvar,
    chain: Mutex<Chain<T>>,
}

impl<T> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

/// A panic elsewhere leaves these few words as they should be: every change is one statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl<T> Shared<T> {
    /// Says that a sender is about to sleep; it must look once more before it does. The caller
    /// holds the gate.
    fn announce_stop(&self) {
        self.stopped.0.store(1, Ordering::Relaxed);
        // Pairs with the fence in Consumer::give_back: our flag before our second look at the
        // ring, against its index before its look at our flag.
        fence(Ordering::SeqCst);
    }

    #[cold]
    fn wake_senders(&self) {
        let gate = lock(&self.gate);
        self.stopped.0.store(0, Ordering::Relaxed);
        self.go.notify_all();
        drop(gate);
        self.room.ring();
    }

    /// After something that the consumer should see.
    #[inline]
    fn wake_consumer(&self) {
        // Pairs with the fence in Consumer::arm: our slot before our look at its flag, against its
        // flag before its second look at the slot.
        fence(Ordering::SeqCst);
        if self.armed.0.load(Ordering::Relaxed) != 0 {
            self.ring_arrival();
        }
    }

    #[cold]
    fn ring_arrival(&self) {
        // One arming is worth one ring, whoever comes first.
        if self.armed.0.swap(0, Ordering::AcqRel) != 0 {
            self.arrival.ring();
        }
    }
}

/// The ring from outside: ends it, replaces it, gives it a consumer.
#[derive(Debug)]
pub struct Control<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Clone for Control<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

/// An empty ring of `size` slots, each made once by `make`. `arrival` wakes a consumer that sleeps,
/// `room` senders that do not wait inside [`Sender::reserve`].
///
/// # Panics
/// When `size` is 0 or above [`SIZE_MAX`].
pub fn ring<T: Send>(
    size: u32,
    make: impl FnMut() -> T,
    arrival: impl Bell + 'static,
    room: impl Bell + 'static,
) -> Control<T> {
    let slots = Arc::new(Slots::new(size, make));
    let shared = Arc::new(Shared {
        stopped: Padded(AtomicU32::new(0)),
        armed: Padded(AtomicU32::new(0)),
        arrival: Box::new(arrival),
        room: Box::new(room),
        gate: Mutex::new(Stops::default()),
        go: Condvar::new(),
        chain: Mutex::new(Chain { rings: VecDeque::from([slots]), closed: false }),
    });
    Control { shared }
}

impl<T: Send> Control<T> {
    /// A new sender.
    pub fn sender(&self) -> Sender<T> {
        let chain = lock(&self.shared.chain);
        // There is always a ring: the last one is never taken away.
        let slots = chain.rings[chain.rings.len() - 1].clone();
        drop(chain);
        Sender::new(self.shared.clone(), slots)
    }

    /// Makes the caller the consumer; `None` while there is one. It begins where the last one
    /// ended. Senders that wait look again.
    pub fn attach(&self) -> Option<Consumer<T>> {
        let front = Front::attach(&lock(&self.shared.chain).rings[0])?;
        self.shared.wake_senders();
        Some(Consumer::new(self.shared.clone(), front))
    }

    /// From now on senders use a ring of `size` slots; what is in the old one comes first.
    ///
    /// # Panics
    /// When `size` is 0 or above [`SIZE_MAX`].
    pub fn resize(&self, size: u32, make: impl FnMut() -> T) -> Result<(), Closed> {
        let next = Arc::new(Slots::new(size, make));
        let mut chain = lock(&self.shared.chain);
        if chain.closed {
            return Err(Closed);
        }
        let old = chain.rings.len() - 1;
        chain.rings.push_back(next);
        chain.rings[old].close();
        drop(chain);
        self.shared.wake_senders();
        Ok(())
    }

    /// No sender gets another slot; those that wait hear it. What has been sent is delivered.
    pub fn close(&self) {
        let mut chain = lock(&self.shared.chain);
        chain.closed = true;
        chain.rings[chain.rings.len() - 1].close();
        drop(chain);
        self.shared.wake_senders();
        self.shared.wake_consumer();
    }

    /// How senders have waited so far.
    pub fn stops(&self) -> Stops {
        *lock(&self.shared.gate)
    }
}

#[cfg(test)]
mod tests;
