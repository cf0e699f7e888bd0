//! Receive queue with frames in pages of its own pool.

mod intake;

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::sync::Arc;

use arrayvec::ArrayVec;
use mqnet_netdev::limits::{BURST_FRAMES, BURST_MORE_PIECES};
use mqnet_netdev::{
    Armed, Burst, DetachedFragment, DetachedFrame, Fault, HandOver, Offloads, OwningRx, Queue,
    QueuePairStats, Trigger, WakeSource,
};
use mqnet_pktbuf::{Frag, Returner};
use mqnet_sysio::eventfd::EventFd;
use mqnet_virtio::Broken;
use mqnet_virtio::driver::{DriverQueue, MemoryRange};
use mqnet_virtio::net::HDR_LEN;
use mqnet_wire::VnetHdr;

use crate::buffers::{Buffer, Buffers, RxBufferStats, SettingCell};
use intake::{Intake, Rules};

/// Twice the number of free descriptors above which a queue refills its ring; limited by the ring
/// size.
const REFILL: u16 = 64;

/// Frame that was received and not released.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    hdr: VnetHdr,
    len: u32,
    /// Id of the first buffer, which contains the header.
    id: u16,
    /// Number of further buffers, which `RxCore::more` lists.
    more: u16,
}

/// Further buffer of a frame, and the number of the frame's bytes in it.
#[derive(Clone, Copy, Debug)]
struct Filled {
    id: u16,
    len: u32,
}

/// Buffer that the device has, or has returned and that is not freed.
#[derive(Debug)]
struct Posted {
    frag: Frag,
    /// Offset at which the device begins to write.
    front: u32,
    generation: NonZeroU32,
    /// Length of the buffer as the device sees it.
    len: u32,
    at: u64,
}

impl Posted {
    #[inline(always)]
    fn piece(&self) -> MemoryRange {
        MemoryRange { at: self.at, len: self.len }
    }
}

/// State of a channel's receive ring: the ring, its pool, and the received frames.
///
/// A returned buffer keeps its id until its frame is released, and is then made available again
/// unchanged. Only buffers of detached or dropped frames, or of an outdated shape, pass through
/// the pool.
pub(crate) struct RxCore<Q> {
    queue: Q,
    buffers: Buffers,
    mergeable: bool,
    /// Buffers by id; `None` for free ids.
    posted: Box<[Option<Posted>]>,
    waiting: ArrayVec<Waiting, BURST_FRAMES>,
    /// Further buffers of all frames in `waiting`, in order.
    more: VecDeque<Filled>,
    /// Ids of dropped frames, whose buffers must be returned to the pool.
    stale: Vec<u16>,
    /// Buffers without an id, which must be returned to the pool.
    to_free: Vec<Frag>,
    /// Number of buffers made available again since the last check for a kick.
    unkicked: u16,
    refill_at: u16,
    /// Number of buffers that left the ring with detached frames.
    kept: u64,
    armed: bool,
    kick: Arc<EventFd>,
    requested: Arc<SettingCell>,
    stats: Arc<QueuePairStats>,
    own: Arc<RxBufferStats>,
    takes: Offloads,
    broken: bool,
}

/// Objects that the queues of a channel share.
pub(crate) struct RxParts {
    pub(crate) kick: Arc<EventFd>,
    pub(crate) requested: Arc<SettingCell>,
    pub(crate) stats: Arc<QueuePairStats>,
    pub(crate) own: Arc<RxBufferStats>,
    /// Offloads that received frames may need.
    pub(crate) takes: Offloads,
}

impl<Q: DriverQueue> RxCore<Q> {
    pub(crate) fn new(queue: Q, buffers: Buffers, mergeable: bool, parts: RxParts) -> Self {
        let size = queue.size();
        let RxParts { kick, requested, stats, own, takes } = parts;
        Self {
            posted: (0..size).map(|_| None).collect(),
            waiting: ArrayVec::new(),
            more: VecDeque::with_capacity(size.into()),
            stale: Vec::with_capacity(size.into()),
            to_free: Vec::with_capacity(size.into()),
            unkicked: 0,
            refill_at: REFILL.min(size) / 2,
            kept: 0,
            armed: false,
            queue,
            buffers,
            mergeable,
            kick,
            requested,
            stats,
            own,
            takes,
            broken: false,
        }
    }

