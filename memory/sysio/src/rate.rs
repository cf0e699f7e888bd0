//! Token buckets with a burst and a rate.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Token bucket.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    left: u32,
    /// Time of the last refill.
    counted: Duration,
}

impl Bucket {
    /// Creates a full bucket. `now` is a monotonic time, here and below.
    pub fn full(burst: u32, now: Duration) -> Self {
        Self { left: burst, counted: now }
    }

    /// Takes one token; returns false if none is left.
    pub fn take(&mut self, [burst, per_second]: [u32; 2], now: Duration) -> bool {
        let each = Duration::from_secs(1) / per_second.max(1);
        let gained = now.saturating_sub(self.counted).as_nanos() / each.as_nanos().max(1);
        if gained > 0 {
            let gained = u32::try_from(gained).unwrap_or(burst).min(burst);
            self.left = (self.left + gained).min(burst);
            self.counted = now;
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

/// Connections that one socket accepts per second; the burst is twice that number.
static CONNECTIONS: AtomicU32 = AtomicU32::new(CONNECTIONS_DEFAULT);

/// Default of [`set_connections`].
pub const CONNECTIONS_DEFAULT: u32 = 50;

/// Sets the number of connections that one socket accepts per second, for this process.
pub fn set_connections(per_second: u32) {
    CONNECTIONS.store(per_second.max(1), Ordering::Relaxed);
}

/// Burst and rate of one socket.
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
}
