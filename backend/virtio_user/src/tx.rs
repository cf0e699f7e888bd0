//! Transmit queue, with one memory slot for each id of the ring. A slot has the header directly
//! before the frame.
//!
//! The id that was returned last is used first, so that few slots are used under light load and
//! stay in the cache. With an in-order device the ids are used cyclically.

mod lag;

use std::os::fd::AsFd;
use std::sync::Arc;

use mqnet_netdev::limits::room_for;
use mqnet_netdev::{
    Armed, Burst, DropReason, Fault, Fill, FrameMeta, HandOver, OwningTx, Queue, QueuePairStats,
    Trigger, WakeSource,
};
use mqnet_shmem::{Segments, Span, StoreMode, Stores, Streaming, Window};
use mqnet_sysio::eventfd::EventFd;
use mqnet_virtio::Broken;
use mqnet_virtio::driver::{DriverQueue, MemoryRange};
use mqnet_virtio::net::HDR_LEN;
use mqnet_wire::VnetHdr;

use crate::memory::TX_FRONT;
use lag::Lag;

/// Distance in slots of the prefetch for write, if frames arrive one by one.
const AHEAD: u16 = 8;
/// Bytes of each slot that are prefetched for the whole burst: two cache lines.
const FIRST_LINES: u32 = 128;
/// Largest number of bytes of a slot to prefetch; the hardware prefetcher covers the bytes after
/// them.
const PREFETCH_MAX: u32 = 2048;

/// State of a channel's transmit ring: the ring and its slots.
pub(crate) struct TxCore<Q: DriverQueue> {
    queue: Q,
    slots: Window,
    /// Device address of the first slot.
    at: u64,
    /// Bytes of a slot; `room` is the length of the largest frame in it.
    stride: u32,
    room: u32,
    /// Length of the frame in each slot in flight. With an in-order device: value of `sent` after
    /// this frame.
    lens: Box<[u32]>,
    /// Bytes of all sent frames, and of all returned frames. Both numbers wrap around.
    sent: u32,
    returned: u32,
    armed: bool,
    unpublished: bool,
    kick: Arc<EventFd>,
    stats: Arc<QueuePairStats>,
    broken: Option<Broken>,
    stores: Stores,
    /// Detector of a lagging device, with its state at the start of the burst, or of the first of
    /// several bursts that are published together.
    lag: Lag,
}

/// Two words before the frame: 4 bytes of alignment and the header. Of the flags, only `NEEDS_CSUM`
/// is passed on: a driver must not set `DATA_VALID`.
#[inline]
fn front(hdr: VnetHdr) -> [u64; 2] {
    const NEEDS_CSUM: u64 = 1;
    let (word, csum_offset) = hdr.pack();
    let word = word & (!0xff | NEEDS_CSUM);
    [word << 32, word >> 32 | u64::from(csum_offset) << 32]
}

impl<Q: DriverQueue> TxCore<Q> {
    pub(crate) fn new(
        queue: Q,
        slots: Window,
        at: u64,
        kick: Arc<EventFd>,
        stats: Arc<QueuePairStats>,
    ) -> Self {
        let lens = vec![0; queue.size().into()].into();
        Self {
            queue,
            slots,
            at,
            stride: 0,
            room: 0,
            lens,
            sent: 0,
            returned: 0,
            armed: false,
            unpublished: false,
            kick,
            stats,
            broken: None,
            stores: Stores::default(),
            lag: Lag::default(),
        }
    }

    /// True after a violation by the device; the ring is then unused.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Reclaims the slots that the device has returned; `Err` after a violation.
    #[inline]
    fn reclaim(&mut self) -> Result<(), Broken> {
        if let Some(broken) = &self.broken {
            // No entry is trusted after a violation.
            return Err(broken.clone());
        }
        let broken = &mut self.broken;
        while let Some(id) = self.queue.take_sent().inspect_err(|e| *broken = Some(e.clone()))? {
            let len = self.lens[usize::from(id)];
            self.returned =
                if self.queue.in_order() { len } else { self.returned.wrapping_add(len) };
        }
        Ok(())
    }

