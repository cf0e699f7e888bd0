//! A lane: one RX queue, one TX queue, and what happens between them.

mod batch;
mod closing;
mod hooks;
mod merging;
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
use mqnet_netdev::wrap::offload::{Finish, InHand, wrap_tx};
use mqnet_netdev::{Armed, Burst, ChannelStats, DropReason, Fault, FrameMeta, Rx, Tx};
use mqnet_pktbuf::{Page, PagePool, PoolConfig, PoolStats};
use mqnet_qdisc::ByteLimit;

use crate::egress::{Call, Egress, Full};
use batch::Batch;
pub(crate) use closing::Closing;
use hooks::Hooks;
pub(crate) use hooks::{taps_off, taps_on};
pub(crate) use merging::Merges;
pub(crate) use shown::ShownPool;

/// What ended a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// The budget was used up; there may be more.
    Budget,
    /// The source is empty.
    Empty,
    /// The sink is full.
    Full,
}

/// What a poll did.
#[derive(Clone, Copy, Debug)]
pub struct Polled {
    /// Frames that left the source.
    pub frames: usize,
    /// Frames that had waited, in disciplines or beside a full sink, and were sent.
    pub sent: usize,
    /// What ended it.
    pub rest: Rest,
}

impl Polled {
    fn nothing(rest: Rest) -> Self {
        Self { frames: 0, sent: 0, rest }
    }

    /// Frames that went anywhere.
    pub fn moved(&self) -> usize {
        self.frames + self.sent
    }
}

/// Which lane, for as long as it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaneId {
    /// Which set of channels of the link; every change makes a new one.
    pub set: u32,
    /// Its channel.
    pub channel: u16,
    /// From the link's first function to its second, or back.
    pub way: Way,
}

/// Direction of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// From the first function to the second.
    Forth,
    /// From the second to the first.
    Back,
}

/// A lane could not be made.
#[derive(Debug, thiserror::Error)]
#[error("page pool of a lane: {0}")]
pub struct LaneError(pub(crate) String);

/// Pages for the one shape in which neither queue brings memory.
struct Loan {
    pool: PagePool,
    node: Option<u32>,
    /// A frame that the sink had no room for.
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

/// A lane.
pub struct Lane {
    id: LaneId,
    rx: Rx,
    tx: Tx,
    loan: Option<Loan>,
    /// Frames that are received together, to be merged or for want of room.
    batch: Option<Batch>,
    /// How small frames are merged for the sink, if they are.
    merges: Option<Merges>,
    /// For the largest frame that arrives.
    room: u32,
    /// Its sink has memory of its own, but little more than a largest frame takes: were small ones
    /// received there alone, they would have no more than is left.
    narrow: bool,
    /// For the largest that leaves: it is smaller when the others are cut.
    sink_room: u32,
    /// What is being finished for the sink, if that is needed.
    finishing: Option<InHand>,
    /// Room that a stopped sink must have before the lane goes on.
    wake: u32,
    tx_stats: Arc<ChannelStats>,
    stopped_since: Option<Duration>,
    rest: Rest,
    /// What is attached to its sink's netdev.
    egress: Option<Egress>,
    /// How much its sink may hold while something is attached.
    limit: Option<ByteLimit>,
    /// Frames waited when it was polled last.
    left_behind: bool,
    /// The byte limit ended the last poll, and frames wait in the source.
    cut_short: bool,
    /// What is attached could not send all that waits.
    sink_full: bool,
    /// When the sink is full and nothing is attached.
    full: Full,
    /// Nothing is sent through what is attached: older frames are on another lane.
    held: bool,
    /// Its sink itself is told so, as nothing is attached: it is full of what waits.
    sink_held: bool,
    /// A frame of which some segments are sent waits in what is attached, not in its source.
    begun_inside: bool,
    /// It receives nothing that may have to wait in it: it is to leave, and a lane whose sink is
    /// slower than its source would never be empty.
    closed: bool,
    /// It takes nothing more: it has only to send what waits, and what others put there.
    closing: Option<Closing>,
    /// What XDP programs have to do with it.
    hooks: Hooks,
    shown: ShownPool,
}

impl Lane {
    /// Joins two queues for frames of up to `frame_max` bytes. `tx_stats` are those of the sink's
    /// channel.
    pub fn new(
        id: LaneId,
        rx: Rx,
        tx: Tx,
        frame_max: u32,
        node: Option<u32>,
        tx_stats: Arc<ChannelStats>,
    ) -> Result<Self, LaneError> {
        let room = room_for(frame_max);
        let loan = match (&rx, &tx) {
            (Rx::Borrows(_), Tx::Borrows(_)) => Some(Loan::new(room, node)?),
            _ => None,
        };
        let little = |capacity| capacity < room.saturating_add(room / 2);
        let narrow = matches!(&tx, Tx::Brings(tx) if tx.capacity().is_some_and(little));
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
            rest: Rest::Empty,
            egress: None,
            limit: None,
            left_behind: false,
            cut_short: false,
            sink_full: false,
            full: Full::Stop,
            held: false,
            sink_held: false,
            begun_inside: false,
            closed: false,
            closing: None,
            hooks: Hooks::default(),
            shown: ShownPool::default(),
        };
        lane.fit_batch();
        lane.show_pool();
        Ok(lane)
    }

