//! TX queue: frames to the interface.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mqnet_netdev::{
    Armed, Burst, DropReason, Fault, Fill, Frame, FrameMeta, OwningTx, Queue, QueuePairStats,
    WakeSource,
};
use mqnet_shmem::{Scatter, Segments, Span};
use mqnet_sysio::epoll::Interest;

use crate::cell::{Cell, EpollSet, Lease, waking, watching};
use crate::pages::CHUNK;
use crate::side::{ForeignChunk, TxSide};

/// Smallest frame length of an interface (`ETH_HLEN`).
const FRAME_MIN: u32 = 14;

/// Largest number of consecutive wakeup calls without progress; the wakeup is repeated later.
const TRIES: u32 = 16;

/// TX queue over one queue of the interface.
#[derive(Debug)]
pub(crate) struct NicTx {
    channel: u16,
    frame_max: u32,
    lease: Lease<TxSide>,
    epoll_set: EpollSet,
    /// True while frames of an older queue must be sent first; this queue then sends nothing.
    held: bool,
    /// Number of chunks of the last reservation: the last of `free`, in ascending order.
    reserved: usize,
    scatter: Scatter,
    stats: Arc<QueuePairStats>,
}

/// Number of chunks of a frame.
#[inline]
fn chunks_of(len: u32) -> usize {
    len.max(1).div_ceil(CHUNK) as usize
}

#[cold]
fn foreign_chunk(channel: u16, e: &ForeignChunk) -> Fault {
    Fault { channel, what: format!("the kernel completed {:#x}, which was not submitted", e.0) }
}

/// Result of a failed wakeup: no fault if the driver is busy, because it then polls its rings
/// anyway.
fn passing(channel: u16, e: &io::Error) -> Result<(), Fault> {
    match e.raw_os_error() {
        Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => Ok(()),
        _ => Err(waking(channel, e)),
    }
}

