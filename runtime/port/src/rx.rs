//! RX queue of a port: frames sent by the program.

use std::sync::Arc;

use mqnet_netdev::limits::BURST_BYTES;
use mqnet_netdev::{
    Armed, Burst, DropReason, Fault, OwningRx, Queue, QueuePairStats, Trigger, WakeSource,
};
use mqnet_rings::mpsc::MpscConsumer;
use mqnet_shmem::Span;

use crate::channel::{PortChannel, Slot};

pub(crate) struct PortRx {
    /// Consumer of the channel's ring; `None` while another queue or the channel has it.
    ring: Option<Box<MpscConsumer<Slot>>>,
    channel: Arc<PortChannel>,
    /// Longest frame of the plan in bytes. A sender may have checked an earlier, larger limit.
    frame_max: u32,
    /// True if the first frame of the ring is longer than `frame_max`.
    is_long: bool,
    stats: Arc<QueuePairStats>,
}

impl PortRx {
    pub(crate) fn new(
        channel: Arc<PortChannel>,
        frame_max: u32,
        stats: Arc<QueuePairStats>,
    ) -> Self {
        Self { ring: None, channel, frame_max, is_long: false, stats }
    }

    /// Returns the consumer, taking it from the channel if necessary. Returns `None` if another
    /// queue of the channel has it.
    #[inline]
    fn lease(&mut self) -> Option<&mut MpscConsumer<Slot>> {
        if self.ring.is_none() {
            self.ring = self.channel.consumer.take();
        }
        self.ring.as_deref_mut()
    }

    /// Drops the frames at the start of the ring that are too long for the plan.
    #[cold]
    fn drop_long(&mut self) {
        self.is_long = false;
        let Some(ring) = &mut self.ring else { return };
        while let Some(len) = ring.peek().next().map(|slot| slot.len) {
            if len <= self.frame_max {
                return;
            }
            ring.release(1);
            self.stats.rx.packets.add(1);
            self.stats.rx.bytes.add(u64::from(len));
            self.stats.rx.drops.count(DropReason::TooLong, 1);
        }
    }
}

impl Queue for PortRx {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        self.stats.rx.arms.add(1);
        // Without the consumer this queue may sleep: parking the queue with the consumer wakes the
        // worker.
        let Some(ring) = self.lease() else { return Ok(Armed::Sleep) };
        Ok(if ring.arm() { Armed::Sleep } else { Armed::MoreWork })
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        use std::os::fd::AsFd;
        Some(WakeSource { fd: self.channel.worker_event.as_fd(), trigger: Trigger::Edge })
    }

    fn park(&mut self) {
        if let Some(ring) = self.ring.take() {
            self.channel.consumer.put(ring);
            self.channel.wake_worker();
        }
    }
}

impl OwningRx for PortRx {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        if self.is_long {
            self.drop_long();
        }
        let (frame_max, mut bytes, mut is_long) = (self.frame_max, 0, false);
        self.lease();
        let Some(ring) = &mut self.ring else { return Ok(()) };
        for slot in ring.peek().take(budget) {
            is_long = slot.len > frame_max;
            if burst.is_full() || bytes >= BURST_BYTES || is_long {
                break;
            }
            bytes += slot.len as usize;
            burst.push(slot.hdr, slot.len, Span::of(&slot.bytes).first(slot.len as usize));
        }
        self.is_long = is_long;
        Ok(())
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        let Some(ring) = &mut self.ring else { return Ok(()) };
        let bytes = ring.peek().take(frames).map(|slot| u64::from(slot.len)).sum();
        ring.release(frames);
        self.stats.rx.packets.add(frames as u64);
        self.stats.rx.bytes.add(bytes);
        Ok(())
    }
}

impl Drop for PortRx {
    /// Returns the consumer to the channel. Frames that were not released stay for the channel's
    /// next queue.
    fn drop(&mut self) {
        self.park();
    }
}
