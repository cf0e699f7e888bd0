//! A limit on the bytes in a sink, so that packets wait where they are scheduled.
//!
//! What a sink holds is out of the disciplines' hands: a dark buffer. It needs as much as its
//! reader takes between two visits of ours, and no more. That is found by watching: a sink that
//! ran empty although packets waited had too little; one that always had bytes left when we came
//! had too much, by what was left.

/// Bytes of an Ethernet frame: two of them are always allowed.
const FRAME: u32 = 1514;

/// How long what is left over is watched before the limit shrinks by it: longer than the pauses of
/// a reader that is scheduled away, so that they are seen as part of its ways.
const WATCH: u64 = 250_000_000;

/// What the reader takes in this time is always allowed, or a fast one would have to be visited
/// for a few frames each time. It is little beside any delay that a discipline aims at.
const STRETCH: u64 = 250_000;

/// A dynamic limit on the bytes that a sink holds. Pure: the caller brings sizes and times.
///
/// On each visit: [`observe`](Self::observe) what is still in the sink, then hand over frames
/// while [`allow`](Self::allow) is above 0 (so that a frame longer than the limit is not stuck),
/// then tell their bytes with [`sent`](Self::sent).
#[derive(Clone, Copy, Debug)]
pub struct ByteLimit {
    limit: u32,
    min: u32,
    max: u32,
    /// Bytes in the sink when we last left it, and when that was.
    filled: u32,
    seen: u64,
    /// Least that was left in the sink, of the visits since the limit last changed at which it
    /// had held packets back; the time and the bytes that the reader took between them.
    slack: u32,
    watched: u64,
    taken: u64,
}

impl ByteLimit {
    /// A limit for frames of up to `mtu` bytes with their header, in a sink of `sink` bytes. It is
    /// never below two frames (long ones count as Ethernet's: a reader that needs more shows it)
    /// nor above the sink.
    pub fn new(mtu: u32, sink: u32) -> Self {
        let max = sink.max(1);
        let min = (2 * mtu.clamp(64, FRAME)).min(max);
        Self { limit: min, min, max, filled: 0, seen: 0, slack: u32::MAX, watched: 0, taken: 0 }
    }

    /// The limit now.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Bytes that may be put into the sink now, given `used` that its reader has not taken yet. A
    /// frame may go whenever this is not 0, be it longer or not.
    #[inline]
    pub fn allow(&self, used: u32) -> u32 {
        self.limit.saturating_sub(used)
    }

    /// Bytes were put into the sink.
    #[inline]
    pub fn sent(&mut self, bytes: u32) {
        self.filled = self.filled.saturating_add(bytes);
    }

    /// Called at the start of a visit: `used` bytes are still in the sink; `had_backlog`: the last
    /// visit left packets behind that wait still.
    pub fn observe(&mut self, used: u32, had_backlog: bool, now_ns: u64) {
        let passed = now_ns.saturating_sub(self.seen);
        let taken = self.filled.saturating_sub(used);
        // Otherwise packets or room were lacking, and nothing is learnt.
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
        // A sink that stands still leaves much and proves nothing: it must have been emptied once.
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
