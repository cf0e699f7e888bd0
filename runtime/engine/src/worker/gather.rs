//! Frames that gather: a lane whose last poll found few, and no more, is not polled again at once,
//! if its source wishes so.
//!
//! Whoever looks for each single frame takes the line in which its sender says that there is one
//! out of that sender's cache, once for every frame. Behind a kernel that is dear: it tells of a
//! frame and then waits until all its stores are seen (`sock_def_readable`).

use std::time::Duration;

use mqnet_netdev::limits::BUDGET;

use crate::lane::{Polled, Rest};

/// As many frames at least are worth the next look at once.
const ENOUGH: usize = BUDGET / 2;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gather {
    /// They gather until then; 0 while they do not.
    until: Duration,
}

impl Gather {
    /// A poll that took few frames out of its source, and had room for more.
    #[inline]
    pub(super) fn is_worth(polled: &Polled) -> bool {
        (1..ENOUGH).contains(&polled.frames) && polled.rest != Rest::Full
    }

    /// For so long from now on; 0: not at all.
    #[inline]
    pub(super) fn begin(&mut self, time: Duration, now: impl FnOnce() -> Duration) {
        if !time.is_zero() {
            self.until = now() + time;
        }
    }

    /// True while nobody is to look. The clock is read only if somebody might not.
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

    // Goal: few frames are worth a pause; many are not, nor none (what was sent had waited here),
    // nor is a sink that had no room for more.
    #[test]
    fn few_frames_are_worth_a_pause() {
        let worth = |frames, rest| Gather::is_worth(&Polled { frames, sent: 3, rest });
        assert!(worth(1, Rest::Empty) && worth(ENOUGH - 1, Rest::Budget));
        assert!(!worth(ENOUGH, Rest::Empty) && !worth(0, Rest::Empty) && !worth(1, Rest::Full));
    }

    // Goal: a pause ends with its time, once, and the next look is at once; one of no time is none.
    #[test]
    fn a_pause_ends() {
        let mut gather = Gather::default();
        gather.begin(Duration::ZERO, || panic!("no clock is needed"));
        assert!(!gather.is_on(|| panic!("nothing gathers")));
        gather.begin(TIME, || NOW);
        assert!(gather.is_on(|| NOW + TIME / 2) && !gather.is_on(|| NOW + TIME));
        assert!(!gather.is_on(|| NOW), "it is over");
    }
}
