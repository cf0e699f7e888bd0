//! Token buckets with a burst and a rate.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Token bucket.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    left: u32,
    /// Time of the last refill, without the fraction of a token that is left.
    counted: Duration,
}

impl Bucket {
    /// Creates a full bucket. `now` is a monotonic time, as in [`take`](Self::take).
    pub fn full(burst: u32, now: Duration) -> Self {
        Self { left: burst, counted: now }
    }

    /// Takes one token. Returns false if none is left.
    pub fn take(&mut self, [burst, per_second]: [u32; 2], now: Duration) -> bool {
        let each = (Duration::from_secs(1) / per_second.max(1)).max(Duration::from_nanos(1));
        let gained = now.saturating_sub(self.counted).as_nanos() / each.as_nanos();
        let missing = burst.saturating_sub(self.left);
        match u32::try_from(gained) {
            Ok(gained) if gained < missing => {
                self.left += gained;
                // The fraction of a token counts at the next refill.
                self.counted += each * gained;
            }
            _ => (self.left, self.counted) = (burst, now),
        }
        let is_left = self.left > 0;
        self.left -= u32::from(is_left);
        is_left
    }

    /// Time of the last refill.
    pub fn counted(&self) -> Duration {
        self.counted
    }
}

/// Connections that one socket accepts per second. The burst is twice that number.
static CONNECTIONS: AtomicU32 = AtomicU32::new(CONNECTIONS_DEFAULT);

/// Default of [`set_connections`].
pub const CONNECTIONS_DEFAULT: u32 = 50;

/// Sets the number of connections that one socket accepts per second, for this process.
pub fn set_connections(per_second: u32) {
    CONNECTIONS.store(per_second.max(1), Ordering::Relaxed);
}

/// Burst and rate of the connections that one socket accepts.
pub fn connections() -> [u32; 2] {
    let each = CONNECTIONS.load(Ordering::Relaxed);
    [each.saturating_mul(2), each]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bucket provides its burst, then its rate, and never more than its burst.
    #[test]
    fn bucket_limits_burst_and_rate() {
        let mut bucket = Bucket::full(20, Duration::from_secs(7));
        let mut taken = |ms, most: u32| {
            let now = Duration::from_secs(7) + Duration::from_millis(ms);
            (0..most).filter(|_| bucket.take([20, 2], now)).count()
        };
        assert_eq!(taken(0, 100), 20);
        assert_eq!(taken(1, 100), 0);
        assert_eq!(taken(600, 100), 1);
        assert_eq!(taken(1200, 100), 1);
        assert_eq!(taken(100_000, 100), 20);
    }

    /// The largest burst and the largest rate do not overflow.
    #[test]
    fn largest_burst_and_rate_do_not_overflow() {
        let limits = [u32::MAX, u32::MAX];
        let mut bucket = Bucket::full(u32::MAX, Duration::ZERO);
        for second in [0, 1, 1, 3600] {
            assert!(bucket.take(limits, Duration::from_secs(second)));
        }
        assert_eq!(bucket.left, u32::MAX - 1);
    }

    /// A refill keeps the fraction of a token: the long-term rate is exact.
    #[test]
    fn refills_keep_fractions_of_tokens() {
        let mut bucket = Bucket::full(20, Duration::ZERO);
        while bucket.take([20, 2], Duration::ZERO) {}
        let times = (1..=100).map(|n| Duration::from_millis(900) * n);
        let taken: usize =
            times.map(|now| (0..9).filter(|_| bucket.take([20, 2], now)).count()).sum();
        assert_eq!(taken, 180);
        // The fraction of a token above the burst is lost.
        assert!(bucket.take([20, 2], Duration::from_millis(190_400)));
        assert!(
            (0..30).filter(|_| bucket.take([20, 2], Duration::from_millis(190_500))).count() == 19
        );
    }
}
