//! Lane: one RX queue, one TX queue, and the transfer of frames between them.

mod batch;
mod closing;
pub(crate) mod error;
mod hooks;
mod id;
mod merging;
pub(crate) mod poll;
mod queued;
mod shapes;
mod shown;
mod tail_drop;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use mqnet_netdev::limits::room_for;
use mqnet_netdev::null;
use mqnet_netdev::wrap::merge::unwrap_tx;
use mqnet_netdev::wrap::offload::{Finish, GsoProgress, wrap_tx};
use mqnet_netdev::{Armed, Burst, DropReason, Fault, FrameMeta, QueuePairStats, Rx, Tx};
use mqnet_pktbuf::{Page, PagePool, PoolConfig, PoolStats};
use mqnet_qdisc::ByteLimit;

use crate::egress::{Call, Egress, Full};
use batch::Batch;
pub(crate) use closing::Closing;
pub use error::LaneError;
use hooks::Hooks;
pub(crate) use hooks::{taps_off, taps_on};
pub use id::{Direction, LaneId};
pub(crate) use merging::Merges;
pub use poll::{PollEnd, Polled};
pub(crate) use shown::ShownPool;

/// Page pool for a lane between two system-call queues, which have no memory for frames.
struct Loan {
    pool: PagePool,
    node: Option<u32>,
    /// Received frame for which the sink had no space.
    held: Option<(Page, FrameMeta)>,
}

impl Loan {
    fn new(room: u32, node: Option<u32>) -> Result<Self, LaneError> {
        let page_size = room.next_power_of_two().max(4096);
        let config = PoolConfig { pages: 2, page_size, node, ..PoolConfig::default() };
        let pool = PagePool::new(&config).map_err(|e| LaneError(e.to_string()))?;
        Ok(Self { pool, node, held: None })
    }
}

/// Lane from an RX queue (source) to a TX queue (sink).
pub struct Lane {
    id: LaneId,
    rx: Rx,
    tx: Tx,
    loan: Option<Loan>,
    /// Frames that are received together, for coalescing or because the sink has no space for the
    /// largest frame.
    batch: Option<Batch>,
    /// Coalescing of small frames for the sink; `None`: disabled.
    merges: Option<Merges>,
    /// Space in bytes for the largest frame that arrives.
    room: u32,
    /// True if the sink owns memory with a capacity below one and a half largest frames. In such a
    /// sink, space for a largest frame is rarely free.
    narrow: bool,
    /// Space in bytes for the largest frame that leaves; smaller than `room` if segmentation is
    /// emulated.
    sink_room: u32,
    /// Progress of offload emulation; `None`: the sink needs no emulation.
    finishing: Option<GsoProgress>,
    /// Space in bytes that a stopped sink must have before the lane continues.
    wake: u32,
    tx_stats: Arc<QueuePairStats>,
    stopped_since: Option<Duration>,
    rest: PollEnd,
    /// Disciplines of the sink's netdev; `None`: none are attached.
    egress: Option<Egress>,
    /// Byte limit of the sink while disciplines are attached.
    limit: Option<ByteLimit>,
    /// True if frames waited in the disciplines at the end of the last poll.
    left_behind: bool,
    /// True if the byte limit ended the last poll while frames waited in the source.
    cut_short: bool,
    /// True if the sink did not accept all frames that the disciplines or the lane itself could
    /// send.
    sink_full: bool,
    /// Behaviour while the sink is full and no discipline is attached.
    full: Full,
    /// True if the disciplines send nothing until older frames in another lane have been sent.
    held: bool,
    /// True if the sink holds the frames of this lane, because no disciplines are attached that
    /// could hold them. A full sink is then full of held frames, so `full=drop` does not apply.
    sink_held: bool,
    /// True if a partly sent frame waits in the disciplines, not in the source.
    partial_inside: bool,
    /// True if the lane receives no frame that may have to wait, because the lane is being
    /// detached. Otherwise a lane with a sink slower than its source would never be empty.
    closed: bool,
    /// Membership in a group of closing lanes; `None`: not closing. A closing lane receives no
    /// frames from its source. It only sends waiting frames, and frames that other lanes add to its
    /// queue.
    closing: Option<Closing>,
    /// XDP programs of the lane.
    hooks: Hooks,
    shown: ShownPool,
}

