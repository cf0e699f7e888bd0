//! Lane of a worker with its state: active, armed or faulty.

use std::time::Duration;

use super::Leaving;
use super::hold_off::HoldOff;
use crate::idle::{IdlePolicy, Pause};
use crate::lane::{Lane, Polled};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LaneState {
    /// Polled in every iteration outside a poll hold-off.
    Active,
    /// Not polled; its queues are armed and will wake the worker.
    Armed,
    /// Failed; the control thread has been notified.
    Faulty,
}

pub(super) struct Slot {
    pub(super) lane: Lane,
    pub(super) state: LaneState,
    /// Number of consecutive polls that moved no frame.
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

    /// True if the lane is active and in a poll hold-off.
    #[inline]
    pub(super) fn is_held_off(&mut self, now: impl FnOnce() -> Duration) -> bool {
        self.state == LaneState::Active && self.hold_off.is_on(now)
    }

    /// Records a poll that moved frames, and starts a hold-off if the poll took few.
    #[inline]
    pub(super) fn moved(&mut self, polled: &Polled, now: impl FnOnce() -> Duration) {
        self.empty = 0;
        if HoldOff::is_worth(polled) {
            self.hold_off.begin(self.lane.poll_hold_off(), now);
        }
    }

    pub(super) fn pause(&mut self, policy: &IdlePolicy, window: Duration, now: Duration) -> Pause {
        // Count idle time only after `spins` empty polls, so that earlier time in which the worker
        // did not run does not count.
        if self.empty <= policy.spins {
            self.idle_since = now;
        }
        policy.pause(self.empty, window, now.saturating_sub(self.idle_since))
    }
}
