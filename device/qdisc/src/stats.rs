//! Counters of a qdisc or a class, written by its worker and read by any thread.

use mqnet_counters::Counter;

use crate::QueuedPacket;
use crate::kind::EXTRA_MAX;

/// Counters of one discipline or class in one scheduler.
#[derive(Debug, Default)]
pub struct NodeStats {
    /// Bytes sent.
    pub bytes: Counter,
    /// Packets sent (segments of large frames count one each).
    pub packets: Counter,
    /// Packets dropped.
    pub drops: Counter,
    /// Number of times over the limit or rate.
    pub overlimits: Counter,
    /// Packets requeued because the sink was full.
    pub requeues: Counter,
    /// Gauge: bytes queued.
    pub backlog: Counter,
    /// Gauge: packets queued.
    pub qlen: Counter,
    /// Counters that only the kind has, in the order of its declaration.
    pub extra: [Counter; EXTRA_MAX],
}

impl NodeStats {
    /// The counters, read once.
    pub fn totals(&self) -> Totals {
        Totals {
            bytes: self.bytes.get(),
            packets: self.packets.get(),
            drops: self.drops.get(),
            overlimits: self.overlimits.get(),
            requeues: self.requeues.get(),
            backlog: self.backlog.get(),
            qlen: self.qlen.get(),
            extra: self.extra.each_ref().map(Counter::get),
        }
    }

    /// Counts a packet that leaves.
    #[inline]
    pub(crate) fn sent(&self, packet: &QueuedPacket) {
        self.bytes.add(packet.wire_len().into());
        self.packets.add(packet.segments.max(1).into());
    }

    /// Sets the packets and bytes queued.
    #[inline]
    pub(crate) fn waiting(&self, packets: u32, bytes: u64) {
        self.qlen.set(packets.into());
        self.backlog.set(bytes);
    }
}

/// The counters of a node, read once; those of several schedulers are merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes sent.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets dropped.
    pub drops: u64,
    /// Times over the limit or rate.
    pub overlimits: u64,
    /// Packets requeued.
    pub requeues: u64,
    /// Bytes queued.
    pub backlog: u64,
    /// Packets queued.
    pub qlen: u64,
    /// Counters that only the kind has, in the order of its declaration.
    pub extra: [u64; EXTRA_MAX],
}
