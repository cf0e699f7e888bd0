//! Placement of frames in a guest's buffers.

use arrayvec::ArrayVec;
use mqnet_netdev::limits::BURST_FRAMES;
use mqnet_netdev::{Burst, Frame, FrameMeta, dhcp};
use mqnet_shmem::{GuestMemoryView, Scatter, Segments, Span, Streaming};
use mqnet_virtio::log::RingLog;
use mqnet_virtio::net::rss::Hashed;
use mqnet_virtio::net::{HDR_LEN, HDR_LEN_HASH};
use mqnet_virtio::ring::not_memory;
use mqnet_virtio::{Broken, BufferElement, Chain, DeviceRing, UsedChain, on_ring};
use mqnet_wire::offload::{Sum, UNFINISHED_HEADERS_MAX, lacks_udp_checksum};
use mqnet_wire::{VNET_HDR_LEN, VnetHdr};

use crate::vring::Vring;

/// Offset of `num_buffers` in the header.
const NUM_BUFFERS: usize = 10;

/// Result of a search for buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The chains hold a frame of the requested length.
    Enough,
    /// The chains do not hold the frame, and the guest is not expected to add buffers.
    Less,
    /// The guest has to make more buffers available.
    NotYet,
}

/// Memory of a ring, and the parameters of its frames.
pub(super) struct Buffers<'a> {
    pub(super) memory: &'a mut GuestMemoryView,
    pub(super) hdr_len: u32,
    pub(super) mergeable: bool,
    pub(super) hashed: Hashed,
    pub(super) log: &'a Option<RingLog>,
}

/// Result of placing a burst.
#[derive(Debug, Default)]
pub(super) struct Placed {
    pub(super) frames: u64,
    pub(super) bytes: u64,
    /// Number of frames that fit no chain of the guest.
    pub(super) too_long: u64,
    pub(super) broken: Option<Broken>,
}

/// Chains found for one frame. The chains stay available until they are returned as used.
#[derive(Debug, Default)]
pub(super) struct Room {
    chains: Vec<Chain>,
    list: Vec<BufferElement>,
    /// Total length of the chains.
    len: u64,
}

/// Header and payload of one frame.
struct Whole<'a, 'b> {
    hdr: [u8; HDR_LEN_HASH as usize],
    head: Span<'a>,
    more: &'b [Span<'a>],
}

impl<'a, 'b> Whole<'a, 'b> {
    #[inline]
    fn new(hdr: VnetHdr, buffers: u16, head: Span<'a>, more: &'b [Span<'a>]) -> Self {
        Self { hdr: header(hdr, buffers), head, more }
    }
}

#[inline]
fn header(hdr: VnetHdr, buffers: u16) -> [u8; HDR_LEN_HASH as usize] {
    let mut out = [0; HDR_LEN_HASH as usize];
    out[..VNET_HDR_LEN].copy_from_slice(&hdr.to_bytes());
    out[NUM_BUFFERS..VNET_HDR_LEN].copy_from_slice(&buffers.to_le_bytes());
    out
}

impl Buffers<'_> {
    /// True if frames have the short header, and there is no dirty log.
    #[inline]
    fn is_plain(&self) -> bool {
        self.hdr_len == HDR_LEN && self.log.is_none()
    }

    /// Writes a contiguous frame into a chain of one buffer, the usual case. Returns the number
    /// of bytes written; `None` in any other case, with nothing written.
    #[inline(always)]
    fn place_simply(
        &mut self,
        plain: bool,
        streaming: Option<&Streaming>,
        piece: BufferElement,
        frame: &Frame<'_>,
    ) -> Option<u32> {
        if lacks_udp_checksum(frame.hdr) && dhcp::is_unfinished(frame, &[]) {
            return None;
        }
        let lone = frame.is_one_piece();
        if !plain {
            return if lone { self.place_with_more(piece, frame, streaming) } else { None };
        }
        let whole = HDR_LEN + frame.head.len() as u32;
        let (at, hdr) = (piece.addr, frame.hdr.to_bytes());
        let placed = lone
            && piece.len >= whole
            && match streaming {
                None => self.memory.place(at, &hdr, frame.head),
                Some(streaming) => self.memory.stream(at, &hdr, frame.head, streaming),
            };
        placed.then_some(whole)
    }

