//! Detection of a lagging device. Such a device will wait for the lines that are written next, so
//! their demotion saves time.

use mqnet_netdev::limits::BURST_FRAMES;

/// Detector of a lagging device.
#[derive(Debug, Default)]
pub(super) struct Lag {
    /// Number of frames in flight when the device last consumed some.
    moved_at: u16,
    is_behind: bool,
}

impl Lag {
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Updates the state at the start of a burst, with `before` and `now` frames in flight in a
    /// ring of `size`. The device lags if at least half of the ring is in flight, and at most one
    /// burst was added since the device last consumed frames. A device that consumes none sleeps,
    /// or waits for the CPU of this thread. Demotion would then only cost time, because the lines
    /// are in this CPU's caches.
    #[inline(always)]
    pub(super) fn update(&mut self, size: u16, before: u16, now: u16) {
        if now < before {
            self.moved_at = now;
        }
        let since = usize::from(now.saturating_sub(self.moved_at));
        self.is_behind = now >= size / 2 && since <= BURST_FRAMES;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u16 = 256;
    const BURST: u16 = BURST_FRAMES as u16;

    /// Runs bursts with a device that consumes `taken` frames before each; returns the number of
    /// bursts at which the device lags.
    fn run(bursts: u32, taken: impl Fn(u32) -> u16) -> u32 {
        let (mut lag, mut in_flight, mut behind) = (Lag::default(), 0u16, 0);
        for n in 0..bursts {
            let before = in_flight;
            in_flight = in_flight.saturating_sub(taken(n));
            // Update twice, like the caller, which takes the ring and then submits.
            lag.update(SIZE, before, in_flight);
            lag.update(SIZE, in_flight, in_flight);
            behind += u32::from(lag.is_behind());
            in_flight = SIZE.min(in_flight + BURST);
        }
        behind
    }

    // Goal: a device lags if it keeps consuming from a ring that is at least half full. A device
    // that keeps up, consumes none, or consumes all frames at intervals does not lag.
    #[test]
    fn lag_is_detected() {
        assert!(run(100, |_| BURST / 2) >= 95);
        assert!(run(100, |_| 1) >= 95);
        assert_eq!(run(100, |_| BURST), 0);
        assert_eq!(run(100, |_| SIZE), 0);
        assert_eq!(run(100, |_| 0), 0);
        assert_eq!(run(100, |n| if n % 4 == 0 { SIZE } else { 0 }), 0);
    }
}
