//! Conversion of available chains to frames.

use arrayvec::ArrayVec;
use mqnet_netdev::limits::{BURST_BYTES, BURST_FRAMES, FRAME_PIECES_MAX};
use mqnet_netdev::{Burst, DropReason, Offloads, QueuePairStats};
use mqnet_shmem::{GuestMemoryView, Span, SpanMut};
use mqnet_virtio::chain::ChainHead;
use mqnet_virtio::net::HDR_LEN_HASH;
use mqnet_virtio::ring::not_memory;
use mqnet_virtio::{Broken, BufferElement, Chain, DeviceRing, Ring, on_ring};
use mqnet_wire::offload::{UNFINISHED_HEADERS_MAX, with_own_hdr_len};
use mqnet_wire::{Layer, VNET_HDR_LEN, VnetHdr};

use super::{Scratch, Shown};

/// Result of reading a chain.
enum Frame {
    Shown(u32),
    Bad(DropReason, u32),
    /// The burst has no space for the buffers of the frame.
    Later,
}

/// Parameters that are constant during a burst.
struct Rules {
    queue: u16,
    hdr_len: u32,
    frame_max: u32,
    sends: Offloads,
}

/// Number of buffers after which a burst ends, to limit its work. A guest may put the same
/// descriptors into many chains, and may send frames in so many buffers that all are dropped.
const PIECES_MOST: usize = 1024;

/// Ring and its negotiated parameters.
pub(super) struct From<'r, 'a> {
    pub(super) ring: &'r mut Ring,
    pub(super) memory: &'a GuestMemoryView,
    pub(super) hdr_len: u32,
    pub(super) sends: Offloads,
}

/// Appends frames of one ring to the burst. Invalid frames before the first valid one are dropped
/// and returned to the guest; true if the guest requested an interrupt for them.
pub(super) fn show<'a>(
    from: From<'_, 'a>,
    scratch: &'a mut Scratch,
    shown: &mut ArrayVec<Shown, BURST_FRAMES>,
    stats: &QueuePairStats,
    burst: &mut Burst<'a>,
    budget: usize,
) -> Result<bool, Broken> {
    let From { ring, memory, hdr_len, sends } = from;
    let queue = on_ring!(&*ring, ring => ring.queue());
    let rules = Rules { queue, hdr_len, frame_max: scratch.frame_max, sends };
    let call = Call { rules, shown, stats, budget };
    on_ring!(ring, ring => call.show(ring, memory, scratch, burst))
}

/// Progress during a burst.
struct Progress<P> {
    /// Position of the next chain.
    place: P,
    /// Bytes of the frames in the burst.
    bytes: usize,
    /// Number of chains that may still be examined.
    left: usize,
}

impl<P> Progress<P> {
    #[inline(always)]
    fn has_room(&self) -> bool {
        self.left > 0 && self.bytes < BURST_BYTES
    }
}

struct Call<'b> {
    rules: Rules,
    shown: &'b mut ArrayVec<Shown, BURST_FRAMES>,
    stats: &'b QueuePairStats,
    budget: usize,
}

impl Call<'_> {
    #[inline]
    fn show<'a, R: DeviceRing>(
        self,
        ring: &mut R,
        memory: &'a GuestMemoryView,
        scratch: &'a mut Scratch,
        burst: &mut Burst<'a>,
    ) -> Result<bool, Broken> {
        let Self { rules, shown, stats, budget } = self;
        let Scratch { list, bounce, .. } = scratch;
        let mut bounce = Some(bounce);
        let mut at = Progress { place: ring.place(), bytes: 0, left: budget.min(BURST_FRAMES) };
        let mut pieces = 0;
        while rules.show_usual(ring, &mut at, memory, shown, burst)? && at.has_room() {
            let Some(head) = ring.head_at(&mut at.place)? else { break };
            // Count dropped chains too, so that the budget also limits a guest that sends only
            // invalid frames.
            at.left -= 1;
            let (id, slots, frame) = if head.is_simple() {
                (head.id, 1, rules.simple(&head, memory)?)
            } else {
                list.clear();
                let chain = ring.whole_chain(&head, &mut at.place, memory.map(), list)?;
                pieces += list.len();
                let frame = rules.in_pieces(&chain, list, memory, &mut bounce, burst)?;
                (chain.id, chain.slots, frame)
            };
            let len = match frame {
                Frame::Shown(len) => len,
                Frame::Bad(reason, len) if shown.is_empty() => {
                    ring.give_back(id, slots, 0);
                    at.place = ring.place();
                    stats.rx.packets.add(1);
                    stats.rx.bytes.add(u64::from(len));
                    stats.rx.drops.count(reason, 1);
                    if pieces >= PIECES_MOST {
                        break;
                    }
                    continue;
                }
                // The next burst begins with this chain.
                Frame::Bad(..) | Frame::Later => break,
            };
            shown.push(Shown { id, slots, len });
            at.bytes += len as usize;
            if bounce.is_none() || pieces >= PIECES_MOST {
                break;
            }
        }
        Ok(ring.publish())
    }
}

