//! A lane: one RX queue, one TX queue, and the four ways in which a frame crosses.

use std::sync::Arc;
use std::time::Duration;

use mqnet_netdev::limits::{BUDGET, room_for};
use mqnet_netdev::null;
use mqnet_netdev::{
    Armed, Burst, ChannelStats, Fault, FrameMeta, Recv, Rx, RxBorrows, RxBrings, Tx, TxBorrows,
    TxBrings,
};
use mqnet_pktbuf::{Page, PagePool, PoolConfig, PoolStats};
use mqnet_shmem::{Segments, SpanMut};

/// Bytes after which received frames are published early: about one large frame, so that the
/// other end works on it while we fetch the next.
const FLUSH_BYTES: u32 = 48 << 10;

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
    /// What ended it.
    pub rest: Rest,
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
pub struct LaneError(String);

/// Pages for the one shape in which neither queue brings memory.
struct Loan {
    pool: PagePool,
    /// A frame that the sink had no room for.
    held: Option<(Page, FrameMeta)>,
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
            (Rx::Borrows(_), Tx::Borrows(_)) => {
                let page_size = room.next_power_of_two().max(4096);
                let config = PoolConfig { pages: 2, page_size, ring_size: 0, node, huge: false };
                let pool = PagePool::new(&config).map_err(|e| LaneError(e.to_string()))?;
                Some(Loan { pool, held: None })
            }
            _ => None,
        };
        let (stopped_since, rest) = (None, Rest::Empty);
        Ok(Self { id, rx, tx, loan, room, wake: room, tx_stats, stopped_since, rest })
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

    /// What its page pool has done, if it has one.
    pub fn pool_stats(&self) -> Option<PoolStats> {
        self.loan.as_ref().map(|loan| loan.pool.stats())
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
        let polled = match (&mut self.rx, &mut self.tx) {
            (Rx::Borrows(rx), Tx::Brings(tx)) => receive_in_place(&mut **rx, &mut **tx, self.room),
            (Rx::Brings(rx), Tx::Brings(tx)) => copy_across(&mut **rx, &mut **tx),
            (Rx::Brings(rx), Tx::Borrows(tx)) => send_in_place(&mut **rx, &mut **tx),
            (Rx::Borrows(rx), Tx::Borrows(tx)) => match &mut self.loan {
                Some(loan) => lend_a_page(&mut **rx, &mut **tx, loan, self.room),
                None => Ok(Polled { frames: 0, rest: Rest::Empty }),
            },
        }?;
        self.rest = polled.rest;
        if (polled.rest == Rest::Full) != self.stopped_since.is_some() {
            self.note_stop_or_wake(polled.rest, now());
        }
        Ok(polled)
    }

    #[cold]
    fn note_stop_or_wake(&mut self, rest: Rest, now: Duration) {
        let stats = &self.tx_stats.tx;
        match self.stopped_since.take() {
            None if rest == Rest::Full => {
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
        self.note_stop_or_wake(Rest::Empty, now);
    }

    /// Takes the lane apart. A frame that was held for a full sink is lost; nothing else is.
    pub fn into_queues(mut self, now: Duration) -> (Rx, Tx) {
        self.park(now);
        if let Some(Loan { mut pool, held }) = self.loan.take() {
            if let Some((page, _)) = held {
                pool.free(page);
                self.tx_stats.tx.drops.count(mqnet_netdev::DropReason::LinkClosed, 1);
            }
            let open = pool.close();
            debug_assert!(open.is_ok(), "pages in flight after a lane was closed");
        }
        (self.rx, self.tx)
    }
}

/// Borrows -> brings: the system call writes straight into the sink's memory.
fn receive_in_place(
    rx: &mut dyn RxBorrows,
    tx: &mut dyn TxBrings,
    room: u32,
) -> Result<Polled, Fault> {
    let (mut frames, mut unseen) = (0, 0);
    let rest = loop {
        if frames == BUDGET {
            break Rest::Budget;
        }
        let Some(mut segments) = tx.reserve(room)? else { break Rest::Full };
        match rx.recv(&mut segments)? {
            Recv::Empty => break Rest::Empty,
            Recv::Dropped { .. } => frames += 1,
            Recv::Frame(frame) => {
                tx.commit(frame);
                frames += 1;
                unseen += frame.len;
                if unseen >= FLUSH_BYTES {
                    unseen = 0;
                    tx.flush()?;
                }
            }
        }
    };
    tx.flush()?;
    Ok(Polled { frames, rest })
}

/// Brings -> borrows: the system call reads straight from the source's memory.
fn send_in_place(rx: &mut dyn RxBrings, tx: &mut dyn TxBorrows) -> Result<Polled, Fault> {
    let (shown, frames) = {
        let mut burst = Burst::new();
        rx.peek(&mut burst, BUDGET)?;
        match burst.frames().len() {
            0 => return Ok(Polled { frames: 0, rest: Rest::Empty }),
            shown => (shown, tx.submit(&burst, 0)?),
        }
    };
    rx.release(frames)?;
    Ok(Polled { frames, rest: if frames < shown { Rest::Full } else { Rest::Budget } })
}

/// Brings -> brings: the one copy.
fn copy_across(rx: &mut dyn RxBrings, tx: &mut dyn TxBrings) -> Result<Polled, Fault> {
    let (shown, frames) = {
        let mut burst = Burst::new();
        rx.peek(&mut burst, BUDGET)?;
        match burst.frames().len() {
            0 => return Ok(Polled { frames: 0, rest: Rest::Empty }),
            shown => (shown, tx.submit(&burst, 0)?),
        }
    };
    // The sink first: its reader can begin while we return credit to the source. What it took is
    // released even if its doorbell is broken: it has been counted.
    let flushed = tx.flush();
    rx.release(frames)?;
    flushed?;
    Ok(Polled { frames, rest: if frames < shown { Rest::Full } else { Rest::Budget } })
}

/// Borrows -> borrows: a page is lent to both.
fn lend_a_page(
    rx: &mut dyn RxBorrows,
    tx: &mut dyn TxBorrows,
    loan: &mut Loan,
    room: u32,
) -> Result<Polled, Fault> {
    let mut frames = 0;
    loop {
        let (page, frame) = match loan.held.take() {
            Some(held) => held,
            None => {
                if frames == BUDGET {
                    return Ok(Polled { frames, rest: Rest::Budget });
                }
                let Some(mut page) = loan.pool.alloc() else {
                    return Ok(Polled { frames, rest: Rest::Full });
                };
                let head = loan.pool.span_mut(&mut page).split_at(room as usize).0;
                let got = rx.recv(&mut Segments { head, tail: SpanMut::empty() });
                match got {
                    Ok(Recv::Frame(frame)) => {
                        frames += 1;
                        (page, frame)
                    }
                    other => {
                        loan.pool.free(page);
                        match other? {
                            Recv::Dropped { .. } => frames += 1,
                            _ => return Ok(Polled { frames, rest: Rest::Empty }),
                        }
                        continue;
                    }
                }
            }
        };
        match submit_page(tx, &loan.pool, &page, frame) {
            Ok(true) => loan.pool.free(page),
            Ok(false) => {
                loan.held = Some((page, frame));
                return Ok(Polled { frames, rest: Rest::Full });
            }
            Err(fault) => {
                // Counted as dropped when the lane is taken apart.
                loan.held = Some((page, frame));
                return Err(fault);
            }
        }
    }
}

fn submit_page(
    tx: &mut dyn TxBorrows,
    pool: &PagePool,
    page: &Page,
    frame: FrameMeta,
) -> Result<bool, Fault> {
    let mut burst = Burst::new();
    let bytes = pool.span(page).first(frame.len as usize);
    burst.push(frame.hdr, frame.len, bytes);
    Ok(tx.submit(&burst, 0)? == 1)
}
