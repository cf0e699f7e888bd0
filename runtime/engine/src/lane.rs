//! A lane: one RX queue, one TX queue, and what happens between them.

mod queued;
mod shapes;
mod tail_drop;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use mqnet_netdev::limits::room_for;
use mqnet_netdev::null;
use mqnet_netdev::{Armed, ChannelStats, DropReason, Fault, FrameMeta, Rx, Tx};
use mqnet_pktbuf::{Page, PagePool, PoolConfig, PoolStats};
use mqnet_qdisc::ByteLimit;

use crate::egress::{Call, Egress, Full};

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
    /// Frames that had waited in disciplines and were sent.
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
    /// A frame that the sink had no room for.
    held: Option<(Page, FrameMeta)>,
}

impl Loan {
    fn new(room: u32, node: Option<u32>) -> Result<Self, LaneError> {
        let page_size = room.next_power_of_two().max(4096);
        let config = PoolConfig { pages: 2, page_size, ring_size: 0, node, huge: false };
        let pool = PagePool::new(&config).map_err(|e| LaneError(e.to_string()))?;
        Ok(Self { pool, held: None })
    }
}

/// A lane.
pub struct Lane {
    id: LaneId,
    rx: Rx,
    tx: Tx,
    loan: Option<Loan>,
    room: u32,
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
    /// What is attached could not send all that waits.
    sink_full: bool,
    /// When the sink is full and nothing is attached.
    full: Full,
    /// Nothing is sent through what is attached: older frames are on another lane.
    held: bool,
    /// It takes nothing more: it has only to send what waits.
    source_closed: bool,
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
        Ok(Self {
            id,
            rx,
            tx,
            loan,
            room,
            wake: room,
            tx_stats,
            stopped_since: None,
            rest: Rest::Empty,
            egress: None,
            limit: None,
            left_behind: false,
            sink_full: false,
            full: Full::Stop,
            held: false,
            source_closed: false,
        })
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
        self.loan.as_ref().is_some_and(|loan| loan.held.is_some())
    }

    /// Puts something around its source, or takes it off.
    pub fn edit_rx(&mut self, edit: impl FnOnce(Rx) -> Rx) {
        let rx = std::mem::replace(&mut self.rx, null::silent_rx());
        self.rx = edit(rx);
    }

    /// The same with its sink, which counts in the statistics.
    pub fn edit_tx(&mut self, edit: impl FnOnce(Tx, Arc<ChannelStats>) -> Tx) {
        let tx = std::mem::replace(&mut self.tx, null::swallowing_tx());
        self.tx = edit(tx, self.tx_stats.clone());
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
        self.source_closed = false;
    }

    /// It takes nothing more from its source, and may leave when it has sent what waits.
    pub(crate) fn close_source(&mut self) {
        self.source_closed = true;
    }

    /// True when it could leave its worker without leaving a frame behind that is its own.
    pub(crate) fn is_settled(&mut self) -> bool {
        !(self.holds_a_frame() || self.source_closed && self.waiting() > 0)
    }

    /// Keeps frames from the peer (`true`) until they may follow those of an older lane.
    pub(crate) fn hold(&mut self, on: bool) -> Result<(), Fault> {
        // What is attached gathers frames itself, and for every kind of sink.
        self.held = on && self.egress.is_some();
        if self.held { Ok(()) } else { self.tx.hold(on) }
    }

    /// Where other lanes announce frames that they have put into its disciplines.
    pub(crate) fn door(&self) -> Option<BorrowedFd<'_>> {
        self.egress.as_ref().and_then(Egress::door)
    }

    /// Its sink.
    pub fn tx(&mut self) -> &mut Tx {
        &mut self.tx
    }

    /// Lets a stopped lane go on only when `frames` of the largest frames fit (0: one).
    pub fn set_wake_frames(&mut self, frames: u32) {
        self.wake = self.room.saturating_mul(frames.max(1));
    }

    /// Moves up to a budget of frames. `now` is used only when the lane stops or goes on.
    #[inline]
    pub fn poll(&mut self, now: impl Fn() -> Duration) -> Result<Polled, Fault> {
        if self.egress.is_some() {
            return self.poll_queued(now);
        }
        let Self { rx, tx, loan, room, .. } = self;
        let mut polled = shapes::move_across::<false>(rx, tx, loan, *room, u32::MAX)?;
        if polled.rest == Rest::Full && self.full == Full::Drop {
            self.drop_what_comes(&mut polled)?;
        }
        self.rest = polled.rest;
        if (polled.rest == Rest::Full) != self.stopped_since.is_some() {
            self.note_stop_or_wake(polled.rest == Rest::Full, now());
        }
        Ok(polled)
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
            Rest::Full => self.tx.queue().arm(self.wake),
        }
    }

    /// The queues, to watch their events.
    pub fn queues(&mut self) -> (&mut Rx, &mut Tx) {
        (&mut self.rx, &mut self.tx)
    }

    /// Notes that it is not polled from now on: a stop ends with its lane, or its time would
    /// never be counted.
    pub fn park(&mut self, now: Duration) {
        self.rest = Rest::Empty;
        self.sink_full = false;
        self.note_stop_or_wake(false, now);
    }

    /// Takes the lane apart. What waits for a full sink is lost, and counted; nothing else is.
    pub fn into_queues(mut self, now: Duration) -> (Rx, Tx) {
        self.park(now);
        if let Some(egress) = self.egress.take() {
            let stats = &self.tx_stats.tx;
            egress.close(&Call { channel: self.id.channel, now: now.as_nanos() as u64, stats });
        }
        if let Some(Loan { mut pool, held }) = self.loan.take() {
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
