//! The receive queue: frames lie in pages of its own pool.

mod intake;

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::sync::Arc;

use arrayvec::ArrayVec;
use mqnet_netdev::limits::{BURST_FRAMES, BURST_MORE_PIECES};
use mqnet_netdev::{
    Armed, Burst, ChannelStats, Event, Fault, Kept, KeptPiece, Offloads, Queue, RxBrings, Trigger,
};
use mqnet_pktbuf::{Frag, Returner};
use mqnet_sysio::eventfd::EventFd;
use mqnet_virtio::Broken;
use mqnet_virtio::driver::{DriverQueue, Piece};
use mqnet_virtio::net::HDR_LEN;
use mqnet_wire::VnetHdr;

use crate::buffers::{Buffer, Buffers, Knob, RxBufferStats};
use crate::slot::Slot;
use intake::{Intake, Rules};

/// Refill when so many descriptors are free, or half of a shorter ring.
const REFILL: u16 = 64;

/// A frame that has come and was not released.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    hdr: VnetHdr,
    len: u32,
    /// Which buffer it lies in, behind the header.
    id: u16,
    /// Buffers after the first, which are in a list of their own.
    more: u16,
}

/// A buffer after the first of a frame, and how much of the frame lies in it.
#[derive(Clone, Copy, Debug)]
struct Filled {
    id: u16,
    len: u32,
}

/// A buffer of the device's, or one that came back and is not freed.
#[derive(Debug)]
struct Posted {
    frag: Frag,
    /// Where in it the device begins to write.
    front: u32,
    generation: NonZeroU32,
    /// As the device knows it.
    len: u32,
    at: u64,
}

impl Posted {
    #[inline(always)]
    fn piece(&self) -> Piece {
        Piece { at: self.at, len: self.len }
    }
}

/// What there is one of for each channel: the ring, its pool, and what has come.
///
/// A buffer that has come stays where it is while it is looked at. Then the device gets it back as
/// it was: only buffers that somebody keeps, or of a size that is not wanted any more, go through
/// the pool.
pub(crate) struct RxCore<Q> {
    queue: Q,
    buffers: Buffers,
    mergeable: bool,
    /// The buffer of each id that is not free.
    posted: Box<[Option<Posted>]>,
    waiting: ArrayVec<Waiting, BURST_FRAMES>,
    /// The buffers after the first of each frame.
    more: VecDeque<Filled>,
    /// Ids that are held and whose buffers go back to the pool.
    stale: Vec<u16>,
    /// Buffers that go there, and have no id any more.
    leaving: Vec<Frag>,
    /// Buffers that were added again since the device was asked whether it wants to be told.
    unasked: u16,
    refill_at: u16,
    /// Pieces of frames that have left with their memory.
    kept: u64,
    armed: bool,
    kick: Arc<EventFd>,
    wish: Arc<Knob>,
    stats: Arc<ChannelStats>,
    own: Arc<RxBufferStats>,
    takes: Offloads,
    broken: bool,
}

/// What the queues of a channel share.
pub(crate) struct RxParts {
    pub(crate) kick: Arc<EventFd>,
    pub(crate) wish: Arc<Knob>,
    pub(crate) stats: Arc<ChannelStats>,
    pub(crate) own: Arc<RxBufferStats>,
    /// How frames may be unfinished, at most.
    pub(crate) takes: Offloads,
}

impl<Q: DriverQueue> RxCore<Q> {
    pub(crate) fn new(queue: Q, buffers: Buffers, mergeable: bool, parts: RxParts) -> Self {
        let size = queue.size();
        let RxParts { kick, wish, stats, own, takes } = parts;
        Self {
            posted: (0..size).map(|_| None).collect(),
            waiting: ArrayVec::new(),
            more: VecDeque::with_capacity(size.into()),
            stale: Vec::with_capacity(size.into()),
            leaving: Vec::with_capacity(size.into()),
            unasked: 0,
            refill_at: REFILL.min(size) / 2,
            kept: 0,
            armed: false,
            queue,
            buffers,
            mergeable,
            kick,
            wish,
            stats,
            own,
            takes,
            broken: false,
        }
    }