    /// Writes a contiguous frame like `place_simply`, with a hash in the header or with dirty
    /// logging. `None` if the buffer is too short or outside the memory.
    #[inline(never)]
    fn place_with_more(
        &mut self,
        piece: BufferElement,
        frame: &Frame<'_>,
        streaming: Option<&Streaming>,
    ) -> Option<u32> {
        let whole = self.hdr_len + frame.head.len() as u32;
        let mut hdr = header(frame.hdr, 1);
        hdr[VNET_HDR_LEN..].copy_from_slice(&self.hashed.to_bytes());
        let mut room = self.memory.room(piece.addr, whole).filter(|_| piece.len >= whole)?;
        let n = room.write_header(&hdr[..self.hdr_len as usize]);
        room.split_at(n).1.store(frame.head, streaming);
        if let Some(ring) = self.log {
            ring.log.mark(piece.addr, whole);
        }
        Some(whole)
    }
}

#[inline]
fn check_direction(queue: u16, chain: &Chain) -> Result<(), Broken> {
    if chain.is_writable() { Ok(()) } else { Err(wrong_direction(queue, chain)) }
}

#[cold]
fn wrong_direction(queue: u16, chain: &Chain) -> Broken {
    let (readable, all) = (chain.readable, chain.pieces());
    let what = format!("{readable} of {all} buffers of an RX chain are device-readable");
    Broken { queue, what }
}

/// Chain of one buffer into which a frame is written.
struct Open {
    addr: u64,
    len: u32,
    id: u16,
}

impl Open {
    #[inline(always)]
    fn piece(&self) -> BufferElement {
        BufferElement { addr: self.addr, len: self.len }
    }
}

/// Number of frames and bytes placed by the fast path.
struct Simple {
    frames: u64,
    bytes: u64,
}

/// Places frames of a burst from number `from` on. Stops at the first frame that `place_simply`
/// does not accept, at the first chain that is not one writable buffer, and without an available
/// chain.
///
/// Buffers are in the cache of the driver's CPU, so each store would wait for its cache line. The
/// lines of the whole burst are therefore prefetched for write while the descriptors are read.
#[inline(always)]
fn place_all_simply<R: DeviceRing>(
    ring: &mut R,
    buffers: &mut Buffers<'_>,
    burst: &Burst<'_>,
    from: usize,
    streaming: Option<&Streaming>,
) -> Simple {
    let (plain, hdr_len) = (buffers.is_plain(), buffers.hdr_len);
    let frames = &burst.frames()[from..];
    let mut list: ArrayVec<Open, BURST_FRAMES> = ArrayVec::new();
    let (mut place, memory) = (ring.place(), &*buffers.memory);
    // A malformed ring ends the loop; the slow path reads the same chain again and returns the
    // error.
    let _ = ring.heads(&mut place, frames.len().min(BURST_FRAMES), |head| {
        let usual = head.is_lone_writable();
        if usual {
            let BufferElement { addr, len } = head.piece();
            memory.prefetch_for_write(addr, hdr_len.into(), streaming.is_some());
            list.push(Open { addr, len, id: head.id });
        }
        usual
    });
    let (mut placed, mut bytes) = (0, 0);
    for (open, frame) in list.iter_mut().zip(frames) {
        let Some(len) = buffers.place_simply(plain, streaming, open.piece(), frame) else { break };
        open.len = len;
        placed += 1;
        bytes += u64::from(len - hdr_len);
    }
    let used = list.iter().take(placed);
    ring.give_back_all(used.map(|open| UsedChain { id: open.id, slots: 1, len: open.len }));
    Simple { frames: placed as u64, bytes }
}

impl Room {
    pub(super) fn forget(&mut self) {
        self.chains.clear();
        self.list.clear();
        self.len = 0;
    }

