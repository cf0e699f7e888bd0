//! What is counted, under the names of the kernel's `netdev` family where it has one.

use mqnet_counters::{Counter, Padded};

/// Why a frame was dropped. Every dropped frame has exactly one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum DropReason {
    /// Longer than the link's largest frame, which follows from its MTU.
    TooLong,
    /// A large frame for a side that takes none: its segments are longer than the link's MTU.
    GsoOverMtu,
    /// The receiver's buffers are smaller than the frame.
    BufferTooSmall,
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
    /// An XDP program said so.
    XdpDrop,
    /// An XDP program failed, or said that it did.
    XdpAborted,
    /// An XDP program sent it back, and it could not go.
    XdpUnsent,
    /// The driver behind the device asked for no such frames (address, VLAN, mode of reception).
    NotWanted,
    /// An XDP program sent it to a netdev that is not one of its link.
    XdpElsewhere,
}

impl DropReason {
    /// Every reason.
    pub const ALL: [Self; 18] = [
        Self::TooLong,
        Self::GsoOverMtu,
        Self::BufferTooSmall,
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
        Self::XdpDrop,
        Self::XdpAborted,
        Self::XdpUnsent,
        Self::NotWanted,
        Self::XdpElsewhere,
    ];

    /// Name in statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooLong => "too-long",
            Self::GsoOverMtu => "gso-size-over-mtu",
            Self::BufferTooSmall => "rx-buffer-too-small",
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
            Self::XdpDrop => "xdp-drop",
            Self::XdpAborted => "xdp-aborted",
            Self::XdpUnsent => "xdp-unsent",
            Self::NotWanted => "not-wanted",
            Self::XdpElsewhere => "xdp-elsewhere",
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

/// What an XDP program did with the frames of an RX queue.
#[derive(Debug, Default)]
pub struct XdpStats {
    /// Frames that it has seen (`xdp_packets`).
    pub packets: Counter,
    /// Sent back (`xdp_tx`).
    pub tx: Counter,
    /// Sent to a netdev (`xdp_redirects`).
    pub redirects: Counter,
    /// Of both, those that went back to the lane that sends.
    pub sent: Counter,
    /// Dropped, for whatever reason (`xdp_drops`).
    pub drops: Counter,
    /// Frames beyond the first that were made of one large frame for a program that takes none.
    pub segments: Counter,
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
    /// System calls that moved frames, or found none.
    pub syscalls: Counter,
    /// Frames taken and not delivered.
    pub drops: Drops,
    /// What an XDP program did with them.
    pub xdp: XdpStats,
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
    /// System calls that moved frames.
    pub syscalls: Counter,
    /// Frames whose payload was copied.
    pub copies: Counter,
    /// Frames beyond the first that were made of one large frame, because the queue takes none:
    /// so many more left than came.
    pub segments: Counter,
    /// Frames that left as a part of the one before them, because the queue takes large ones: so
    /// many fewer left than came.
    pub merged: Counter,
    /// Frames whose checksum was filled in for a queue that takes none unfinished.
    pub checksums: Counter,
    /// Of the frames handed to the peer, those that it had not taken when it was lost.
    pub lost: Counter,
    /// Frames that an XDP program of this netdev sent back (`xdp_tx`).
    pub xdp_tx: Counter,
    /// Of those, what could not be sent (`xdp_tx_drops`).
    pub xdp_tx_drops: Counter,
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