    /// The device broke the rules: this ring goes no further.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Gives the device buffers for all free descriptors, as far as there are pages, and tells it
    /// once. What is missing comes with a later refill: nobody spins for memory.
    pub(crate) fn refill(&mut self) -> Result<(), std::io::Error> {
        self.buffers.settle(self.wish.get(), &self.own);
        self.let_go_of_stale();
        for frag in self.leaving.drain(..) {
            self.buffers.pool.free_frag(frag);
        }
        while let Some(id) = self.queue.next_id() {
            // In order, the next place may be that of a frame that waits, while one behind it has
            // been let go: it moves up first, when it is released.
            if self.posted[usize::from(id)].is_some() {
                break;
            }
            let Some(buffer) = self.buffers.take(&self.own) else { break };
            // A pool that is for allocation only is never behind a ring of ours.
            let Some(at) = self.buffers.address(&buffer) else { break };
            let (len, generation) = (self.buffers.shown(&buffer), self.buffers.generation());
            let Buffer { frag, front } = buffer;
            let posted = Posted { frag, front, generation, len, at };
            self.queue.add_one(posted.piece(), false);
            self.posted[usize::from(id)] = Some(posted);
        }
        self.buffers.gave_again(std::mem::take(&mut self.unasked));
        self.buffers.settled(&self.own);
        self.queue.publish();
        if self.queue.needs_kick() {
            self.stats.rx.kicks.add(1);
            self.kick.ring()?;
        }
        Ok(())
    }

    /// Before any buffer is added: it may get the id of one of these.
    fn let_go_of_stale(&mut self) {
        for id in self.stale.drain(..) {
            self.leaving.extend(self.posted[usize::from(id)].take().map(|posted| posted.frag));
            self.queue.let_go(id);
        }
    }

    fn refill_if_due(&mut self) -> Result<(), String> {
        let due = usize::from(self.queue.free() + self.unasked) + self.stale.len();
        if due > usize::from(self.refill_at) {
            self.refill().map_err(|e| format!("the device's doorbell: {e}"))?;
        }
        Ok(())
    }

    /// True when no frame waits.
    fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Shows what waits, and what comes, up to `budget` frames. What the device has written is read
    /// once, as it is shown first.
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
            look: pool.look(),
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

    /// Takes the first frame that waits, with its memory.
    fn keep(&mut self) -> Result<Option<Kept>, String> {
        let Some(frame) = self.waiting.pop_at(0) else { return Ok(None) };
        let Waiting { hdr, len, id, more } = frame;
        let others = self.more.drain(..usize::from(more)).map(|f| (f.id, 0, f.len));
        let others: ArrayVec<_, BURST_MORE_PIECES> = others.collect();
        let first = len - others.iter().map(|(_, _, len)| len).sum::<u32>();
        let mut pieces = std::iter::once((id, HDR_LEN, first)).chain(others).filter_map(|piece| {
            let (id, skip, len) = piece;
            let Posted { frag, front, .. } = self.posted[usize::from(id)].take()?;
            self.queue.let_go(id);
            Some(KeptPiece::new(frag, front + skip, len))
        });
        // Every frame that waits has its buffers.
        let Some(head) = pieces.next() else { return Ok(None) };
        let kept = Kept { hdr, head, more: pieces.collect() };
        self.stats.rx.packets.add(1);
        self.stats.rx.bytes.add(len.into());
        self.kept += 1 + kept.more.len() as u64;
        if let Err(why) = self.refill_if_due() {
            // Nobody gets the frame: its memory must not be lost with it.
            kept.give_back(&mut self.buffers.pool.returner());
            return Err(why);
        }
        Ok(Some(kept))
    }

    /// The device has next to no buffers, since frames that are kept have the memory. Whoever gives
    /// them back wakes nobody, so this queue must not sleep: the device could fill nothing.
    fn is_starved(&self) -> bool {
        self.queue.in_flight() < self.queue.size() / 4 && self.kept > self.buffers.pool.foreign()
    }

