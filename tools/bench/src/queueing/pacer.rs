//! Pacing of a slow sink.

use std::time::Duration;

/// Rate of a sink.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Speed {
    /// Unlimited rate.
    Unpaced,
    /// Frames per second of any size.
    Frames(f64),
    /// Bits per second.
    Bits(f64),
}

/// Maximum lateness that a sink makes up for by exceeding its rate. A sink is late after a long
/// sleep, or while another thread uses its CPU.
const CREDIT: Duration = Duration::from_millis(5);

/// Rate limiter of a sink.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pacer {
    speed: Speed,
    busy_until: Duration,
}

impl Pacer {
    pub(super) fn new(speed: Speed) -> Self {
        Self { speed, busy_until: Duration::ZERO }
    }

    /// True if the rate of the sink is limited.
    pub(super) fn is_slow(&self) -> bool {
        self.speed != Speed::Unpaced
    }

    /// Accounts for a frame at `now`; returns the end of the frame's service time, which is `now`
    /// without a rate limit.
    pub(super) fn take(&mut self, bytes: usize, now: Duration) -> Duration {
        let seconds = match self.speed {
            Speed::Unpaced => return now,
            Speed::Frames(rate) => 1.0 / rate,
            Speed::Bits(rate) => bytes as f64 * 8.0 / rate,
        };
        let start = self.busy_until.max(now.saturating_sub(CREDIT));
        self.busy_until = start + Duration::from_secs_f64(seconds);
        self.busy_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a sink that is always busy has exactly its rate, even if every call is late.
    #[test]
    fn lateness_is_made_up_for() {
        let mut pacer = Pacer::new(Speed::Bits(100e6));
        let mut now = Duration::from_secs(1);
        let begin = pacer.take(1500, now);
        let mut end = begin;
        for _ in 0..1000 {
            // Every sleep takes 60 us too long.
            now = end.max(now) + Duration::from_micros(60);
            end = pacer.take(1500, now);
        }
        let each = (end - begin).as_secs_f64() / 1000.0;
        assert!((each - 120e-6).abs() < 1e-9, "{each}");
    }

    // Goal: idle time gives no more credit than the limit, and a rate in frames gives frames of all
    // sizes the same service time.
    #[test]
    fn idle_time_is_not_saved() {
        let mut pacer = Pacer::new(Speed::Frames(1000.0));
        let now = Duration::from_secs(5);
        assert_eq!(pacer.take(64, now), now - CREDIT + Duration::from_millis(1));
        for _ in 0..5 {
            pacer.take(9000, now);
        }
        assert_eq!(pacer.take(64, now), now + Duration::from_millis(2));
        assert_eq!(Pacer::new(Speed::Unpaced).take(64, now), now);
    }
}
