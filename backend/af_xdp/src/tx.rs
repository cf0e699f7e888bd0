//! Frames to the interface: the TX half.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mqnet_netdev::{
    Armed, Burst, ChannelStats, DropReason, Event, Fault, Fill, Frame, FrameMeta, Queue, TxBrings,
};
use mqnet_shmem::{Scatter, Segments, Span};
use mqnet_sysio::epoll::Interest;

use crate::cell::{Cell, Ears, Seat, waking, watching};
use crate::side::{CHUNK, NotOurs, TxSide};

/// Shorter frames no interface takes (`ETH_HLEN`).
const FRAME_MIN: u32 = 14;

/// How often the kernel is asked to take what it has just not taken, before it is left for later.
const TRIES: u32 = 16;

/// What leaves through one queue of the interface.
#[derive(Debug)]
pub(crate) struct NicTx {
    channel: u16,
    frame_max: u32,
    seat: Seat<TxSide>,
    ears: Ears,
    /// Nothing is sent: frames of an older queue go first.
    held: bool,
    /// Chunks of the last reservation: the last ones of those that are free, in ascending order.
    reserved: usize,
    scatter: Scatter,
    stats: Arc<ChannelStats>,
}

/// Chunks of a frame.
#[inline]
fn chunks_of(len: u32) -> usize {
    len.max(1).div_ceil(CHUNK) as usize
}

#[cold]
fn not_ours(channel: u16, e: &NotOurs) -> Fault {
    Fault { channel, what: format!("the kernel gave back {:#x}, which it did not have", e.0) }
}

/// A driver that is busy looks at its rings anyway.
fn passing(channel: u16, e: &io::Error) -> Result<(), Fault> {
    match e.raw_os_error() {
        Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => Ok(()),
        _ => Err(waking(channel, e)),
    }
}

/// Puts a frame into chunks, and those into the ring. There is room.
fn place(side: &mut TxSide, frame: &Frame<'_>, more: &[Span<'_>]) {
    let mut left = frame.len;
    let mut pieces = std::iter::once(&frame.head).chain(more).copied();
    let mut piece = pieces.next().unwrap_or(Span::EMPTY);
    while left > 0 {
        let Some(number) = side.free.pop() else { return };
        let len = left.min(CHUNK);
        let mut at = 0;
        while at < len {
            let part = piece.first((len - at) as usize);
            if part.is_empty() {
                // A frame has as many bytes as it says; one that had fewer would end here.
                let Some(next) = pieces.next() else { break };
                piece = next;
                continue;
            }
            let start = u32::from(number) * CHUNK + at;
            at += side.window.write(start, part.len() as u32).head.copy_from(part) as u32;
            piece = piece.skip(part.len());
        }
        left -= len;
        side.push(number, len, left > 0);
    }
}

impl NicTx {
    /// Serves this cell, for frames of up to `frame_max` bytes.
    pub(crate) fn new(
        channel: u16,
        cell: Arc<Cell<TxSide>>,
        frame_max: u32,
        stats: Arc<ChannelStats>,
    ) -> io::Result<Self> {
        let ears = Ears::new(Interest::WritableEdge)?;
        let (seat, scatter) = (Seat::new(cell, &ears)?, Scatter::default());
        Ok(Self { channel, frame_max, seat, ears, held: false, reserved: 0, scatter, stats })
    }

    /// The side, if it is here and frames may go.
    #[inline]
    fn open(&mut self) -> Option<&mut TxSide> {
        // The lane whose frames go first needs it.
        if self.held { None } else { self.seat.take() }
    }

    /// Why a frame cannot be sent at all.
    #[inline]
    fn refusal(&self, len: u32) -> Option<DropReason> {
        if len > self.frame_max {
            return Some(DropReason::TooLong);
        }
        (len < FRAME_MIN).then_some(DropReason::Refused)
    }

    /// Shows the kernel what was placed, and wakes it until it has taken it.
    fn push_out(&mut self) -> Result<(), Fault> {
        let Self { seat, channel, stats, .. } = self;
        let Some(side) = seat.side() else { return Ok(()) };
        if !side.tx.show() && !side.xsk.is_stuck.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (mut waiting, mut tries) = (side.tx.waiting(), 0);
        let mut is_stuck = false;
        while waiting > 0 && side.tx.wants_wake() {
            stats.tx.kicks.add(1);
            stats.tx.syscalls.add(1);
            match side.xsk.socket.wake_tx() {
                // It has taken everything, or has a driver that will.
                Ok(()) => break,
                Err(e) => passing(*channel, &e)?,
            }
            let left = side.tx.waiting();
            tries = if left < waiting { 0 } else { tries + 1 };
            waiting = left;
            if tries == TRIES {
                is_stuck = true;
                break;
            }
        }
        side.xsk.note_stuck(is_stuck);
        Ok(())
    }
}