    fn release(&mut self, frames: usize) -> Result<(), String> {
        if !self.stale.is_empty() {
            self.let_go_of_stale();
        }
        let Self { queue, posted, waiting, more, leaving, .. } = self;
        let mut bin = Renewal { queue, posted, leaving, generation: self.buffers.generation() };
        let (mut bytes, mut renewed) = (0, 0);
        for frame in &waiting[..frames] {
            bytes += u64::from(frame.len);
            renewed += bin.renew(frame.id);
            if frame.more > 0 {
                let others = more.drain(..usize::from(frame.more));
                renewed += others.map(|filled| bin.renew(filled.id)).sum::<u16>();
            }
        }
        self.unasked += renewed;
        // At once: what the device does not see it cannot have used.
        self.queue.publish();
        self.waiting.drain(..frames);
        self.stats.rx.packets.add(frames as u64);
        self.stats.rx.bytes.add(bytes);
        self.refill_if_due()
    }
}

/// Buffers that were looked at.
struct Renewal<'r, Q> {
    queue: &'r mut Q,
    posted: &'r mut [Option<Posted>],
    leaving: &'r mut Vec<Frag>,
    generation: NonZeroU32,
}

impl<Q: DriverQueue> Renewal<'_, Q> {
    /// The device gets one back as it was, unless it is of a size that is not wanted any more:
    /// how many it gets.
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
            _ => self.leave(id),
        }
    }

    #[cold]
    #[inline(never)]
    fn move_up(&mut self, id: u16, at: u16) {
        self.posted.swap(at.into(), id.into());
    }

    #[cold]
    #[inline(never)]
    fn leave(&mut self, id: u16) -> u16 {
        self.leaving.extend(self.posted[usize::from(id)].take().map(|posted| posted.frag));
        self.queue.let_go(id);
        0
    }
}

impl<Q> Drop for RxCore<Q> {
    /// The device may still write into the pages; nobody looks there any more, and the pool takes
    /// no other buffers from them.
    fn drop(&mut self) {
        let posted = self.posted.iter_mut().filter_map(Option::take).map(|posted| posted.frag);
        for frag in posted.chain(self.leaving.drain(..)) {
            self.buffers.pool.free_frag(frag);
        }
    }
}

/// The receive queue of a channel.
pub(crate) struct RxQueue<Q: DriverQueue> {
    channel: u16,
    slot: Arc<Slot<RxCore<Q>>>,
    core: Option<Box<RxCore<Q>>>,
    frame_max: u32,
    event: Arc<EventFd>,
    stats: Arc<ChannelStats>,
}

impl<Q: DriverQueue> RxQueue<Q> {
    pub(crate) fn new(
        channel: u16,
        slot: Arc<Slot<RxCore<Q>>>,
        frame_max: u32,
        event: Arc<EventFd>,
        stats: Arc<ChannelStats>,
    ) -> Self {
        Self { channel, slot, core: None, frame_max, event, stats }
    }

    fn core(&mut self) -> Option<&mut RxCore<Q>> {
        if self.core.is_none() {
            self.core = self.slot.take();
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

    fn event(&self) -> Option<Event<'_>> {
        Some(Event { fd: self.event.as_fd(), trigger: Trigger::Edge })
    }

    fn park(&mut self) {
        if let Some(core) = self.core.take() {
            self.slot.put(core);
        }
    }
}

impl<Q: DriverQueue + 'static> RxBrings for RxQueue<Q> {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        let (fault, frame_max) = (fault(self.channel), self.frame_max);
        let Some(core) = self.core() else { return Ok(()) };
        if core.is_idle() {
            // Frames that were dropped leave descriptors behind.
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

    fn keep(&mut self) -> Result<Option<Kept>, Fault> {
        let fault = fault(self.channel);
        self.core().map_or(Ok(None), |core| core.keep().map_err(fault))
    }

    fn returner(&mut self) -> Option<Returner> {
        self.core().map(|core| core.buffers.pool.returner())
    }
}

impl<Q: DriverQueue> Drop for RxQueue<Q> {
    fn drop(&mut self) {
        if let Some(core) = self.core.take() {
            self.slot.put(core);
        }
    }
}
