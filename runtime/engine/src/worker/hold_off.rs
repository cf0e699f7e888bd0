//! Poll hold-off: after a poll with few frames, a lane pauses if its source requests that.
//!
//! A reader that polls for each single frame takes the cache line with the sender's index from the
//! sender's cache, once per frame. With a kernel as sender this is expensive: after publishing a
//! frame the kernel waits until its stores are visible (`sock_def_readable`).

use std::time::Duration;

use mqnet_netdev::limits::BUDGET;

use crate::lane::{PollEnd, Polled};

/// Number of frames in a poll after which the lane is polled again immediately.
const ENOUGH: usize = BUDGET / 2;

/// Poll hold-off of a lane.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HoldOff {
    /// End of the hold-off; 0 without a hold-off.
    until: Duration,
}

impl HoldOff {
    /// True for a poll that took at least one but few frames from its source, and did not end at a
    /// full sink.
    #[inline]
    pub(super) fn is_worth(polled: &Polled) -> bool {
        (1..ENOUGH).contains(&polled.frames) && polled.rest != PollEnd::Full
    }

    /// Starts a hold-off of `time`; zero starts none.
    #[inline]
    pub(super) fn begin(&mut self, time: Duration, now: impl FnOnce() -> Duration) {
        if !time.is_zero() {
            self.until = now() + time;
        }
    }

    /// True during a hold-off. The clock is read only if a hold-off was started.
    #[inline]
    pub(super) fn is_on(&mut self, now: impl FnOnce() -> Duration) -> bool {
        if self.until.is_zero() {
            return false;
        }
        let is_on = now() < self.until;
        if !is_on {
            self.until = Duration::ZERO;
        }
        is_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_micros(2);
    const NOW: Duration = Duration::from_secs(1);

    // Goal: only a poll that took few frames justifies a hold-off. A poll with many frames does
    // not, nor a poll without frames, nor a poll that ended at a full sink.
    #[test]
    fn few_frames_start_a_hold_off() {
        let worth = |frames, rest| HoldOff::is_worth(&Polled { frames, sent: 3, rest });
        assert!(worth(1, PollEnd::Empty) && worth(ENOUGH - 1, PollEnd::Budget));
        assert!(
            !worth(ENOUGH, PollEnd::Empty) && !worth(0, PollEnd::Empty) && !worth(1, PollEnd::Full)
        );
    }

    // Goal: a hold-off ends after its time, and a hold-off of zero does not begin.
    #[test]
    fn hold_offs_end_once() {
        let mut hold_off = HoldOff::default();
        hold_off.begin(Duration::ZERO, || panic!("no clock is needed"));
        assert!(!hold_off.is_on(|| panic!("no hold-off")));
        hold_off.begin(TIME, || NOW);
        assert!(hold_off.is_on(|| NOW + TIME / 2) && !hold_off.is_on(|| NOW + TIME));
        assert!(!hold_off.is_on(|| NOW), "it is over");
    }
}
