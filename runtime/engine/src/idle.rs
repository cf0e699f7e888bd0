//! Idle policy of a worker: the action after an iteration that moved no frame, as a pure value.
//!
//! A wake-up across CPUs is by far the most expensive operation, for the sleeper and for the waker.
//! So a worker keeps polling for a window after the last frame: longer than the gaps inside a
//! running flow, and short enough to cost little CPU time. Between iterations the worker yields the
//! CPU (`sched_yield`), so that on a crowded machine the programs that use the link can run.

use std::time::Duration;

/// Action before the next iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Poll again immediately.
    None,
    /// Let another thread run, then poll again.
    Yield,
    /// No frame moved for the whole window: arm the lanes and sleep.
    Sleep,
}

/// Idle policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdlePolicy {
    /// Polling time of a lane after its last frame.
    pub window: Duration,
    /// Number of empty polls before the worker yields the CPU between polls.
    pub spins: u32,
    /// Least number of empty polls before a lane may sleep, whatever the time. On a crowded machine
    /// the window can pass in one time slice of another thread, without any meaning for the flow.
    pub polls: u32,
}

impl Default for IdlePolicy {
    fn default() -> Self {
        Self { window: Duration::from_millis(1), spins: 8, polls: 32 }
    }
}

impl IdlePolicy {
    /// Action after `empty` consecutive polls that moved nothing, `idle` after the first of them,
    /// for a lane that is allowed `window`.
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

    // Goal: the three phases follow each other; a window that passed in one time slice of another
    // thread does not count as an idle flow; a policy of zeros sleeps immediately.
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