/// Copies a frame into chunks and adds them to the ring; both must have enough space.
fn copy_frame(side: &mut TxSide, frame: &Frame<'_>, more: &[Span<'_>]) {
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
                // The length of a frame equals that of its segments; a shorter frame would end
                // here.
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
    /// Creates a queue over this cell, for frames of up to `frame_max` bytes.
    pub(crate) fn new(
        channel: u16,
        cell: Arc<Cell<TxSide>>,
        frame_max: u32,
        stats: Arc<QueuePairStats>,
    ) -> io::Result<Self> {
        let epoll_set = EpollSet::new(Interest::WritableEdge)?;
        let (lease, scatter) = (Lease::new(cell, &epoll_set)?, Scatter::default());
        Ok(Self { channel, frame_max, lease, epoll_set, held: false, reserved: 0, scatter, stats })
    }

    /// Side of the socket; `None` if another queue has it, or this queue is held.
    #[inline]
    fn open(&mut self) -> Option<&mut TxSide> {
        // Leave the side to the older queue, because frames of that queue go first.
        if self.held { None } else { self.lease.take() }
    }

    /// Drop reason of a frame that can never be sent; `None` for other frames.
    #[inline]
    fn refusal(&self, len: u32) -> Option<DropReason> {
        if len > self.frame_max {
            return Some(DropReason::TooLong);
        }
        (len < FRAME_MIN).then_some(DropReason::Refused)
    }

    /// Publishes the ring, and repeats the wakeup until a call succeeds, no wakeup is needed, or
    /// [`TRIES`] calls made no progress.
    fn kick(&mut self) -> Result<(), Fault> {
        let Self { lease, channel, stats, .. } = self;
        let Some(side) = lease.side() else { return Ok(()) };
        if !side.tx.publish() && !side.xsk.is_stuck.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (mut waiting, mut tries) = (side.tx.waiting(), 0);
        let mut is_stuck = false;
        while waiting > 0 && side.tx.needs_wakeup() {
            stats.tx.kicks.add(1);
            stats.tx.syscalls.add(1);
            match side.xsk.socket.wake_tx() {
                // The kernel has consumed the entries, or the driver will.
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
    /// Watches the socket before the last check for space, so that the next wait reports any
    /// later completion.
    fn arm(&mut self, need: u32) -> Result<Armed, Fault> {
        self.stats.tx.arms.add(1);
        if self.held {
            // Poll a held queue, because the release of the hold may not wake the lane.
            return Ok(Armed::MoreWork);
        }
        self.kick()?;
        let channel = self.channel;
        self.open();
        self.lease.watch(&self.epoll_set).map_err(|e| watching(channel, &e))?;
        let Some(side) = self.lease.side() else { return Ok(Armed::Sleep) };
        side.reclaim().map_err(|e| foreign_chunk(channel, &e))?;
        // Limit the number, because no notification reports more chunks than exist.
        let need = chunks_of(need).min(side.chunks.count().into());
        let room = side.has_room(need).map_err(|e| foreign_chunk(channel, &e))?;
        // In zero copy mode the kernel notifies when the driver consumes entries, but not when
        // chunks are completed. An empty ring therefore causes no notification.
        let sends_no_event = side.xsk.zero_copy.load(Ordering::Relaxed) && side.tx.waiting() == 0;
        if sends_no_event && !room && side.tx.needs_wakeup() {
            // The driver may process completions only after a wakeup.
            side.xsk.socket.wake_tx().or_else(|e| passing(channel, &e))?;
        }
        let again = room || sends_no_event || side.xsk.is_stuck.load(Ordering::Relaxed);
        Ok(if again { Armed::MoreWork } else { Armed::Sleep })
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        Some(self.epoll_set.event())
    }

    fn park(&mut self) {
        self.reserved = 0;
        // An error is ignored: the next owner of the side gets it again, and returns it.
        let _ = self.kick();
        self.lease.hand_back(&self.epoll_set);
    }
}

impl OwningTx for NicTx {
    fn fill(&mut self, enough: u32) -> Result<Option<Fill>, Fault> {
        let channel = self.channel;
        let Some(side) = self.open() else { return Ok(None) };
        if side.bytes > enough {
            side.reclaim().map_err(|e| foreign_chunk(channel, &e))?;
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
            let Some(side) = self.lease.side() else { break };
            match side.has_room(chunks_of(frame.len)) {
                Ok(true) => copy_frame(side, frame, burst.more(frame)),
                Ok(false) => break,
                // The caller must first release the frames that were accepted; the next submit
                // returns the error again.
                Err(_) if sent + refused > 0 => break,
                Err(e) => return Err(foreign_chunk(channel, &e)),
            }
            sent += 1;
            bytes += u64::from(frame.len);
        }
        if sent > 0 {
            self.lease.note_work(&self.epoll_set, 0);
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
        if !side.has_room(chunks).map_err(|e| foreign_chunk(channel, &e))? {
            return Ok(None);
        }
        self.reserved = chunks;
        let Self { lease, scatter, .. } = self;
        let Some(TxSide { free, window, .. }) = lease.side() else { return Ok(None) };
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
        let Some(side) = self.lease.side() else { return };
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
        self.lease.note_work(&self.epoll_set, 0);
        self.stats.tx.packets.add(1);
        self.stats.tx.bytes.add(u64::from(frame.len));
    }

    fn flush(&mut self) -> Result<(), Fault> {
        self.kick()?;
        // Reclaim at every flush: recently sent chunks are still in the cache, and are reused
        // first.
        let channel = self.channel;
        self.lease.side().map_or(Ok(()), TxSide::reclaim).map_err(|e| foreign_chunk(channel, &e))
    }

    fn hold(&mut self, on: bool) -> Result<(), Fault> {
        self.held = on;
        self.kick()?;
        if on {
            self.park();
        }
        Ok(())
    }

    /// True if the kernel has consumed all frames. Completions are not awaited, because they depend
    /// on the speed of the network.
    fn is_drained(&mut self) -> Result<bool, Fault> {
        // Take the side, because parked lanes have left it in its cell.
        self.lease.take();
        let pushed = self.kick();
        let drained = self.lease.side().is_none_or(|side| side.tx.waiting() == 0);
        self.lease.hand_back(&self.epoll_set);
        pushed.map(|()| drained)
    }
}

impl Drop for NicTx {
    fn drop(&mut self) {
        self.park();
    }
}
