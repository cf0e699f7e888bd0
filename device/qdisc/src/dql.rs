//! Dynamic limit on the bytes in a sink, so that packets wait in the qdiscs.
//!
//! Qdiscs cannot reorder or drop bytes that are in a sink. A sink needs only the bytes that its
//! reader takes between two visits (polls) of the writer. The limit is adapted at each visit. If
//! the sink ran empty while packets waited in the qdiscs, the limit was too small. If bytes
//! remained at every visit, the limit was too large by the smallest remainder.

/// Bytes of an Ethernet frame. The limit is at least two frames.
const FRAME: u32 = 1514;

/// Observation time in nanoseconds before the limit shrinks. The time is longer than the pauses of
/// a descheduled reader, so that such pauses count as normal.
const WATCH: u64 = 250_000_000;

/// Time in nanoseconds. The limit covers at least the bytes that the reader takes in this time;
/// otherwise a fast reader would require a visit every few frames. The time is small compared with
/// the target delay of any qdisc.
const STRETCH: u64 = 250_000;

/// Dynamic limit on the bytes in a sink. The type reads no clock: the caller passes sizes and
/// times.
///
/// On each visit, call [`observe`](Self::observe) with the bytes still in the sink. Then send
/// frames while [`allow`](Self::allow) returns more than 0, and report their bytes with
/// [`sent`](Self::sent). The last frame may exceed the limit, so that a frame longer than the limit
/// can leave.
#[derive(Clone, Copy, Debug)]
pub struct ByteLimit {
    limit: u32,
    min: u32,
    max: u32,
    /// Bytes in the sink at the end of the last visit.
    filled: u32,
    /// Time of the last visit.
    seen: u64,
    /// Least number of bytes that remained in the sink at a visit with waiting packets, since the
    /// last change of the limit.
    slack: u32,
    /// Sum of the intervals before the visits that `slack` covers, in nanoseconds.
    watched: u64,
    /// Bytes that the reader took in the intervals that `watched` covers.
    taken: u64,
}

impl ByteLimit {
    /// Creates a limit for a sink of `sink` bytes and frames of up to `mtu` bytes with their
    /// header. The limit starts at two frames and never exceeds the sink. For this start value,
    /// `mtu` is limited to an Ethernet frame: a reader that needs more bytes raises the limit.
    pub fn new(mtu: u32, sink: u32) -> Self {
        let max = sink.max(1);
        let min = (2 * mtu.clamp(64, FRAME)).min(max);
        Self { limit: min, min, max, filled: 0, seen: 0, slack: u32::MAX, watched: 0, taken: 0 }
    }

    /// Current limit in bytes.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns the bytes that may be added to a sink with `used` unread bytes. One frame of any
    /// length may be sent if the result is not 0.
    #[inline]
    pub fn allow(&self, used: u32) -> u32 {
        self.limit.saturating_sub(used)
    }

    /// Records bytes that were added to the sink.
    #[inline]
    pub fn sent(&mut self, bytes: u32) {
        self.filled = self.filled.saturating_add(bytes);
    }

    /// Records the start of a visit and adapts the limit. `used`: bytes still in the sink;
    /// `had_backlog`: the last visit left packets in the qdiscs.
    pub fn observe(&mut self, used: u32, had_backlog: bool, now_ns: u64) {
        let passed = now_ns.saturating_sub(self.seen);
        let taken = self.filled.saturating_sub(used);
        // Skip the observation unless packets waited and the limit was used up. Otherwise the
        // source or the sink's size, not the limit, was the bottleneck.
        if had_backlog && self.filled >= self.limit {
            if used == 0 {
                self.set(self.limit.saturating_mul(2));
            } else {
                self.watch(used, taken, passed);
            }
        }
        (self.filled, self.seen) = (used, now_ns);
    }

    fn watch(&mut self, used: u32, taken: u32, passed: u64) {
        self.slack = self.slack.min(used);
        self.watched = self.watched.saturating_add(passed);
        self.taken += u64::from(taken);
        let stretch = u128::from(self.taken) * u128::from(STRETCH);
        let stretch = (stretch / u128::from(self.watched.max(1))).min(self.max.into()) as u32;
        if self.watched >= 4 * STRETCH && stretch > self.limit {
            return self.set(stretch.min(self.limit.saturating_mul(2)));
        }
        // Shrink only if the reader has taken as many bytes as the limit: bytes that a stalled
        // reader leaves are no excess.
        if self.watched >= WATCH && self.taken >= self.limit.into() {
            let excess = self.slack.saturating_sub(FRAME);
            self.set(self.limit.saturating_sub(excess).max(stretch));
        }
    }

    fn set(&mut self, limit: u32) {
        self.limit = limit.clamp(self.min, self.max);
        (self.slack, self.watched, self.taken) = (u32::MAX, 0, 0);
    }
}

#[cfg(test)]
mod tests;
