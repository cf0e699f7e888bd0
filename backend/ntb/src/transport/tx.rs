//! TX queue of a channel, into one queue pair at a time.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use mqnet_netdev::{
    Armed, Burst, DropReason, Fault, Fill, FrameMeta, OwningTx, Queue, QueuePairStats, Trigger,
    WakeSource,
};
use mqnet_shmem::{Segments, SpanMut, StoreMode, Stores};
use mqnet_sysio::epoll::{Epoll, Interest};
use mqnet_sysio::timer::Timer;

use super::cell::Held;
use super::queue_pair::QueuePair;
use super::rx::fault;
use super::shared::PairState;
use super::slots::TxSlots;
use super::violation::Violation;
use crate::hw::Doorbell;

/// First delay after which a queue that waits for free slots is polled again: the peer sends no
/// notification of a credit. The delay doubles while the credit does not change.
const RETRY: Duration = Duration::from_micros(200);
/// Longest delay before a queue that waits for free slots is polled again. At this delay, each wait
/// also repeats the doorbell.
const RETRY_MAX: Duration = Duration::from_millis(20);

/// Queue pair into which each channel sends. The control thread assigns another pair when the
/// peer has closed one and opened another without a change of the number of pairs.
pub(crate) struct Senders {
    /// All queue pairs, each with the bytes of a slot and the largest number of slots in use.
    pairs: Vec<(QueuePair, (u32, u32))>,
    of_channel: Vec<AtomicU16>,
}

impl Senders {
    /// Assigns the pairs in `of_channel` to the channels.
    pub(crate) fn new(pairs: Vec<(QueuePair, (u32, u32))>, of_channel: &[u16]) -> Self {
        Self { pairs, of_channel: of_channel.iter().map(|&pair| AtomicU16::new(pair)).collect() }
    }

    fn of(&self, channel: u16) -> u16 {
        // Relaxed suffices: the hand-over cell orders all accesses to the ring.
        self.of_channel[usize::from(channel)].load(Ordering::Relaxed)
    }

    /// Assigns an unassigned pair of `used` to each channel with a pair that is not in `used`.
    pub(crate) fn follow(&self, used: &[u16]) {
        for channel in 0..self.of_channel.len() as u16 {
            let before = self.of(channel);
            if used.contains(&before) {
                continue;
            }
            let has = |pair: &u16| (0..self.of_channel.len() as u16).any(|c| self.of(c) == *pair);
            if let Some(&pair) = used.iter().find(|pair| !has(pair)) {
                self.of_channel[usize::from(channel)].store(pair, Ordering::Relaxed);
                self.pairs[usize::from(before)].0.tx.wake();
            }
        }
    }
}

pub(crate) struct PairTx {
    channel: u16,
    pair: u16,
    senders: Arc<Senders>,
    state: Arc<PairState>,
    held: Held<TxSlots>,
    doorbell: Arc<dyn Doorbell>,
    /// True while frames of an older queue must be sent first; this queue then leaves the ring to
    /// the older one.
    is_held: bool,
    epoll: Epoll,
    timer: Timer,
    retry: Duration,
    /// Violation found after some frames of a burst were taken; the next call reports it.
    violation: Option<Violation>,
    /// Memory for a frame to a closed pair; such a frame is dropped. `is_discarded` is true if the
    /// last reservation was in this memory.
    discard: Vec<u8>,
    is_discarded: bool,
    /// Bytes of a slot, and largest number of slots in use; also valid while this queue has no
    /// ring.
    size: (u32, u32),
    stores: Stores,
    stats: Arc<QueuePairStats>,
}

impl PairTx {
    /// TX queue of channel `channel`, into the queue pair that `senders` assigns.
    pub(crate) fn new(
        channel: u16,
        senders: Arc<Senders>,
        stats: Arc<QueuePairStats>,
    ) -> io::Result<Self> {
        let (epoll, timer) = (Epoll::new()?, Timer::new()?);
        let pair = senders.of(channel);
        let (it, size) = senders.pairs[usize::from(pair)].clone();
        epoll.add(it.tx.event(), Interest::ReadableEdge, 0)?;
        epoll.add(timer.as_fd(), Interest::ReadableEdge, 0)?;
        Ok(Self {
            channel,
            pair,
            senders,
            state: it.state,
            held: Held::new(it.tx),
            doorbell: it.doorbell,
            is_held: false,
            epoll,
            timer,
            retry: RETRY,
            violation: None,
            discard: Vec::new(),
            is_discarded: false,
            size,
            stores: Stores::default(),
            stats,
        })
    }

