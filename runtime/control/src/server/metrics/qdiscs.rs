//! Metrics of disciplines: backlog and drops.

use mqnet_control_api::QdiscEntry;
use prometheus::{IntCounterVec, IntGaugeVec, Registry};

use super::{counter, gauge};

/// Metric families of disciplines.
pub(super) struct Qdiscs {
    backlog: [IntGaugeVec; 2],
    sent: [IntCounterVec; 2],
    drops: IntCounterVec,
    overlimits: IntCounterVec,
    requeues: IntCounterVec,
}

/// Labels of a discipline. Default leaves share the handle `0:` and differ in their parent.
const LABELS: [&str; 6] = ["device", "link", "side", "kind", "handle", "parent"];

impl Qdiscs {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let level = |name: &str, help: &str| gauge(registry, name, help, &LABELS);
        let count = |name: &str, help: &str| counter(registry, name, help, &LABELS);
        Ok(Self {
            backlog: [
                level("qdisc_backlog_bytes", "Bytes in the queue.")?,
                level("qdisc_backlog_packets", "Packets in the queue.")?,
            ],
            sent: [
                count("qdisc_sent_bytes_total", "Bytes that have left.")?,
                count("qdisc_sent_packets_total", "Packets that have left.")?,
            ],
            drops: count("qdisc_drops_total", "Packets dropped by a discipline.")?,
            overlimits: count("qdisc_overlimits_total", "Times over the limit or the rate.")?,
            requeues: count("qdisc_requeues_total", "Packets returned by a full sink.")?,
        })
    }

    pub(super) fn of_device(&self, [device, link, side]: &super::Labels, qdiscs: &[QdiscEntry]) {
        for QdiscEntry { kind, handle, parent, counters, .. } in qdiscs {
            let parent = parent.as_deref().unwrap_or("root");
            let labels = [device, link, side, kind, handle, parent];
            let level = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
            self.backlog[0].with_label_values(&labels).set(level(counters.backlog));
            self.backlog[1].with_label_values(&labels).set(level(counters.qlen));
            self.sent[0].with_label_values(&labels).inc_by(counters.bytes);
            self.sent[1].with_label_values(&labels).inc_by(counters.packets);
            self.drops.with_label_values(&labels).inc_by(counters.drops);
            self.overlimits.with_label_values(&labels).inc_by(counters.overlimits);
            self.requeues.with_label_values(&labels).inc_by(counters.requeues);
        }
    }
}