    /// Bytes of the frames in flight.
    fn bytes(&self) -> u32 {
        // The difference wraps if a malicious device returns ids that are not counted yet.
        self.sent.wrapping_sub(self.returned)
    }

    /// Sets the slot size for frames of up to `room` bytes. False while slots are in flight, or
    /// if the slots would exceed the memory.
    #[cold]
    fn resize(&mut self, room: u32) -> bool {
        let stride = (TX_FRONT + room).next_multiple_of(64);
        let need = u64::from(stride) * u64::from(self.queue.size());
        if self.queue.in_flight() > 0 || need > u64::from(self.slots.len()) {
            return false;
        }
        (self.stride, self.room) = (stride, room);
        true
    }

    /// Id for the next frame, of up to `room` bytes; `None` if no slot of this size is free.
    #[inline(always)]
    fn next(&mut self, room: u32) -> Result<Option<u16>, Broken> {
        if self.queue.free() == 0 || room > self.room {
            return self.next_after_reclaim(room);
        }
        Ok(self.queue.next_id())
    }

    #[cold]
    #[inline(never)]
    fn next_after_reclaim(&mut self, room: u32) -> Result<Option<u16>, Broken> {
        self.reclaim()?;
        if room > self.room && !self.resize(room) {
            return Ok(None);
        }
        Ok(self.queue.next_id())
    }

    /// Takes an id for the next frame, which must fit a slot; `None` if no slot is free.
    #[inline(always)]
    fn take_id(&mut self) -> Result<Option<u16>, Broken> {
        match self.queue.take_id() {
            None => self.take_id_after_reclaim(),
            id => Ok(id),
        }
    }

    #[cold]
    #[inline(never)]
    fn take_id_after_reclaim(&mut self) -> Result<Option<u16>, Broken> {
        self.reclaim()?;
        Ok(self.queue.take_id())
    }

    /// Prefetches the first lines of the next slots for write, if slots are used cyclically. The
    /// device has read these lines, so they are in its caches, and without prefetch each store
    /// waits for its line (book/src/measurements/findings.md). Slots in flight are skipped: the
    /// device may still need their lines.
    #[inline(always)]
    fn fetch_slots(&self, frames: usize) {
        if self.queue.in_order()
            && let Some(id) = self.queue.next_id()
        {
            let all = frames.min(self.queue.free().into());
            // Prefetch up to the last slot, and then from the first slot on.
            let here = all.min(usize::from(self.queue.size() - id));
            let (slots, stride) = (&self.slots, self.stride);
            slots.prefetch_pairs_for_writing(u32::from(id) * stride, stride, here);
            slots.prefetch_pairs_for_writing(0, stride, all - here);
        }
    }

    /// Prefetches a later slot for write, if frames arrive one by one.
    #[inline]
    fn fetch_ahead(&self, id: u16) {
        if self.queue.in_order() && self.queue.free() > AHEAD {
            let later = u32::from(id.wrapping_add(AHEAD) & (self.queue.size() - 1));
            self.slots.prefetch_for_writing(later * self.stride, FIRST_LINES);
        }
    }

    /// Prefetches the remaining lines of the slot after the next one, for a frame of the same
    /// length.
    #[inline]
    fn fetch_rest(&self, len: u32) {
        if self.queue.in_order()
            && self.queue.free() > 1
            && let Some(id) = self.queue.next_id()
        {
            let later = u32::from((id + 1) & (self.queue.size() - 1));
            let len = (TX_FRONT + len).min(PREFETCH_MAX).saturating_sub(FIRST_LINES);
            self.slots.prefetch_for_writing(later * self.stride + FIRST_LINES, len);
        }
    }

