//! Counters of a qdisc or a class, written by the worker of the scheduler and read by any thread.

use mqnet_counters::Counter;

use crate::QueuedPacket;
use crate::kind::EXTRA_MAX;

/// Counters of one qdisc or class in one scheduler.
#[derive(Debug, Default)]
pub struct NodeStats {
    /// Bytes sent.
    pub bytes: Counter,
    /// Packets sent; each segment of a GSO frame counts as one.
    pub packets: Counter,
    /// Packets dropped.
    pub drops: Counter,
    /// Number of times that the limit or rate was exceeded.
    pub overlimits: Counter,
    /// Packets requeued because the sink was full.
    pub requeues: Counter,
    /// Gauge: bytes queued.
    pub backlog: Counter,
    /// Gauge: packets queued.
    pub qlen: Counter,
    /// Counters specific to the kind, in the order of the kind's declaration.
    pub extra: [Counter; EXTRA_MAX],
}

impl NodeStats {
    /// Reads the counters once.
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

    /// Counts a packet that was sent.
    #[inline]
    pub(crate) fn sent(&self, packet: &QueuedPacket) {
        self.bytes.add(packet.wire_len().into());
        self.packets.add(packet.segments.max(1).into());
    }

    /// Sets the gauges of queued packets and bytes.
    #[inline]
    pub(crate) fn waiting(&self, packets: u32, bytes: u64) {
        self.qlen.set(packets.into());
        self.backlog.set(bytes);
    }
}

/// Values of the counters of a qdisc or class, merged over its schedulers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes sent.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets dropped.
    pub drops: u64,
    /// Number of times that the limit or rate was exceeded.
    pub overlimits: u64,
    /// Packets requeued.
    pub requeues: u64,
    /// Bytes queued.
    pub backlog: u64,
    /// Packets queued.
    pub qlen: u64,
    /// Counters specific to the kind, in the order of the kind's declaration.
    pub extra: [u64; EXTRA_MAX],
}