impl Lane {
    /// Creates a lane between two queues for frames of up to `frame_max` bytes. `tx_stats` are the
    /// statistics of the sink's channel. Fails if the page pool cannot be created.
    pub fn new(
        id: LaneId,
        rx: Rx,
        tx: Tx,
        frame_max: u32,
        node: Option<u32>,
        tx_stats: Arc<QueuePairStats>,
    ) -> Result<Self, LaneError> {
        let room = room_for(frame_max);
        let loan = match (&rx, &tx) {
            (Rx::Syscall(_), Tx::Syscall(_)) => Some(Loan::new(room, node)?),
            _ => None,
        };
        let little = |capacity| capacity < room.saturating_add(room / 2);
        let narrow = matches!(&tx, Tx::Owning(tx) if tx.capacity().is_some_and(little));
        let mut lane = Self {
            id,
            rx,
            tx,
            loan,
            batch: None,
            merges: None,
            room,
            narrow,
            sink_room: room,
            finishing: None,
            wake: room,
            tx_stats,
            stopped_since: None,
            rest: PollEnd::Empty,
            egress: None,
            limit: None,
            left_behind: false,
            cut_short: false,
            sink_full: false,
            full: Full::Stop,
            held: false,
            sink_held: false,
            partial_inside: false,
            closed: false,
            closing: None,
            hooks: Hooks::default(),
            shown: ShownPool::default(),
        };
        lane.fit_batch();
        lane.show_pool();
        Ok(lane)
    }

    /// Adds offload emulation for a sink that does not accept frames as they arrive. `frame_max` is
    /// the length of the largest arriving frame. Fails if the page pool cannot be created.
    pub fn finishing(mut self, frame_max: u32, how: Finish) -> Result<Self, LaneError> {
        (self.room, self.sink_room) = (room_for(frame_max), room_for(how.frame_max));
        self.wake = self.sink_room;
        // Receive from a system-call source into a private page: a frame in the sink's memory could
        // not be segmented any more.
        let page = if matches!(self.rx, Rx::Syscall(_)) { self.room } else { 0 };
        let stats = self.tx_stats.clone();
        let tx = std::mem::replace(&mut self.tx, null::swallowing_tx());
        let (tx, in_hand) = wrap_tx(tx, how, stats, page);
        (self.tx, self.finishing) = (tx, Some(in_hand));
        // Offload emulation receives into private memory, so the sink's capacity does not matter.
        self.narrow = false;
        self.fit_batch();
        if let Some(loan) = &self.loan {
            self.loan = Some(Loan::new(self.room, loan.node)?);
            self.show_pool();
        }
        Ok(self)
    }

    /// Prefetches data for the next poll, while another lane is polled. Cache lines that another
    /// CPU has written take long to arrive. See [`mqnet_netdev::Queue::prefetch`].
    #[inline]
    pub(crate) fn prefetch(&self) {
        if let Rx::Owning(rx) = &self.rx {
            rx.prefetch();
        }
    }

    /// Identity of the lane.
    pub fn id(&self) -> LaneId {
        self.id
    }

    /// Reason why the last poll ended.
    pub fn rest(&self) -> PollEnd {
        self.rest
    }

    /// True if the lane holds a received frame for which its sink had no space.
    pub fn holds_a_frame(&self) -> bool {
        let received = self.finishing.as_ref().is_some_and(GsoProgress::has_a_frame);
        let batch = self.batch.as_ref().is_some_and(|batch| batch.waiting() > 0);
        received || batch || self.loan.as_ref().is_some_and(|loan| loan.held.is_some())
    }

    /// Replaces the source by the result of `edit`, for example to wrap or unwrap it.
    pub fn edit_rx(&mut self, edit: impl FnOnce(Rx) -> Rx) {
        let rx = std::mem::replace(&mut self.rx, null::silent_rx());
        self.rx = edit(rx);
    }

    /// Replaces the sink by the result of `edit`, which also gets the sink's statistics.
    pub fn edit_tx(&mut self, edit: impl FnOnce(Tx, Arc<QueuePairStats>) -> Tx) {
        // The new sink is wrapped by the coalescer again, so that it gets the coalesced frames.
        let tx = std::mem::replace(&mut self.tx, null::swallowing_tx());
        self.tx = edit(unwrap_tx(tx), self.tx_stats.clone());
        self.wrap_coalescer();
    }