    /// Demotes the first lines of a slot (CLDEMOTE), for a device that waits for them.
    #[inline(always)]
    fn demote(&self, slot: u32, len: u32) {
        self.slots.demote(slot, FIRST_LINES.min(TX_FRONT + len));
    }

    /// Device address of the header in a slot.
    #[inline(always)]
    fn address_of(&self, slot: u32) -> u64 {
        self.at + u64::from(slot) + u64::from(TX_FRONT - HDR_LEN)
    }

    #[inline(always)]
    fn send(&mut self, id: u16, len: u32) {
        let slot = u32::from(id) * self.stride;
        self.queue.add_one(MemoryRange { at: self.address_of(slot), len: HDR_LEN + len }, true);
        self.sent = self.sent.wrapping_add(len);
        self.lens[usize::from(id)] = if self.queue.in_order() { self.sent } else { len };
        self.unpublished = true;
    }

    #[inline]
    fn count(&self, frames: u64, bytes: u64) {
        self.stats.tx.packets.add(frames);
        self.stats.tx.bytes.add(bytes);
    }

    fn begin(&mut self) -> Result<(), Broken> {
        if self.armed {
            self.armed = false;
            self.queue.disarm();
        }
        // Reclaim early, because a slot that is reused soon is still in the cache.
        let before = self.queue.in_flight();
        self.reclaim()?;
        if !self.unpublished {
            self.lag.update(self.queue.size(), before, self.queue.in_flight());
        }
        Ok(())
    }

    fn publish(&mut self) -> Result<(), String> {
        if !std::mem::take(&mut self.unpublished) {
            return Ok(());
        }
        self.queue.publish();
        if self.queue.needs_kick() {
            self.stats.tx.kicks.add(1);
            self.kick.ring().map_err(|e| format!("the device's doorbell: {e}"))?;
        }
        Ok(())
    }

    /// Copies frames into slots; returns the number of frames taken.
    fn submit(&mut self, burst: &Burst<'_>, from: usize, room: u32) -> Result<usize, Broken> {
        self.begin()?;
        let StoreMode { streaming, demotes, watch } = self.stores.begin();
        let taken = match streaming {
            None => self.fill(burst, from, room, demotes && self.lag.is_behind(), None)?,
            Some(streaming) => self.stream(burst, from, room, streaming)?,
        };
        if let Some(watch) = watch {
            let frames = burst.frames()[from..][..taken].iter();
            self.stores.end(watch, taken, frames.map(|frame| u64::from(frame.len)).sum());
        }
        Ok(taken)
    }

    /// Copies frames like `fill`, with non-temporal stores; not inlined, so that each kind of
    /// store has its own loop.
    #[inline(never)]
    fn stream(
        &mut self,
        burst: &Burst<'_>,
        from: usize,
        room: u32,
        streaming: Streaming,
    ) -> Result<usize, Broken> {
        self.fill(burst, from, room, false, Some(&streaming))
    }

