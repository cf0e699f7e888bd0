//! Lanes that take nothing more and leave: those that share disciplines leave together.
//!
//! Where disciplines choose the channel (mqprio, filters), a lane puts frames into the queues of
//! others. One that is told to leave may be at work with what it took before; were another gone by
//! then, nobody would send what it gets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A lane's part in it. Whoever drops it gives the others nothing more.
#[derive(Debug)]
pub(crate) struct Closing {
    /// Lanes that may still give others something.
    open: Arc<AtomicUsize>,
    /// This one may not.
    done: bool,
    /// None may, as was seen when it was looked at last.
    over: bool,
}

impl Closing {
    /// One for each of so many lanes.
    pub(crate) fn of(lanes: usize) -> Vec<Self> {
        let open = Arc::new(AtomicUsize::new(lanes));
        (0..lanes).map(|_| Self { open: open.clone(), done: false, over: false }).collect()
    }

    /// True when no lane gives another one anything more; `done`: nor does this one, from now on.
    pub(super) fn look(&mut self, done: bool) -> bool {
        if done {
            self.count_down();
        }
        // Pairs with the Release of the last one that was done: its frames in others' queues.
        self.over = self.open.load(Ordering::Acquire) == 0;
        self.over
    }

    /// What was seen: whoever goes to sleep by this has acted on it.
    pub(super) fn was_over(&self) -> bool {
        self.over
    }

    fn count_down(&mut self) {
        if !std::mem::replace(&mut self.done, true) {
            // Pairs with the Acquire of those that look: what this one has put into their queues.
            self.open.fetch_sub(1, Ordering::Release);
        }
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.count_down();
    }
}
