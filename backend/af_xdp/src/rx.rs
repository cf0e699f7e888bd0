//! RX queue: frames from the interface.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrayvec::ArrayVec;
use mqnet_netdev::limits::{BURST_BYTES, BURST_FRAMES, BURST_MORE_PIECES, FRAME_PIECES_MAX};
use mqnet_netdev::{
    Armed, Burst, DetachedFragment, DetachedFrame, DropReason, Fault, OwningRx, Queue,
    QueuePairStats, WakeSource,
};
use mqnet_pktbuf::Returner;
use mqnet_shmem::Span;
use mqnet_sysio::epoll::Interest;
use mqnet_wire::VnetHdr;

use crate::cell::{Cell, EpollSet, Lease, waking, watching};
use crate::side::RxSide;

/// Number of polls with work after which a socket is no longer watched. A lane that sleeps
/// between frames therefore does not add the socket again each time.
const PATIENCE: u32 = 32;

/// Poll hold-off. The kernel publishes each frame separately, and an immediate poll contends for
/// the cache line of its index; see book/src/measurements/findings.md.
const GATHER: Duration = Duration::from_micros(2);

/// Largest number of chunks of one burst.
const BURST_CHUNKS: usize = BURST_FRAMES + BURST_MORE_PIECES;

/// Frame that the last peek returned.
#[derive(Clone, Copy, Debug)]
struct Peeked {
    chunks: u16,
    len: u32,
}

/// Segments of a frame: chunk, offset, length.
type Pieces = ArrayVec<(u16, u32, u32), FRAME_PIECES_MAX>;

/// RX queue over one or more queues of the interface. Each peek returns frames of one such queue.
#[derive(Debug)]
pub(crate) struct NicRx {
    channel: u16,
    frame_max: u32,
    leases: Vec<Lease<RxSide>>,
    /// Index of the queue that is polled next.
    current: usize,
    epoll_set: EpollSet,
    peeked: ArrayVec<Peeked, BURST_FRAMES>,
    /// Chunks of the peeked frames.
    chunks: ArrayVec<u16, BURST_CHUNKS>,
    /// True if the last peek ended at a frame longer than `frame_max`.
    is_long: bool,
    /// True if the last peek returned all frames in the ring.
    is_all: bool,
    stats: Arc<QueuePairStats>,
}

/// Error for a frame with too many segments, or with segments outside of the queue's chunks.
#[derive(Debug)]
struct InvalidFrame;

impl InvalidFrame {
    #[cold]
    fn fault(&self, channel: u16) -> Fault {
        Fault { channel, what: "the kernel returned an address outside the UMEM".to_owned() }
    }
}

/// Finds the frame that begins `ahead` entries after the next one, among `there` entries. Stores
/// its segments and returns its length; `None` if the frame is incomplete.
#[inline]
fn find(
    side: &RxSide,
    mut ahead: u32,
    there: u32,
    pieces: &mut Pieces,
) -> Result<Option<u32>, InvalidFrame> {
    pieces.clear();
    let mut len = 0;
    while ahead < there {
        let desc = side.desc(ahead);
        let (number, offset) = side.chunks.find(desc.address).ok_or(InvalidFrame)?;
        side.piece(number, offset, desc.len).ok_or(InvalidFrame)?;
        pieces.try_push((number, offset, desc.len)).map_err(|_| InvalidFrame)?;
        len += desc.len;
        if !desc.continues {
            return Ok(Some(len));
        }
        ahead += 1;
    }
    Ok(None)
}

/// Appends a frame to a burst; false if the burst has no space for its segments.
fn push<'a>(burst: &mut Burst<'a>, side: &'a RxSide, pieces: &Pieces, len: u32) -> bool {
    // `find` has checked each segment.
    let span = |&(number, offset, len): &(u16, u32, u32)| {
        side.piece(number, offset, len).unwrap_or(Span::EMPTY)
    };
    let Some((head, more)) = pieces.split_first() else { return true };
    if more.is_empty() {
        burst.push(VnetHdr::default(), len, span(head));
        return true;
    }
    let more: ArrayVec<Span<'a>, FRAME_PIECES_MAX> = more.iter().map(span).collect();
    burst.push_pieces(VnetHdr::default(), len, span(head), &more)
}

/// Consumes the next frame, which was peeked, and detaches its pages. `Err` if the entries no
/// longer equal the peeked frame.
fn take_out(side: &mut RxSide, frame: Peeked) -> Result<DetachedFrame, InvalidFrame> {
    let mut pieces = Pieces::new();
    let len = find(side, 0, frame.chunks.into(), &mut pieces)?;
    // The frame must equal the peeked one, with no detached pages.
    if len != Some(frame.len) || !pieces.iter().all(|piece| side.pages.has(piece.0)) {
        return Err(InvalidFrame);
    }
    let mut all = pieces.iter().filter_map(|&(number, offset, len)| {
        Some(DetachedFragment::new(side.pages.keep(number)?, offset, len))
    });
    let head = all.next().ok_or(InvalidFrame)?;
    let kept = DetachedFrame { hdr: VnetHdr::default(), head, more: all.collect() };
    side.rx.take(frame.chunks.into());
    Ok(kept)
}

