//! Group of closing lanes: lanes that share disciplines stop receiving and leave together.
//!
//! If the disciplines select the channel (mqprio, filters), a lane adds frames to the queues of
//! other lanes. A lane that is to leave may still distribute frames that it received before. If the
//! lane of such a queue had already left, no lane would send these frames.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Membership of a lane in a closing group. A dropped member counts as done.
#[derive(Debug)]
pub(crate) struct Closing {
    /// Number of members that may still add frames to other queues.
    open: Arc<AtomicUsize>,
    /// True if this member is done.
    done: bool,
    /// True if all members were done at the last check.
    all_done: bool,
}

impl Closing {
    /// Creates a group of `lanes` members.
    pub(crate) fn of(lanes: usize) -> Vec<Self> {
        let open = Arc::new(AtomicUsize::new(lanes));
        (0..lanes).map(|_| Self { open: open.clone(), done: false, all_done: false }).collect()
    }

    /// Checks the group. Returns true if all members are done: no member adds frames to other
    /// queues any more. `done` marks this member as done.
    pub(super) fn check(&mut self, done: bool) -> bool {
        if done {
            self.count_down();
        }
        // Pairs with the Release in count_down: once 0 is read, the frames of all members are in
        // the queues.
        self.all_done = self.open.load(Ordering::Acquire) == 0;
        self.all_done
    }

    /// Result of the last check. A lane uses the same result for sending and for sleeping.
    pub(super) fn was_all_done(&self) -> bool {
        self.all_done
    }

    fn count_down(&mut self) {
        if !std::mem::replace(&mut self.done, true) {
            // Pairs with the Acquire in check: publishes the frames that this member added to other
            // queues.
            self.open.fetch_sub(1, Ordering::Release);
        }
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.count_down();
    }
}
