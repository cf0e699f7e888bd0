//! A class: its qdisc, and the accounting of its packets.
//!
//! Every packet that entered a class was dequeued, is queued, or was dropped. The drops of a call
//! are therefore derived from the queue length before and after the call.

use std::sync::Arc;

use mqnet_wire::FlowKeys;

use super::channels::bits;
use super::held::Held;
use crate::{ClassPlan, Cx, Enqueued, Handle, NodeStats, Qdisc, QueuedPacket};

/// A class of a qdisc.
pub(crate) struct Class {
    pub(crate) id: Handle,
    child: Box<dyn Qdisc>,
    held: Held,
    stats: Arc<NodeStats>,
}

/// Queue length before and after a call, and the packets dropped by the call.
#[derive(Clone, Copy)]
pub(crate) struct Change {
    before: (u32, u64),
    after: (u32, u64),
    drops: u64,
}

/// Total queue length of the classes of a qdisc, and the qdisc's statistics.
pub(crate) struct Sum {
    len: u32,
    bytes: u64,
    stats: Arc<NodeStats>,
}

impl Class {
    pub(crate) fn new(plan: ClassPlan, mtu: u32, seed: u64) -> Self {
        let child = super::build(plan.child, mtu, seed);
        Self { id: plan.id, child, held: Held::default(), stats: plan.stats }
    }

    pub(crate) fn stats(&self) -> &NodeStats {
        &self.stats
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.size().0 == 0
    }

    /// Number of queued packets, and their bytes.
    pub(crate) fn size(&self) -> (u32, u64) {
        (self.child.len() + self.held.len(), self.child.backlog() + self.held.bytes())
    }

    pub(crate) fn len_of(&self, channel: u16) -> u32 {
        self.child.len_of(channel) + self.held.len_of(channel)
    }

    /// True if a held packet, or every queued packet, is for a channel in the mask `open`.
    /// Otherwise closed channels restrict the selection.
    pub(crate) fn is_choice_free(&self, open: u64) -> bool {
        let waiting = self.size().0;
        self.held.first(open).is_some()
            || bits(open).map(|channel| self.len_of(channel)).sum::<u32>() == waiting
    }

    pub(crate) fn next_time(&self) -> Option<u64> {
        self.child.next_time()
    }

    /// Computes the change by a call that enqueued `entered` and dequeued `left` packets, and
    /// counts the drops.
    fn settle(&self, before: (u32, u64), entered: u32, left: u32) -> Change {
        let after = self.size();
        let drops = u64::from((before.0 + entered).saturating_sub(after.0 + left));
        self.stats.drops.add(drops);
        self.stats.waiting(after.0, after.1);
        Change { before, after, drops }
    }

    pub(crate) fn enqueue(
        &mut self,
        packet: QueuedPacket,
        keys: &FlowKeys,
        cx: &mut Cx<'_>,
    ) -> (Enqueued, Change) {
        let before = self.size();
        let result = self.child.enqueue(packet, keys, cx);
        (result, self.settle(before, 1, 0))
    }

    /// Dequeues the next packet: the held packet if its channel is open, otherwise a packet of the
    /// qdisc.
    pub(crate) fn dequeue(&mut self, cx: &mut Cx<'_>) -> (Option<QueuedPacket>, Change) {
        let before = self.size();
        let packet = self.held.take(cx.open).or_else(|| self.child.dequeue(cx));
        if let Some(packet) = &packet {
            self.stats.sent(packet);
        }
        let left = u32::from(packet.is_some());
        (packet, self.settle(before, 0, left))
    }

    /// Returns the packet that [`dequeue`](Self::dequeue) would return, and holds it.
    pub(crate) fn peek(&mut self, cx: &mut Cx<'_>) -> (Option<&QueuedPacket>, Change) {
        let before = self.size();
        if self.held.first(cx.open).is_none()
            && let Some(packet) = self.child.dequeue(cx)
        {
            self.held.put(packet);
        }
        let change = self.settle(before, 0, 0);
        (self.held.first(cx.open), change)
    }

    pub(crate) fn take_all(&mut self, out: &mut Vec<QueuedPacket>) {
        self.held.take_all(out);
        self.child.take_all(out);
        self.stats.waiting(0, 0);
    }

    /// Takes the packets and the state of `old`. Packets that find no queue are appended to `rest`.
    pub(crate) fn adopt(&mut self, old: Self, rest: &mut Vec<QueuedPacket>, cx: &mut Cx<'_>) {
        self.held = old.held;
        old.stats.waiting(0, 0);
        self.child.adopt(old.child, rest, cx);
        let (len, bytes) = self.size();
        self.stats.waiting(len, bytes);
    }
}

impl Sum {
    pub(crate) fn new(stats: Arc<NodeStats>) -> Self {
        Self { len: 0, bytes: 0, stats }
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn stats(&self) -> &NodeStats {
        &self.stats
    }

    /// Applies the change that a call to a class caused.
    pub(crate) fn apply(&mut self, change: Change) {
        self.len = self.len - change.before.0 + change.after.0;
        self.bytes = self.bytes - change.before.1 + change.after.1;
        self.stats.drops.add(change.drops);
        self.stats.waiting(self.len, self.bytes);
    }

    /// Recomputes the total queue length from the classes.
    pub(crate) fn recount<'a>(&mut self, classes: impl Iterator<Item = &'a Class>) {
        (self.len, self.bytes) = classes
            .map(Class::size)
            .fold((0, 0), |(len, bytes), size| (len + size.0, bytes + size.1));
        self.stats.waiting(self.len, self.bytes);
    }
}