    fn fault(&self, violation: &Violation) -> Fault {
        fault(self.channel, self.pair, &self.state, violation)
    }

    /// Number of free slots by the last credit, or by a new credit if that number is 0. Returns 0
    /// if the queue is held, has no ring, or its pair has ended.
    #[inline]
    fn room(&mut self) -> Result<u32, Fault> {
        if let Some(violation) = self.violation.take() {
            return Err(self.fault(&violation));
        }
        if self.is_held {
            return Ok(0);
        }
        let free = match self.ready() {
            Some(ring) if !ring.state.has_ended() => match ring.room() {
                0 => ring.read_credit(),
                free => Ok(free),
            },
            _ => Ok(0),
        };
        free.map_err(|e| self.fault(&e))
    }

    /// True if the peer has closed the pair and the queue is not held. Frames are then dropped,
    /// like at an interface without carrier: a queue that kept frames could never be drained and
    /// removed.
    #[inline]
    fn is_closed(&self) -> bool {
        !self.is_held && self.state.has_ended()
    }

    #[inline]
    fn ready(&mut self) -> Option<&mut TxSlots> {
        if self.held.is_recalled() {
            self.give_back();
            self.follow();
        }
        self.held.ready()
    }

    /// Changes to the queue pair that is assigned to the channel, if it is another one. The ring of
    /// the former pair must have been put back.
    fn follow(&mut self) {
        let pair = self.senders.of(self.channel);
        if pair == self.pair {
            return;
        }
        let (it, size) = self.senders.pairs[usize::from(pair)].clone();
        // Ignore an error: a pair that was assigned before is registered already.
        let _ = self.epoll.add(it.tx.event(), Interest::ReadableEdge, 0);
        (self.pair, self.size, self.state, self.doorbell) = (pair, size, it.state, it.doorbell);
        self.held = Held::new(it.tx);
        (self.retry, self.violation) = (RETRY, None);
    }

    /// Puts the ring of an ended or recalled pair back, and counts frames that the peer did not
    /// take as lost.
    #[cold]
    fn give_back(&mut self) {
        if let Some(ring) = self.held.ring() {
            let (lost, credits) = (ring.take_lost(), ring.take_credits());
            self.stats.tx.lost.add(lost.into());
            self.stats.tx.credits.add(credits.into());
        }
        self.held.leave();
        self.count_lost();
    }

    /// Counts frames that were lost while no queue had the ring.
    #[cold]
    fn count_lost(&mut self) {
        let lost = self.state.take_lost();
        if lost > 0 {
            self.stats.tx.lost.add(lost.into());
        }
    }

    /// Puts the ring back, and counts lost frames if the pair has ended or the ring is recalled.
    fn leave(&mut self) {
        if self.held.is_recalled() || self.state.has_ended() {
            self.give_back();
        } else {
            self.held.leave();
            self.count_lost();
        }
    }

    /// Number of slots for `need` bytes, at least one and at most the ring's capacity.
    fn slots_for(&self, need: u32) -> u32 {
        let (slot, slots) = self.size;
        need.div_ceil(slot.max(1)).clamp(1, slots.max(1))
    }
}

impl Queue for PairTx {
    fn arm(&mut self, need: u32) -> Result<Armed, Fault> {
        self.stats.tx.arms.add(1);
        if self.is_held {
            return Ok(Armed::MoreWork);
        }
        if self.is_closed() {
            return Ok(Armed::MoreWork);
        }
        let need = self.slots_for(need);
        let Some(ring) = self.ready() else { return Ok(Armed::Sleep) };
        let before = ring.room();
        let free = ring.read_credit();
        let credits = ring.take_credits();
        self.stats.tx.credits.add(credits.into());
        let free = free.map_err(|e| self.fault(&e))?;
        if free >= need {
            self.retry = RETRY;
            return Ok(Armed::MoreWork);
        }
        self.retry = if free > before { RETRY } else { (self.retry * 2).min(RETRY_MAX) };
        if self.retry == RETRY_MAX {
            // Repeat the doorbell: a doorbell that the peer missed would stop the queue for good.
            self.stats.tx.kicks.add(1);
            let _ = self.doorbell.ring();
        }
        let set = self.timer.set(self.retry);
        // Without a timer the queue must be polled.
        Ok(if set.is_ok() { Armed::Sleep } else { Armed::MoreWork })
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        Some(WakeSource { fd: self.epoll.as_fd(), trigger: Trigger::Edge })
    }

    fn park(&mut self) {
        let _ = self.timer.stop();
        self.leave();
    }
}

