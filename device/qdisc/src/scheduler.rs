//! What a lane runs: filters of the egress hook, then one tree of disciplines.

use mqnet_wire::FlowKeys;

use crate::{Blueprint, Cx, Enqueued, Filters, Packet};

/// The disciplines of one egress.
pub struct Scheduler {
    root: Blueprint,
    filters: Filters,
}

impl Scheduler {
    /// Builds what the plan says. `mtu` is the MTU with its link-layer header (fq_codel's quantum,
    /// CoDel's tolerance); `seed` perturbs flow hashes.
    pub fn new(root: Blueprint, filters: Filters, _mtu: u32, _seed: u64) -> Self {
        Self { root, filters }
    }

    /// Classifies a packet: filters of the egress hook may drop it, or set priority, mark and
    /// channel. `false`: it was dropped and counted. Called before [`enqueue`](Self::enqueue), apart
    /// from it because the channel decides whose scheduler takes the packet.
    pub fn classify(&mut self, _packet: &mut Packet, _keys: &FlowKeys, _now: u64) -> bool {
        self.filters.is_empty()
    }

    /// Takes a packet.
    pub fn enqueue(&mut self, packet: Packet, _keys: &FlowKeys, cx: &mut Cx<'_>) -> Enqueued {
        cx.drop(packet, mqnet_netdev::DropReason::QdiscOverlimit);
        Enqueued::Dropped
    }

    /// The next packet to send through `channel`. What the disciplines choose for another open
    /// channel is set aside for it, one packet a channel.
    pub fn dequeue(&mut self, _channel: u16, _cx: &mut Cx<'_>) -> Option<Packet> {
        None
    }

    /// Takes back a packet that the sink had no room for: it leaves next. Counted as a requeue.
    pub fn requeue(&mut self, packet: Packet, cx: &mut Cx<'_>) {
        cx.drop(packet, mqnet_netdev::DropReason::QdiscOverlimit);
    }

    /// True when nothing waits and nothing has to be decided about a packet: frames may go straight
    /// from source to sink, and are told with [`note_bypass`](Self::note_bypass).
    pub fn can_bypass(&self) -> bool {
        false
    }

    /// Counts what went straight through.
    pub fn note_bypass(&self, packets: u64, bytes: u64) {
        self.root.stats.packets.add(packets);
        self.root.stats.bytes.add(bytes);
    }

    /// Packets that wait, for any channel.
    pub fn len(&self) -> u32 {
        0
    }

    /// True when none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Packets that wait for `channel`.
    pub fn len_of(&self, _channel: u16) -> u32 {
        0
    }

    /// Time before which [`dequeue`](Self::dequeue) has nothing, for any channel, although packets
    /// wait (a token bucket); `None`: no such time.
    pub fn next_time(&self) -> Option<u64> {
        None
    }

    /// Takes over from the scheduler in its place: nodes with the same handle and kind keep their
    /// packets and state (tokens, deficits, CoDel); other packets are enqueued anew, in order.
    pub fn adopt(&mut self, _old: Self, _cx: &mut Cx<'_>) {}

    /// Hands over what waits, flows in order.
    pub fn take_all(&mut self, _out: &mut Vec<Packet>) {}

    /// Frees everything that waits, counting it as `LinkClosed`; how many.
    pub fn clear(&mut self, _cx: &mut Cx<'_>) -> u32 {
        0
    }
}
