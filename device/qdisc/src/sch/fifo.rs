//! pfifo and bfifo.

use std::sync::Arc;

use mqnet_wire::FlowKeys;

use super::channels::{Channels, Unit};
use super::same_kind;
use crate::{Cx, Enqueued, Extra, NodeStats, Packet, Qdisc, Totals};

/// First in, first out, up to a limit; what comes then is dropped.
pub(crate) struct Fifo {
    waiting: Channels,
    unit: Unit,
    limit: u32,
    stats: Arc<NodeStats>,
}

impl Fifo {
    pub(crate) fn new(unit: Unit, limit: u32, stats: Arc<NodeStats>) -> Self {
        Self { waiting: Channels::default(), unit, limit, stats }
    }

    fn publish(&self) {
        self.stats.waiting(self.waiting.len(), self.waiting.bytes());
    }
}

impl Qdisc for Fifo {
    fn enqueue(&mut self, packet: Packet, _keys: &FlowKeys, cx: &mut Cx<'_>) -> Enqueued {
        let (result, dropped) = self.waiting.offer(packet, self.unit, self.limit, cx);
        self.stats.drops.add(dropped);
        self.publish();
        result
    }

    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<Packet> {
        let packet = self.waiting.pop(cx.open)?;
        self.stats.sent(&packet);
        self.publish();
        Some(packet)
    }

    fn next_time(&self) -> Option<u64> {
        None
    }

    fn len(&self) -> u32 {
        self.waiting.len()
    }

    fn len_of(&self, channel: u16) -> u32 {
        self.waiting.len_of(channel)
    }

    fn backlog(&self) -> u64 {
        self.waiting.bytes()
    }

    fn totals(&self) -> Totals {
        self.stats.with(Extra::None)
    }

    fn take_all(&mut self, out: &mut Vec<Packet>) {
        self.waiting.take_all(out);
        self.publish();
    }

    /// What waits stays even if the new limit is smaller: it only admits nothing until then.
    fn adopt(&mut self, old: Box<dyn Qdisc>, rest: &mut Vec<Packet>, _cx: &mut Cx<'_>) {
        if let Some(mut old) = same_kind::<Self>(old, rest) {
            self.waiting = std::mem::take(&mut old.waiting);
            old.publish();
            self.publish();
        }
    }
}
