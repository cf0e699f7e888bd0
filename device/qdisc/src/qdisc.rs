//! Contract of a qdisc.

use std::any::Any;

use mqnet_netdev::{DropReason, TxStats};
use mqnet_pktbuf::PagePool;
use mqnet_wire::FlowKeys;

use crate::{QueuedPacket, Totals};

/// Context of a call.
pub struct Cx<'a> {
    /// Now, in nanoseconds since the scheduler's clock began; never goes back.
    pub now: u64,
    /// Channels that may be served. A packet of another channel is not dequeued and blocks no other
    /// packet. Bit *i* is channel *i*.
    pub open: u64,
    /// Pool with the bytes of the packets.
    pub pool: &'a mut PagePool,
    /// Counters of drops.
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

/// Number of channels in a mask.
pub(crate) const CHANNELS: u16 = 64;

/// Bit of a channel; 0 if the channel is outside the mask.
pub(crate) const fn bit(channel: u16) -> u64 {
    if channel < CHANNELS { 1 << channel } else { 0 }
}

/// Result of an enqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// The packet is queued. (Another one may have been dropped instead.)
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

    /// Dequeues the next packet of an open channel. May drop others first.
    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<QueuedPacket>;

    /// Time at which the earliest packet that a rate held back in the last
    /// [`dequeue`](Self::dequeue) may leave; valid after a `dequeue` without a packet. `None`: no
    /// rate held a packet back. Packets of channels that were closed then, and new ones, may leave
    /// earlier.
    fn next_time(&self) -> Option<u64>;

    /// Number of packets queued in the qdisc and below.
    fn len(&self) -> u32;

    /// Number of packets for one channel.
    fn len_of(&self, channel: u16) -> u32;

    /// True if no packet is queued.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the queued packets.
    fn backlog(&self) -> u64;

    /// Statistics of the qdisc. A classful qdisc includes everything below it.
    fn totals(&self) -> Totals;

    /// Moves all queued packets to `out`, in an order that keeps the order of each flow. Nothing is
    /// counted.
    fn take_all(&mut self, out: &mut Vec<QueuedPacket>);

    /// Replaces `old`: takes packets and state from a qdisc of the same kind (and below it, class
    /// by class). Packets without a place are appended to `rest`, as by
    /// [`take_all`](Self::take_all).
    fn adopt(&mut self, old: Box<dyn Qdisc>, rest: &mut Vec<QueuedPacket>, cx: &mut Cx<'_>);
}
