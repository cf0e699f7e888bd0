//! One FIFO queue for each channel.

use mqnet_netdev::DropReason;

use super::store::{Queue, Store};
use crate::qdisc::{CHANNELS, bit};
use crate::{Cx, Enqueued, QueuedPacket};

/// Unit of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Packets,
    Bytes,
}

/// One queue for each channel; the oldest packet of all open channels leaves first.
#[derive(Default)]
pub(crate) struct Channels {
    store: Store,
    queues: Vec<PerChannel>,
    /// Mask of the channels with packets.
    waiting: u64,
    len: u32,
    bytes: u64,
}

#[derive(Clone, Copy, Default)]
struct PerChannel {
    queue: Queue,
    bytes: u64,
}

impl PerChannel {
    fn size(&self, unit: Unit) -> u64 {
        match unit {
            Unit::Packets => self.queue.len().into(),
            Unit::Bytes => self.bytes,
        }
    }
}

/// Iterates over the channels of a mask.
pub(crate) fn bits(mut mask: u64) -> impl Iterator<Item = u16> {
    std::iter::from_fn(move || {
        let lowest = mask.trailing_zeros() as u16;
        mask &= mask.wrapping_sub(1);
        (lowest < CHANNELS).then_some(lowest)
    })
}

impl Channels {
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn len_of(&self, channel: u16) -> u32 {
        self.queues.get(usize::from(channel)).map_or(0, |q| q.queue.len())
    }

    /// Appends a packet without a limit check.
    pub(crate) fn push(&mut self, packet: QueuedPacket) {
        let at = usize::from(packet.meta.channel.min(CHANNELS - 1));
        if self.queues.len() <= at {
            self.queues.resize(at + 1, PerChannel::default());
        }
        let wire = u64::from(packet.wire_len());
        self.waiting |= bit(at as u16);
        self.len += 1;
        self.bytes += wire;
        self.queues[at].bytes += wire;
        self.store.push(&mut self.queues[at].queue, packet);
    }

    /// Appends a packet if the limit allows. Also returns the number of packets dropped, the new
    /// one included.
    pub(crate) fn offer(
        &mut self,
        packet: QueuedPacket,
        unit: Unit,
        limit: u32,
        cx: &mut Cx<'_>,
    ) -> (Enqueued, u64) {
        let mut dropped = 0;
        while !self.fits(&packet, unit, limit) {
            dropped += 1;
            let Some(victim) = self.in_the_way(&packet, unit, cx) else {
                cx.drop(packet, DropReason::QdiscOverlimit);
                return (Enqueued::Dropped, dropped);
            };
            if let Some(old) = self.pop_of(victim) {
                cx.drop(old, DropReason::QdiscOverlimit);
            }
        }
        self.push(packet);
        (Enqueued::Queued, dropped)
    }

    fn fits(&self, packet: &QueuedPacket, unit: Unit, limit: u32) -> bool {
        match unit {
            Unit::Packets => self.len < limit,
            Unit::Bytes => self.bytes + u64::from(packet.wire_len()) <= limit.into(),
        }
    }

    /// Returns the closed channel with the largest queue if that queue is larger than the queue of
    /// the packet's channel with the packet. Returns `None` also if the packet's channel is closed.
    /// Packets of the returned channel are dropped first: with tail drop, a stalled channel would
    /// fill the queue and block all others.
    fn in_the_way(&self, packet: &QueuedPacket, unit: Unit, cx: &Cx<'_>) -> Option<u16> {
        let own = packet.meta.channel;
        if !cx.is_open(own) {
            return None;
        }
        let size = |channel: u16| self.queues[usize::from(channel)].size(unit);
        let fattest = bits(self.waiting & !cx.open).max_by_key(|channel| size(*channel))?;
        let after = match unit {
            Unit::Packets => 1,
            Unit::Bytes => u64::from(packet.wire_len()),
        };
        let own = self.queues.get(usize::from(own)).map_or(0, |q| q.size(unit));
        (size(fattest) > own + after).then_some(fattest)
    }

    /// Removes the oldest packet of the channels in the mask `open`.
    pub(crate) fn pop(&mut self, open: u64) -> Option<QueuedPacket> {
        let mask = self.waiting & open;
        let channel = if mask & mask.wrapping_sub(1) == 0 {
            mask.trailing_zeros() as u16
        } else {
            let ticket =
                |channel: &u16| self.store.ticket(&self.queues[usize::from(*channel)].queue);
            bits(mask).min_by_key(ticket)?
        };
        self.pop_of(channel)
    }

    fn pop_of(&mut self, channel: u16) -> Option<QueuedPacket> {
        let from = self.queues.get_mut(usize::from(channel))?;
        let packet = self.store.pop(&mut from.queue)?;
        let wire = u64::from(packet.wire_len());
        from.bytes -= wire;
        if from.queue.is_empty() {
            self.waiting &= !bit(channel);
        }
        self.len -= 1;
        self.bytes -= wire;
        Some(packet)
    }

    /// Moves all packets to `out`, oldest first.
    pub(crate) fn take_all(&mut self, out: &mut Vec<QueuedPacket>) {
        while let Some(packet) = self.pop(u64::MAX) {
            out.push(packet);
        }
    }
}