    /// The lane with what finishes frames for a sink that does not take them as they arrive; they
    /// have up to `frame_max` bytes then.
    pub fn finishing(mut self, frame_max: u32, how: Finish) -> Result<Self, LaneError> {
        (self.room, self.sink_room) = (room_for(frame_max), room_for(how.frame_max));
        self.wake = self.sink_room;
        // What a system call receives into memory of the sink could not be cut any more.
        let page = if matches!(self.rx, Rx::Borrows(_)) { self.room } else { 0 };
        let stats = self.tx_stats.clone();
        let tx = std::mem::replace(&mut self.tx, null::swallowing_tx());
        let (tx, in_hand) = wrap_tx(tx, how, stats, page);
        (self.tx, self.finishing) = (tx, Some(in_hand));
        // It receives into memory of its own.
        self.narrow = false;
        self.fit_batch();
        if let Some(loan) = &self.loan {
            self.loan = Some(Loan::new(self.room, loan.node)?);
            self.show_pool();
        }
        Ok(self)
    }

    /// It is polled next: what another CPU has written takes longer to come than another lane to be
    /// polled. See [`mqnet_netdev::Queue::prefetch`].
    #[inline]
    pub(crate) fn prefetch(&self) {
        if let Rx::Brings(rx) = &self.rx {
            rx.prefetch();
        }
    }

    /// Which lane it is.
    pub fn id(&self) -> LaneId {
        self.id
    }

    /// What ended the last poll.
    pub fn rest(&self) -> Rest {
        self.rest
    }

    /// True while it has taken a frame that its sink had no room for.
    pub fn holds_a_frame(&self) -> bool {
        let received = self.finishing.as_ref().is_some_and(InHand::has_a_frame);
        let batch = self.batch.as_ref().is_some_and(|batch| batch.waiting() > 0);
        received || batch || self.loan.as_ref().is_some_and(|loan| loan.held.is_some())
    }

    /// Puts something around its source, or takes it off.
    pub fn edit_rx(&mut self, edit: impl FnOnce(Rx) -> Rx) {
        let rx = std::mem::replace(&mut self.rx, null::silent_rx());
        self.rx = edit(rx);
    }

    /// The same with its sink, which counts in the statistics.
    pub fn edit_tx(&mut self, edit: impl FnOnce(Tx, Arc<ChannelStats>) -> Tx) {
        // Whatever it is, it sees what leaves.
        let tx = std::mem::replace(&mut self.tx, null::swallowing_tx());
        self.tx = edit(unwrap_tx(tx), self.tx_stats.clone());
        self.put_merger_on();
    }

    /// What its page pool has done, if it has one: that of what is attached, else the one for
    /// queues that bring no memory.
    pub fn pool_stats(&mut self) -> Option<PoolStats> {
        let attached = self.egress.as_mut().and_then(Egress::pool_stats);
        attached.or_else(|| self.loan.as_ref().map(|loan| loan.pool.stats()))
    }

    /// What it does when the sink is full and nothing is attached.
    pub fn set_full(&mut self, full: Full) -> Result<(), LaneError> {
        if full == Full::Drop && self.loan.is_none() && matches!(self.rx, Rx::Borrows(_)) {
            // What is dropped must be received somewhere.
            self.loan = Some(Loan::new(self.room, None)?);
            self.show_pool();
        }
        self.full = full;
        Ok(())
    }

    /// True when something is attached.
    pub(crate) fn has_disciplines(&self) -> bool {
        self.egress.is_some()
    }

    /// It takes from its source again.
    pub(crate) fn open_source(&mut self) {
        self.closing = None;
    }

    /// With disciplines it takes nothing more from its source, and may leave when it has sent what
    /// waits; with shared ones, when the others take nothing more either.
    pub(crate) fn close_source(&mut self, closing: Closing) {
        self.closing = Some(closing);
    }

    /// The source is another one than before, which will not show the frame of which some segments
    /// are sent. One that waits in what is attached, or in pages of a program, goes on.
    pub(crate) fn forget_begun(&mut self) {
        let stays = !self.begun_in_source() || self.hooks.hold_a_frame();
        if let (Rx::Brings(_), Some(hand), false) = (&self.rx, &self.finishing, stays) {
            hand.give_up();
        }
    }

