//! Transmission: the TX queue of a channel, into one queue pair at a time.

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
use super::queue_pair::{PairState, QueuePair};
use super::rx::fault;
use super::slots::{TxSlots, Violation};
use crate::hw::Doorbell;

/// Time after which a queue that waits for room is polled again, since the peer sends no
/// notification of a credit. It doubles while nothing changes.
const RETRY: Duration = Duration::from_micros(200);
/// Longest such time.
const RETRY_MAX: Duration = Duration::from_millis(20);

/// Queue pair that each channel sends into. The control thread assigns another one when the peer
/// has closed a pair and opened another without a change of their number.
pub(crate) struct Senders {
    /// Queue pairs, with bytes of a slot and largest number of slots in use.
    pairs: Vec<(QueuePair, (u32, u32))>,
    of_channel: Vec<AtomicU16>,
}

impl Senders {
    /// Assigns a pair to each channel.
    pub(crate) fn new(pairs: Vec<(QueuePair, (u32, u32))>, of_channel: &[u16]) -> Self {
        Self { pairs, of_channel: of_channel.iter().map(|&pair| AtomicU16::new(pair)).collect() }
    }

    fn of(&self, channel: u16) -> u16 {
        // The ring itself is handed over by its cell.
        self.of_channel[usize::from(channel)].load(Ordering::Relaxed)
    }

    /// Assigns a pair of `used` without a channel to each channel with an unused pair.
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

/// The TX queue.
pub(crate) struct PairTx {
    channel: u16,
    pair: u16,
    senders: Arc<Senders>,
    state: Arc<PairState>,
    held: Held<TxSlots>,
    doorbell: Arc<dyn Doorbell>,
    /// Frames wait for those of an older queue: the ring is left to that.
    is_held: bool,
    epoll: Epoll,
    timer: Timer,
    retry: Duration,
    /// Found after frames of a burst were taken.
    violation: Option<Violation>,
    /// Room for frames to a pair that the peer has closed, which are dropped; and whether the last
    /// reserved room is there.
    discard: Vec<u8>,
    is_discarded: bool,
    /// Bytes of a slot and number of slots: what the ring has, while it is elsewhere too.
    size: (u32, u32),
    stores: Stores,
    stats: Arc<QueuePairStats>,
}

impl PairTx {
    /// Sends into the queue pair that the channel is assigned.
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

    /// Free slots: by the last credit, or by a new one when there is none.
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

    /// True when the peer has closed the pair. Its frames are dropped, as by an interface without
    /// carrier: a queue that kept them could never be drained, and no channel could be removed.
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

    /// Changes to the queue pair that is assigned now; the ring of the old one was put back.
    fn follow(&mut self) {
        let pair = self.senders.of(self.channel);
        if pair == self.pair {
            return;
        }
        let (it, size) = self.senders.pairs[usize::from(pair)].clone();
        // Fails when the pair was assigned before: it is registered.
        let _ = self.epoll.add(it.tx.event(), Interest::ReadableEdge, 0);
        (self.pair, self.size, self.state, self.doorbell) = (pair, size, it.state, it.doorbell);
        self.held = Held::new(it.tx);
        (self.retry, self.violation) = (RETRY, None);
    }

    /// The pair has ended: frames that the peer did not take are lost.
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

    /// Puts the ring back.
    fn leave(&mut self) {
        if self.held.is_recalled() || self.state.has_ended() {
            self.give_back();
        } else {
            self.held.leave();
            self.count_lost();
        }
    }

    /// Slots for `need` bytes in frames, at least one.
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
            // A doorbell that the peer missed would stop the queue for good.
            self.stats.tx.kicks.add(1);
            let _ = self.doorbell.ring();
        }
        let set = self.timer.set(self.retry);
        // Without a timer the queue is polled.
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
                    // The peer may have consumed more since.
                    free = ring.read_credit().unwrap_or_else(|violation| {
                        // The frames before are taken: the next call reports it.
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
        // Its end orders the stores before all later ones: the flags.
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

    /// Completes the slots and rings once: the peer's tasklet takes all that are complete.
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
            // With the newer queue of the pair, or with the control thread: what was sent is ahead
            // of all that follows, or lost.
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