impl OwningTx for PairTx {
    fn fill(&mut self, enough: u32) -> Result<Option<Fill>, Fault> {
        let (slot, slots) = self.size;
        let Some(ring) = self.held.ring() else { return Ok(None) };
        let used = |ring: &TxSlots| ring.used().saturating_mul(slot);
        let mut fill = used(ring);
        if fill > enough {
            match ring.read_credit() {
                Ok(_) => fill = used(ring),
                Err(e) => return Err(self.fault(&e)),
            }
        }
        Ok(Some(Fill { used: fill, size: slots.saturating_mul(slot) }))
    }

    fn capacity(&self) -> Option<u32> {
        Some(self.size.0.saturating_mul(self.size.1))
    }

    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        let mut free = self.room()?;
        if free == 0 && self.is_closed() {
            let dropped = burst.frames().len() - from;
            self.stats.tx.drops.count(DropReason::DeviceDown, dropped as u64);
            return Ok(dropped);
        }
        let StoreMode { streaming, watch, .. } = self.stores.begin();
        let (mut taken, mut sent, mut bytes) = (0, 0, 0);
        if let Some(ring) = self.held.ring().filter(|_| free > 0) {
            for frame in &burst.frames()[from..] {
                if free == 0 {
                    // The peer may have consumed more slots since the last credit.
                    free = ring.read_credit().unwrap_or_else(|violation| {
                        // The frames before this one are placed and must be reported. The next call
                        // reports the violation.
                        self.violation = Some(violation);
                        0
                    });
                    if free == 0 {
                        break;
                    }
                }
                if ring.place(burst, frame, streaming.as_ref()) {
                    (free, sent, bytes) = (free - 1, sent + 1, bytes + u64::from(frame.len));
                } else {
                    self.stats.tx.drops.count(DropReason::BufferTooSmall, 1);
                }
                taken += 1;
            }
        }
        // Dropping `streaming` orders its stores before all later stores, such as the flags.
        drop(streaming);
        if let Some(watch) = watch {
            self.stores.end(watch, sent as usize, bytes);
        }
        if sent > 0 {
            self.retry = RETRY;
            let stats = &self.stats.tx;
            stats.packets.add(sent);
            stats.bytes.add(bytes);
            stats.copies.add(sent);
        }
        Ok(taken)
    }

    fn reserve(&mut self, max: u32) -> Result<Option<Segments<'_>>, Fault> {
        self.is_discarded = false;
        if self.room()? == 0 {
            if !self.is_closed() {
                return Ok(None);
            }
            self.is_discarded = true;
            self.discard.resize(max as usize, 0);
            return Ok(Some(Segments::new(SpanMut::of(&mut self.discard), SpanMut::empty())));
        }
        Ok(self.held.ring().map(|ring| ring.reserve(max)))
    }

    fn commit(&mut self, frame: &FrameMeta) {
        if self.is_discarded {
            self.stats.tx.drops.count(DropReason::DeviceDown, 1);
            return;
        }
        let Some(ring) = self.held.ring() else { return };
        if ring.commit(frame.len) {
            self.retry = RETRY;
            self.stats.tx.packets.add(1);
            self.stats.tx.bytes.add(frame.len.into());
        } else {
            self.stats.tx.drops.count(DropReason::BufferTooSmall, 1);
        }
    }

    /// Publishes the taken slots and rings the doorbell once: the peer's tasklet reads all
    /// complete slots.
    fn flush(&mut self) -> Result<(), Fault> {
        let Some(ring) = self.held.ring() else { return Ok(()) };
        let credits = ring.take_credits();
        if credits > 0 {
            self.stats.tx.credits.add(credits.into());
        }
        if ring.publish() {
            self.stats.tx.kicks.add(1);
            let rung = self.doorbell.ring();
            rung.map_err(|e| Fault {
                channel: self.channel,
                what: format!("queue pair {}: doorbell: {e}", self.pair),
            })?;
        }
        Ok(())
    }

    fn hold(&mut self, on: bool) -> Result<(), Fault> {
        self.is_held = on;
        self.flush()?;
        if on {
            self.park();
        }
        Ok(())
    }

    fn is_drained(&mut self) -> Result<bool, Fault> {
        self.flush()?;
        if self.state.has_ended() {
            return Ok(true);
        }
        let drained = match self.held.ring() {
            Some(ring) => ring.is_drained(),
            // Check the ring in its cell. If a newer queue or the control thread has the ring, this
            // queue is drained: its frames precede all later frames, or are lost.
            None => self.held.cell().with(TxSlots::is_drained).unwrap_or(Ok(true)),
        };
        drained.map_err(|e| self.fault(&e))
    }
}

impl Drop for PairTx {
    fn drop(&mut self) {
        self.leave();
    }
}
