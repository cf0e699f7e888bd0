//! The trait of a qdisc.

use std::any::Any;

use mqnet_netdev::{DropReason, TxStats};
use mqnet_pktbuf::PagePool;
use mqnet_wire::FlowKeys;

use crate::{QueuedPacket, Totals};

/// Context of a call to a qdisc.
pub struct Cx<'a> {
    /// Current time in nanoseconds since the scheduler's clock began; never decreases.
    pub now: u64,
    /// Mask of the channels that may be served; bit *i* is channel *i*. Packets of other channels
    /// are not dequeued and do not block the open channels.
    pub open: u64,
    /// Pool with the bytes of the packets.
    pub pool: &'a mut PagePool,
    /// TX statistics, in which drops are counted.
    pub stats: &'a TxStats,
}

impl Cx<'_> {
    /// Drops a packet for `reason`.
    pub fn drop(&mut self, packet: QueuedPacket, reason: DropReason) {
        self.stats.drops.count(reason, 1);
        self.pool.free_frag(packet.frag);
    }

    /// True if packets of this channel may be dequeued.
    pub fn is_open(&self, channel: u16) -> bool {
        bit(channel) & self.open != 0
    }
}

/// Number of channels in a channel mask.
pub(crate) const CHANNELS: u16 = 64;

/// Bit of a channel in a mask; 0 if the channel is outside the mask.
pub(crate) const fn bit(channel: u16) -> u64 {
    if channel < CHANNELS { 1 << channel } else { 0 }
}

/// Result of an enqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// The packet was queued; the qdisc may have dropped another packet instead.
    Queued,
    /// The packet was dropped, freed and counted.
    Dropped,
}

/// A qdisc. Its statistics are shared through an `Arc` that its constructor takes.
///
/// The supertrait `Any` lets a successor of the same kind take over private state.
pub trait Qdisc: Any + Send {
    /// Enqueues a packet. `keys` are the flow keys of its headers, for class filters.
    fn enqueue(&mut self, packet: QueuedPacket, keys: &FlowKeys, cx: &mut Cx<'_>) -> Enqueued;

    /// Dequeues the next packet of an open channel; `None` if no such packet may leave at `cx.now`.
    /// Other packets may be dropped first.
    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<QueuedPacket>;

    /// Time at which the earliest packet that the rate held back may leave; `None` if no rate held
    /// a packet back. Valid after a [`dequeue`](Self::dequeue) that returned `None`. New packets,
    /// and packets of channels that were closed during that call, may leave earlier.
    fn next_time(&self) -> Option<u64>;

    /// Number of packets queued in the qdisc and its children.
    fn len(&self) -> u32;

    /// Number of queued packets of one channel.
    fn len_of(&self, channel: u16) -> u32;

    /// True if no packet is queued.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the queued packets on the wire.
    fn backlog(&self) -> u64;

    /// Statistics of the qdisc; those of a classful qdisc include all its children.
    fn totals(&self) -> Totals;

    /// Moves all queued packets to `out` without counting them. The order of each flow is kept.
    fn take_all(&mut self, out: &mut Vec<QueuedPacket>);

    /// Replaces `old`: takes packets and state from a qdisc of the same kind, and class by class
    /// from its children. Packets that find no matching queue are appended to `rest`, as by
    /// [`take_all`](Self::take_all).
    fn adopt(&mut self, old: Box<dyn Qdisc>, rest: &mut Vec<QueuedPacket>, cx: &mut Cx<'_>);
}
