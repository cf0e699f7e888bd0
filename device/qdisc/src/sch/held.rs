//! Packets that a parent has looked at and not yet sent.
//!
//! A discipline below may drop, mark or reorder when it is asked, so that nobody can look at its
//! next packet without taking it. Who must know a length before it decides (tbf, drr) takes the
//! packet and holds it here: at most one for each channel, so that one that is closed meanwhile is
//! in nobody's way.

use std::collections::VecDeque;

use crate::Packet;
use crate::qdisc::bit;

/// At most one packet a channel, in the order in which they were taken.
#[derive(Default)]
pub(crate) struct Held {
    packets: VecDeque<Packet>,
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

    /// The oldest packet of the channels in `open`.
    pub(crate) fn first(&self, open: u64) -> Option<&Packet> {
        self.packets.iter().find(|packet| bit(packet.meta.channel) & open != 0)
    }

    /// Holds a packet of a channel of which none is held.
    pub(crate) fn put(&mut self, packet: Packet) {
        debug_assert_eq!(self.len_of(packet.meta.channel), 0);
        self.channels |= bit(packet.meta.channel);
        self.bytes += u64::from(packet.wire_len());
        self.packets.push_back(packet);
    }

    /// Takes what [`first`](Self::first) shows.
    pub(crate) fn take(&mut self, open: u64) -> Option<Packet> {
        let is_open = |packet: &Packet| bit(packet.meta.channel) & open != 0;
        let at = self.packets.iter().position(is_open)?;
        let packet = self.packets.remove(at)?;
        self.channels &= !bit(packet.meta.channel);
        self.bytes -= u64::from(packet.wire_len());
        Some(packet)
    }

    pub(crate) fn take_all(&mut self, out: &mut Vec<Packet>) {
        out.extend(self.packets.drain(..));
        (self.bytes, self.channels) = (0, 0);
    }
}
