//! Idle policy of a worker: the action after an iteration without frames, as a pure function.
//!
//! A wake-up across CPUs is by far the most expensive operation, for the sleeping thread and for
//! the waking thread. Therefore a worker continues to poll for a window after the last frame. The
//! window is longer than the gaps within a flow, and short enough to cost little CPU time. Between
//! iterations the worker yields the CPU (`sched_yield`), so that the programs that use the link can
//! run on a crowded machine.

use std::time::Duration;

/// Action before the next iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Poll again immediately.
    None,
    /// Let another thread run, then poll again.
    Yield,
    /// Arm the lanes and sleep, because no frame moved for the whole window.
    Sleep,
}

/// Idle policy of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdlePolicy {
    /// Time for which a lane is polled after its last frame.
    pub window: Duration,
    /// Number of empty polls after which the worker yields the CPU between polls.
    pub spins: u32,
    /// Minimum number of empty polls before a lane may sleep. On a crowded machine the window can
    /// pass within one time slice of another thread, which does not mean that the flow is idle.
    pub polls: u32,
}

impl Default for IdlePolicy {
    fn default() -> Self {
        Self { window: Duration::from_millis(1), spins: 8, polls: 32 }
    }
}

impl IdlePolicy {
    /// Action after `empty` consecutive polls without frames, at time `idle` after the first of
    /// them. `window` is the polling time of the lane.
    pub fn pause(&self, empty: u32, window: Duration, idle: Duration) -> Pause {
        if empty < self.spins {
            Pause::None
        } else if idle < window || empty < self.polls {
            Pause::Yield
        } else {
            Pause::Sleep
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the three phases follow each other. A window that passes within few polls does not end
    // polling. A policy of zeros sleeps immediately.
    #[test]
    fn phases_follow_each_other() {
        let policy = IdlePolicy { window: Duration::from_micros(50), spins: 3, polls: 10 };
        let us = Duration::from_micros;
        assert_eq!(policy.pause(0, policy.window, us(0)), Pause::None);
        assert_eq!(policy.pause(2, policy.window, us(90)), Pause::None);
        assert_eq!(policy.pause(20, policy.window, us(49)), Pause::Yield);
        assert_eq!(policy.pause(4, policy.window, us(5000)), Pause::Yield);
        assert_eq!(policy.pause(10, policy.window, us(50)), Pause::Sleep);
        let none = IdlePolicy { window: us(0), spins: 0, polls: 0 };
        assert_eq!(none.pause(0, none.window, us(0)), Pause::Sleep);
    }
}
