//! Token bucket with exact arithmetic in nanoseconds.

/// Parts of a token. A token is the right to send one byte. With a billion parts, a rate in bytes
/// per second adds a whole number of parts each nanosecond.
const PARTS: i128 = 1_000_000_000;

/// Token bucket: bytes per second with a depth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    rate: i128,
    /// Largest level, in parts.
    depth: i128,
    /// Current level in parts; negative after a frame larger than the depth.
    level: i128,
    /// Time of `level`, in nanoseconds.
    at: u64,
}

impl Bucket {
    /// Creates a full bucket.
    pub(crate) fn new(rate: u64, depth: u32) -> Self {
        let depth = i128::from(depth) * PARTS;
        Self { rate: i128::from(rate.max(1)), depth, level: depth, at: 0 }
    }

    /// Copies the level and the time of another bucket, limited to the depth of this bucket.
    pub(crate) fn adopt(&mut self, old: &Self) {
        (self.level, self.at) = (old.level.min(self.depth), old.at);
    }

    /// Returns the level required to send `bytes` bytes. More bytes than the depth require a full
    /// bucket and make the level negative, so that such frames can leave and the rate still holds.
    fn need(&self, bytes: u32) -> i128 {
        (i128::from(bytes) * PARTS).min(self.depth)
    }

    fn refill(&mut self, now: u64) {
        let passed = i128::from(now.saturating_sub(self.at));
        self.level = (self.level + passed * self.rate).min(self.depth);
        self.at = self.at.max(now);
    }

    /// Returns the first time, not before `now`, at which `bytes` bytes may leave.
    pub(crate) fn ready(&mut self, bytes: u32, now: u64) -> u64 {
        self.refill(now);
        let missing = (self.need(bytes) - self.level).max(0);
        let wait = (missing + self.rate - 1) / self.rate;
        now.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX))
    }

    /// Takes the tokens for `bytes` bytes.
    pub(crate) fn spend(&mut self, bytes: u32) {
        self.level -= i128::from(bytes) * PARTS;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // Goal: bytes may leave at the returned time and not a nanosecond earlier. At most rate *
        // time + depth bytes leave, plus the excess of one frame larger than the depth.
        #[test]
        fn ready_is_exact_and_the_rate_is_kept(
            rate in 1u64..20_000_000_000,
            depth in 1u32..200_000,
            steps in prop::collection::vec((1u32..70_000, 0u64..3_000_000), 1..200),
        ) {
            let mut bucket = Bucket::new(rate, depth);
            let (mut now, mut sent) = (0u64, 0u128);
            for (bytes, pause) in steps {
                now += pause;
                let ready = bucket.ready(bytes, now);
                if ready > now {
                    let mut early = bucket;
                    prop_assert!(early.ready(bytes, ready - 1) > ready - 1);
                }
                now = ready;
                prop_assert_eq!(bucket.ready(bytes, now), now);
                bucket.spend(bytes);
                sent += u128::from(bytes);
                let excess = u128::from(bytes.saturating_sub(depth));
                let allowed = u128::from(now) * u128::from(rate) / 1_000_000_000;
                prop_assert!(sent <= allowed + u128::from(depth) + excess);
            }
        }
    }
}