    /// Places frames like `submit`, with non-temporal stores; not inlined, so that each kind of
    /// store has its own loop.
    #[inline(never)]
    pub(super) fn stream<R: DeviceRing>(
        &mut self,
        ring: &mut R,
        buffers: Buffers<'_>,
        burst: &Burst<'_>,
        from: usize,
        streaming: Streaming,
    ) -> Placed {
        self.submit(ring, buffers, burst, from, Some(&streaming))
    }

    /// Places frames of a burst, from number `from` on.
    #[inline(always)]
    pub(super) fn submit<R: DeviceRing>(
        &mut self,
        ring: &mut R,
        mut buffers: Buffers<'_>,
        burst: &Burst<'_>,
        from: usize,
        streaming: Option<&Streaming>,
    ) -> Placed {
        let (plain, hdr_len) = (buffers.is_plain(), buffers.hdr_len);
        let Simple { frames, bytes } = place_all_simply(ring, &mut buffers, burst, from, streaming);
        let mut placed = Placed { frames, bytes, ..Placed::default() };
        for frame in &burst.frames()[from + frames as usize..] {
            let head = ring.next_head();
            if let Ok(None) = head {
                break;
            }
            if let Ok(Some(head)) = head
                && head.is_lone_writable()
                && let Some(written) = buffers.place_simply(plain, streaming, head.piece(), frame)
            {
                ring.give_back(head.id, 1, written);
                placed.frames += 1;
                placed.bytes += u64::from(written - hdr_len);
                continue;
            }
            // The slow path reads the chain again, and returns an error of the ring.
            match self.place_in_pieces(ring, &mut buffers, burst, frame, streaming) {
                Ok(Found::Enough) => {
                    placed.frames += 1;
                    placed.bytes += u64::from(frame.len);
                }
                Ok(Found::Less) => placed.too_long += 1,
                Ok(Found::NotYet) => break,
                Err(what) => {
                    placed.broken = Some(what);
                    break;
                }
            }
        }
        placed
    }

    #[inline(never)]
    fn place_in_pieces<R: DeviceRing>(
        &mut self,
        ring: &mut R,
        buffers: &mut Buffers<'_>,
        burst: &Burst<'_>,
        frame: &Frame<'_>,
        streaming: Option<&Streaming>,
    ) -> Result<Found, Broken> {
        let found = self.gather(ring, buffers, frame.len)?.0;
        if found == Found::Enough {
            let count = self.chains.len() as u16;
            let more = burst.more(frame);
            let mut own = [0; UNFINISHED_HEADERS_MAX];
            let unfinished = dhcp::is_unfinished(frame, more);
            let completed = if unfinished { dhcp::complete(frame, more, &mut own) } else { None };
            let mut whole = match &completed {
                Some((head, rest)) => Whole::new(dhcp::completed(), count, *head, rest),
                None => Whole::new(frame.hdr, count, frame.head, more),
            };
            whole.hdr[VNET_HDR_LEN..].copy_from_slice(&buffers.hashed.to_bytes());
            self.write(ring.queue(), buffers, &whole, streaming)?;
            self.note(buffers.log, buffers.hdr_len + frame.len);
            self.give_back(ring, buffers.hdr_len + frame.len);
        }
        Ok(found)
    }

    /// Collects chains that hold a frame of `len` bytes. Returns the result, and the position
    /// after the last chain that was read.
    fn gather<R: DeviceRing>(
        &mut self,
        ring: &mut R,
        buffers: &Buffers<'_>,
        len: u32,
    ) -> Result<(Found, R::Place), Broken> {
        self.forget();
        let need = u64::from(buffers.hdr_len) + u64::from(len);
        let mut place = ring.place();
        // The sum may exceed the ring size, if a guest uses the same descriptors in many chains.
        let mut slots = 0u32;
        while self.len < need {
            let chain = ring.chain_at(&mut place, buffers.memory.map(), &mut self.list)?;
            let Some(chain) = chain else {
                // With three quarters of the ring available, assume that the guest will not add
                // buffers.
                let is_all = slots * 4 >= u32::from(ring.size()) * 3;
                return Ok((if is_all { Found::Less } else { Found::NotYet }, place));
            };
            check_direction(ring.queue(), &chain)?;
            slots += u32::from(chain.slots);
            self.len += u64::from(chain.len);
            self.chains.push(chain);
            if !buffers.mergeable {
                break;
            }
        }
        let found = if self.len < need { Found::Less } else { Found::Enough };
        Ok((found, place))
    }

