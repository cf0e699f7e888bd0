//! Scheduler of a lane: filters of the egress hook, then one tree of qdiscs.

use std::sync::Arc;

use mqnet_netdev::DropReason;
use mqnet_wire::{FlowKeys, HEADERS_MAX, Layer};

use crate::ahead::Ahead;
use crate::qdisc::CHANNELS;
use crate::{
    Blueprint, Cx, Enqueued, FilterVerdict, Filters, Handle, NodeStats, Qdisc, QueuedPacket, sch,
};

/// Scheduler of the qdiscs of one channel, or of all channels of a netdev.
pub struct Scheduler {
    root: Box<dyn Qdisc>,
    handle: Handle,
    stats: Arc<NodeStats>,
    filters: Filters,
    layer: Layer,
    /// True if packets may bypass the scheduler while no packet is queued.
    passive: bool,
    ahead: Ahead,
    /// Number of channels in use.
    channels: u16,
}

impl Scheduler {
    /// Builds the scheduler of a plan. `mtu` is the MTU with its link-layer header (for fq_codel's
    /// quantum and CoDel's tolerance). `seed` perturbs flow hashes; `layer` is the link layer of
    /// the frames.
    pub fn new(root: Blueprint, filters: Filters, mtu: u32, seed: u64, layer: Layer) -> Self {
        Self {
            handle: root.handle,
            stats: root.stats.clone(),
            passive: filters.is_empty() && sch::can_bypass(&root),
            filters,
            layer,
            root: sch::build(root, mtu, seed),
            ahead: Ahead::default(),
            channels: CHANNELS,
        }
    }

    /// Runs the filters of the egress hook, which may drop a packet or set its priority, mark and
    /// channel. Returns `None` if the packet was dropped, freed and counted. The step is separate
    /// from [`enqueue`](Self::enqueue) because the channel determines the scheduler.
    pub fn classify(
        &mut self,
        mut packet: QueuedPacket,
        keys: &FlowKeys,
        cx: &mut Cx<'_>,
    ) -> Option<QueuedPacket> {
        if self.filters.is_empty() {
            return Some(packet);
        }
        let bytes = packet.wire_len();
        match self.filters.run(keys, &mut packet.meta, bytes, cx.now) {
            FilterVerdict::Pass => Some(packet),
            FilterVerdict::Class(class) => {
                // Store the class as the priority: the hook has no classes, but the root may have
                // this class.
                if self.handle.0 != 0 && class.major() == self.handle.major() {
                    packet.meta.priority = class.0;
                }
                Some(packet)
            }
            FilterVerdict::Drop(reason) => {
                cx.drop(packet, reason);
                None
            }
        }
    }

    /// Enqueues a packet with `cx.now` as its enqueue time.
    pub fn enqueue(
        &mut self,
        mut packet: QueuedPacket,
        keys: &FlowKeys,
        cx: &mut Cx<'_>,
    ) -> Enqueued {
        packet.at = cx.now;
        self.settle(&mut packet);
        let result = self.root.enqueue(packet, keys, cx);
        self.publish();
        result
    }

    /// Enqueues a packet from another scheduler. The packet keeps its enqueue time, and its flow
    /// keys are parsed again.
    pub fn enqueue_anew(&mut self, mut packet: QueuedPacket, cx: &mut Cx<'_>) -> Enqueued {
        let mut headers = [0; HEADERS_MAX];
        let frame = cx.pool.frag_span(&packet.frag).first(packet.len as usize);
        let n = frame.read_header(&mut headers);
        let keys = FlowKeys::dissect(&headers[..n], self.layer);
        self.settle(&mut packet);
        let result = self.root.enqueue(packet, &keys, cx);
        self.publish();
        result
    }

    /// Limits the channels in use to the first `n`; initially all 64 are in use. Packets for other
    /// channels move to channel 0: if any such packet is queued, all packets are enqueued again.
    pub fn set_channels(&mut self, n: u16, cx: &mut Cx<'_>) {
        self.channels = n.clamp(1, CHANNELS);
        if (self.channels..CHANNELS).all(|channel| self.len_of(channel) == 0) {
            return;
        }
        let mut all = Vec::new();
        self.take_all(&mut all);
        for packet in all {
            self.enqueue_anew(packet, cx);
        }
    }

    fn settle(&self, packet: &mut QueuedPacket) {
        if packet.meta.channel >= self.channels {
            packet.meta.channel = 0;
        }
    }

    /// Returns the next packet to send through `channel`; `None` if the channel is closed or no
    /// packet may leave. Packets that the qdiscs select for other open channels are set aside, at
    /// most one per channel.
    pub fn dequeue(&mut self, channel: u16, cx: &mut Cx<'_>) -> Option<QueuedPacket> {
        if !cx.is_open(channel) {
            return None;
        }
        let packet = self.ahead.pop(channel).or_else(|| self.dequeue_root(channel, cx));
        self.publish();
        packet
    }

