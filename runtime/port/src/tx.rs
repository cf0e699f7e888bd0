//! TX queue of a port: frames for the program.
//!
//! Slots circulate: filled slots go to the program, and empty slots return.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mqnet_netdev::{
    Armed, Burst, Fault, Fill, FrameMeta, OwningTx, Queue, QueuePairStats, Trigger, WakeSource,
};
use mqnet_rings::arm::wake_threshold;
use mqnet_shmem::{Segments, SpanMut};

use crate::channel::{PortChannel, Slot, TxRings};

pub(crate) struct PortTx {
    /// Rings of the channel; `None` while another queue or the channel has them.
    rings: Option<Box<TxRings>>,
    channel: Arc<PortChannel>,
    /// True while frames of an older queue must go first, so that this queue accepts none.
    is_held: bool,
    /// Frames published since the last flush.
    unflushed: u32,
    stats: Arc<QueuePairStats>,
}

impl PortTx {
    pub(crate) fn new(channel: Arc<PortChannel>, stats: Arc<QueuePairStats>) -> Self {
        Self { rings: None, channel, is_held: false, unflushed: 0, stats }
    }

    /// Returns the rings, taking them from the channel if necessary. Returns `None` if the queue is
    /// held or another queue of the channel has them.
    #[inline]
    fn lease(&mut self) -> Option<&mut TxRings> {
        if self.rings.is_none() && !self.is_held {
            self.rings = self.channel.tx_rings.take();
        }
        self.rings.as_deref_mut()
    }

    fn slot(&mut self) -> Option<Slot> {
        let rings = self.lease()?;
        rings.spare.take().or_else(|| rings.empty.pop_one())
    }

    fn publish(&mut self, slot: Slot) {
        let Some(rings) = &mut self.rings else { return };
        self.stats.tx.packets.add(1);
        self.stats.tx.bytes.add(u64::from(slot.len));
        // Count the bytes before publishing the frame: the program never takes more bytes than are
        // counted as sent.
        self.channel.sent.fetch_add(u64::from(slot.len), Ordering::Relaxed);
        // The ring has as many entries as slots exist, so the push always succeeds.
        let pushed = rings.filled.push_one(slot);
        debug_assert!(pushed.is_ok(), "more frames than reserved slots");
        self.unflushed += 1;
    }

    fn kick(&mut self) {
        let Some(rings) = &mut self.rings else { return };
        let published = std::mem::take(&mut self.unflushed) > 0;
        if published && rings.ringer.due(&self.channel.data_word, 1) {
            self.stats.tx.kicks.add(1);
            self.channel.wake_receiver();
        }
    }
}

impl Queue for PortTx {
    fn arm(&mut self, need: u32) -> Result<Armed, Fault> {
        self.stats.tx.arms.add(1);
        if self.is_held {
            // A held queue must be polled, because the end of the hold does not wake the worker.
            return Ok(Armed::MoreWork);
        }
        // Without the rings this queue may sleep: the queue that has them wakes the worker when it
        // is parked.
        self.lease();
        let Self { rings: Some(rings), channel, .. } = self else { return Ok(Armed::Sleep) };
        rings.waiter.arm(&channel.room_word, wake_threshold(channel.size(), need));
        let any = rings.spare.is_some() || !rings.empty.is_empty();
        let free = channel.size() - channel.used();
        Ok(if any && free >= need.min(channel.size()) { Armed::MoreWork } else { Armed::Sleep })
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        use std::os::fd::AsFd;
        Some(WakeSource { fd: self.channel.worker_event.as_fd(), trigger: Trigger::Edge })
    }

    fn park(&mut self) {
        self.kick();
        if let Some(rings) = self.rings.take() {
            self.channel.tx_rings.put(rings);
            self.channel.wake_worker();
        }
    }
}

impl OwningTx for PortTx {
    fn fill(&mut self, _enough: u32) -> Result<Option<Fill>, Fault> {
        Ok(Some(Fill { used: self.channel.used(), size: self.channel.size() }))
    }

    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        let mut taken = 0;
        for frame in &burst.frames()[from..] {
            let Some(mut slot) = self.slot() else { break };
            let mut room = SpanMut::of(&mut slot.bytes);
            for piece in std::iter::once(&frame.head).chain(burst.more(frame)) {
                let n = room.copy_from(*piece);
                room = room.split_at(n).1;
            }
            (slot.len, slot.hdr) = (frame.len, frame.hdr);
            self.publish(slot);
            taken += 1;
        }
        self.stats.tx.copies.add(taken as u64);
        Ok(taken)
    }

    fn reserve(&mut self, max: u32) -> Result<Option<Segments<'_>>, Fault> {
        let spare = self.slot();
        let Some(rings) = &mut self.rings else { return Ok(None) };
        rings.spare = spare;
        let Some(slot) = &mut rings.spare else { return Ok(None) };
        let head = SpanMut::of(&mut slot.bytes).split_at(max as usize).0;
        Ok(Some(Segments::new(head, SpanMut::empty())))
    }

    fn commit(&mut self, frame: &FrameMeta) {
        if let Some(mut slot) = self.rings.as_mut().and_then(|rings| rings.spare.take()) {
            (slot.len, slot.hdr) = (frame.len, frame.hdr);
            self.publish(slot);
        }
    }

    fn flush(&mut self) -> Result<(), Fault> {
        self.kick();
        Ok(())
    }

    fn hold(&mut self, on: bool) -> Result<(), Fault> {
        self.is_held = on;
        if on {
            // The older queue may still need the rings, so return them to the channel.
            self.park();
        }
        Ok(())
    }

    /// Always returns true: frames in the ring stay until the program receives them, and the
    /// channel's next queue appends to the same ring.
    fn is_drained(&mut self) -> Result<bool, Fault> {
        Ok(true)
    }
}

impl Drop for PortTx {
    /// Returns the rings to the channel. Published frames stay for the program.
    fn drop(&mut self) {
        self.park();
    }
}
