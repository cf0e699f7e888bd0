//! Frames from the interface: the RX half.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrayvec::ArrayVec;
use mqnet_netdev::limits::{BURST_BYTES, BURST_FRAMES, BURST_MORE_PIECES, FRAME_PIECES_MAX};
use mqnet_netdev::{
    Armed, Burst, ChannelStats, DropReason, Event, Fault, Kept, KeptPiece, Queue, RxBrings,
};
use mqnet_pktbuf::Returner;
use mqnet_shmem::Span;
use mqnet_sysio::epoll::Interest;
use mqnet_wire::VnetHdr;

use crate::cell::{Cell, Ears, Seat, waking, watching};
use crate::side::RxSide;

/// Bursts without sleep after which a socket is not listened to any more: whoever sleeps between
/// frames need not say so each time.
const PATIENCE: u32 = 32;

/// Flooded through veth pairs, who forwards had 0.93 of DPDK's frames without, 1.04 with 1 us, and
/// 1.05 to 1.06 with 2 to 32 us (docs/findings.md): the kernel tells of each frame by itself, and
/// waits for the line in which it does.
const GATHER: Duration = Duration::from_micros(2);

/// Most chunks of one burst.
const BURST_CHUNKS: usize = BURST_FRAMES + BURST_MORE_PIECES;

/// A frame of the last peek.
#[derive(Clone, Copy, Debug)]
struct Shown {
    chunks: u16,
    len: u32,
}

/// Where the pieces of a frame are: chunk, offset, length.
type Pieces = ArrayVec<(u16, u32, u32), FRAME_PIECES_MAX>;

/// What arrives at one or more queues of the interface. Each peek shows frames of one of them.
#[derive(Debug)]
pub(crate) struct NicRx {
    channel: u16,
    frame_max: u32,
    seats: Vec<Seat<RxSide>>,
    /// The one whose turn it is.
    turn: usize,
    ears: Ears,
    shown: ArrayVec<Shown, BURST_FRAMES>,
    /// Their chunks.
    chunks: ArrayVec<u16, BURST_CHUNKS>,
    /// The next frame is longer than anybody takes.
    is_long: bool,
    /// Nothing was there but what is shown.
    is_all: bool,
    stats: Arc<ChannelStats>,
}

/// A frame has more pieces than any may have, or pieces outside of our memory.
#[derive(Debug)]
struct Broken;

impl Broken {
    #[cold]
    fn fault(&self, channel: u16) -> Fault {
        Fault { channel, what: "the kernel shows memory that is not ours".to_owned() }
    }
}

/// Finds the frame that begins `ahead` entries after the next one, of which so many are there;
/// its length, or `None` when it is not all there.
#[inline]
fn find(
    side: &RxSide,
    mut ahead: u32,
    there: u32,
    pieces: &mut Pieces,
) -> Result<Option<u32>, Broken> {
    pieces.clear();
    let mut len = 0;
    while ahead < there {
        let desc = side.desc(ahead);
        let (number, offset) = side.chunks.find(desc.address).ok_or(Broken)?;
        side.piece(number, offset, desc.len).ok_or(Broken)?;
        pieces.try_push((number, offset, desc.len)).map_err(|_| Broken)?;
        len += desc.len;
        if !desc.continues {
            return Ok(Some(len));
        }
        ahead += 1;
    }
    Ok(None)
}

/// Appends a frame to a burst; false when it has more pieces than there is room for.
fn push<'a>(burst: &mut Burst<'a>, side: &'a RxSide, pieces: &Pieces, len: u32) -> bool {
    // Each was found before.
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

/// Takes the next frame, which was shown, out of the ring with its pages.
fn take_out(side: &mut RxSide, frame: Shown) -> Result<Kept, Broken> {
    let mut pieces = Pieces::new();
    let len = find(side, 0, frame.chunks.into(), &mut pieces)?;
    // Neither another frame than was shown, nor what somebody keeps.
    if len != Some(frame.len) || !pieces.iter().all(|piece| side.pages.has(piece.0)) {
        return Err(Broken);
    }
    let mut all = pieces.iter().filter_map(|&(number, offset, len)| {
        Some(KeptPiece::new(side.pages.keep(number)?, offset, len))
    });
    let head = all.next().ok_or(Broken)?;
    let kept = Kept { hdr: VnetHdr::default(), head, more: all.collect() };
    side.rx.take(frame.chunks.into());
    Ok(kept)
}