impl Queue for NicTx {
    /// The socket is listened to before the last look: that a chunk comes back after it is
    /// reported by the next wait.
    fn arm(&mut self, need: u32) -> Result<Armed, Fault> {
        self.stats.tx.arms.add(1);
        if self.held {
            // Whoever lets go may not look for us again.
            return Ok(Armed::MoreWork);
        }
        self.push_out()?;
        let channel = self.channel;
        self.open();
        self.seat.listen(&self.ears).map_err(|e| watching(channel, &e))?;
        let Some(side) = self.seat.side() else { return Ok(Armed::Sleep) };
        side.reclaim().map_err(|e| not_ours(channel, &e))?;
        // Nobody would ever tell of more than all of them.
        let need = chunks_of(need).min(side.chunks.count().into());
        let room = side.has_room(need).map_err(|e| not_ours(channel, &e))?;
        // A driver that moves frames itself tells of entries that it takes out of the ring, and not
        // of chunks that come back: of those nobody would hear.
        let untold = side.xsk.zero_copy.load(Ordering::Relaxed) && side.tx.waiting() == 0;
        if untold && !room && side.tx.wants_wake() {
            // It may look at what it has sent only when it is asked to.
            side.xsk.socket.wake_tx().or_else(|e| passing(channel, &e))?;
        }
        let again = room || untold || side.xsk.is_stuck.load(Ordering::Relaxed);
        Ok(if again { Armed::MoreWork } else { Armed::Sleep })
    }

    fn event(&self) -> Option<Event<'_>> {
        Some(self.ears.event())
    }

    fn park(&mut self) {
        self.reserved = 0;
        // What fails here fails again, and is told, where the next owner sends.
        let _ = self.push_out();
        self.seat.leave(&self.ears);
    }
}

impl TxBrings for NicTx {
    fn fill(&mut self, enough: u32) -> Result<Option<Fill>, Fault> {
        let channel = self.channel;
        let Some(side) = self.open() else { return Ok(None) };
        if side.bytes > enough {
            side.reclaim().map_err(|e| not_ours(channel, &e))?;
        }
        Ok(Some(Fill { used: side.bytes, size: side.window.len() }))
    }

    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        let (channel, mut sent, mut bytes, mut refused) = (self.channel, 0, 0, 0);
        if self.open().is_none() {
            return Ok(0);
        }
        for frame in &burst.frames()[from..] {
            if let Some(reason) = self.refusal(frame.len) {
                self.stats.tx.drops.count(reason, 1);
                refused += 1;
                continue;
            }
            let Some(side) = self.seat.side() else { break };
            match side.has_room(chunks_of(frame.len)) {
                Ok(true) => place(side, frame, burst.more(frame)),
                Ok(false) => break,
                // What was taken before must be released by the caller: the next submit tells.
                Err(_) if sent + refused > 0 => break,
                Err(e) => return Err(not_ours(channel, &e)),
            }
            sent += 1;
            bytes += u64::from(frame.len);
        }
        if sent > 0 {
            self.seat.worked(&self.ears, 0);
        }
        let stats = &self.stats.tx;
        stats.packets.add(sent);
        stats.bytes.add(bytes);
        stats.copies.add(sent);
        Ok((sent + refused) as usize)
    }

    fn reserve(&mut self, max: u32) -> Result<Option<Segments<'_>>, Fault> {
        let (channel, chunks) = (self.channel, chunks_of(max));
        self.reserved = 0;
        let Some(side) = self.open() else { return Ok(None) };
        if !side.has_room(chunks).map_err(|e| not_ours(channel, &e))? {
            return Ok(None);
        }
        self.reserved = chunks;
        let Self { seat, scatter, .. } = self;
        let Some(TxSide { free, window, .. }) = seat.side() else { return Ok(None) };
        let first = free.len() - chunks;
        let numbers = &mut free[first..];
        numbers.sort_unstable();
        let places = numbers.iter().map(|&number| u32::from(number) * CHUNK);
        Ok(Some(scatter.room(window.rooms(places, CHUNK))))
    }

    fn commit(&mut self, frame: &FrameMeta) {
        let reserved = std::mem::take(&mut self.reserved);
        let used = chunks_of(frame.len);
        let refusal = self.refusal(frame.len);
        let Some(side) = self.seat.side() else { return };
        if let Some(reason) = refusal.or((used > reserved).then_some(DropReason::TooLong)) {
            self.stats.tx.drops.count(reason, 1);
            return;
        }
        let first = side.free.len() - reserved;
        let mut left = frame.len;
        for at in first..first + used {
            let (number, len) = (side.free[at], left.min(CHUNK));
            left -= len;
            side.push(number, len, left > 0);
        }
        side.free.drain(first..first + used);
        self.seat.worked(&self.ears, 0);
        self.stats.tx.packets.add(1);
        self.stats.tx.bytes.add(u64::from(frame.len));
    }

    fn flush(&mut self) -> Result<(), Fault> {
        self.push_out()?;
        // Chunks that have just been sent from are still in the cache, and are used first: waiting
        // until there are no others goes through all of them, some megabytes, again and again.
        let channel = self.channel;
        self.seat.side().map_or(Ok(()), TxSide::reclaim).map_err(|e| not_ours(channel, &e))
    }

    fn hold(&mut self, on: bool) -> Result<(), Fault> {
        self.held = on;
        self.push_out()?;
        if on {
            self.park();
        }
        Ok(())
    }

    /// What the kernel has taken is as good as sent: it says when it is, but to wait for a slow
    /// network helps nobody.
    fn is_drained(&mut self) -> Result<bool, Fault> {
        // It is asked of lanes that are parked: their side lies in the cell.
        self.seat.take();
        let pushed = self.push_out();
        let drained = self.seat.side().is_none_or(|side| side.tx.waiting() == 0);
        self.seat.leave(&self.ears);
        pushed.map(|()| drained)
    }
}

impl Drop for NicTx {
    fn drop(&mut self) {
        self.park();
    }
}