    /// True when it could leave its worker without leaving a frame behind that is its own.
    pub(crate) fn is_settled(&mut self) -> bool {
        let begun = self.finishing.as_ref().is_some_and(|hand| !hand.is_empty());
        let late = self.others_are_late();
        let waits = self.closing.is_some() && self.waiting() > 0;
        !(begun || self.holds_a_frame() || self.hooks.hold_a_frame() || late || waits)
    }

    /// True while a lane that closes with this one may still put something into its queue.
    fn others_are_late(&mut self) -> bool {
        // What lies in pages of a program has yet to go through the disciplines, and to finish a
        // frame in the source may bring more of it there.
        let done = !self.hooks.hold_a_frame() && !self.begun_in_source();
        let shares = self.egress.as_ref().is_some_and(Egress::is_shared);
        self.closing.as_mut().is_some_and(|closing| !closing.look(done)) && shares
    }

    /// Keeps frames from the peer (`true`) until they may follow those of an older lane.
    pub(crate) fn hold(&mut self, on: bool) -> Result<(), Fault> {
        // What is attached gathers frames itself, and for every kind of sink.
        self.held = on && self.egress.is_some();
        if !on && self.egress.is_some() {
            self.fit_limit();
        }
        self.sink_held = on && !self.held && matches!(self.tx, Tx::Brings(_));
        if self.held { Ok(()) } else { self.tx.hold(on) }
    }

    /// Where other lanes announce frames that they have put into its disciplines, or that programs
    /// send back.
    pub(crate) fn doors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let disciplines = self.egress.as_ref().and_then(Egress::door);
        disciplines.into_iter().chain(self.hooks.door())
    }

    /// Its sink.
    pub fn tx(&mut self) -> &mut Tx {
        &mut self.tx
    }

    /// Lets a stopped lane go on only when `frames` of the largest frames fit (0: one).
    pub fn set_wake_frames(&mut self, frames: u32) {
        self.wake = self.sink_room.saturating_mul(frames.max(1));
    }

    /// Moves up to a budget of frames, or up to four of small ones. `now` is used only when the
    /// lane stops or goes on.
    #[inline]
    pub fn poll(&mut self, now: impl Fn() -> Duration) -> Result<Polled, Fault> {
        if self.egress.is_some() {
            return self.poll_queued(now);
        }
        let mut polled = self.move_across::<false>(u32::MAX)?;
        if polled.rest == Rest::Empty && self.finishing.is_some() {
            self.send_the_kept(&mut polled)?;
        }
        if polled.rest == Rest::Full && self.full == Full::Drop && !self.sink_held {
            self.drop_what_comes(&mut polled)?;
        }
        self.rest = polled.rest;
        if (polled.rest == Rest::Full) != self.stopped_since.is_some() {
            self.note_stop_or_wake(polled.rest == Rest::Full, now());
        }
        Ok(polled)
    }

    /// What finishes frames keeps one that it received when there was no room, and is not asked to
    /// send it when nothing comes from a source that has become one with memory.
    pub(super) fn send_the_kept(&mut self, polled: &mut Polled) -> Result<(), Fault> {
        if self.finishing.as_ref().is_some_and(InHand::has_a_frame) {
            self.tx.submit(&Burst::new(), 0)?;
            self.tx.flush()?;
            if self.holds_a_frame() {
                polled.rest = Rest::Full;
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

    /// Asks the queue that ended the last poll to wake the worker.
    pub fn arm(&mut self) -> Result<Armed, Fault> {
        if self.egress.is_some() {
            return self.arm_queued();
        }
        match self.rest {
            Rest::Budget => Ok(Armed::MoreWork),
            Rest::Empty => self.rx.queue().arm(self.room),
            Rest::Full => {
                let need = self.needs();
                self.tx.queue().arm(need)
            }
        }
    }

    /// Room that its sink must have before it goes on: for a largest frame, or for a smaller one
    /// that has been received already, beside it.
    fn needs(&self) -> u32 {
        let beside = self.batch.as_ref().filter(|batch| batch.is_beside());
        let first = beside.and_then(Batch::needs).filter(|_| self.wake == self.sink_room);
        first.unwrap_or(self.wake)
    }

    /// The queues, to watch their events.
    pub fn queues(&mut self) -> (&mut Rx, &mut Tx) {
        (&mut self.rx, &mut self.tx)
    }

    /// Notes that it is not polled from now on: a stop ends with its lane, or its time would
    /// never be counted.
    pub fn park(&mut self, now: Duration) {
        self.closing = None;
        self.rest = Rest::Empty;
        self.sink_full = false;
        self.rx.queue().park();
        self.tx.queue().park();
        self.note_stop_or_wake(false, now);
    }

    /// Takes the lane apart. What waits for a full sink is lost, and counted; nothing else is.
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