impl NicRx {
    /// Serves these cells, for frames of up to `frame_max` bytes.
    pub(crate) fn new(
        channel: u16,
        cells: impl IntoIterator<Item = Arc<Cell<RxSide>>>,
        frame_max: u32,
        stats: Arc<ChannelStats>,
    ) -> io::Result<Self> {
        let ears = Ears::new(Interest::ReadableEdge)?;
        let seats = cells.into_iter().map(|cell| Seat::new(cell, &ears));
        let seats = seats.collect::<io::Result<_>>()?;
        let (shown, chunks) = (ArrayVec::new(), ArrayVec::new());
        let (turn, is_long, is_all) = (0, false, false);
        Ok(Self { channel, frame_max, seats, turn, ears, shown, chunks, is_long, is_all, stats })
    }

    /// The next queue, from the one whose turn it is on, that has something: entries that are
    /// there.
    #[inline]
    fn find_work(&mut self) -> u32 {
        for _ in 0..self.seats.len() {
            let seat = &mut self.seats[self.turn];
            let there = seat.take().map_or(0, |side| {
                if !side.pages.is_whole() {
                    // What fails here fails again, and is told, before anybody sleeps.
                    let _ = restock(self.channel, side, &self.stats);
                }
                side.rx.available(BURST_FRAMES as u32)
            });
            if there > 0 {
                seat.worked(&self.ears, PATIENCE);
                return there;
            }
            self.pass_on();
        }
        0
    }

    /// The next queue has its turn.
    #[inline]
    fn pass_on(&mut self) {
        self.turn = if self.turn + 1 >= self.seats.len() { 0 } else { self.turn + 1 };
    }

    /// Drops the frames at the front that are longer than anybody takes; entries that are left.
    #[cold]
    fn drop_long(&mut self, mut there: u32, budget: usize) -> Result<u32, Fault> {
        self.is_long = false;
        let Self { seats, turn, frame_max, stats, channel, .. } = self;
        let Some(side) = seats[*turn].side() else { return Ok(0) };
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

/// Gives the kernel what was released.
#[inline]
fn refill(channel: u16, side: &mut RxSide, stats: &ChannelStats) -> Result<(), Fault> {
    if side.refill() {
        stats.rx.kicks.add(1);
        stats.rx.syscalls.add(1);
        side.xsk.socket.wake_rx().or_else(|e| outcome(channel, e))?;
    }
    Ok(())
}

/// Gives the kernel what was kept and is back.
#[cold]
fn restock(channel: u16, side: &mut RxSide, stats: &ChannelStats) -> Result<(), Fault> {
    side.restock();
    refill(channel, side, stats)
}

/// A driver that is busy looks at its rings anyway.
#[cold]
fn outcome(channel: u16, e: io::Error) -> Result<(), Fault> {
    match e.raw_os_error() {
        Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR | libc::EOPNOTSUPP) => Ok(()),
        _ => Err(waking(channel, &e)),
    }
}

impl Queue for NicRx {
    /// Sockets are listened to before the last look, so a frame that comes after it is reported by
    /// the next wait.
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        self.stats.rx.arms.add(1);
        let mut armed = Armed::Sleep;
        for seat in &mut self.seats {
            seat.take();
            seat.listen(&self.ears).map_err(|e| watching(self.channel, &e))?;
            let Some(side) = seat.side() else { continue };
            if side.xsk.is_stuck.swap(false, Ordering::Relaxed) {
                // Nobody else wakes up to send what the kernel could not take before.
                armed = Armed::MoreWork;
                if let Err(e) = side.xsk.socket.wake_tx() {
                    side.xsk.is_stuck.store(true, Ordering::Relaxed);
                    outcome(self.channel, e)?;
                }
            }
            if !side.pages.is_whole() {
                restock(self.channel, side, &self.stats)?;
            }
            // A driver that found no chunks may have said so after we looked last.
            if side.fill_wants_wake() {
                side.xsk.socket.wake_rx().or_else(|e| outcome(self.channel, e))?;
            }
            if side.rx.available(1) > 0 {
                armed = Armed::MoreWork;
            }
        }
        Ok(armed)
    }