    fn dequeue_root(&mut self, channel: u16, cx: &mut Cx<'_>) -> Option<QueuedPacket> {
        let open = cx.open;
        let mut chosen = None;
        while chosen.is_none() && !self.root.is_empty() {
            cx.open = open & !self.ahead.channels;
            let Some(packet) = self.root.dequeue(cx) else { break };
            if packet.meta.channel == channel {
                chosen = Some(packet);
            } else {
                self.ahead.push_back(packet);
            }
        }
        cx.open = open;
        chosen
    }

    /// Returns a packet that did not fit into the sink to the head of its channel, and counts a
    /// requeue. Requeue several packets in reverse order of their dequeue.
    pub fn requeue(&mut self, packet: QueuedPacket, _cx: &mut Cx<'_>) {
        self.stats.requeues.add(1);
        self.ahead.push_front(packet);
        self.publish();
    }

    /// True if frames may bypass the scheduler: no packet is queued, there are no egress filters,
    /// and no qdisc delays or reclassifies a single packet. Report such frames with
    /// [`note_bypass`](Self::note_bypass).
    #[inline]
    pub fn can_bypass(&self) -> bool {
        self.passive && self.ahead.len == 0 && self.root.is_empty()
    }

    /// Counts frames that bypassed the qdiscs.
    #[inline]
    pub fn note_bypass(&self, packets: u64, bytes: u64) {
        self.stats.packets.add(packets);
        self.stats.bytes.add(bytes);
    }

    /// Number of packets queued for all channels.
    pub fn len(&self) -> u32 {
        self.root.len() + self.ahead.len
    }

    /// True if no packet is queued.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of packets queued for `channel`.
    pub fn len_of(&self, channel: u16) -> u32 {
        self.root.len_of(channel) + self.ahead.len_of(channel)
    }

    /// Time at which the earliest packet that a rate held back may leave; `None` if no rate held a
    /// packet back. Valid directly after a [`dequeue`](Self::dequeue) that returned `None`. A
    /// packet may leave earlier when a channel opens or a packet arrives.
    pub fn next_time(&self) -> Option<u64> {
        self.root.next_time()
    }

    /// Replaces `old`: qdiscs and classes at the same position and of the same kind pass on their
    /// packets and state (tokens, deficits, CoDel). Other packets are enqueued again, in order.
    /// Both schedulers must use the same page pool and clock. The gauges of the old scheduler
    /// become 0.
    pub fn adopt(&mut self, old: Self, cx: &mut Cx<'_>) {
        let Self { root, ahead, stats, .. } = old;
        let mut rest = Vec::new();
        stats.waiting(0, 0);
        self.root.adopt(root, &mut rest, cx);
        self.take_ahead(ahead);
        for packet in rest {
            self.enqueue_anew(packet, cx);
        }
        self.publish();
    }

    /// Takes the packets that another scheduler set aside; they leave first and are already counted
    /// as sent.
    fn take_ahead(&mut self, mut ahead: Ahead) {
        let mut packets = Vec::new();
        ahead.take_all(&mut packets);
        packets.into_iter().for_each(|packet| self.ahead.push_back(packet));
    }

    /// Moves all queued packets to `out` without counting them; the order of each flow is kept.
    /// Pass them to [`enqueue_anew`](Self::enqueue_anew) of the new schedulers if the number of
    /// schedulers changes.
    pub fn take_all(&mut self, out: &mut Vec<QueuedPacket>) {
        self.ahead.take_all(out);
        self.root.take_all(out);
        self.publish();
    }

    /// Moves the packets that are set aside for the channels in the mask to `out`, for
    /// [`set_aside`](Self::set_aside) of another scheduler.
    pub fn take_aside(&mut self, channels: u64, out: &mut Vec<QueuedPacket>) {
        self.ahead.take(channels, out);
        self.publish();
    }

    /// Moves the packets that are queued in the qdiscs to `out`; packets set aside stay.
    pub fn take_waiting(&mut self, out: &mut Vec<QueuedPacket>) {
        self.root.take_all(out);
        self.publish();
    }

    /// Sets aside a packet that has left other qdiscs: the packet leaves before all packets in the
    /// qdiscs.
    pub fn set_aside(&mut self, mut packet: QueuedPacket) {
        self.settle(&mut packet);
        self.ahead.push_back(packet);
        self.publish();
    }

    /// Drops all queued packets with reason `LinkClosed`. Returns their number.
    pub fn clear(&mut self, cx: &mut Cx<'_>) -> u32 {
        let mut all = Vec::new();
        self.take_all(&mut all);
        let n = all.len() as u32;
        all.into_iter().for_each(|packet| cx.drop(packet, DropReason::LinkClosed));
        n
    }

    /// Publishes the queue length of the root, packets set aside included.
    fn publish(&self) {
        self.stats.waiting(self.len(), self.root.backlog() + self.ahead.bytes);
    }
}

#[cfg(test)]
mod tests;