    #[inline(always)]
    fn fill(
        &mut self,
        burst: &Burst<'_>,
        from: usize,
        room: u32,
        demotes: bool,
        streaming: Option<&Streaming>,
    ) -> Result<usize, Broken> {
        let (mut taken, mut copies, mut bytes) = (0, 0, 0);
        if room > self.room && !self.resize(room) {
            return Ok(0);
        }
        let frames = &burst.frames()[from..];
        if streaming.is_none() {
            self.fetch_slots(frames.len());
        }
        let short = room.min(FIRST_LINES - TX_FRONT);
        for frame in frames {
            if frame.len > short {
                if frame.len > room {
                    self.stats.tx.drops.count(DropReason::TooLong, 1);
                    taken += 1;
                    continue;
                }
                if streaming.is_none() {
                    self.fetch_rest(frame.len);
                }
            }
            let id = match self.take_id() {
                Ok(Some(id)) => id,
                Ok(None) => break,
                // The frames before this one are in the ring, so the next call returns the error.
                Err(_) if taken > 0 => break,
                Err(broken) => return Err(broken),
            };
            let slot = u32::from(id) * self.stride;
            let front = front(frame.hdr);
            let mut place = |front, bytes| match streaming {
                None => self.slots.place(slot, front, bytes),
                Some(streaming) => self.slots.stream(slot, front, bytes, streaming),
            };
            if !(frame.is_one_piece() && place(front, frame.head)) {
                self.slots.store_unit(slot, front);
                let room = self.slots.write(slot + TX_FRONT, frame.len);
                gather(room, frame.head, burst.more(frame), streaming);
            }
            if demotes {
                self.demote(slot, frame.len);
            }
            self.queue
                .add_taken(id, MemoryRange { at: self.address_of(slot), len: HDR_LEN + frame.len });
            bytes += u64::from(frame.len);
            let sent = self.sent.wrapping_add(bytes as u32);
            self.lens[usize::from(id)] = if self.queue.in_order() { sent } else { frame.len };
            copies += 1;
            taken += 1;
        }
        self.sent = self.sent.wrapping_add(bytes as u32);
        self.unpublished |= copies > 0;
        self.count(copies, bytes);
        self.stats.tx.copies.add(copies);
        Ok(taken)
    }
}

/// Copies the segments of a frame into the contiguous `room`.
#[cold]
fn gather(room: Segments<'_>, head: Span<'_>, more: &[Span<'_>], streaming: Option<&Streaming>) {
    let mut room = room.head;
    for piece in std::iter::once(&head).chain(more) {
        let n = room.store(*piece, streaming);
        room = room.split_at(n).1;
    }
}

impl<Q: DriverQueue> Drop for TxCore<Q> {
    /// Counts the frames that the device has not consumed as lost.
    fn drop(&mut self) {
        // An error is ignored: a broken ring returns no further frames.
        let _ = self.reclaim();
        self.stats.tx.lost.add(self.queue.in_flight().into());
    }
}

/// Transmit queue of a channel.
pub(crate) struct TxQueue<Q: DriverQueue> {
    channel: u16,
    cell: Arc<HandOver<TxCore<Q>>>,
    /// Ring state during a burst.
    core: Option<Box<TxCore<Q>>>,
    room: u32,
    /// True while frames of an older queue must reach the device first; this queue then takes no
    /// frames.
    held: bool,
    /// Id of the reserved slot.
    reserved: Option<u16>,
    event: Arc<EventFd>,
    stats: Arc<QueuePairStats>,
}

impl<Q: DriverQueue> TxQueue<Q> {
    pub(crate) fn new(
        channel: u16,
        cell: Arc<HandOver<TxCore<Q>>>,
        frame_max: u32,
        event: Arc<EventFd>,
        stats: Arc<QueuePairStats>,
    ) -> Self {
        let room = room_for(frame_max);
        Self { channel, cell, core: None, room, held: false, reserved: None, event, stats }
    }

    fn fault(&self, what: impl ToString) -> Fault {
        Fault { channel: self.channel, what: what.to_string() }
    }

    /// Calls `work` with the ring state; `None` if another queue of the channel uses the ring.
    fn with<R>(&mut self, work: impl FnOnce(&mut TxCore<Q>) -> R) -> Option<R> {
        match &mut self.core {
            Some(core) => Some(work(core)),
            None => self.cell.with(work),
        }
    }

    /// Takes the ring for a burst; false if the queue is held or another queue uses the ring. `Err`
    /// after a violation.
    #[inline]
    fn take(&mut self) -> Result<bool, Fault> {
        if self.held {
            return Ok(false);
        }
        if self.core.is_none() {
            self.core = self.cell.take();
            let Some(core) = &mut self.core else { return Ok(false) };
            core.begin().map_err(|e| Fault { channel: self.channel, what: e.to_string() })?;
        }
        Ok(true)
    }

    fn put_back(&mut self) {
        if let Some(core) = self.core.take() {
            self.cell.put(core);
        }
    }
}

impl<Q: DriverQueue + 'static> Queue for TxQueue<Q> {
    fn arm(&mut self, need: u32) -> Result<Armed, Fault> {
        self.stats.tx.arms.add(1);
        if self.held {
            // Sleep: the release of the hold signals the event.
            return Ok(Armed::Sleep);
        }
        let need = need.min(self.room);
        let armed = self.with(|core| {
            if core.next(need)?.is_some() {
                return Ok(false);
            }
            core.armed = true;
            let most = core.queue.in_flight();
            // A change of the slot size needs all slots free, otherwise half of them suffices.
            let after = if need > core.room { most } else { most / 2 };
            Ok::<bool, Broken>(!core.queue.arm(after.max(1)))
        });
        match armed {
            Some(Ok(true)) => Ok(Armed::Sleep),
            Some(Ok(false)) | None => Ok(Armed::MoreWork),
            Some(Err(broken)) => Err(self.fault(broken)),
        }
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        Some(WakeSource { fd: self.event.as_fd(), trigger: Trigger::Edge })
    }

    fn park(&mut self) {
        self.put_back();
    }
}

