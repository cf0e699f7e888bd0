//! Bounded ring with many senders, one consumer, and slots with fixed addresses.
//!
//! A sender takes a ticket for a slot *before* it writes anything. The result "full" is therefore
//! reported while the sender still owns its frame, and no frame is lost for any number of senders.
//! The ticket is a [`Permit`] that borrows the slot. The consumer reads committed slots in ticket
//! order and skips the slots of dropped permits. A sender never waits for another sender's slot,
//! but the consumer stops at a slot that is not handed over.
//!
//! # Stop and wake
//! A sender that waits for space sets a flag, checks the ring once more, and sleeps. While the flag
//! is set, the consumer counts the slots that it frees. It wakes all senders once half of the ring
//! is freed or the ring is empty. A wake-up for each slot would be expensive, and a wake-up only at
//! the last slot would be late. The consumer sleeps in the same way. Both pairs are store-buffering
//! patterns with a full barrier on each side; loom checks them.
//!
//! # Close and resize
//! [`Control::close`] ends the ring: senders get [`ReserveError::Closed`], and frames with a permit
//! are still delivered. [`Control::resize`] appends another ring to the one in use. Senders
//! continue in the new ring, and the consumer drains the old ring first, so that the order of each
//! sender is kept. A dropped consumer leaves all its frames to the next consumer
//! ([`Control::attach`]).

mod consumer;
mod sender;
mod slots;

use std::collections::VecDeque;
use std::fmt;

use crate::primitive::sync::atomic::{AtomicU32, Ordering, fence};
use crate::primitive::sync::{Arc, Condvar, Mutex, MutexGuard};

pub use consumer::MpscConsumer;
pub use sender::{MpscSender, Permit};
pub use slots::Waiting;
use slots::{Front, Slots};

/// Maximum ring size.
pub const SIZE_MAX: u32 = 1 << 24;

/// Reason why a sender gets no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    /// All slots are in use: a normal outcome.
    #[error("the ring is full")]
    Full,
    /// The ring was closed permanently.
    #[error("the ring is closed")]
    Closed,
}

/// Error: the ring was closed permanently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ring is closed")]
pub struct Closed;

/// Wake-up of a sleeping side. Spurious calls are allowed.
pub trait Waker: Send + Sync {
    /// Wakes the sleeping side, or makes its next sleep return immediately.
    fn ring(&self);
}

/// Waker without effect, for a side that polls or waits inside the ring.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Waker for Silent {
    fn ring(&self) {}
}

/// Statistics of waiting senders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stops {
    /// Number of times that a sender found the ring full and slept.
    pub stops: u64,
    /// Number of times that a sender resumed; `stops - wakes` senders sleep now.
    pub wakes: u64,
    /// Total time of sleep in nanoseconds.
    pub stopped_ns: u64,
}

/// Value on separate cache lines; 128 bytes include the adjacent line that the prefetcher fetches.
#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(T);

/// Rings that exist: senders use the last one, the consumer the first.
#[derive(Debug)]
struct Chain<T> {
    rings: VecDeque<Arc<Slots<T>>>,
    closed: bool,
}

struct Shared<T> {
    /// 1 if a sender waits for space; set under the gate's lock.
    stopped: Padded<AtomicU32>,
    /// 1 if the consumer sleeps.
    armed: Padded<AtomicU32>,
    /// Wake-up of the consumer.
    arrival: Box<dyn Waker>,
    /// Wake-up of senders that sleep outside of the ring.
    room: Box<dyn Waker>,
    gate: Mutex<Stops>,
    go: Condvar,
    chain: Mutex<Chain<T>>,
}

impl<T> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

/// Locks a mutex and ignores poisoning: every change under these locks is one statement, so that a
/// panic leaves no partial state.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl<T> Shared<T> {
    /// Announces that a sender will sleep. The caller holds the gate's lock, and the sender must
    /// check the ring once more before it sleeps.
    fn announce_stop(&self) {
        self.stopped.0.store(1, Ordering::Relaxed);
        // Pairs with the fence in `MpscConsumer::publish_freed`: the flag is visible to the
        // consumer, or the consumer's index is visible to the second check of the ring.
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

    /// Wakes a sleeping consumer after a change that it must see.
    #[inline]
    fn wake_consumer(&self) {
        // Pairs with the fence in `MpscConsumer::arm`: the slot is visible to the consumer's second
        // check, or the consumer's flag is visible to this load.
        fence(Ordering::SeqCst);
        if self.armed.0.load(Ordering::Relaxed) != 0 {
            self.ring_arrival();
        }
    }

    #[cold]
    fn ring_arrival(&self) {
        // Wake once per arming: only the first sender that swaps the flag wakes the consumer.
        if self.armed.0.swap(0, Ordering::AcqRel) != 0 {
            self.arrival.ring();
        }
    }
}

/// Control handle of a ring, which closes and resizes it, and attaches consumers.
#[derive(Debug)]
pub struct Control<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Clone for Control<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

/// Creates an empty ring of `size` slots, each initialised by a call of `make`. `arrival` wakes a
/// sleeping consumer; `room` wakes senders that do not wait inside [`MpscSender::reserve`].
///
/// # Panics
/// If `size` is 0 or above [`SIZE_MAX`].
pub fn ring<T: Send>(
    size: u32,
    make: impl FnMut() -> T,
    arrival: impl Waker + 'static,
    room: impl Waker + 'static,
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
    /// Creates a sender.
    pub fn sender(&self) -> MpscSender<T> {
        let chain = lock(&self.shared.chain);
        // The chain is never empty: its last ring is never removed.
        let slots = chain.rings[chain.rings.len() - 1].clone();
        drop(chain);
        MpscSender::new(self.shared.clone(), slots)
    }

    /// Attaches the only consumer; `None` if one is attached. The consumer continues where the
    /// previous one ended. Waiting senders are woken and check the ring again.
    pub fn attach(&self) -> Option<MpscConsumer<T>> {
        let front = Front::attach(&lock(&self.shared.chain).rings[0])?;
        self.shared.wake_senders();
        Some(MpscConsumer::new(self.shared.clone(), front))
    }

    /// Makes senders use a new ring of `size` slots. The frames of the old ring are delivered
    /// first. Fails if the ring is closed.
    ///
    /// # Panics
    /// If `size` is 0 or above [`SIZE_MAX`].
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

    /// Ends the ring: senders get no more slots, and waiting senders return. Frames with a permit
    /// are still delivered.
    pub fn close(&self) {
        let mut chain = lock(&self.shared.chain);
        chain.closed = true;
        chain.rings[chain.rings.len() - 1].close();
        drop(chain);
        self.shared.wake_senders();
        self.shared.wake_consumer();
    }

    /// Wakes all waiting senders. Each checks the ring and its
    /// [condition](MpscSender::reserve_unless) again.
    pub fn wake_senders(&self) {
        self.shared.wake_senders();
    }

    /// Statistics of waiting senders so far.
    pub fn stops(&self) -> Stops {
        *lock(&self.shared.gate)
    }
}

#[cfg(test)]
mod tests;
