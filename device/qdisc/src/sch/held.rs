//! Packets that a parent qdisc has peeked at but not sent.
//!
//! A child qdisc may drop, mark or reorder in a dequeue, so a peek must take the packet. A qdisc
//! that needs the packet length for its decision (tbf, drr) holds the packet here. At most one
//! packet is held for each channel, so that a channel that closes blocks no other.

use std::collections::VecDeque;

use crate::QueuedPacket;
use crate::qdisc::bit;

/// Held packets, at most one per channel, in the order of their dequeue.
#[derive(Default)]
pub(crate) struct Held {
    packets: VecDeque<QueuedPacket>,
    bytes: u64,
    channels: u64,
}

impl Held {
    pub(crate) fn len(&self) -> u32 {
        self.packets.len() as u32
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn len_of(&self, channel: u16) -> u32 {
        u32::from(self.channels & bit(channel) != 0)
    }

    /// Returns the oldest held packet of the channels in the mask `open`.
    pub(crate) fn first(&self, open: u64) -> Option<&QueuedPacket> {
        self.packets.iter().find(|packet| bit(packet.meta.channel) & open != 0)
    }

    /// Holds a packet; the packet's channel must have no held packet.
    pub(crate) fn put(&mut self, packet: QueuedPacket) {
        debug_assert_eq!(self.len_of(packet.meta.channel), 0);
        self.channels |= bit(packet.meta.channel);
        self.bytes += u64::from(packet.wire_len());
        self.packets.push_back(packet);
    }

    /// Removes the packet that [`first`](Self::first) returns.
    pub(crate) fn take(&mut self, open: u64) -> Option<QueuedPacket> {
        let is_open = |packet: &QueuedPacket| bit(packet.meta.channel) & open != 0;
        let at = self.packets.iter().position(is_open)?;
        let packet = self.packets.remove(at)?;
        self.channels &= !bit(packet.meta.channel);
        self.bytes -= u64::from(packet.wire_len());
        Some(packet)
    }

    pub(crate) fn take_all(&mut self, out: &mut Vec<QueuedPacket>) {
        out.extend(self.packets.drain(..));
        (self.bytes, self.channels) = (0, 0);
    }
}