impl<Q: DriverQueue + 'static> OwningTx for TxQueue<Q> {
    fn fill(&mut self, enough: u32) -> Result<Option<Fill>, Fault> {
        let room = self.room;
        let fill = self.with(|core| {
            if core.bytes() > enough {
                core.reclaim()?;
            }
            let size = u32::from(core.queue.size()).saturating_mul(room);
            Ok::<Fill, Broken>(Fill { used: core.bytes(), size })
        });
        fill.transpose().map_err(|broken| self.fault(broken))
    }

    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        if !self.take()? {
            return Ok(0);
        }
        let room = self.room;
        let taken = self.core.as_mut().map_or(Ok(0), |core| core.submit(burst, from, room));
        taken.map_err(|broken| self.fault(broken))
    }

    fn reserve(&mut self, max: u32) -> Result<Option<Segments<'_>>, Fault> {
        self.reserved = None;
        if !self.take()? {
            return Ok(None);
        }
        let channel = self.channel;
        let Some(core) = &mut self.core else { return Ok(None) };
        let next = core.next(max).map_err(|e| Fault { channel, what: e.to_string() })?;
        self.reserved = next;
        if let Some(id) = next {
            core.fetch_ahead(id);
        }
        Ok(next.map(|id| core.slots.write(u32::from(id) * core.stride + TX_FRONT, max)))
    }

    fn commit(&mut self, frame: &FrameMeta) {
        if let (Some(core), Some(id)) = (&mut self.core, self.reserved.take()) {
            let slot = u32::from(id) * core.stride;
            core.slots.store_unit(slot, front(frame.hdr));
            if core.lag.is_behind() && core.stores.demotes() {
                core.demote(slot, frame.len);
            }
            core.send(id, frame.len);
            core.count(1, frame.len.into());
        }
    }

    fn flush(&mut self) -> Result<(), Fault> {
        let published = self.core.as_mut().map_or(Ok(()), |core| core.publish());
        self.put_back();
        published.map_err(|what| self.fault(what))
    }

    fn hold(&mut self, on: bool) -> Result<(), Fault> {
        let was = std::mem::replace(&mut self.held, on);
        if was && !on {
            // Signal the event: the lane may sleep on a queue that took no frames.
            return self.event.ring().map_err(|e| self.fault(e));
        }
        self.flush()
    }

    fn is_drained(&mut self) -> Result<bool, Fault> {
        self.flush()?;
        let drained = self.with(|core| core.reclaim().map(|()| core.queue.in_flight() == 0));
        // Another queue of the channel uses the ring, so the caller must retry.
        drained.unwrap_or(Ok(false)).map_err(|broken| self.fault(broken))
    }
}

impl<Q: DriverQueue> Drop for TxQueue<Q> {
    fn drop(&mut self) {
        self.put_back();
    }
}