    /// True after a violation by the device; the ring is then unused.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Makes buffers available for all free descriptors, as far as there is memory, and kicks
    /// once if needed. Later refills add missing buffers; a lack of memory causes no busy loop.
    pub(crate) fn refill(&mut self) -> Result<(), std::io::Error> {
        self.buffers.begin_refill(self.requested.get(), &self.own);
        self.free_stale();
        for frag in self.to_free.drain(..) {
            self.buffers.pool.free_frag(frag);
        }
        while let Some(id) = self.queue.next_id() {
            // With an in-order device the next id may have a received frame, while a later id is
            // free. Further buffers must then wait for the release of this frame.
            if self.posted[usize::from(id)].is_some() {
                break;
            }
            let Some(buffer) = self.buffers.take(&self.own) else { break };
            // Every pool of a ring has a device mapping, so there is an address.
            let Some(at) = self.buffers.address(&buffer) else { break };
            let (len, generation) = (self.buffers.shown(&buffer), self.buffers.generation());
            let Buffer { frag, front } = buffer;
            let posted = Posted { frag, front, generation, len, at };
            self.queue.add_one(posted.piece(), false);
            self.posted[usize::from(id)] = Some(posted);
        }
        self.buffers.count_reused(std::mem::take(&mut self.unkicked));
        self.buffers.end_refill(&self.own);
        self.queue.publish();
        if self.queue.needs_kick() {
            self.stats.rx.kicks.add(1);
            self.kick.ring()?;
        }
        Ok(())
    }

    /// Frees the buffers of dropped frames. Called before new buffers are added, which may reuse
    /// these ids.
    fn free_stale(&mut self) {
        for id in self.stale.drain(..) {
            self.to_free.extend(self.posted[usize::from(id)].take().map(|posted| posted.frag));
            self.queue.let_go(id);
        }
    }

    fn refill_if_due(&mut self) -> Result<(), String> {
        let due = usize::from(self.queue.free() + self.unkicked) + self.stale.len();
        if due > usize::from(self.refill_at) {
            self.refill().map_err(|e| format!("the device's doorbell: {e}"))?;
        }
        Ok(())
    }

    /// True if all received frames are released.
    fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Appends unreleased and new frames to the burst, up to `budget`. Headers and used entries
    /// are read once, when a frame is new.
    fn peek<'a>(
        &'a mut self,
        burst: &mut Burst<'a>,
        budget: usize,
        frame_max: u32,
    ) -> Result<(), Broken> {
        let Self { queue, buffers, posted, waiting, more, stale, .. } = self;
        let Buffers { pool, average, .. } = buffers;
        let mut intake = Intake {
            queue,
            stale,
            look: pool.view(),
            pool_at: pool.device_start(),
            region: pool.region(),
            pool_start: pool.start(),
            posted,
            waiting,
            more,
            average: *average,
            rules: Rules::new(self.mergeable, frame_max, self.takes),
            stats: &self.stats,
            own: &self.own,
        };
        let budget = budget.min(BURST_FRAMES);
        let taken = match intake.show_again(burst, budget) {
            Some(bytes) => intake.take_in(burst, budget, bytes),
            None => Ok(()),
        };
        *average = intake.average;
        if self.armed && !waiting.is_empty() {
            self.armed = false;
            queue.disarm();
        }
        self.broken |= taken.is_err();
        taken
    }

    /// Detaches the first received frame with its memory; `None` if there is none.
    fn detach(&mut self) -> Result<Option<DetachedFrame>, String> {
        let Some(frame) = self.waiting.pop_at(0) else { return Ok(None) };
        let Waiting { hdr, len, id, more } = frame;
        let others = self.more.drain(..usize::from(more)).map(|f| (f.id, 0, f.len));
        let others: ArrayVec<_, BURST_MORE_PIECES> = others.collect();
        let first = len - others.iter().map(|(_, _, len)| len).sum::<u32>();
        let mut pieces = std::iter::once((id, HDR_LEN, first)).chain(others).filter_map(|piece| {
            let (id, skip, len) = piece;
            let Posted { frag, front, .. } = self.posted[usize::from(id)].take()?;
            self.queue.let_go(id);
            Some(DetachedFragment::new(frag, front + skip, len))
        });
        // Every received frame has buffers.
        let Some(head) = pieces.next() else { return Ok(None) };
        let kept = DetachedFrame { hdr, head, more: pieces.collect() };
        self.stats.rx.packets.add(1);
        self.stats.rx.bytes.add(len.into());
        self.kept += 1 + kept.more.len() as u64;
        if let Err(why) = self.refill_if_due() {
            // The caller does not get the frame, so return its memory here.
            kept.free(&mut self.buffers.pool.returner());
            return Err(why);
        }
        Ok(Some(kept))
    }

    /// True if the device has few buffers, and detached frames have not returned theirs. The
    /// return of memory wakes no queue, so this queue must not sleep then.
    fn is_starved(&self) -> bool {
        self.queue.in_flight() < self.queue.size() / 4 && self.kept > self.buffers.pool.foreign()
    }

    fn release(&mut self, frames: usize) -> Result<(), String> {
        if !self.stale.is_empty() {
            self.free_stale();
        }
        let Self { queue, posted, waiting, more, to_free, .. } = self;
        let mut renewal = Renewal { queue, posted, to_free, generation: self.buffers.generation() };
        let (mut bytes, mut renewed) = (0, 0);
        for frame in &waiting[..frames] {
            bytes += u64::from(frame.len);
            renewed += renewal.renew(frame.id);
            if frame.more > 0 {
                let others = more.drain(..usize::from(frame.more));
                renewed += others.map(|filled| renewal.renew(filled.id)).sum::<u16>();
            }
        }
        self.unkicked += renewed;
        // Publish immediately, so that the device can use the buffers.
        self.queue.publish();
        self.waiting.drain(..frames);
        self.stats.rx.packets.add(frames as u64);
        self.stats.rx.bytes.add(bytes);
        self.refill_if_due()
    }
}