    /// Arms the ring, unless it has space for a frame of `need` bytes or the guest will not add
    /// buffers. True if the caller must not sleep: the ring is not armed, or buffers were added
    /// since.
    pub(super) fn wait_for(&mut self, vring: &mut Vring, need: u32) -> Result<bool, Broken> {
        let Vring { ring, memory, hdr_len, mergeable, log, .. } = vring;
        let (hdr_len, mergeable, hashed) = (*hdr_len, *mergeable, Hashed::default());
        let buffers = Buffers { memory, hdr_len, mergeable, hashed, log };
        on_ring!(ring, ring => {
            let (found, place) = self.gather(ring, &buffers, need)?;
            self.forget();
            // Leave buffers that are added during arming to the next poll: a guest that adds them
            // one by one must not extend this call.
            Ok(found != Found::NotYet || ring.arm(place)?)
        })
    }

    /// Collects space for a frame of up to `max` bytes, which the source fills. `Err` for an
    /// address outside the memory.
    pub(super) fn find(&mut self, vring: &mut Vring, max: u32) -> Result<Found, Broken> {
        let Vring { ring, memory, hdr_len, mergeable, log, .. } = vring;
        let (hdr_len, mergeable, hashed) = (*hdr_len, *mergeable, Hashed::default());
        let buffers = Buffers { memory, hdr_len, mergeable, hashed, log };
        let found = on_ring!(ring, ring => self.gather(ring, &buffers, max)?.0);
        let (mut reach, mut rooms) = (0, 0);
        for piece in self.pieces() {
            if buffers.memory.span(piece.addr, piece.len).is_none() {
                return Err(not_memory(vring.queue(), piece));
            }
            if rooms < Scatter::PIECES_MAX {
                reach += u64::from(piece.len);
                rooms += usize::from(reach > u64::from(vring.hdr_len));
            }
        }
        self.len = reach;
        Ok(found)
    }