    fn event(&self) -> Option<Event<'_>> {
        Some(self.ears.event())
    }

    /// Not while the next peek finds something in any case: the rest of this queue, or another's.
    fn gather(&self) -> Duration {
        if self.is_all && self.seats.len() == 1 { GATHER } else { Duration::ZERO }
    }

    fn park(&mut self) {
        self.shown.clear();
        self.chunks.clear();
        for seat in &mut self.seats {
            seat.leave(&self.ears);
        }
    }
}

impl RxBrings for NicRx {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        self.shown.clear();
        self.chunks.clear();
        self.is_all = false;
        let there = self.find_work();
        if there == 0 {
            return Ok(());
        }
        let there = if self.is_long { self.drop_long(there, budget)? } else { there };
        let Self { seats, turn, shown, chunks, is_long, is_all, channel, frame_max, .. } = self;
        let Some(side) = seats[*turn].side() else { return Ok(()) };
        let side: &RxSide = side;
        let (mut ahead, mut bytes, mut pieces) = (0, 0, Pieces::new());
        while shown.len() < budget.min(BURST_FRAMES) && bytes < BURST_BYTES {
            let len = match find(side, ahead, there, &mut pieces) {
                Ok(Some(len)) => len,
                Ok(None) => break,
                // What is shown already comes first.
                Err(_) if !shown.is_empty() => break,
                Err(broken) => return Err(broken.fault(*channel)),
            };
            *is_long = len > *frame_max;
            if *is_long || !push(burst, side, &pieces, len) {
                break;
            }
            shown.push(Shown { chunks: pieces.len() as u16, len });
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
        let Self { seats, turn, shown, chunks, channel, stats, .. } = self;
        let Some(side) = seats[*turn].side() else { return Ok(()) };
        let (mut bytes, mut used) = (0, 0);
        for frame in &shown[..frames] {
            bytes += u64::from(frame.len);
            used += usize::from(frame.chunks);
        }
        chunks[..used].iter().for_each(|&number| side.give_back(number));
        side.rx.take(used as u32);
        stats.rx.packets.add(frames as u64);
        stats.rx.bytes.add(bytes);
        refill(*channel, side, stats)?;
        // What was shown and not taken comes first in the next peek.
        if frames == self.shown.len() {
            self.pass_on();
            self.shown.clear();
            self.chunks.clear();
        } else {
            self.shown.drain(..frames);
            self.chunks.drain(..used);
        }
        Ok(())
    }

    /// Half of the chunks stay with the kernel: `None` beyond that.
    fn keep(&mut self) -> Result<Option<Kept>, Fault> {
        let Self { seats, shown, chunks, channel, stats, .. } = self;
        // Memory has one way home.
        let ([seat], Some(&first)) = (&mut seats[..], shown.first()) else { return Ok(None) };
        let Some(side) = seat.side() else { return Ok(None) };
        let count = usize::from(first.chunks);
        if !side.pages.can_spare(count) {
            restock(*channel, side, stats)?;
            if !side.pages.can_spare(count) {
                return Ok(None);
            }
        }
        let kept = take_out(side, first).map_err(|e| e.fault(*channel))?;
        shown.remove(0);
        chunks.drain(..count);
        stats.rx.packets.add(1);
        stats.rx.bytes.add(first.len.into());
        Ok(Some(kept))
    }

    fn returner(&mut self) -> Option<Returner> {
        let [seat] = &mut self.seats[..] else { return None };
        seat.take().and_then(|side| side.pages.returner())
    }
}

impl Drop for NicRx {
    fn drop(&mut self) {
        self.park();
    }
}
