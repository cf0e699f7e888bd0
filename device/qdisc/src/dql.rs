//! Dynamic limit on the bytes in a sink, so that packets wait in the qdiscs.
//!
//! Qdiscs cannot reorder or drop bytes that are in a sink. A sink needs the bytes that its reader
//! takes between two visits, and no more. The limit is derived from observations: if the sink ran
//! empty while packets waited, the limit was too small; if bytes always remained at a visit, the
//! limit was too large by the remainder.

/// Bytes of an Ethernet frame: two of them are always allowed.
const FRAME: u32 = 1514;

/// Observation time before the limit shrinks; longer than the pauses of a descheduled reader, so
/// that such pauses count as normal.
const WATCH: u64 = 250_000_000;

/// The limit covers at least the bytes that the reader takes in this time; otherwise a fast reader
/// requires a visit every few frames. The time is small compared with the target delay of any
/// qdisc.
const STRETCH: u64 = 250_000;

/// A dynamic limit on the bytes that a sink holds. Pure: the caller passes sizes and times.
///
/// On each visit, call [`observe`](Self::observe) with the bytes still in the sink, send frames
/// while [`allow`](Self::allow) is above 0 (so that a frame longer than the limit is not stuck),
/// then report their bytes with [`sent`](Self::sent).
#[derive(Clone, Copy, Debug)]
pub struct ByteLimit {
    limit: u32,
    min: u32,
    max: u32,
    /// Bytes in the sink at the end of the last visit, and its time.
    filled: u32,
    seen: u64,
    /// Least remainder in the sink at visits with held packets since the last change of the limit;
    /// the time and the bytes that the reader took between them.
    slack: u32,
    watched: u64,
    taken: u64,
}

impl ByteLimit {
    /// Creates a limit for frames of up to `mtu` bytes with their header, in a sink of `sink`
    /// bytes. The limit is never above the sink, and never below two frames (long frames count as
    /// Ethernet frames: a reader that needs more raises the limit).
    pub fn new(mtu: u32, sink: u32) -> Self {
        let max = sink.max(1);
        let min = (2 * mtu.clamp(64, FRAME)).min(max);
        Self { limit: min, min, max, filled: 0, seen: 0, slack: u32::MAX, watched: 0, taken: 0 }
    }

    /// Current limit.
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

    /// Records the start of a visit. `used`: bytes still in the sink; `had_backlog`: the last visit
    /// left packets that still wait.
    pub fn observe(&mut self, used: u32, had_backlog: bool, now_ns: u64) {
        let passed = now_ns.saturating_sub(self.seen);
        let taken = self.filled.saturating_sub(used);
        // Otherwise packets or space were missing, and the observation has no value.
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
        // A sink whose reader stalls proves nothing: the reader must have taken a full limit once.
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
