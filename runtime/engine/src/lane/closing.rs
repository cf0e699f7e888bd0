//! Group of closing lanes: lanes that share disciplines stop receiving and leave together.
//!
//! Where disciplines choose the channel (mqprio, filters), a lane puts frames into the queues of
//! other lanes. A lane that is asked to leave may still distribute frames that it received before.
//! If another lane of the group were gone by then, no lane would send the frames in its queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Membership of a lane in the group. A dropped member counts as done.
#[derive(Debug)]
pub(crate) struct Closing {
    /// Members that may still put frames into other queues.
    open: Arc<AtomicUsize>,
    /// This member is done.
    done: bool,
    /// All members were done at the last check.
    all_done: bool,
}

impl Closing {
    /// Creates a group of `lanes` members.
    pub(crate) fn of(lanes: usize) -> Vec<Self> {
        let open = Arc::new(AtomicUsize::new(lanes));
        (0..lanes).map(|_| Self { open: open.clone(), done: false, all_done: false }).collect()
    }

    /// Checks the group: true if no member puts frames into other queues any more. `done` reports
    /// this member as done.
    pub(super) fn check(&mut self, done: bool) -> bool {
        if done {
            self.count_down();
        }
        // Pairs with the Release of the last member that was done: its frames are in the others'
        // queues.
        self.all_done = self.open.load(Ordering::Acquire) == 0;
        self.all_done
    }

    /// Result of the last check. A lane decides about sleeping by the same result that it has acted
    /// on.
    pub(super) fn was_all_done(&self) -> bool {
        self.all_done
    }

    fn count_down(&mut self) {
        if !std::mem::replace(&mut self.done, true) {
            // Pairs with the Acquire of the members that check: frames that this one has put into
            // their queues.
            self.open.fetch_sub(1, Ordering::Release);
        }
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.count_down();
    }
}