    /// Statistics of the lane's page pool: the pool of the disciplines, otherwise the pool between
    /// system-call queues. `None` if the lane has neither.
    pub fn pool_stats(&mut self) -> Option<PoolStats> {
        let attached = self.egress.as_mut().and_then(Egress::pool_stats);
        attached.or_else(|| self.loan.as_ref().map(|loan| loan.pool.stats()))
    }

    /// Sets the behaviour while the sink is full and no discipline is attached. Fails if the memory
    /// for dropped frames cannot be created.
    pub fn set_full(&mut self, full: Full) -> Result<(), LaneError> {
        if full == Full::Drop && self.loan.is_none() && matches!(self.rx, Rx::Syscall(_)) {
            // A frame that is to be dropped must be received into some memory.
            self.loan = Some(Loan::new(self.room, None)?);
            self.show_pool();
        }
        self.full = full;
        Ok(())
    }

    /// True if disciplines are attached.
    pub(crate) fn has_disciplines(&self) -> bool {
        self.egress.is_some()
    }

    /// Receives from the source again.
    pub(crate) fn open_source(&mut self) {
        self.closing = None;
    }

    /// Stops receiving from the source. The lane may leave when it is drained. With shared
    /// disciplines, no other lane of the group may still add frames.
    pub(crate) fn close_source(&mut self, closing: Closing) {
        self.closing = Some(closing);
    }

    /// Discards the progress of a partly sent frame of a source that was replaced, because the new
    /// source does not contain that frame. A partly sent frame in disciplines or in a program's
    /// pages continues.
    pub(crate) fn forget_partial(&mut self) {
        let stays = !self.partial_in_source() || self.hooks.hold_a_frame();
        if let (Rx::Owning(_), Some(hand), false) = (&self.rx, &self.finishing, stays) {
            hand.give_up();
        }
    }

    /// True if the lane can leave its worker: no frame is partly sent or waits in the lane or its
    /// programs. A closing lane must also have empty disciplines; if they are shared, its group
    /// must be done.
    pub(crate) fn is_settled(&mut self) -> bool {
        let begun = self.finishing.as_ref().is_some_and(|hand| !hand.is_empty());
        let late = self.others_still_open();
        let waits = self.closing.is_some() && self.waiting() > 0;
        !(begun || self.holds_a_frame() || self.hooks.hold_a_frame() || late || waits)
    }

    /// True if the lane shares disciplines, is closing, and another lane of its group may still add
    /// frames to its queue. A lane that is done itself is marked as done in the group.
    fn others_still_open(&mut self) -> bool {
        // Frames in a program's pages have not passed the disciplines yet. The completion of a
        // partly sent frame may bring more frames into such pages.
        let done = !self.hooks.hold_a_frame() && !self.partial_in_source();
        let shares = self.egress.as_ref().is_some_and(Egress::is_shared);
        self.closing.as_mut().is_some_and(|closing| !closing.check(done)) && shares
    }

    /// Holds the frames of this lane (`true`) until frames of an older lane have been sent, or
    /// releases them (`false`).
    pub(crate) fn hold(&mut self, on: bool) -> Result<(), Fault> {
        // Disciplines can hold frames for every kind of sink, so they hold the frames if attached.
        self.held = on && self.egress.is_some();
        if !on && self.egress.is_some() {
            self.fit_limit();
        }
        self.sink_held = on && !self.held && matches!(self.tx, Tx::Owning(_));
        if self.held { Ok(()) } else { self.tx.hold(on) }
    }

    /// Eventfds of this lane: one for frames that other lanes add to its disciplines, one for
    /// frames that a program reinjects.
    pub(crate) fn wakers(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let disciplines = self.egress.as_ref().and_then(Egress::waker);
        disciplines.into_iter().chain(self.hooks.waker())
    }

    /// Sink of the lane.
    pub fn tx(&mut self) -> &mut Tx {
        &mut self.tx
    }

    /// Sets the space that a stopped sink must have, as a number of largest frames; 0 counts as 1.
    pub fn set_wake_frames(&mut self, frames: u32) {
        self.wake = self.sink_room.saturating_mul(frames.max(1));
    }

