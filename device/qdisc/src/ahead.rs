//! Packets that have left the qdiscs but not the scheduler.

use std::collections::VecDeque;

use crate::QueuedPacket;
use crate::qdisc::{CHANNELS, bit};

/// Packets that leave before those in the qdiscs, in one queue per channel. Each packet did not fit
/// into the sink, or was selected by the qdiscs while another channel was served. The qdiscs select
/// at most one such packet per channel.
#[derive(Default)]
pub(crate) struct Ahead {
    queues: Vec<VecDeque<QueuedPacket>>,
    /// Mask of the channels with packets.
    pub(crate) channels: u64,
    pub(crate) len: u32,
    pub(crate) bytes: u64,
}

impl Ahead {
    fn queue(&mut self, packet: &QueuedPacket) -> &mut VecDeque<QueuedPacket> {
        let channel = packet.meta.channel;
        self.channels |= bit(channel);
        self.len += 1;
        self.bytes += u64::from(packet.wire_len());
        let at = usize::from(channel);
        if self.queues.len() <= at {
            self.queues.resize_with(at + 1, VecDeque::new);
        }
        &mut self.queues[at]
    }

    /// Appends a packet to its channel.
    pub(crate) fn push_back(&mut self, packet: QueuedPacket) {
        self.queue(&packet).push_back(packet);
    }

    /// Prepends a packet to its channel.
    pub(crate) fn push_front(&mut self, packet: QueuedPacket) {
        self.queue(&packet).push_front(packet);
    }

    pub(crate) fn pop(&mut self, channel: u16) -> Option<QueuedPacket> {
        if self.channels & bit(channel) == 0 {
            return None;
        }
        let queue = self.queues.get_mut(usize::from(channel))?;
        let packet = queue.pop_front()?;
        if queue.is_empty() {
            self.channels &= !bit(channel);
        }
        self.len -= 1;
        self.bytes -= u64::from(packet.wire_len());
        Some(packet)
    }

    pub(crate) fn len_of(&self, channel: u16) -> u32 {
        self.queues.get(usize::from(channel)).map_or(0, |queue| queue.len() as u32)
    }

    /// Moves the packets of the channels in the mask `channels` to `out`.
    pub(crate) fn take(&mut self, channels: u64, out: &mut Vec<QueuedPacket>) {
        for channel in (0..CHANNELS).filter(|channel| bit(*channel) & channels != 0) {
            out.extend(std::iter::from_fn(|| self.pop(channel)));
        }
    }

    pub(crate) fn take_all(&mut self, out: &mut Vec<QueuedPacket>) {
        out.extend(std::mem::take(self).queues.into_iter().flatten());
    }
}
