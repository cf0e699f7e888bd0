//! Conversion of used buffers into frames of a burst.
//!
//! The usual frame is complete and in one buffer, and takes one iteration of a short loop.
//! Functions that are not inlined handle all other frames.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use arrayvec::ArrayVec;
use mqnet_netdev::limits::{BURST_BYTES, BURST_FRAMES, BURST_MORE_PIECES};
use mqnet_netdev::{Burst, DropReason, Offloads, QueuePairStats};
use mqnet_pktbuf::ArenaView;
use mqnet_shmem::{Region, Span};
use mqnet_virtio::Broken;
use mqnet_virtio::driver::{DriverQueue, UsedBuffer};
use mqnet_virtio::net::HDR_LEN;
use mqnet_virtio::rxbuf::sizes::Average;
use mqnet_wire::offload::{UNFINISHED_HEADERS_MAX, Vouched, with_own_hdr_len};
use mqnet_wire::{Layer, VnetHdr};

use super::{Filled, Posted, Waiting};
use crate::buffers::RxBufferStats;

/// Distance in frames of the prefetch of a header and its frame. The device's CPU has just written
/// them, so each read without prefetch is a cache miss.
const AHEAD: u16 = 4;

/// Shortest frame: an Ethernet header.
const FRAME_MIN: u32 = 14;

/// Conditions for valid frames.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    mergeable: bool,
    frame_max: u32,
    /// Largest length of a frame, less the shortest length.
    spread: u32,
    /// Offloads that frames may need.
    takes: Offloads,
}

/// Header before a frame.
#[derive(Clone, Copy)]
struct Head {
    hdr: VnetHdr,
    /// Number of buffers of the frame.
    buffers: u16,
}

impl Head {
    #[inline(always)]
    fn of(raw: [u8; HDR_LEN as usize]) -> Self {
        // Read whole words, which stay in registers.
        let [a, b, c, d, e, f, g, h, rest @ ..] = raw;
        let rest = u32::from_le_bytes(rest);
        let word = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        Self { hdr: VnetHdr::unpack(word, rest as u16), buffers: (rest >> 16) as u16 }
    }
}

impl Rules {
    pub(super) fn new(mergeable: bool, frame_max: u32, takes: Offloads) -> Self {
        Self { mergeable, frame_max, spread: frame_max.saturating_sub(FRAME_MIN), takes }
    }

    /// True if a frame of `len` bytes is valid, in one buffer, and has a header that passes
    /// unchanged.
    #[inline(always)]
    fn is_usual(&self, head: &Head, len: u32) -> bool {
        // The wrapping subtraction rejects lengths below the minimum by the same comparison.
        if len.wrapping_sub(FRAME_MIN) > self.spread || self.mergeable && head.buffers != 1 {
            return false;
        }
        head.hdr.is_finished() || self.is_plain(head.hdr, len)
    }

    /// True if the header has only a partial checksum, which is valid and was negotiated.
    #[inline(never)]
    fn is_plain(&self, hdr: VnetHdr, len: u32) -> bool {
        let is_plain = !hdr.is_large() && hdr.needs_checksum() && hdr == hdr.normalised();
        is_plain && hdr.check(len).is_ok() && self.takes.covers(hdr)
    }
}

/// Parameters of a peek.
pub(super) struct Intake<'r, 'a, Q> {
    pub(super) queue: &'r mut Q,
    pub(super) stale: &'r mut Vec<u16>,
    pub(super) look: ArenaView<'a>,
    /// Device address of the first byte of the pool.
    pub(super) pool_at: u64,
    /// Memory of the pool; `pool_start` is the offset of the pool in it.
    pub(super) region: &'a Region,
    pub(super) pool_start: usize,
    pub(super) posted: &'a [Option<Posted>],
    pub(super) waiting: &'r mut ArrayVec<Waiting, BURST_FRAMES>,
    pub(super) more: &'r mut VecDeque<Filled>,
    pub(super) average: Average,
    pub(super) rules: Rules,
    pub(super) stats: &'r QueuePairStats,
    pub(super) own: &'r RxBufferStats,
}