impl NicRx {
    /// Creates a queue over these cells, for frames of up to `frame_max` bytes.
    pub(crate) fn new(
        channel: u16,
        cells: impl IntoIterator<Item = Arc<Cell<RxSide>>>,
        frame_max: u32,
        stats: Arc<QueuePairStats>,
    ) -> io::Result<Self> {
        let epoll_set = EpollSet::new(Interest::ReadableEdge)?;
        let leases = cells.into_iter().map(|cell| Lease::new(cell, &epoll_set));
        let leases = leases.collect::<io::Result<_>>()?;
        let (peeked, chunks) = (ArrayVec::new(), ArrayVec::new());
        let (current, is_long, is_all) = (0, false, false);
        Ok(Self {
            channel,
            frame_max,
            leases,
            current,
            epoll_set,
            peeked,
            chunks,
            is_long,
            is_all,
            stats,
        })
    }

    /// Selects the next queue with entries, from the current queue on. Returns the number of
    /// entries; 0 if no queue has any.
    #[inline]
    fn find_work(&mut self) -> u32 {
        for _ in 0..self.leases.len() {
            let lease = &mut self.leases[self.current];
            let there = lease.take().map_or(0, |side| {
                if !side.pages.is_whole() {
                    // An error is ignored: `arm` repeats the call and returns the error before
                    // the lane sleeps.
                    let _ = restock(self.channel, side, &self.stats);
                }
                side.rx.available(BURST_FRAMES as u32)
            });
            if there > 0 {
                lease.note_work(&self.epoll_set, PATIENCE);
                return there;
            }
            self.advance();
        }
        0
    }

    /// Selects the next queue.
    #[inline]
    fn advance(&mut self) {
        self.current = if self.current + 1 >= self.leases.len() { 0 } else { self.current + 1 };
    }

    /// Drops leading frames longer than `frame_max`, up to `budget`; returns the number of
    /// remaining entries.
    #[cold]
    fn drop_long(&mut self, mut there: u32, budget: usize) -> Result<u32, Fault> {
        self.is_long = false;
        let Self { leases, current, frame_max, stats, channel, .. } = self;
        let Some(side) = leases[*current].side() else { return Ok(0) };
        let mut dropped = 0;
        let mut pieces = Pieces::new();
        while let Some(len) = find(side, 0, there, &mut pieces).map_err(|e| e.fault(*channel))? {
            if len <= *frame_max || dropped == budget {
                break;
            }
            stats.rx.packets.add(1);
            stats.rx.bytes.add(len.into());
            stats.rx.drops.count(DropReason::TooLong, 1);
            pieces.iter().for_each(|piece| side.give_back(piece.0));
            side.rx.take(pieces.len() as u32);
            there -= pieces.len() as u32;
            dropped += 1;
        }
        refill(*channel, side, stats)?;
        Ok(there)
    }
}

/// Publishes released chunks to the kernel, and wakes the driver if required.
#[inline]
fn refill(channel: u16, side: &mut RxSide, stats: &QueuePairStats) -> Result<(), Fault> {
    if side.refill() {
        stats.rx.kicks.add(1);
        stats.rx.syscalls.add(1);
        side.xsk.socket.wake_rx().or_else(|e| outcome(channel, e))?;
    }
    Ok(())
}

/// Publishes returned pages to the kernel.
#[cold]
fn restock(channel: u16, side: &mut RxSide, stats: &QueuePairStats) -> Result<(), Fault> {
    side.restock();
    refill(channel, side, stats)
}

/// Result of a failed wakeup: no fault if the driver is busy, because it then polls its rings
/// anyway, or if the kernel has no such call.
#[cold]
fn outcome(channel: u16, e: io::Error) -> Result<(), Fault> {
    match e.raw_os_error() {
        Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR | libc::EOPNOTSUPP) => Ok(()),
        _ => Err(waking(channel, &e)),
    }
}

