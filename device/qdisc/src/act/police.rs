//! Police action: a rate that packets must not exceed.

use std::sync::{Mutex, PoisonError};

use super::Control;

const SECOND: u64 = 1_000_000_000;

/// Parameters of a police action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Police {
    /// Bytes per second, above 0.
    pub(crate) rate: u64,
    /// Largest burst after a pause, in bytes.
    pub(crate) burst: u32,
    /// Bytes of the largest packet that can conform; `None`: only the burst limits packets.
    pub(crate) mtu: Option<u32>,
    /// Control result of packets above the rate.
    pub(crate) exceed: Control,
}

impl Police {
    /// Takes the tokens for a packet of `len` bytes. Returns false, and takes none, if tokens are
    /// missing or the packet is longer than `mtu`.
    pub(crate) fn conforms(&self, bucket: &Bucket, len: u32, now: u64) -> bool {
        if self.mtu.is_some_and(|mtu| len > mtu) {
            return false;
        }
        let mut state = bucket.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (time, level) = state.unwrap_or((now, self.full()));
        // `now` may be earlier than `time`: another worker may have updated the bucket after `now`
        // was read.
        let passed = now.saturating_sub(time);
        let gained = u128::from(passed) * u128::from(self.rate);
        let level = level.saturating_add(gained).min(self.full());
        let cost = u128::from(len) * u128::from(SECOND);
        let left = level.checked_sub(cost);
        *state = Some((time.max(now), left.unwrap_or(level)));
        left.is_some()
    }

    /// Tokens of a full bucket.
    fn full(&self) -> u128 {
        u128::from(self.burst) * u128::from(SECOND)
    }
}

/// Token bucket: time of the last update in nanoseconds, and tokens; `None` is a full bucket, never
/// used. A token is a billionth of a byte, so that a rate in bytes per second adds a whole number
/// of tokens per nanosecond.
#[derive(Debug, Default)]
pub(crate) struct Bucket(Mutex<Option<(u64, u128)>>);