/// Reuse of the buffers of released frames.
struct Renewal<'r, Q> {
    queue: &'r mut Q,
    posted: &'r mut [Option<Posted>],
    to_free: &'r mut Vec<Frag>,
    generation: NonZeroU32,
}

impl<Q: DriverQueue> Renewal<'_, Q> {
    /// Makes a buffer available again unchanged, unless its shape is outdated. Returns the number
    /// of buffers made available, 0 or 1.
    #[inline(always)]
    fn renew(&mut self, id: u16) -> u16 {
        match &self.posted[usize::from(id)] {
            Some(buffer) if buffer.generation == self.generation => {
                let at = self.queue.add_again(id, buffer.piece());
                if at != id {
                    self.move_up(id, at);
                }
                1
            }
            _ => self.retire(id),
        }
    }

    #[cold]
    #[inline(never)]
    fn move_up(&mut self, id: u16, at: u16) {
        self.posted.swap(at.into(), id.into());
    }

    #[cold]
    #[inline(never)]
    fn retire(&mut self, id: u16) -> u16 {
        self.to_free.extend(self.posted[usize::from(id)].take().map(|posted| posted.frag));
        self.queue.let_go(id);
        0
    }
}

impl<Q> Drop for RxCore<Q> {
    /// Frees all pages. Later writes of the device are harmless: nothing reads these pages any
    /// more, and the pool allocates no further buffers.
    fn drop(&mut self) {
        let posted = self.posted.iter_mut().filter_map(Option::take).map(|posted| posted.frag);
        for frag in posted.chain(self.to_free.drain(..)) {
            self.buffers.pool.free_frag(frag);
        }
    }
}

/// Receive queue of a channel.
pub(crate) struct RxQueue<Q: DriverQueue> {
    channel: u16,
    cell: Arc<HandOver<RxCore<Q>>>,
    core: Option<Box<RxCore<Q>>>,
    frame_max: u32,
    event: Arc<EventFd>,
    stats: Arc<QueuePairStats>,
}

impl<Q: DriverQueue> RxQueue<Q> {
    pub(crate) fn new(
        channel: u16,
        cell: Arc<HandOver<RxCore<Q>>>,
        frame_max: u32,
        event: Arc<EventFd>,
        stats: Arc<QueuePairStats>,
    ) -> Self {
        Self { channel, cell, core: None, frame_max, event, stats }
    }

    fn core(&mut self) -> Option<&mut RxCore<Q>> {
        if self.core.is_none() {
            self.core = self.cell.take();
        }
        self.core.as_deref_mut()
    }
}

fn fault(channel: u16) -> impl Fn(String) -> Fault {
    move |what| Fault { channel, what }
}

impl<Q: DriverQueue + 'static> Queue for RxQueue<Q> {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        let fault = fault(self.channel);
        self.stats.rx.arms.add(1);
        let Some(core) = self.core() else { return Ok(Armed::MoreWork) };
        core.refill_if_due().map_err(fault)?;
        core.armed = true;
        let more = core.queue.arm(1) || !core.waiting.is_empty() || core.is_starved();
        Ok(if more { Armed::MoreWork } else { Armed::Sleep })
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        Some(WakeSource { fd: self.event.as_fd(), trigger: Trigger::Edge })
    }

    fn park(&mut self) {
        if let Some(core) = self.core.take() {
            self.cell.put(core);
        }
    }
}

impl<Q: DriverQueue + 'static> OwningRx for RxQueue<Q> {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        let (fault, frame_max) = (fault(self.channel), self.frame_max);
        let Some(core) = self.core() else { return Ok(()) };
        if core.is_idle() {
            // Refill for the descriptors of dropped frames.
            core.refill_if_due().map_err(&fault)?;
        }
        core.peek(burst, budget, frame_max).map_err(|broken| fault(broken.to_string()))
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        let fault = fault(self.channel);
        if frames == 0 {
            return Ok(());
        }
        self.core().map_or(Ok(()), |core| core.release(frames).map_err(fault))
    }

    fn detach(&mut self) -> Result<Option<DetachedFrame>, Fault> {
        let fault = fault(self.channel);
        self.core().map_or(Ok(None), |core| core.detach().map_err(fault))
    }

    fn returner(&mut self) -> Option<Returner> {
        self.core().map(|core| core.buffers.pool.returner())
    }
}

impl<Q: DriverQueue> Drop for RxQueue<Q> {
    fn drop(&mut self) {
        if let Some(core) = self.core.take() {
            self.cell.put(core);
        }
    }
}
