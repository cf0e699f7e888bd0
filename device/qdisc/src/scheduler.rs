//! What a lane runs: filters of the egress hook, then one tree of disciplines.

use std::sync::Arc;

use mqnet_netdev::DropReason;
use mqnet_wire::{FlowKeys, HEADERS_MAX, Layer};

use crate::ahead::Ahead;
use crate::qdisc::CHANNELS;
use crate::{Blueprint, Cx, Enqueued, Filters, Handle, NodeStats, Packet, Qdisc, Verdict, sch};

/// The disciplines of one egress.
pub struct Scheduler {
    root: Box<dyn Qdisc>,
    handle: Handle,
    stats: Arc<NodeStats>,
    filters: Filters,
    layer: Layer,
    /// Nothing has to be decided about a packet while nothing waits.
    passive: bool,
    ahead: Ahead,
    /// Those in use.
    channels: u16,
}

impl Scheduler {
    /// Builds what the plan says. `mtu` is the MTU with its link-layer header (fq_codel's quantum,
    /// CoDel's tolerance); `seed` perturbs flow hashes; `layer` is what frames begin with.
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

    /// Classifies a packet: filters of the egress hook may drop it, or set priority, mark and
    /// channel. `None`: it was dropped, freed and counted. Called before
    /// [`enqueue`](Self::enqueue), apart from it because the channel decides whose scheduler takes
    /// the packet.
    pub fn classify(
        &mut self,
        mut packet: Packet,
        keys: &FlowKeys,
        cx: &mut Cx<'_>,
    ) -> Option<Packet> {
        if self.filters.is_empty() {
            return Some(packet);
        }
        let bytes = packet.wire_len();
        match self.filters.run(keys, &mut packet.meta, bytes, cx.now) {
            Verdict::Pass => Some(packet),
            Verdict::Class(class) => {
                // The hook has no classes of its own; the root's are named by the priority.
                if self.handle.0 != 0 && class.major() == self.handle.major() {
                    packet.meta.priority = class.0;
                }
                Some(packet)
            }
            Verdict::Drop(reason) => {
                cx.drop(packet, reason);
                None
            }
        }
    }

    /// Takes a packet. It is as old as `cx.now`.
    pub fn enqueue(&mut self, mut packet: Packet, keys: &FlowKeys, cx: &mut Cx<'_>) -> Enqueued {
        packet.at = cx.now;
        self.settle(&mut packet);
        let result = self.root.enqueue(packet, keys, cx);
        self.publish();
        result
    }

    /// Takes a packet that has waited elsewhere: it keeps its age, and its keys are read again.
    pub fn enqueue_anew(&mut self, mut packet: Packet, cx: &mut Cx<'_>) -> Enqueued {
        let mut headers = [0; HEADERS_MAX];
        let frame = cx.pool.frag_span(&packet.frag).first(packet.len as usize);
        let n = frame.read_header(&mut headers);
        let keys = FlowKeys::dissect(&headers[..n], self.layer);
        self.settle(&mut packet);
        let result = self.root.enqueue(packet, &keys, cx);
        self.publish();
        result
    }

    /// Only the first `n` channels are in use: a packet for another one goes to the first, also if
    /// it waits already (then everything is enqueued anew). Without this call all 64 are.
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

    fn settle(&self, packet: &mut Packet) {
        if packet.meta.channel >= self.channels {
            packet.meta.channel = 0;
        }
    }

    /// The next packet to send through `channel`. What the disciplines choose for another open
    /// channel is set aside for it, one packet a channel.
    pub fn dequeue(&mut self, channel: u16, cx: &mut Cx<'_>) -> Option<Packet> {
        if !cx.is_open(channel) {
            return None;
        }
        let packet = self.ahead.pop(channel).or_else(|| self.dequeue_root(channel, cx));
        self.publish();
        packet
    }

    fn dequeue_root(&mut self, channel: u16, cx: &mut Cx<'_>) -> Option<Packet> {
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

    /// Takes back a packet that the sink had no room for: it leaves next. Counted as a requeue.
    /// Of several packets the one that was dequeued last comes back first.
    pub fn requeue(&mut self, packet: Packet, _cx: &mut Cx<'_>) {
        self.stats.requeues.add(1);
        self.ahead.push_front(packet);
        self.publish();
    }

    /// True when nothing waits and nothing has to be decided about a packet: frames may go straight
    /// from source to sink, and are told with [`note_bypass`](Self::note_bypass).
    #[inline]
    pub fn can_bypass(&self) -> bool {
        self.passive && self.ahead.len == 0 && self.root.is_empty()
    }

    /// Counts what went straight through.
    #[inline]
    pub fn note_bypass(&self, packets: u64, bytes: u64) {
        self.stats.packets.add(packets);
        self.stats.bytes.add(bytes);
    }

    /// Packets that wait, for any channel.
    pub fn len(&self) -> u32 {
        self.root.len() + self.ahead.len
    }

    /// True when none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Packets that wait for `channel`.
    pub fn len_of(&self, channel: u16) -> u32 {
        self.root.len_of(channel) + self.ahead.len_of(channel)
    }

    /// When the earliest packet that a rate held back (a token bucket) may leave: right after a
    /// [`dequeue`](Self::dequeue) that gave nothing. `None`: no such time. A channel that opens
    /// and a packet that arrives are reasons to try earlier.
    pub fn next_time(&self) -> Option<u64> {
        self.root.next_time()
    }

    /// Takes over from the scheduler in its place: nodes at the same place and of the same kind
    /// keep their packets and state (tokens, deficits, CoDel); other packets are enqueued anew, in
    /// order. Both have the same page pool and clock. Gauges of the old one are 0 afterwards.
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

    /// What has left the disciplines leaves next here too; it has been counted.
    fn take_ahead(&mut self, mut ahead: Ahead) {
        let mut packets = Vec::new();
        ahead.take_all(&mut packets);
        packets.into_iter().for_each(|packet| self.ahead.push_back(packet));
    }

    /// Hands over everything that waits, in an order that keeps every flow's: for
    /// [`enqueue_anew`](Self::enqueue_anew) of schedulers of another shape. Nothing is counted.
    pub fn take_all(&mut self, out: &mut Vec<Packet>) {
        self.ahead.take_all(out);
        self.root.take_all(out);
        self.publish();
    }

    /// Hands over what has left the disciplines and waits for the sinks of the channels of a mask:
    /// for [`set_aside`](Self::set_aside) of another scheduler.
    pub fn take_aside(&mut self, channels: u64, out: &mut Vec<Packet>) {
        self.ahead.take(channels, out);
        self.publish();
    }

    /// Hands over the rest, as [`take_all`](Self::take_all) does.
    pub fn take_waiting(&mut self, out: &mut Vec<Packet>) {
        self.root.take_all(out);
        self.publish();
    }

    /// Takes a packet that has left other disciplines: it leaves before all that wait in these.
    pub fn set_aside(&mut self, mut packet: Packet) {
        self.settle(&mut packet);
        self.ahead.push_back(packet);
        self.publish();
    }

    /// Frees everything that waits, counting it as `LinkClosed`; how many.
    pub fn clear(&mut self, cx: &mut Cx<'_>) -> u32 {
        let mut all = Vec::new();
        self.take_all(&mut all);
        let n = all.len() as u32;
        all.into_iter().for_each(|packet| cx.drop(packet, DropReason::LinkClosed));
        n
    }

    /// The root's gauges include what is set aside.
    fn publish(&self) {
        self.stats.waiting(self.len(), self.root.backlog() + self.ahead.bytes);
    }
}

#[cfg(test)]
mod tests;