    /// Moves up to a budget of frames, or up to four budgets of small frames. `now` is called only
    /// for disciplines, or when the lane stops or resumes.
    #[inline]
    pub fn poll(&mut self, now: impl Fn() -> Duration) -> Result<Polled, Fault> {
        if self.egress.is_some() {
            return self.poll_queued(now);
        }
        let mut polled = self.move_across::<false>(u32::MAX)?;
        if polled.rest == PollEnd::Empty && self.finishing.is_some() {
            self.send_kept(&mut polled)?;
        }
        if polled.rest == PollEnd::Full && self.full == Full::Drop && !self.sink_held {
            self.tail_drop(&mut polled)?;
        }
        self.rest = polled.rest;
        if (polled.rest == PollEnd::Full) != self.stopped_since.is_some() {
            self.note_stop_or_wake(polled.rest == PollEnd::Full, now());
        }
        Ok(polled)
    }

    /// Sends the frame that offload emulation kept because the sink had no space. An empty source
    /// submits nothing, so the kept frame needs its own submission.
    pub(super) fn send_kept(&mut self, polled: &mut Polled) -> Result<(), Fault> {
        if self.finishing.as_ref().is_some_and(GsoProgress::has_a_frame) {
            self.tx.submit(&Burst::new(), 0)?;
            self.tx.flush()?;
            if self.holds_a_frame() {
                polled.rest = PollEnd::Full;
            }
        }
        Ok(())
    }

    #[cold]
    fn note_stop_or_wake(&mut self, stopped: bool, now: Duration) {
        let stats = &self.tx_stats.tx;
        match self.stopped_since.take() {
            None if stopped => {
                stats.stops.add(1);
                stats.stopped_since_ns.set(now.as_nanos() as u64);
                self.stopped_since = Some(now);
            }
            None => {}
            Some(since) => {
                stats.wakes.add(1);
                stats.stopped_since_ns.set(0);
                stats.stopped_ns.add(now.saturating_sub(since).as_nanos() as u64);
            }
        }
    }

    /// Arms the queue that ended the last poll, so that it wakes the worker. Returns `MoreWork` if
    /// the lane must be polled again.
    pub fn arm(&mut self) -> Result<Armed, Fault> {
        if self.egress.is_some() {
            return self.arm_queued();
        }
        match self.rest {
            PollEnd::Budget => Ok(Armed::MoreWork),
            PollEnd::Empty => self.rx.queue().arm(self.room),
            PollEnd::Full => {
                let need = self.needs();
                self.tx.queue().arm(need)
            }
        }
    }

    /// Space in bytes that the sink must have before the lane continues: the wake threshold. With
    /// the default threshold and a batch for small frames, the length of the first frame that waits
    /// in the batch suffices.
    fn needs(&self) -> u32 {
        let small = self.batch.as_ref().filter(|batch| batch.is_for_small());
        let first = small.and_then(Batch::needs).filter(|_| self.wake == self.sink_room);
        first.unwrap_or(self.wake)
    }

    /// Both queues, for the registration of their events.
    pub fn queues(&mut self) -> (&mut Rx, &mut Tx) {
        (&mut self.rx, &mut self.tx)
    }

    /// Parks both queues. A stop in progress ends here; otherwise its time would not be counted.
    pub fn park(&mut self, now: Duration) {
        self.closing = None;
        self.rest = PollEnd::Empty;
        self.sink_full = false;
        self.rx.queue().park();
        self.tx.queue().park();
        self.note_stop_or_wake(false, now);
    }

    /// Closes the lane and returns its queues. Frames that wait in the lane are dropped and
    /// counted.
    pub fn into_queues(mut self, now: Duration) -> (Rx, Tx) {
        self.park(now);
        if let Some(egress) = self.egress.take() {
            let stats = &self.tx_stats.tx;
            egress.close(&Call { channel: self.id.channel, now: now.as_nanos() as u64, stats });
        }
        self.drop_batch(DropReason::LinkClosed);
        if let Some(Loan { mut pool, held, .. }) = self.loan.take() {
            if let Some((page, _)) = held {
                pool.free(page);
                self.tx_stats.tx.drops.count(DropReason::LinkClosed, 1);
            }
            let open = pool.close();
            debug_assert!(open.is_ok(), "pages in flight after a lane was closed");
        }
        (self.rx, self.tx)
    }
}

#[cfg(test)]
mod tests;
