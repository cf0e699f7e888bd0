//! The contract of a discipline.

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
        self.open >> channel & 1 == 1
    }
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
pub trait Qdisc: Send {
    /// Takes a packet. `keys` are those of its headers, for filters of classes.
    fn enqueue(&mut self, packet: Packet, keys: &FlowKeys, cx: &mut Cx<'_>) -> Enqueued;

    /// The packet that is to leave next, of an open channel. It may drop others first.
    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<Packet>;

    /// Time before which [`dequeue`](Self::dequeue) has nothing although packets wait; `None`: it
    /// depends on the channels alone.
    fn next_time(&self) -> Option<u64>;

    /// Packets that wait in it and below.
    fn len(&self) -> u32;

    /// True when none waits.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their bytes.
    fn backlog(&self) -> u64;

    /// Adds its statistics and those of the disciplines below it to the totals of its class.
    fn totals(&self) -> Totals;

    /// Hands over what waits, in an order that keeps every flow's, without counting anything.
    fn take_all(&mut self, out: &mut Vec<Packet>);
}
