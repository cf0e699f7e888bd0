//! State of a queue pair that its TX queue, its RX queue and the control thread share.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mqnet_sysio::eventfd::EventFd;

/// State that the queues of a pair report to the control thread.
#[derive(Debug)]
pub(crate) struct PairState {
    /// True after the peer has sent a link-down slot, or the pair was closed.
    ended: AtomicBool,
    /// Number of frames received, and of this end's slots that the peer consumed.
    activity: [AtomicU64; 2],
    /// Number of slots of the peer's memory that are in use, for `show`.
    in_use: AtomicU32,
    /// Number of frames lost while no queue had the ring. A queue adds them to its counter later.
    lost: AtomicU32,
    /// Offset plus 1 of the flags for which a sleeping reader waits; 0 if no reader sleeps.
    asleep: AtomicU32,
    /// First violation of the protocol.
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

    /// Marks the pair as ended, and wakes the control thread the first time.
    #[cold]
    pub(crate) fn end(&self) {
        // Pairs with the Acquire load in has_ended. Only the first call wakes.
        if !self.ended.swap(true, Ordering::Release) {
            let _ = self.control.ring();
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Begins a new session of the pair.
    pub(crate) fn begin(&self) {
        self.ended.store(false, Ordering::Relaxed);
    }

    /// Adds `n` to the activity of a direction: 0 for reception, 1 for credits. Each direction
    /// has one writer at a time.
    #[inline]
    pub(crate) fn count(&self, direction: usize, n: u64) {
        let counter = &self.activity[direction];
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Number of frames received, and of slots consumed by the peer.
    pub(crate) fn counts(&self) -> [u64; 2] {
        self.activity.each_ref().map(|n| n.load(Ordering::Relaxed))
    }

    /// Sets the number of slots in use. Has one writer at a time.
    #[inline]
    pub(crate) fn note_in_use(&self, slots: u32) {
        self.in_use.store(slots, Ordering::Relaxed);
    }

    /// Adds frames that were lost while no queue had the ring.
    #[cold]
    pub(crate) fn note_lost(&self, frames: u32) {
        self.lost.fetch_add(frames, Ordering::Relaxed);
    }

    /// Returns the number of frames lost since the last call, for the counter of a queue.
    #[cold]
    pub(crate) fn take_lost(&self) -> u32 {
        self.lost.swap(0, Ordering::Relaxed)
    }

    pub(crate) fn in_use(&self) -> u32 {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Notes that a reader sleeps until the flags at this offset change.
    pub(crate) fn sleep(&self, flags_at: u32) {
        self.asleep.store(flags_at + 1, Ordering::Relaxed);
    }

    /// Offset of the flags for which a reader sleeps; `None` if no reader sleeps.
    pub(crate) fn asleep(&self) -> Option<u32> {
        self.asleep.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Notes that the sleeping reader was woken.
    pub(crate) fn woken(&self) {
        self.asleep.store(0, Ordering::Relaxed);
    }

    /// Stores a violation, unless there is one already. The control thread then closes the
    /// function.
    #[cold]
    pub(crate) fn violate(&self, what: &str) {
        let mut place = self.violation.lock().unwrap_or_else(PoisonError::into_inner);
        place.get_or_insert_with(|| what.to_owned());
    }

    /// First violation; `None` if there was none.
    pub(crate) fn violation(&self) -> Option<String> {
        self.violation.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
