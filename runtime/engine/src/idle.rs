//! What a worker does when a pass over its lanes has moved nothing: a pure value.
//!
//! A wake-up across CPUs is the dearest thing there is (about 50 us until the sleeper runs, 11 us
//! of the waker's time), so a worker keeps polling for a while after the last frame: longer than
//! the gaps inside a running flow, much shorter than a human notices on the bill. Polling gives
//! the CPU away between passes (`sched_yield`), so that on a crowded machine the programs whose
//! traffic we carry run, and not we.

use std::time::Duration;

/// What to do before the next pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Poll again at once.
    None,
    /// Let somebody else run, then poll again.
    Yield,
    /// Nothing moved for the whole window: arm the lanes and sleep.
    Sleep,
}

/// The policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdlePolicy {
    /// How long a lane is polled after its last frame.
    pub window: Duration,
    /// Empty polls before the CPU is offered to others between polls.
    pub spins: u32,
    /// Empty polls before a lane may sleep, whatever the time: on a crowded machine the window can
    /// pass in one turn of somebody else, and says nothing about the flow.
    pub polls: u32,
}

impl Default for IdlePolicy {
    fn default() -> Self {
        Self { window: Duration::from_millis(1), spins: 8, polls: 32 }
    }
}

impl IdlePolicy {
    /// What to do after `empty` polls in a row that moved nothing, `idle` after the first of them,
    /// if `window` is what a lane is allowed.
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

    // Goal: the three phases follow each other; a window that passed in one turn of somebody else
    // is not taken for an idle flow; a policy of zeros sleeps at once.
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