impl<'a, Q: DriverQueue> Intake<'_, 'a, Q> {
    /// Span of `len` bytes in a buffer, from `skip` on.
    #[inline(always)]
    fn span(&self, id: u16, skip: u32, len: u32) -> Span<'a> {
        // Every used id has a buffer.
        match &self.posted[usize::from(id)] {
            Some(posted) => {
                let start = posted.at.wrapping_sub(self.pool_at) as usize + skip as usize;
                self.look.span_at(&posted.frag, start, len)
            }
            None => Span::EMPTY,
        }
    }

    /// Appends the unreleased frames of earlier peeks to the burst. Returns their number of
    /// bytes; `None` if the burst has no more space.
    #[inline]
    pub(super) fn show_again(&mut self, burst: &mut Burst<'a>, budget: usize) -> Option<usize> {
        if self.waiting.is_empty() { Some(0) } else { self.show_waiting(burst, budget) }
    }

    #[cold]
    #[inline(never)]
    fn show_waiting(&mut self, burst: &mut Burst<'a>, budget: usize) -> Option<usize> {
        let (mut bytes, mut others) = (0, 0);
        for frame in self.waiting.iter().take(budget) {
            if bytes >= BURST_BYTES || !self.push(burst, frame, others) {
                return None;
            }
            bytes += frame.len as usize;
            others += usize::from(frame.more);
        }
        Some(bytes)
    }

    /// Appends a frame to the burst; false if the burst has no space for its buffers. The frame's
    /// further buffers begin at position `others` of the list.
    fn push(&self, burst: &mut Burst<'a>, frame: &Waiting, others: usize) -> bool {
        let mut pieces = self.pieces(frame, others).map(|(id, skip, len)| self.span(id, skip, len));
        let head = pieces.next().unwrap_or(Span::EMPTY);
        let more: ArrayVec<Span<'a>, BURST_MORE_PIECES> = pieces.collect();
        burst.push_pieces(frame.hdr, frame.len, head, &more)
    }

    /// Appends new frames to the burst, after `bytes` bytes that are in it already.
    #[inline(always)]
    pub(super) fn take_in(
        &mut self,
        burst: &mut Burst<'a>,
        budget: usize,
        bytes: usize,
    ) -> Result<(), Broken> {
        let mut bytes = bytes;
        // Count dropped frames too, so that the loop is bounded for any device.
        for _ in self.waiting.len()..budget {
            if bytes >= BURST_BYTES {
                break;
            }
            let Some(used) = self.queue.hold_used()? else { break };
            if let Some(later) = self.queue.coming(AHEAD)
                && let Some(Some(posted)) = self.posted.get(usize::from(later))
            {
                self.look.span(&posted.frag, posted.front, 1).prefetch();
            }
            // Read the header once, because the device may change it at any time.
            let whole = self.span(used.id, 0, used.len);
            let (raw, frame) = whole.split_header().unwrap_or(([0; HDR_LEN as usize], Span::EMPTY));
            let head = Head::of(raw);
            let len = used.len.wrapping_sub(HDR_LEN);
            if !self.rules.is_usual(&head, len) {
                let Some(len) = self.take_in_unusual(burst, used, head)? else { break };
                bytes += len as usize;
                continue;
            }
            let hdr = head.hdr;
            self.average.add(len);
            self.waiting.push(Waiting { hdr, len, id: used.id, more: 0 });
            burst.push(hdr, len, frame);
            bytes += len as usize;
        }
        Ok(())
    }

    /// Handles a frame that is not usual, valid or not. Returns the number of bytes added to the
    /// burst; `None` if the burst has no space for the frame.
    #[cold]
    #[inline(never)]
    fn take_in_unusual(
        &mut self,
        burst: &mut Burst<'a>,
        head: UsedBuffer,
        raw: Head,
    ) -> Result<Option<u32>, Broken> {
        let (Head { hdr, buffers: count }, UsedBuffer { id, len: written }) = (raw, head);
        let (mut len, mut more) = (written.saturating_sub(HDR_LEN), 0);
        if written < HDR_LEN + FRAME_MIN {
            self.length_error(id, 0, len);
            return Ok(Some(0));
        }
        let before = self.more.len();
        if self.rules.mergeable && count != 1 {
            more = self.take_others(count, &mut len)?;
            if u32::from(more) + 1 != u32::from(count) {
                self.length_error(id, more, len);
                return Ok(Some(0));
            }
        }
        self.average.add(len);
        let frame = Waiting { hdr, len, id, more };
        if len > self.rules.frame_max {
            self.drop_last(id, more, len, DropReason::TooLong);
        } else if let Some(hdr) = self.admit(&frame, before) {
            let frame = Waiting { hdr, ..frame };
            self.waiting.push(frame);
            return Ok(self.push(burst, &frame, before).then_some(len));
        } else {
            self.drop_last(id, more, len, DropReason::BadHeader);
        }
        Ok(Some(0))
    }

    /// Segments of a frame: buffer id, bytes to skip, bytes of the frame. The frame's further
    /// buffers begin at position `others` of the list.
    fn pieces(
        &self,
        frame: &Waiting,
        others: usize,
    ) -> impl Iterator<Item = (u16, u32, u32)> + use<'_, Q> {
        let others = self.more.range(others..others + usize::from(frame.more));
        let first = frame.len - others.clone().map(|filled| filled.len).sum::<u32>();
        let others = others.map(|filled| (filled.id, 0, filled.len));
        std::iter::once((frame.id, HDR_LEN, first)).chain(others)
    }

    /// Normalised header of a frame. `None` if the header is invalid for the frame, or needs an
    /// offload that was not negotiated.
    fn admit(&self, frame: &Waiting, others: usize) -> Option<VnetHdr> {
        let &Waiting { hdr, len, .. } = frame;
        if hdr.is_finished() {
            return Some(hdr.normalised());
        }
        if hdr.check(len).is_err() || !self.rules.takes.covers(hdr) {
            return None;
        }
        // A device may set `DATA_VALID` only if the driver negotiated checksum offload.
        let vouched = hdr.is_vouched() && self.rules.takes.has(Offloads::CSUM);
        if !(hdr.is_large() || vouched) {
            return Some(hdr.normalised());
        }
        let mut head = [0; UNFINISHED_HEADERS_MAX];
        let mut n = 0;
        for (id, skip, len) in self.pieces(frame, others) {
            n += self.span(id, skip, len).read_header(&mut head[n..]);
        }
        let head = &head[..n];
        let vouched = vouched.then(|| Vouched::find(hdr, len, head, Layer::Ethernet)).flatten();
        let hdr = vouched.map_or(hdr.normalised(), |frame_of| {
            self.begin_checksum(frame, others, head, &frame_of)
        });
        Some(with_own_hdr_len(hdr, len, head, Layer::Ethernet))
    }

    /// Gives a frame with `DATA_VALID` a partial or complete checksum, because the device may leave
    /// the checksum field undefined. Returns the new header.
    #[cold]
    fn begin_checksum(
        &self,
        frame: &Waiting,
        others: usize,
        head: &[u8],
        vouched: &Vouched,
    ) -> VnetHdr {
        let field = vouched.field();
        self.write(frame, others, field, vouched.begun(head));
        if let Some(hdr) = vouched.unfinished() {
            return hdr;
        }
        let (mut skip, mut left) = vouched.range();
        let sums = self.pieces(frame, others).map(|(id, front, len)| {
            let part = self.span(id, front, len).skip(skip).first(left);
            skip = skip.saturating_sub(len as usize);
            left -= part.len();
            (part.sum(), part.len())
        });
        let sum = vouched.complete(sums);
        self.write(frame, others, field, sum);
        vouched.completed()
    }

    /// Writes two bytes of a frame. The frame's buffers belong to this process until they are
    /// released.
    fn write(&self, frame: &Waiting, others: usize, at: usize, bytes: [u8; 2]) {
        let (mut from, mut bytes) = (0, (at..).zip(bytes).peekable());
        for (id, skip, len) in self.pieces(frame, others) {
            let end = from + len as usize;
            while let Some((at, byte)) = bytes.next_if(|(at, _)| *at < end) {
                let Some(Some(posted)) = self.posted.get(usize::from(id)) else { return };
                let start = posted.at.wrapping_sub(self.pool_at) as usize + skip as usize;
                let at = self.pool_start + start + (at - from);
                let word = self.region.word(at & !7);
                let mut whole = word.load(Ordering::Relaxed).to_ne_bytes();
                whole[at & 7] = byte;
                word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
            }
            from = end;
        }
    }

    /// Takes the further buffers of a merged frame of `count` buffers and adds their lengths to
    /// `len`. Returns their number: 0 for more buffers than a burst accepts, less if some are not
    /// used yet.
    fn take_others(&mut self, count: u16, len: &mut u32) -> Result<u16, Broken> {
        let most = BURST_MORE_PIECES as u16 + 1;
        let wanted = if count > most { 1 } else { count };
        let mut have = 1;
        while have < wanted
            && let Some(UsedBuffer { id, len: written }) = self.queue.hold_used()?
        {
            // The sum cannot overflow: each length is at most that of a buffer.
            *len += written;
            self.more.push_back(Filled { id, len: written });
            have += 1;
        }
        Ok(have - 1)
    }

    /// Drops a frame, with the last `more` buffers of `self.more`. All its buffers pass through the
    /// pool, so that a device that returns an id twice in a row is detected.
    fn drop_last(&mut self, id: u16, more: u16, len: u32, reason: DropReason) {
        self.stale.push(id);
        for _ in 0..more {
            if let Some(filled) = self.more.pop_back() {
                self.stale.push(filled.id);
            }
        }
        let rx = &self.stats.rx;
        rx.packets.add(1);
        rx.bytes.add(len.into());
        rx.drops.count(reason, 1);
    }

    fn length_error(&mut self, id: u16, more: u16, len: u32) {
        self.own.counters.length_errors.add(1);
        self.drop_last(id, more, len, DropReason::BadHeader);
    }
}
