//! Result of a poll.

/// Reason why a poll ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollEnd {
    /// The budget is used up; the source may have more frames.
    Budget,
    /// The source is empty.
    Empty,
    /// The sink, or the memory of its disciplines, is full.
    Full,
}

/// Result of a poll.
#[derive(Clone, Copy, Debug)]
pub struct Polled {
    /// Number of frames that left the source.
    pub frames: usize,
    /// Number of sent frames that had waited in disciplines or in a batch.
    pub sent: usize,
    /// Reason why the poll ended.
    pub rest: PollEnd,
}

impl Polled {
    pub(super) fn nothing(rest: PollEnd) -> Self {
        Self { frames: 0, sent: 0, rest }
    }

    /// Number of frames received or sent.
    pub fn moved(&self) -> usize {
        self.frames + self.sent
    }
}