impl Queue for NicRx {
    /// Watches the sockets before the last check for entries, so that the next wait reports any
    /// later frame.
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        self.stats.rx.arms.add(1);
        let mut armed = Armed::Sleep;
        for lease in &mut self.leases {
            lease.take();
            lease.watch(&self.epoll_set).map_err(|e| watching(self.channel, &e))?;
            let Some(side) = lease.side() else { continue };
            if side.xsk.is_stuck.swap(false, Ordering::Relaxed) {
                // Retry the wakeup for the remaining TX entries, because the TX lane sleeps.
                armed = Armed::MoreWork;
                if let Err(e) = side.xsk.socket.wake_tx() {
                    side.xsk.is_stuck.store(true, Ordering::Relaxed);
                    outcome(self.channel, e)?;
                }
            }
            if !side.pages.is_whole() {
                restock(self.channel, side, &self.stats)?;
            }
            // A driver that lacks chunks may have set the flag after the last check.
            if side.fill_needs_wakeup() {
                side.xsk.socket.wake_rx().or_else(|e| outcome(self.channel, e))?;
            }
            if side.rx.available(1) > 0 {
                armed = Armed::MoreWork;
            }
        }
        Ok(armed)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        Some(self.epoll_set.event())
    }

    /// Hold-off before the next poll; zero if the channel has several queues, or if more frames are
    /// in the ring.
    fn hold_off(&self) -> Duration {
        if self.is_all && self.leases.len() == 1 { GATHER } else { Duration::ZERO }
    }

    fn park(&mut self) {
        self.peeked.clear();
        self.chunks.clear();
        for lease in &mut self.leases {
            lease.hand_back(&self.epoll_set);
        }
    }
}

impl OwningRx for NicRx {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        self.peeked.clear();
        self.chunks.clear();
        self.is_all = false;
        let there = self.find_work();
        if there == 0 {
            return Ok(());
        }
        let there = if self.is_long { self.drop_long(there, budget)? } else { there };
        let Self { leases, current, peeked, chunks, is_long, is_all, channel, frame_max, .. } =
            self;
        let Some(side) = leases[*current].side() else { return Ok(()) };
        let side: &RxSide = side;
        let (mut ahead, mut bytes, mut pieces) = (0, 0, Pieces::new());
        while peeked.len() < budget.min(BURST_FRAMES) && bytes < BURST_BYTES {
            let len = match find(side, ahead, there, &mut pieces) {
                Ok(Some(len)) => len,
                Ok(None) => break,
                // Return the frames before an invalid one first.
                Err(_) if !peeked.is_empty() => break,
                Err(broken) => return Err(broken.fault(*channel)),
            };
            *is_long = len > *frame_max;
            if *is_long || !push(burst, side, &pieces, len) {
                break;
            }
            peeked.push(Peeked { chunks: pieces.len() as u16, len });
            chunks.extend(pieces.iter().map(|piece| piece.0));
            ahead += pieces.len() as u32;
            bytes += len as usize;
        }
        *is_all = ahead == there;
        Ok(())
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        if frames == 0 {
            return Ok(());
        }
        let Self { leases, current, peeked, chunks, channel, stats, .. } = self;
        let Some(side) = leases[*current].side() else { return Ok(()) };
        let (mut bytes, mut used) = (0, 0);
        for frame in &peeked[..frames] {
            bytes += u64::from(frame.len);
            used += usize::from(frame.chunks);
        }
        chunks[..used].iter().for_each(|&number| side.give_back(number));
        side.rx.take(used as u32);
        stats.rx.packets.add(frames as u64);
        stats.rx.bytes.add(bytes);
        refill(*channel, side, stats)?;
        // After a partial release, stay at this queue: the next peek begins with the other frames.
        if frames == self.peeked.len() {
            self.advance();
            self.peeked.clear();
            self.chunks.clear();
        } else {
            self.peeked.drain(..frames);
            self.chunks.drain(..used);
        }
        Ok(())
    }

    /// Detaches the next frame. `None` if no frame was peeked, half of the chunks are detached, or
    /// the channel has several queues.
    fn detach(&mut self) -> Result<Option<DetachedFrame>, Fault> {
        let Self { leases, peeked, chunks, channel, stats, .. } = self;
        // Detached memory returns to one pool, so a channel with several queues detaches nothing.
        let ([lease], Some(&first)) = (&mut leases[..], peeked.first()) else { return Ok(None) };
        let Some(side) = lease.side() else { return Ok(None) };
        let count = usize::from(first.chunks);
        if !side.pages.can_spare(count) {
            restock(*channel, side, stats)?;
            if !side.pages.can_spare(count) {
                return Ok(None);
            }
        }
        let kept = take_out(side, first).map_err(|e| e.fault(*channel))?;
        peeked.remove(0);
        chunks.drain(..count);
        stats.rx.packets.add(1);
        stats.rx.bytes.add(first.len.into());
        Ok(Some(kept))
    }

    fn returner(&mut self) -> Option<Returner> {
        let [lease] = &mut self.leases[..] else { return None };
        lease.take().and_then(|side| side.pages.returner())
    }
}

impl Drop for NicRx {
    fn drop(&mut self) {
        self.park();
    }
}
