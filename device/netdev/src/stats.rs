//! What is counted, under the names of the kernel's `netdev` family where it has one.

use mqnet_counters::{Counter, Padded};

/// Why a frame was dropped. Every dropped frame has exactly one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum DropReason {
    /// Longer than the plan's largest frame.
    TooLong,
    /// Its header does not fit its bytes (checksum or segmentation fields).
    BadHeader,
    /// The kernel refused it (`EINVAL`): a segmentation type or header that it does not know.
    Refused,
    /// The device was administratively down (`EIO`).
    DeviceDown,
    /// It was held for a full sink when the link was closed.
    LinkClosed,
    /// It came late to a queue that was being retired.
    QueueRetired,
    /// The sink was full, and the link was asked to drop then (`full=drop`).
    SinkFull,
    /// The discipline was over its limit.
    QdiscOverlimit,
    /// Active queue management chose it (CoDel).
    Aqm,
    /// It was over the rate of a police action.
    Policed,
    /// A filter said so.
    Filtered,
}

impl DropReason {
    /// Every reason.
    pub const ALL: [Self; 11] = [
        Self::TooLong,
        Self::BadHeader,
        Self::Refused,
        Self::DeviceDown,
        Self::LinkClosed,
        Self::QueueRetired,
        Self::SinkFull,
        Self::QdiscOverlimit,
        Self::Aqm,
        Self::Policed,
        Self::Filtered,
    ];

    /// Name in statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooLong => "too-long",
            Self::BadHeader => "bad-header",
            Self::Refused => "refused-by-kernel",
            Self::DeviceDown => "device-down",
            Self::LinkClosed => "link-closed",
            Self::QueueRetired => "queue-retired",
            Self::SinkFull => "sink-full",
            Self::QdiscOverlimit => "qdisc-overlimit",
            Self::Aqm => "aqm",
            Self::Policed => "policed",
            Self::Filtered => "filtered",
        }
    }
}

/// Drops by reason.
#[derive(Debug, Default)]
pub struct Drops {
    by_reason: [Counter; DropReason::ALL.len()],
}

impl Drops {
    /// Counts `n` frames dropped for `reason`.
    #[inline]
    pub fn count(&self, reason: DropReason, n: u64) {
        self.by_reason[reason as usize].add(n);
    }

    /// Frames dropped for `reason`.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.by_reason[reason as usize].get()
    }

    /// Frames dropped for any reason.
    pub fn total(&self) -> u64 {
        self.by_reason.iter().map(Counter::get).sum()
    }
}

/// One RX queue. Written by the worker that owns the queue.
#[derive(Debug, Default)]
pub struct RxStats {
    /// Frames taken from the queue (`rx-packets`).
    pub packets: Counter,
    /// Their bytes (`rx-bytes`).
    pub bytes: Counter,
    /// Doorbells rung to return credit to the sender.
    pub kicks: Counter,
    /// Times that the queue asked to be woken.
    pub arms: Counter,
    /// Frames taken and not delivered.
    pub drops: Drops,
}

/// One TX queue. Written by the worker that owns the queue.
#[derive(Debug, Default)]
pub struct TxStats {
    /// Frames handed to the peer (`tx-packets`).
    pub packets: Counter,
    /// Their bytes (`tx-bytes`).
    pub bytes: Counter,
    /// Times that the queue was full and stopped its source (`tx-stop`).
    pub stops: Counter,
    /// Times that it went on (`tx-wake`).
    pub wakes: Counter,
    /// Nanoseconds stopped, in all.
    pub stopped_ns: Counter,
    /// Monotonic time at which it stopped, 0 while it runs.
    pub stopped_since_ns: Counter,
    /// Doorbells rung.
    pub kicks: Counter,
    /// Times that the queue asked to be woken when there is room.
    pub arms: Counter,
    /// Frames whose payload was copied.
    pub copies: Counter,
    /// Of the frames handed to the peer, those that it had not taken when it was lost.
    pub lost: Counter,
    /// Frames taken and not sent.
    pub drops: Drops,
}

/// Statistics of one channel; they outlive its queues.
#[derive(Debug, Default)]
pub struct ChannelStats {
    /// RX half.
    pub rx: Padded<RxStats>,
    /// TX half.
    pub tx: Padded<TxStats>,
}