impl Rules {
    #[cold]
    fn wrong_direction(&self, chain: &Chain) -> Broken {
        let (readable, all) = (chain.readable, chain.pieces());
        let what = format!("{} of {all} buffers of a TX chain are device-writable", all - readable);
        Broken { queue: self.queue, what }
    }

    /// Appends frames in one buffer, each after its header, up to the first chain of another
    /// form. True if the caller must examine that chain. False if there is no further chain, or
    /// only one that the next burst drops.
    ///
    /// Headers and small frames are in the cache of the driver's CPU. The first loop prefetches all
    /// of them, and the second loop reads them. Rejected: a single loop that prefetches four chains
    /// ahead, which reads each descriptor twice.
    #[inline(always)]
    fn show_usual<'a, R: DeviceRing>(
        &self,
        ring: &mut R,
        at: &mut Progress<R::Place>,
        memory: &'a GuestMemoryView,
        shown: &mut ArrayVec<Shown, BURST_FRAMES>,
        burst: &mut Burst<'a>,
    ) -> Result<bool, Broken> {
        let (before, first) = (shown.len(), burst.frames().len());
        let Progress { mut place, mut bytes, left } = *at;
        // The result false ends the burst. A second read could otherwise find a valid chain that
        // was made available since.
        let follows = ring.heads(&mut place, left, |head| {
            let Some((len, whole)) = self.one_piece(&head, memory) else { return false };
            if bytes >= BURST_BYTES {
                return false;
            }
            whole.prefetch();
            burst.push(VnetHdr::default(), len, whole);
            shown.push(Shown { id: head.id, slots: 1, len });
            bytes += len as usize;
            true
        })?;
        let mut sound = 0;
        for frame in &mut burst.frames_mut()[first..] {
            let Some(hdr) = self.sound_header(frame.head, frame.len) else { break };
            (frame.hdr, frame.head) = (hdr, frame.head.skip(self.hdr_len as usize));
            sound += 1;
        }
        if sound < shown.len() - before {
            burst.truncate(first + sound);
            shown.truncate(before + sound);
            // True for an invalid first frame: the caller examines its chain, and drops the frame.
            return Ok(shown.is_empty());
        }
        *at = Progress { place, bytes, left: left - sound };
        Ok(follows)
    }

    /// Length of a frame in one buffer, and the buffer with its header. `None` for a chain of
    /// another form, an invalid length, or an address outside the memory.
    #[inline(always)]
    fn one_piece<'a>(
        &self,
        head: &ChainHead,
        memory: &'a GuestMemoryView,
    ) -> Option<(u32, Span<'a>)> {
        let BufferElement { addr, len } = head.piece();
        let len_of_frame = len.wrapping_sub(self.hdr_len);
        // The wrapping subtraction rejects a buffer that is not longer than the header by the
        // same comparison.
        if !head.is_simple_readable() || len_of_frame.wrapping_sub(1) >= self.frame_max {
            return None;
        }
        Some((len_of_frame, memory.span(addr, len)?))
    }

    /// Header of a frame of `len` bytes, read once; `None` if it is invalid or uses an offload
    /// that was not negotiated.
    #[inline(always)]
    fn sound_header(&self, whole: Span<'_>, len: u32) -> Option<VnetHdr> {
        let hdr = VnetHdr::from_bytes(&whole.header()?);
        if hdr.is_finished() {
            return Some(VnetHdr::default());
        }
        self.admit(hdr, len, whole.skip(self.hdr_len as usize), &[])
    }

    /// Normalised header of a frame that needs a checksum or segmentation. `None` if the header
    /// is invalid or uses an offload that was not negotiated: the other end of the link relies on
    /// the negotiated set.
    #[inline(never)]
    fn admit(&self, hdr: VnetHdr, len: u32, first: Span<'_>, more: &[Span<'_>]) -> Option<VnetHdr> {
        if hdr.check(len).is_err() || !self.sends.covers(hdr) {
            return None;
        }
        let hdr = hdr.normalised();
        if !hdr.is_large() {
            return Some(hdr);
        }
        let mut head = [0; UNFINISHED_HEADERS_MAX];
        let mut n = first.read_header(&mut head);
        for piece in more {
            n += piece.read_header(&mut head[n..]);
        }
        Some(with_own_hdr_len(hdr, len, &head[..n], Layer::Ethernet))
    }

    /// Drop reason of a chain of one descriptor that [`show_usual`](Self::show_usual) does not
    /// accept. `Err` for a device-writable buffer, or an address outside the memory.
    #[cold]
    #[inline(never)]
    fn simple(&self, head: &ChainHead, memory: &GuestMemoryView) -> Result<Frame, Broken> {
        if head.is_writable() {
            return Err(self.wrong_direction(&Chain::single(head)));
        }
        let piece = head.piece();
        if memory.span(piece.addr, piece.len).is_none() {
            return Err(not_memory(self.queue, piece));
        }
        let len = piece.len.saturating_sub(self.hdr_len);
        let too_long = len > self.frame_max;
        let reason = if too_long { DropReason::TooLong } else { DropReason::BadHeader };
        Ok(Frame::Bad(reason, len))
    }

    /// Checks the header of a frame in these buffers, and returns it normalised; `Err` with the
    /// drop reason.
    #[inline]
    fn judge(
        &self,
        raw: &[u8; VNET_HDR_LEN],
        len: u32,
        pieces: &[Span<'_>],
    ) -> Result<VnetHdr, DropReason> {
        let hdr = VnetHdr::from_bytes(raw);
        if len > self.frame_max {
            return Err(DropReason::TooLong);
        }
        match pieces.split_first() {
            Some(_) if hdr.is_finished() => Ok(VnetHdr::default()),
            Some((first, more)) => self.admit(hdr, len, *first, more).ok_or(DropReason::BadHeader),
            None => Err(DropReason::BadHeader),
        }
    }

    /// Appends a frame in any number of buffers, split at any offset. `Err` for a device-writable
    /// buffer, or an address outside the memory.
    #[inline(never)]
    fn in_pieces<'a>(
        &self,
        chain: &Chain,
        list: &[BufferElement],
        memory: &'a GuestMemoryView,
        bounce: &mut Option<&'a mut Vec<u8>>,
        burst: &mut Burst<'a>,
    ) -> Result<Frame, Broken> {
        if !chain.is_readable() {
            return Err(self.wrong_direction(chain));
        }
        let mut raw = [0; HDR_LEN_HASH as usize];
        let raw = &mut raw[..self.hdr_len as usize];
        let (mut got, mut is_long) = (0, false);
        let mut pieces = ArrayVec::<Span<'a>, FRAME_PIECES_MAX>::new();
        for piece in std::iter::once(&chain.head).chain(chain.more(list)) {
            let span = memory.span(piece.addr, piece.len);
            let span = span.ok_or_else(|| not_memory(self.queue, *piece))?;
            let n = span.read_header(&mut raw[got..]);
            got += n;
            let span = span.skip(n);
            is_long |= !span.is_empty() && pieces.try_push(span).is_err();
        }
        let len = chain.len.saturating_sub(self.hdr_len);
        let head = raw.first_chunk().unwrap_or(&[0; VNET_HDR_LEN]);
        let hdr = match self.judge(head, len, &pieces) {
            Ok(hdr) => hdr,
            Err(reason) => return Ok(Frame::Bad(reason, len)),
        };
        if is_long {
            let Some(room) = bounce.take() else { return Ok(Frame::Later) };
            burst.push(hdr, len, self.gather(chain, list, memory, room));
            return Ok(Frame::Shown(len));
        }
        let Some((first, more)) = pieces.split_first() else {
            return Ok(Frame::Bad(DropReason::BadHeader, len));
        };
        let fits = burst.push_pieces(hdr, len, *first, more);
        Ok(if fits { Frame::Shown(len) } else { Frame::Later })
    }

    /// Copies a frame into the bounce buffer, if it has more buffers than a system call or a
    /// burst accepts. No known driver sends such frames.
    #[cold]
    fn gather<'a>(
        &self,
        chain: &Chain,
        list: &[BufferElement],
        memory: &GuestMemoryView,
        room: &'a mut Vec<u8>,
    ) -> Span<'a> {
        room.clear();
        room.resize((chain.len - self.hdr_len) as usize, 0);
        let (mut skip, mut at) = (self.hdr_len as usize, 0);
        for piece in std::iter::once(&chain.head).chain(chain.more(list)) {
            let span = memory.span(piece.addr, piece.len).unwrap_or(Span::EMPTY);
            at += SpanMut::of(&mut room[at..]).copy_from(span.skip(skip));
            skip = skip.saturating_sub(span.len());
        }
        Span::of(room)
    }
}
