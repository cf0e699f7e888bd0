//! The TX queue of a port: what the program will receive.
//!
//! Buffers go round: filled ones to the program, empty ones back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mqnet_netdev::{
    Armed, Burst, ChannelStats, Event, Fault, Fill, FrameMeta, Queue, Trigger, TxBrings,
};
use mqnet_rings::arm::wake_threshold;
use mqnet_rings::spsc::{Consumer, Producer};
use mqnet_rings::{Ringer, Waiter};
use mqnet_shmem::{Segments, SpanMut};

use crate::function::{Dock, Slot};

/// What outlives a life of the link.
#[derive(Debug)]
pub(crate) struct TxEnd {
    pub(crate) filled: Producer<Slot>,
    pub(crate) empty: Consumer<Slot>,
    /// One that was reserved and not committed.
    pub(crate) spare: Option<Slot>,
    pub(crate) waiter: Waiter,
    pub(crate) ringer: Ringer,
}

pub(crate) struct PortTx {
    /// Always there until the queue is dropped.
    pub(crate) end: Option<TxEnd>,
    pub(crate) dock: Arc<Dock>,
    /// Frames that must not be seen yet.
    pub(crate) held: Option<VecDeque<Slot>>,
    pub(crate) unseen: u32,
    pub(crate) stats: Arc<ChannelStats>,
}

impl PortTx {
    fn buffer(&mut self) -> Option<Slot> {
        let end = self.end.as_mut()?;
        end.spare.take().or_else(|| end.empty.pop_one())
    }

    fn send(&mut self, slot: Slot) {
        self.stats.tx.packets.add(1);
        self.stats.tx.bytes.add(u64::from(slot.len));
        if let Some(held) = &mut self.held {
            return held.push_back(slot);
        }
        self.publish(slot);
    }

    fn publish(&mut self, slot: Slot) {
        let Some(end) = &mut self.end else { return };
        // Before the frame: the program never takes more than it knows was sent.
        self.dock.sent.fetch_add(u64::from(slot.len), Ordering::Relaxed);
        // The ring has as many entries as there are buffers: one always fits.
        let pushed = end.filled.push_one(slot);
        debug_assert!(pushed.is_ok(), "more frames than buffers");
        self.unseen += 1;
    }
}

impl Queue for PortTx {
    fn arm(&mut self, need: u32) -> Result<Armed, Fault> {
        let (dock, stats) = (&self.dock, &self.stats);
        let Some(end) = &mut self.end else { return Ok(Armed::Sleep) };
        end.waiter.arm(&dock.room_word, wake_threshold(dock.size(), need));
        stats.tx.arms.add(1);
        let any = end.spare.is_some() || !end.empty.is_empty();
        let free = dock.size() - dock.used();
        Ok(if any && free >= need.min(dock.size()) { Armed::MoreWork } else { Armed::Sleep })
    }

    fn event(&self) -> Option<Event<'_>> {
        use std::os::fd::AsFd;
        Some(Event { fd: self.dock.door.as_fd(), trigger: Trigger::Edge })
    }
}

impl TxBrings for PortTx {
    fn fill(&mut self, _enough: u32) -> Result<Option<Fill>, Fault> {
        let held = self.held.iter().flatten().map(|slot| slot.len).sum::<u32>();
        Ok(Some(Fill { used: self.dock.used() + held, size: self.dock.size() }))
    }

    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        let mut taken = 0;
        for frame in &burst.frames()[from..] {
            let Some(mut slot) = self.buffer() else { break };
            let mut room = SpanMut::of(&mut slot.bytes);
            for piece in std::iter::once(&frame.head).chain(burst.more(frame)) {
                let n = room.copy_from(*piece);
                room = room.split_at(n).1;
            }
            (slot.len, slot.hdr) = (frame.len, frame.hdr);
            self.send(slot);
            taken += 1;
        }
        self.stats.tx.copies.add(taken as u64);
        Ok(taken)
    }

    fn reserve(&mut self, max: u32) -> Result<Option<Segments<'_>>, Fault> {
        let spare = self.buffer();
        let Some(end) = &mut self.end else { return Ok(None) };
        end.spare = spare;
        let Some(slot) = &mut end.spare else { return Ok(None) };
        let head = SpanMut::of(&mut slot.bytes).split_at(max as usize).0;
        Ok(Some(Segments::new(head, SpanMut::empty())))
    }

    fn commit(&mut self, frame: &FrameMeta) {
        if let Some(mut slot) = self.end.as_mut().and_then(|end| end.spare.take()) {
            (slot.len, slot.hdr) = (frame.len, frame.hdr);
            self.send(slot);
        }
    }

    fn flush(&mut self) -> Result<(), Fault> {
        let Some(end) = &mut self.end else { return Ok(()) };
        if std::mem::take(&mut self.unseen) > 0 && end.ringer.due(&self.dock.data_word, 1) {
            self.stats.tx.kicks.add(1);
            self.dock.ring_receiver();
        }
        Ok(())
    }

    fn hold(&mut self, on: bool) -> Result<(), Fault> {
        if on {
            self.held.get_or_insert_with(|| VecDeque::with_capacity(self.dock.depth as usize));
            return Ok(());
        }
        for slot in self.held.take().into_iter().flatten() {
            self.publish(slot);
        }
        self.flush()
    }

    fn is_drained(&mut self) -> Result<bool, Fault> {
        Ok(self.dock.used() == 0)
    }
}

impl Drop for PortTx {
    /// What was sent stays for the program; the rest goes on in the next life of the link.
    fn drop(&mut self) {
        let _ = self.hold(false);
        *self.dock.tx_end() = self.end.take();
    }
}
