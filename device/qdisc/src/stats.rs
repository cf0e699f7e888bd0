//! What is counted for a discipline or a class. Written by whoever runs it, read by anybody.

use mqnet_counters::Counter;

use crate::{Packet, Params};

/// Counters of one discipline or class in one scheduler.
#[derive(Debug, Default)]
pub struct NodeStats {
    /// Bytes sent.
    pub bytes: Counter,
    /// Packets sent (segments of large frames count one each).
    pub packets: Counter,
    /// Packets dropped.
    pub drops: Counter,
    /// Times that it was over its limit or its rate.
    pub overlimits: Counter,
    /// Packets that came back because the sink was full.
    pub requeues: Counter,
    /// Gauge: bytes that wait.
    pub backlog: Counter,
    /// Gauge: packets that wait.
    pub qlen: Counter,
    /// Gauge, classes of drr alone: bytes that may still be sent in this turn.
    pub deficit: Counter,
    /// Counters of fq_codel alone.
    pub fq_codel: FqCodelStats,
}

impl NodeStats {
    /// The counters of a discipline of this kind, now.
    pub fn totals(&self, params: &Params) -> Totals {
        match params {
            Params::FqCodel(_) => self.with(self.fq_codel.extra()),
            _ => self.with(Extra::None),
        }
    }

    /// The counters of a class of a discipline of this kind, now.
    pub fn class_totals(&self, params: &Params) -> Totals {
        match params {
            Params::Drr => self.with(Extra::Drr { deficit: self.deficit.get() }),
            _ => self.with(Extra::None),
        }
    }

    /// The counters with what only this kind has.
    pub(crate) fn with(&self, extra: Extra) -> Totals {
        Totals {
            bytes: self.bytes.get(),
            packets: self.packets.get(),
            drops: self.drops.get(),
            overlimits: self.overlimits.get(),
            requeues: self.requeues.get(),
            backlog: self.backlog.get(),
            qlen: self.qlen.get(),
            extra,
        }
    }

    /// Counts a packet that leaves.
    #[inline]
    pub(crate) fn sent(&self, packet: &Packet) {
        self.bytes.add(packet.wire_len().into());
        self.packets.add(packet.segments.max(1).into());
    }

    /// Sets what waits.
    #[inline]
    pub(crate) fn waiting(&self, packets: u32, bytes: u64) {
        self.qlen.set(packets.into());
        self.backlog.set(bytes);
    }
}

impl FqCodelStats {
    /// All of them.
    pub(crate) fn extra(&self) -> Extra {
        Extra::FqCodel {
            maxpacket: self.maxpacket.get(),
            drop_overlimit: self.drop_overlimit.get(),
            drop_overmemory: self.drop_overmemory.get(),
            ecn_mark: self.ecn_mark.get(),
            ce_mark: self.ce_mark.get(),
            new_flow_count: self.new_flow_count.get(),
            memory_used: self.memory_used.get(),
            new_flows_len: self.new_flows_len.get(),
            old_flows_len: self.old_flows_len.get(),
        }
    }
}

/// Counters of fq_codel.
#[derive(Debug, Default)]
pub struct FqCodelStats {
    /// Largest packet seen.
    pub maxpacket: Counter,
    /// Packets dropped because of the limit.
    pub drop_overlimit: Counter,
    /// Packets dropped because of the memory limit.
    pub drop_overmemory: Counter,
    /// Packets marked instead of dropped.
    pub ecn_mark: Counter,
    /// Packets marked because of `ce_threshold`.
    pub ce_mark: Counter,
    /// Flows that were new.
    pub new_flow_count: Counter,
    /// Gauge: bytes of memory in use.
    pub memory_used: Counter,
    /// Gauge: flows in the list of new ones.
    pub new_flows_len: Counter,
    /// Gauge: flows in the list of old ones.
    pub old_flows_len: Counter,
}

/// The counters of a node, read once; those of several schedulers add up.
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
    /// Packets that came back.
    pub requeues: u64,
    /// Bytes that wait.
    pub backlog: u64,
    /// Packets that wait.
    pub qlen: u64,
    /// What only one kind has.
    pub extra: Extra,
}

/// Statistics of one kind of discipline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the kernel's; see FqCodelStats")]
pub enum Extra {
    /// None.
    #[default]
    None,
    /// fq_codel's (`tc -s qdisc show`).
    FqCodel {
        maxpacket: u64,
        drop_overlimit: u64,
        drop_overmemory: u64,
        ecn_mark: u64,
        ce_mark: u64,
        new_flow_count: u64,
        memory_used: u64,
        new_flows_len: u64,
        old_flows_len: u64,
    },
    /// A flow of fq_codel as a class.
    Flow { deficit: i64, count: u64, lastcount: u64, ldelay_us: u64, dropping: bool },
    /// A class of drr.
    Drr { deficit: u64 },
}
