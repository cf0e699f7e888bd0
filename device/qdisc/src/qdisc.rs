//! The contract of a discipline.

use std::any::Any;

use mqnet_netdev::{DropReason, TxStats};
use mqnet_pktbuf::PagePool;
use mqnet_wire::FlowKeys;

use crate::{Packet, Totals};

/// What a call needs from its caller.
pub struct Cx<'a> {
    /// Now, in nanoseconds since the scheduler's clock began; never goes back.
    pub now: u64,
    /// Channels that may be served: a packet of another one is not dequeued and is in nobody's
    /// way. Bit *i* is channel *i*.
    pub open: u64,
    /// Where the bytes of packets lie.
    pub pool: &'a mut PagePool,
    /// Where drops are counted.
    pub stats: &'a TxStats,
}

impl Cx<'_> {
    /// Drops a packet for `reason`.
    pub fn drop(&mut self, packet: Packet, reason: DropReason) {
        self.stats.drops.count(reason, 1);
        self.pool.free_frag(packet.frag);
    }

    /// True when packets of this channel may be dequeued.
    pub fn is_open(&self, channel: u16) -> bool {
        bit(channel) & self.open != 0
    }
}

/// Channels that a mask can name.
pub(crate) const CHANNELS: u16 = 64;

/// The bit of a channel; none for one that no mask can name.
pub(crate) const fn bit(channel: u16) -> u64 {
    if channel < CHANNELS { 1 << channel } else { 0 }
}

/// What became of a packet that was to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// It waits. (Another one may have been dropped in its place.)
    Queued,
    /// It was dropped, freed and counted.
    Dropped,
}

/// A discipline. Its own statistics are behind an `Arc` that it was made with.
///
/// `Any` is above it so that a successor of the same kind can take over what is private to it.
pub trait Qdisc: Any + Send {
    /// Takes a packet. `keys` are those of its headers, for filters of classes.
    fn enqueue(&mut self, packet: Packet, keys: &FlowKeys, cx: &mut Cx<'_>) -> Enqueued;

    /// The packet that is to leave next, of an open channel. It may drop others first.
    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<Packet>;

    /// When the earliest packet that a rate held back in the last [`dequeue`](Self::dequeue) may
    /// leave; means something after a `dequeue` that gave nothing. `None`: no rate held one back.
    /// Packets of channels that were closed then, and new ones, may be able to leave earlier.
    fn next_time(&self) -> Option<u64>;

    /// Packets that wait in it and below.
    fn len(&self) -> u32;

    /// Those for one channel.
    fn len_of(&self, channel: u16) -> u32;

    /// True when none waits.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their bytes.
    fn backlog(&self) -> u64;

    /// Its statistics. Those of a discipline with classes include what is below it.
    fn totals(&self) -> Totals;

    /// Hands over what waits, in an order that keeps every flow's, without counting anything.
    fn take_all(&mut self, out: &mut Vec<Packet>);

    /// Takes the place of `old`: packets and state of one of the same kind (below it, class by
    /// class); what it has no place for is appended to `rest`, as [`take_all`](Self::take_all)
    /// does.
    fn adopt(&mut self, old: Box<dyn Qdisc>, rest: &mut Vec<Packet>, cx: &mut Cx<'_>);
}
