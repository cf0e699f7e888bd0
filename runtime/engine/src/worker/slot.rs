//! A lane of a worker: polled, asleep or faulty.

use std::time::Duration;

use super::Leaving;
use super::gather::Gather;
use crate::idle::{IdlePolicy, Pause};
use crate::lane::{Lane, Polled};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LaneState {
    /// Polled in every pass.
    Active,
    /// Asleep: its queue was asked to wake us.
    Armed,
    /// It has failed; the control thread knows.
    Faulty,
}

pub(super) struct Slot {
    pub(super) lane: Lane,
    pub(super) state: LaneState,
    /// Polls in a row that moved nothing.
    pub(super) empty: u32,
    /// When the worker first had time to notice that.
    pub(super) idle_since: Duration,
    pub(super) leaving: Option<Leaving>,
    gather: Gather,
}

impl Slot {
    pub(super) fn new(lane: Lane, now: Duration) -> Self {
        let (state, gather) = (LaneState::Active, Gather::default());
        Self { lane, state, empty: 0, idle_since: now, leaving: None, gather }
    }

    /// It is polled, but not now: frames gather in its source.
    #[inline]
    pub(super) fn is_left_alone(&mut self, now: impl FnOnce() -> Duration) -> bool {
        self.state == LaneState::Active && self.gather.is_on(now)
    }

    /// A poll has moved something.
    #[inline]
    pub(super) fn moved(&mut self, polled: &Polled, now: impl FnOnce() -> Duration) {
        self.empty = 0;
        if Gather::is_worth(polled) {
            self.gather.begin(self.lane.gather(), now);
        }
    }

    pub(super) fn pause(&mut self, policy: &IdlePolicy, window: Duration, now: Duration) -> Pause {
        // Time in which the worker did not look (others had the CPU) is not idle time of the lane.
        if self.empty <= policy.spins {
            self.idle_since = now;
        }
        policy.pause(self.empty, window, now.saturating_sub(self.idle_since))
    }
}
