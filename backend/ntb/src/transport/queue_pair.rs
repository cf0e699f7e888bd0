//! One queue pair as the control thread and the queues share it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mqnet_sysio::eventfd::EventFd;

use super::cell::Cell;
use super::slots::{RxSlots, TxSlots};
use crate::hw::{Doorbell, DoorbellTrap};

/// State that the queues of a pair report to the control thread.
#[derive(Debug)]
pub(crate) struct PairState {
    /// The peer sent a link-down slot.
    ended: AtomicBool,
    /// Frames received, and frames of ours that the peer consumed.
    activity: [AtomicU64; 2],
    /// Slots of the peer's memory that are in use, for the view.
    in_use: AtomicU32,
    /// Frames that were lost with the ring at the control thread, until a queue counts them.
    lost: AtomicU32,
    /// Offset of the flags that a sleeping reader waits for, plus 1; 0 while none sleeps.
    asleep: AtomicU32,
    /// Violation of the protocol.
    violation: Mutex<Option<String>>,
    /// Wakes the control thread; shared by all pairs.
    control: Arc<EventFd>,
}

impl PairState {
    pub(crate) fn new(control: Arc<EventFd>) -> Self {
        Self {
            ended: AtomicBool::new(false),
            activity: Default::default(),
            in_use: AtomicU32::new(0),
            lost: AtomicU32::new(0),
            asleep: AtomicU32::new(0),
            violation: Mutex::new(None),
            control,
        }
    }

    /// Notes a link-down slot.
    #[cold]
    pub(crate) fn end(&self) {
        // Pairs with the Acquire load in has_ended.
        if !self.ended.swap(true, Ordering::Release) {
            let _ = self.control.ring();
        }
    }

    /// True after a link-down slot.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Begins a new life of the pair.
    pub(crate) fn begin(&self) {
        self.ended.store(false, Ordering::Relaxed);
    }

    /// Counts frames of a direction. Each direction has one writer at a time.
    #[inline]
    pub(crate) fn count(&self, direction: usize, n: u64) {
        let counter = &self.activity[direction];
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Frames received, and slots consumed by the peer.
    pub(crate) fn counts(&self) -> [u64; 2] {
        self.activity.each_ref().map(|n| n.load(Ordering::Relaxed))
    }

    /// Notes the number of slots that are in use. Has one writer at a time.
    #[inline]
    pub(crate) fn note_in_use(&self, slots: u32) {
        self.in_use.store(slots, Ordering::Relaxed);
    }

    /// Notes frames that were lost with a ring that no queue had.
    #[cold]
    pub(crate) fn note_lost(&self, frames: u32) {
        self.lost.fetch_add(frames, Ordering::Relaxed);
    }

    /// Lost frames since the last call, for the counter of a queue.
    #[cold]
    pub(crate) fn take_lost(&self) -> u32 {
        self.lost.swap(0, Ordering::Relaxed)
    }

    /// Slots that are in use.
    pub(crate) fn in_use(&self) -> u32 {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Notes that a reader sleeps until the flags at this offset change.
    pub(crate) fn sleep(&self, flags_at: u32) {
        self.asleep.store(flags_at + 1, Ordering::Relaxed);
    }

    /// Offset of the flags that a reader waits for.
    pub(crate) fn asleep(&self) -> Option<u32> {
        self.asleep.load(Ordering::Relaxed).checked_sub(1)
    }

    /// The sleeping reader was woken.
    pub(crate) fn woken(&self) {
        self.asleep.store(0, Ordering::Relaxed);
    }

    /// Notes a violation: the control thread closes the function by it.
    #[cold]
    pub(crate) fn violate(&self, what: &str) {
        let mut place = self.violation.lock().unwrap_or_else(PoisonError::into_inner);
        place.get_or_insert_with(|| what.to_owned());
    }

    /// The violation, if there was one.
    pub(crate) fn violation(&self) -> Option<String> {
        self.violation.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Resources of a queue pair, to make queues of.
#[derive(Clone)]
pub(crate) struct QueuePair {
    pub(crate) state: Arc<PairState>,
    pub(crate) rx: Arc<Cell<RxSlots>>,
    pub(crate) tx: Arc<Cell<TxSlots>>,
    /// Rung by the peer.
    pub(crate) event: Arc<EventFd>,
    pub(crate) trap: Option<Arc<dyn DoorbellTrap>>,
    /// Rung by this end.
    pub(crate) doorbell: Arc<dyn Doorbell>,
}