    /// Segments of the chains that [`find`](Self::find) collected, without the space of the header.
    pub(super) fn segments<'a>(
        &'a self,
        vring: &'a mut Vring,
        scatter: &'a mut Scatter,
    ) -> Segments<'a> {
        let mut skip = vring.hdr_len;
        let pieces = self.pieces().filter_map(move |piece| {
            let cut = skip.min(piece.len);
            skip -= cut;
            (cut < piece.len).then_some((piece.addr + u64::from(cut), piece.len - cut))
        });
        scatter.room(vring.memory.rooms(pieces))
    }

    /// Returns the chains with the frame as used; false if the frame is longer than their space.
    pub(super) fn commit(&mut self, vring: &mut Vring, frame: &FrameMeta) -> bool {
        let whole = u64::from(vring.hdr_len) + u64::from(frame.len);
        let fits = whole <= self.len;
        if fits {
            let mut len = 0;
            let starts_inside = |chain: &&Chain| {
                let inside = len < whole;
                len += u64::from(chain.len);
                inside
            };
            // Chains after the end of the frame stay available.
            let count = self.chains.iter().take_while(starts_inside).count();
            self.chains.truncate(count);
            let hdr = match lacks_udp_checksum(frame.hdr) {
                true => self.completed(vring, frame),
                false => frame.hdr,
            };
            self.write_header(vring, &header(hdr, count as u16));
            self.note(&vring.log, whole as u32);
            on_ring!(&mut vring.ring, ring => self.give_back(ring, whole as u32));
        }
        self.forget();
        fits
    }

    /// Completes the checksum of a DHCP frame in the guest's buffers; returns the new header, or
    /// the old one for other frames.
    #[inline(never)]
    fn completed(&self, vring: &mut Vring, frame: &FrameMeta) -> VnetHdr {
        let hdr_len = vring.hdr_len as usize;
        let rest = |memory: &GuestMemoryView, at: usize, len: usize| {
            let (mut skip, mut left) = (hdr_len + at, len);
            let mut sum = Sum::new();
            let mut first = [0; 4];
            let mut n = 0;
            for piece in self.pieces() {
                let span = memory.span(piece.addr, piece.len).unwrap_or(Span::EMPTY);
                let part = span.skip(skip).first(left);
                skip = skip.saturating_sub(span.len());
                left -= part.len();
                n += part.read_header(&mut first[n..]);
                sum.add(part.sum(), part.len());
            }
            (left == 0).then_some((sum, first))
        };
        let fields = frame.hdr.fields();
        let start = usize::from(fields.csum_start);
        let Some(len) = (frame.len as usize).checked_sub(start) else { return frame.hdr };
        let Some((_, ports)) = rest(&vring.memory, start, len.min(4)) else { return frame.hdr };
        if len < 8 || !dhcp::has_ports(ports) {
            return frame.hdr;
        }
        let Some((sum, _)) = rest(&vring.memory, start, len) else { return frame.hdr };
        self.write_at(vring, start + usize::from(fields.csum_offset), sum.field());
        dhcp::completed()
    }

    /// Writes two bytes of the frame in the guest's buffers, at offset `at`.
    fn write_at(&self, vring: &mut Vring, at: usize, bytes: [u8; 2]) {
        let (mut skip, mut bytes) = (vring.hdr_len as usize + at, &bytes[..]);
        for piece in self.pieces() {
            let Some(room) = vring.memory.room(piece.addr, piece.len) else { return };
            let len = room.len();
            if skip < len {
                bytes = &bytes[room.split_at(skip).1.write_header(bytes)..];
            }
            skip = skip.saturating_sub(len);
            if bytes.is_empty() {
                return;
            }
        }
    }

    /// Buffers of all chains, in order.
    fn pieces(&self) -> impl Iterator<Item = BufferElement> {
        self.chains.iter().flat_map(|chain| {
            let more = chain.more(&self.list).iter().copied();
            std::iter::once(chain.head).chain(more)
        })
    }

    /// Copies the header and a frame into the buffers; `Err` for an address outside the memory.
    fn write(
        &self,
        queue: u16,
        buffers: &mut Buffers<'_>,
        whole: &Whole<'_, '_>,
        streaming: Option<&Streaming>,
    ) -> Result<(), Broken> {
        let mut hdr = &whole.hdr[..buffers.hdr_len as usize];
        let mut rest = whole.more.iter();
        let mut source = whole.head;
        for piece in self.pieces() {
            let Some(mut room) = buffers.memory.room(piece.addr, piece.len) else {
                return Err(not_memory(queue, piece));
            };
            let n = room.write_header(hdr);
            hdr = &hdr[n..];
            room = room.split_at(n).1;
            while !room.is_empty() {
                let n = room.store(source, streaming);
                source = source.skip(n);
                room = room.split_at(n).1;
                if source.is_empty() {
                    let Some(next) = rest.next() else { break };
                    source = *next;
                }
            }
        }
        Ok(())
    }

    fn write_header(&self, vring: &mut Vring, hdr: &[u8]) {
        let mut hdr = &hdr[..vring.hdr_len as usize];
        for piece in self.pieces() {
            if hdr.is_empty() {
                return;
            }
            if let Some(mut room) = vring.memory.room(piece.addr, piece.len) {
                hdr = &hdr[room.write_header(hdr)..];
            }
        }
    }

    /// Marks the first `len` bytes of the buffers in the dirty log, if there is one.
    fn note(&self, log: &Option<RingLog>, len: u32) {
        let Some(ring) = log else { return };
        let mut left = len;
        for piece in self.pieces() {
            let n = piece.len.min(left);
            ring.log.mark(piece.addr, n);
            left -= n;
        }
    }

    /// Returns the chains as used, with `len` bytes written in total.
    #[inline]
    fn give_back<R: DeviceRing>(&mut self, ring: &mut R, len: u32) {
        let mut left = len;
        for chain in &self.chains {
            let n = chain.len.min(left);
            ring.give_back(chain.id, chain.slots, n);
            left -= n;
        }
        self.forget();
    }
}
