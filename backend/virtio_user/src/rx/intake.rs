//! From buffers that the device has filled to frames that are shown.
//!
//! The usual frame, finished and in one buffer, takes one pass of a loop; everything else is out of
//! its way.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use arrayvec::ArrayVec;
use mqnet_netdev::limits::{BURST_BYTES, BURST_FRAMES, BURST_MORE_PIECES};
use mqnet_netdev::{Burst, ChannelStats, DropReason, Offloads};
use mqnet_pktbuf::Look;
use mqnet_shmem::{Region, Span};
use mqnet_virtio::Broken;
use mqnet_virtio::driver::{DriverQueue, Used};
use mqnet_virtio::net::HDR_LEN;
use mqnet_virtio::rxbuf::sizes::Average;
use mqnet_wire::offload::{UNFINISHED_HEADERS_MAX, Vouched, with_own_hdr_len};
use mqnet_wire::{Layer, VnetHdr};

use super::{Filled, Posted, Waiting};
use crate::buffers::RxBufferStats;

/// So many frames ahead header and frame are fetched, which the device's CPU has just written: one
/// after the other they were 70 % of the time in here.
const AHEAD: u16 = 4;

/// Shortest frame: an Ethernet header.
const FRAME_MIN: u32 = 14;

/// What frames may be.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    mergeable: bool,
    frame_max: u32,
    /// By how much a frame may be longer than the shortest one.
    spread: u32,
    /// How they may be unfinished, at most.
    takes: Offloads,
}

/// What stands in front of a frame.
#[derive(Clone, Copy)]
struct Head {
    hdr: VnetHdr,
    /// In how many buffers the frame lies.
    buffers: u16,
}

impl Head {
    #[inline(always)]
    fn of(raw: [u8; HDR_LEN as usize]) -> Self {
        // In whole words, which stay in registers.
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

    /// A sound frame of `len` bytes, in one buffer, whose header is passed on as it is.
    #[inline(always)]
    fn is_usual(&self, head: &Head, len: u32) -> bool {
        // One comparison for what is too short, too: its length is less, or below 0.
        if len.wrapping_sub(FRAME_MIN) > self.spread || self.mergeable && head.buffers != 1 {
            return false;
        }
        head.hdr.is_finished() || self.is_plain(head.hdr, len)
    }

    /// True when nothing but a checksum is missing, and nothing else is said.
    #[inline(never)]
    fn is_plain(&self, hdr: VnetHdr, len: u32) -> bool {
        let is_plain = !hdr.is_large() && hdr.needs_checksum() && hdr == hdr.normalised();
        is_plain && hdr.check(len).is_ok() && self.takes.covers(hdr)
    }
}

/// Everything that a peek works with.
pub(super) struct Intake<'r, 'a, Q> {
    pub(super) queue: &'r mut Q,
    pub(super) stale: &'r mut Vec<u16>,
    pub(super) look: Look<'a>,
    /// The address of the pool's first byte, as the device has it.
    pub(super) pool_at: u64,
    /// The pool's memory, and where in it the pool begins.
    pub(super) region: &'a Region,
    pub(super) pool_start: usize,
    pub(super) posted: &'a [Option<Posted>],
    pub(super) waiting: &'r mut ArrayVec<Waiting, BURST_FRAMES>,
    pub(super) more: &'r mut VecDeque<Filled>,
    pub(super) average: Average,
    pub(super) rules: Rules,
    pub(super) stats: &'r ChannelStats,
    pub(super) own: &'r RxBufferStats,
}

impl<'a, Q: DriverQueue> Intake<'_, 'a, Q> {
    /// `len` bytes of a buffer from `skip` on.
    #[inline(always)]
    fn span(&self, id: u16, skip: u32, len: u32) -> Span<'a> {
        // Every id that is out has its buffer.
        match &self.posted[usize::from(id)] {
            Some(posted) => {
                let start = posted.at.wrapping_sub(self.pool_at) as usize + skip as usize;
                self.look.span_at(&posted.frag, start, len)
            }
            None => Span::EMPTY,
        }
    }

    /// Shows what waits since an earlier peek; how many bytes that were, or `None` when there is no
    /// room for more.
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

    /// Shows a frame whose buffers after the first begin at number `others` of the list; false when
    /// the burst has no room for its pieces.
    fn push(&self, burst: &mut Burst<'a>, frame: &Waiting, others: usize) -> bool {
        let mut pieces = self.pieces(frame, others).map(|(id, skip, len)| self.span(id, skip, len));
        let head = pieces.next().unwrap_or(Span::EMPTY);
        let more: ArrayVec<Span<'a>, BURST_MORE_PIECES> = pieces.collect();
        burst.push_pieces(frame.hdr, frame.len, head, &more)
    }

    /// Takes in and shows what has come, behind `bytes` that are shown already.
    #[inline(always)]
    pub(super) fn take_in(
        &mut self,
        burst: &mut Burst<'a>,
        budget: usize,
        bytes: usize,
    ) -> Result<(), Broken> {
        let mut bytes = bytes;
        // What is dropped counts too: a device must not keep us here.
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
            // The device can write it at any time: the header is read once.
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

    /// Any other frame, or what is none: how many bytes of it are shown. `None`: there is no room
    /// for it.
    #[cold]
    #[inline(never)]
    fn take_in_unusual(
        &mut self,
        burst: &mut Burst<'a>,
        head: Used,
        raw: Head,
    ) -> Result<Option<u32>, Broken> {
        let (Head { hdr, buffers: count }, Used { id, len: written }) = (raw, head);
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

    /// The pieces of a frame whose buffers after the first begin at number `others` of the list:
    /// buffer, bytes to be skipped in it, bytes of the frame.
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

    /// The header of a frame as it is passed on; `None` for one that was not agreed on or does not
    /// go with its frame.
    fn admit(&self, frame: &Waiting, others: usize) -> Option<VnetHdr> {
        let &Waiting { hdr, len, .. } = frame;
        if hdr.is_finished() {
            return Some(hdr.normalised());
        }
        if hdr.check(len).is_err() || !self.rules.takes.covers(hdr) {
            return None;
        }
        // A device vouches for checksums only for a driver that lets it.
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

    /// Leaves the checksum of a frame to who takes it, as any other one that is unfinished: its
    /// field holds whatever the device left there.
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

    /// Writes two bytes of a frame, which is ours until its buffers go back to the device.
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

    /// Takes the other buffers of a merged frame of `count`, and adds their lengths; how many there
    /// were.
    fn take_others(&mut self, count: u16, len: &mut u32) -> Result<u16, Broken> {
        let most = BURST_MORE_PIECES as u16 + 1;
        let wanted = if count > most { 1 } else { count };
        let mut have = 1;
        while have < wanted
            && let Some(Used { id, len: written }) = self.queue.hold_used()?
        {
            // Each is no longer than its buffer, which is part of a page.
            *len += written;
            self.more.push_back(Filled { id, len: written });
            have += 1;
        }
        Ok(have - 1)
    }

    /// Drops a frame whose last `more` buffers came last. They go the long way, through the pool: a
    /// device that gives a buffer twice in a row is found out.
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
        self.own.length_errors.add(1);
        self.drop_last(id, more, len, DropReason::BadHeader);
    }
}
