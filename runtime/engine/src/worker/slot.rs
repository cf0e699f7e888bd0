//! A lane of a worker: active, armed or faulty.

use std::time::Duration;

use super::Leaving;
use super::gather::HoldOff;
use crate::idle::{IdlePolicy, Pause};
use crate::lane::{Lane, Polled};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LaneState {
    /// Polled in every iteration.
    Active,
    /// Asleep, with its queues armed to wake the worker.
    Armed,
    /// Failed; the fault is reported to the control thread.
    Faulty,
}

pub(super) struct Slot {
    pub(super) lane: Lane,
    pub(super) state: LaneState,
    /// Consecutive polls that moved no frame.
    pub(super) empty: u32,
    /// Time at which the worker first noticed that the lane is idle.
    pub(super) idle_since: Duration,
    pub(super) leaving: Option<Leaving>,
    hold_off: HoldOff,
}

impl Slot {
    pub(super) fn new(lane: Lane, now: Duration) -> Self {
        let (state, hold_off) = (LaneState::Active, HoldOff::default());
        Self { lane, state, empty: 0, idle_since: now, leaving: None, hold_off }
    }

    /// True if the lane is active, but in a poll hold-off.
    #[inline]
    pub(super) fn is_held_off(&mut self, now: impl FnOnce() -> Duration) -> bool {
        self.state == LaneState::Active && self.hold_off.is_on(now)
    }

    /// Accounts for a poll that moved frames.
    #[inline]
    pub(super) fn moved(&mut self, polled: &Polled, now: impl FnOnce() -> Duration) {
        self.empty = 0;
        if HoldOff::is_worth(polled) {
            self.hold_off.begin(self.lane.poll_hold_off(), now);
        }
    }

    pub(super) fn pause(&mut self, policy: &IdlePolicy, window: Duration, now: Duration) -> Pause {
        // Time in which the worker did not run is not idle time of the lane.
        if self.empty <= policy.spins {
            self.idle_since = now;
        }
        policy.pause(self.empty, window, now.saturating_sub(self.idle_since))
    }
}
