//! Rings of slots: reception from this end's window, transmission into the peer's memory.
//!
//! A slot has a payload at its start and a header at its end. The header has three little-endian
//! words of 32 bits: packet number, length, flags. The writer publishes a slot by its flags, and
//! the reader clears them. A reader consumes slots in order. It writes the index of the slot
//! consumed last into the credit word, in the memory that the writer reads. The initial credit is
//! the index of the last slot, so a ring of `n` slots holds `n - 1` frames. At each opening, packet
//! numbers and slots begin at 0.

mod words;

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use mqnet_netdev::{Burst, Frame};
use mqnet_shmem::{
    AtomicTable, MemoryMap, Region, Scatter, Segments, Span, SpanMut, Streaming, Window,
};
use mqnet_wire::VnetHdr;

use super::HEADER;
use super::geometry::WindowPart;
use super::shared::PairState;
use super::violation::Violation;
use crate::hw::{MemoryWindow, Outbound};
pub(super) use words::InboundWord;
use words::{OutMemory, OutboundWord};

/// Flag of a complete slot.
pub(super) const DONE: u8 = 1;
/// Flag of a slot that closes the pair; set together with [`DONE`].
pub(super) const LINK_DOWN: u8 = 2;

/// Offset of the flags in a header.
pub(super) const FLAGS: u32 = 8;

/// Ring of received slots, in this end's window.
#[derive(Debug)]
pub(crate) struct RxSlots {
    part: WindowPart,
    ring: Window,
    words: AtomicTable,
    /// Credit word that the peer reads.
    credit: OutboundWord,
    next: u32,
    number: u32,
    pub(crate) state: Arc<PairState>,
}

/// Window of this end as a table of words; `Err` if `at` or `len` is no multiple of 16, or there is
/// no such memory.
fn table(region: &Arc<Region>, at: usize, len: u32) -> Result<AtomicTable, String> {
    let whole = at.is_multiple_of(16) && len.is_multiple_of(16);
    let table = AtomicTable::new(region.clone(), at, len).filter(|_| whole);
    table.ok_or_else(|| format!("window: {len} bytes at {at}: no such memory"))
}

/// Index of the slot `steps` after `slot` in a ring of `slots` slots.
#[inline]
fn after(slot: u32, steps: u32, slots: u32) -> u32 {
    let at = slot + steps;
    if at >= slots { at - slots } else { at }
}

impl RxSlots {
    /// Ring of the pair with `part` of this end's window and `their_part` of the peer's; `Err` if
    /// memory of these windows is missing.
    pub(crate) fn new(
        window: &MemoryWindow,
        out: &Outbound,
        part: WindowPart,
        their_part: WindowPart,
        state: Arc<PairState>,
    ) -> Result<Self, String> {
        let (region, at) = (&window.inbound, window.inbound_at);
        let words = table(region, at, window.inbound_len)?;
        if part.credit_at() + 4 > window.inbound_len {
            return Err(format!("window: {} bytes, too short", window.inbound_len));
        }
        let ring = Window::new(region.clone(), at, window.inbound_len);
        let credit = OutboundWord::new(out, their_part.credit_at())?;
        Ok(Self { part, ring, words, credit, next: 0, number: 0, state })
    }

    fn flags(&self, slot: u32) -> &std::sync::atomic::AtomicU8 {
        self.words.byte(self.part.header_at(slot) + FLAGS)
    }

    /// Begins a session of the pair, before the peer is allowed to send.
    pub(crate) fn reset(&mut self) {
        (self.next, self.number) = (0, 0);
        for slot in 0..self.part.slots {
            self.flags(slot).store(0, Ordering::Relaxed);
        }
        self.credit.write(self.part.slots_last());
    }

    /// True if the peer has begun a new session of the pair: slot 0 is complete again, with packet
    /// number 0. The link-down slot may then be overwritten.
    #[cold]
    fn was_restarted(&self) -> bool {
        let first = self.ring.piece(self.part.header_at(0), 4).and_then(|h| h.header::<4>());
        self.number != 0
            && self.flags(0).load(Ordering::Acquire) & DONE != 0
            && first == Some([0; 4])
    }

    /// True if the next slot is complete.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        // Pairs with the peer's write barrier before the flags.
        self.flags(self.next).load(Ordering::Acquire) & DONE != 0
    }

    /// Stores the offset of the flags for which this ring's reader sleeps; the control thread
    /// checks them.
    #[cold]
    pub(crate) fn note_sleep(&self) {
        self.state.sleep(self.part.header_at(self.next) + FLAGS);
    }

    /// True if the next slot is complete and its frame is longer than `frame_max`; `Err` for an
    /// invalid header. Also ends the pair if the peer has begun a new session.
    #[inline]
    pub(crate) fn first_is_too_long(&self, frame_max: u32) -> Result<bool, Violation> {
        let flags = self.flags(self.next).load(Ordering::Acquire);
        if flags & (DONE | LINK_DOWN) != DONE {
            return Ok(false);
        }
        if self.number < self.part.slots && self.was_restarted() {
            // Check this before the number: in the first pass over the ring, slots of a new session
            // have the expected numbers.
            self.state.end();
            return Ok(false);
        }
        match self.header(self.next, 0) {
            Ok(len) => Ok(len > frame_max),
            Err(Violation::Number { .. }) if self.was_restarted() => {
                self.state.end();
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }

    /// Appends up to `budget` complete slots to the burst; returns their number. Stops before a
    /// frame longer than `frame_max`, at a link-down slot, and after `bytes` bytes. A link-down
    /// slot as the first one ends the pair. `Err` for an invalid header.
    pub(crate) fn peek<'a>(
        &'a self,
        burst: &mut Burst<'a>,
        budget: u32,
        bytes: usize,
        frame_max: u32,
        lens: &mut [u32],
    ) -> Result<u32, Violation> {
        if self.state.has_ended() {
            return Ok(0);
        }
        let (mut shown, mut left) = (0, bytes);
        let budget = budget.min(self.part.slots).min(lens.len() as u32);
        while shown < budget && left > 0 {
            let slot = after(self.next, shown, self.part.slots);
            // Pairs with the peer's write barrier before the flags.
            let flags = self.flags(slot).load(Ordering::Acquire);
            if flags & DONE == 0 {
                break;
            }
            if flags & LINK_DOWN != 0 {
                if shown == 0 {
                    self.state.end();
                }
                break;
            }
            let len = match self.header(slot, shown) {
                Ok(len) => len,
                // The frames before this slot are valid; the next peek ends the pair.
                Err(Violation::Number { .. }) if self.was_restarted() => break,
                Err(e) => return Err(e),
            };
            if len > frame_max {
                break;
            }
            let Some(frame) = self.ring.piece(self.part.slot_at(slot), len) else { break };
            burst.push(VnetHdr::default(), len, frame);
            lens[shown as usize] = len;
            shown += 1;
            left = left.saturating_sub(len as usize);
        }
        Ok(shown)
    }

    /// Reads the header of a complete slot once; returns the length of the frame, or `Err` for a
    /// wrong packet number or length.
    #[inline]
    fn header(&self, slot: u32, ahead: u32) -> Result<u32, Violation> {
        let header =
            self.ring.piece(self.part.header_at(slot), FLAGS).and_then(|h| h.header::<8>());
        let header = u64::from_le_bytes(header.unwrap_or_default());
        let (number, len) = (header as u32, (header >> 32) as u32);
        let expected = self.number.wrapping_add(ahead);
        if number != expected {
            return Err(Violation::Number { slot, number, expected, size: self.part.slot });
        }
        let max = self.part.payload_max();
        if len == 0 || len > max {
            return Err(Violation::Length { slot, len, max });
        }
        Ok(len)
    }

    /// Consumes the first `frames` complete slots.
    pub(crate) fn release(&mut self, frames: u32) {
        if frames == 0 {
            return;
        }
        self.state.count(0, frames.into());
        for step in 0..frames {
            // Pairs with the Acquire load in Pair::complete: only consumed slots are seen
            // cleared.
            self.flags(after(self.next, step, self.part.slots)).store(0, Ordering::Release);
        }
        let last = after(self.next, frames - 1, self.part.slots);
        self.next = after(last, 1, self.part.slots);
        self.number = self.number.wrapping_add(frames);
        self.credit.write(last);
    }

    /// Checks the start of a session: `Err` if a later slot is complete before slot 0.
    pub(crate) fn check_order(&self) -> Result<(), Violation> {
        if self.number != 0 {
            return Ok(());
        }
        let is_done = |slot: &u32| self.flags(*slot).load(Ordering::Acquire) & DONE != 0;
        match (1..self.part.slots).find(is_done) {
            // Read slot 0 after the other slots: it may have become complete before the slot that
            // was found.
            Some(slot) if !self.has_work() => Err(Violation::Order { slot, size: self.part.slot }),
            _ => Ok(()),
        }
    }
}

/// Ring of transmitted slots, in the peer's memory.
#[derive(Debug)]
pub(crate) struct TxSlots {
    part: WindowPart,
    out: OutMemory,
    /// Flags of each slot.
    flags: Vec<AtomicTable>,
    /// Credit word in this end's memory, which the peer writes.
    credit: InboundWord,
    /// Index of the next slot to be written.
    next: u32,
    /// Index of the first slot that is not published.
    published: u32,
    /// Number of free slots from `next` on, by the last credit.
    free: u32,
    /// Number of slots returned by the peer that are not counted yet.
    credits: u32,
    /// True if the frames of this session that the peer did not consume were counted as lost.
    is_lost_counted: bool,
    number: u32,
    scatter: Scatter,
    /// Private memory for the rest of a reservation that is larger than a slot's payload.
    spare: Vec<u8>,
    pub(crate) state: Arc<PairState>,
}

impl TxSlots {
    /// Ring of the pair with `part` of the peer's window and `our_part` of this end's; `Err` if
    /// memory of these windows is missing.
    pub(crate) fn new(
        window: &MemoryWindow,
        out: &Outbound,
        part: WindowPart,
        our_part: WindowPart,
        state: Arc<PairState>,
    ) -> Result<Self, String> {
        let words = table(&window.inbound, window.inbound_at, window.inbound_len)?;
        let credit = InboundWord::new(words, our_part.credit_at())
            .ok_or_else(|| format!("window: {} bytes, too short", window.inbound_len))?;
        let flags = (0..part.slots).map(|slot| {
            let at = part.header_at(slot) + FLAGS;
            let place = out.map.table(at.into(), 1, 1);
            place.ok_or_else(|| format!("peer's window: no memory at {at}"))
        });
        let flags = flags.collect::<Result<_, _>>()?;
        let out = OutMemory::new(out)?;
        out.check(part.at, part.len)?;
        Ok(Self {
            part,
            out,
            flags,
            credit,
            next: 0,
            published: 0,
            free: part.slots_last(),
            credits: 0,
            is_lost_counted: false,
            number: 0,
            scatter: Scatter::default(),
            spare: Vec::new(),
            state,
        })
    }

    /// Begins a session of the pair, before the peer is allowed to read.
    pub(crate) fn reset(&mut self) {
        (self.next, self.published, self.number) = (0, 0, 0);
        self.free = self.part.slots_last();
        self.state.note_in_use(0);
        self.is_lost_counted = false;
        self.credit.write(self.part.slots_last());
        // Clear the slots of an earlier session that the peer did not read.
        for flags in &self.flags {
            flags.byte(0).store(0, Ordering::Relaxed);
        }
    }

    /// Largest number of slots in use.
    pub(crate) fn capacity(&self) -> u32 {
        self.part.slots_last()
    }

    /// Bytes of a slot.
    pub(crate) fn slot_len(&self) -> u32 {
        self.part.slot
    }

    /// Number of free slots, by the last credit.
    #[inline]
    pub(crate) fn room(&self) -> u32 {
        self.free
    }

    /// Number of slots in use, by the last credit.
    pub(crate) fn used(&self) -> u32 {
        self.capacity() - self.free
    }

    /// Reads the credit word once; returns the number of free slots. `Err` if the credit is no
    /// slot's index, or returns slots that were not published.
    pub(crate) fn read_credit(&mut self) -> Result<u32, Violation> {
        let (slots, credit) = (self.part.slots, self.credit.read());
        if credit >= slots {
            return Err(Violation::Credit { credit, max: slots - 1 });
        }
        // All slots from `next` to the slot that the peer consumed last are free.
        let free = after(credit, slots - self.next, 2 * slots) % slots;
        let published = self.used() - self.unpublished();
        // Modulo the ring, so that a step back counts as a large step forward.
        let consumed = after(free, slots - self.free, 2 * slots) % slots;
        if consumed > published {
            return Err(Violation::Consumed { credit, consumed, published });
        }
        if consumed > 0 {
            self.free = free;
            self.credits += consumed;
            self.state.count(1, consumed.into());
            self.state.note_in_use(self.used());
        }
        Ok(free)
    }

    /// Number of slots that the peer has returned since the last call.
    #[inline]
    pub(crate) fn take_credits(&mut self) -> u32 {
        std::mem::take(&mut self.credits)
    }

    /// Number of slots in use: their frames are lost. Returns 0 from the second call in a session
    /// on.
    #[cold]
    pub(crate) fn take_lost(&mut self) -> u32 {
        // A credit that violates the protocol is ignored here.
        let _ = self.read_credit();
        if std::mem::replace(&mut self.is_lost_counted, true) { 0 } else { self.used() }
    }

    fn unpublished(&self) -> u32 {
        after(self.next, self.part.slots - self.published, 2 * self.part.slots) % self.part.slots
    }

    /// Stores a frame into the next slot, which must be free; false if the frame is too long.
    #[inline]
    pub(crate) fn place(
        &mut self,
        burst: &Burst<'_>,
        frame: &Frame<'_>,
        streaming: Option<&Streaming>,
    ) -> bool {
        debug_assert!(self.free > 0);
        if frame.len > self.part.payload_max() {
            return false;
        }
        let at = self.part.slot_at(self.next);
        let pieces = std::iter::once(frame.head).chain(burst.more(frame).iter().copied());
        match self.out.room(at, frame.len) {
            Some(room) => store(std::iter::once(room), pieces, streaming),
            None => store(self.out.rooms(at, frame.len), pieces, streaming),
        }
        self.take(frame.len);
        true
    }

    /// Space for up to `max` bytes: the next slot, which must be free, then private memory.
    pub(crate) fn reserve(&mut self, max: u32) -> Segments<'_> {
        debug_assert!(self.free > 0);
        let at = self.part.slot_at(self.next);
        let len = max.min(self.part.payload_max());
        let beyond = (max - len) as usize;
        self.spare.resize(self.spare.len().max(beyond), 0);
        let spare = SpanMut::of(&mut self.spare[..beyond]);
        if self.out.is_one_piece(at, len) {
            let room = self.out.room(at, len).unwrap_or_else(SpanMut::empty);
            return Segments::new(room, spare);
        }
        self.scatter.room(self.out.rooms(at, len).chain(std::iter::once(spare)))
    }

    /// Takes the slot of the last [`reserve`](Self::reserve) for a frame; false if `len` is too
    /// long for a slot.
    pub(crate) fn commit(&mut self, len: u32) -> bool {
        let fits = len <= self.part.payload_max();
        if fits {
            self.take(len);
        }
        fits
    }

    /// Writes the header of the next slot and takes the slot, which is not published yet.
    #[inline]
    fn take(&mut self, len: u32) {
        self.header(len);
        self.next = after(self.next, 1, self.part.slots);
        self.free -= 1;
    }

    fn header(&mut self, len: u32) {
        let mut header = [0; HEADER as usize];
        header[..4].copy_from_slice(&self.number.to_le_bytes());
        header[4..8].copy_from_slice(&len.to_le_bytes());
        self.out.write(self.part.header_at(self.next), header);
        self.number = self.number.wrapping_add(1);
    }

    /// Publishes all slots that were taken; true if there were any.
    #[inline]
    pub(crate) fn publish(&mut self) -> bool {
        let any = self.published != self.next;
        while self.published != self.next {
            // Pairs with the peer's read barrier: payload and header are visible before the flags.
            self.flags[self.published as usize].byte(0).store(DONE, Ordering::Release);
            self.published = after(self.published, 1, self.part.slots);
        }
        if any {
            self.state.note_in_use(self.used());
        }
        any
    }

    /// Sends a link-down slot after the frames that were sent; false if no slot is free. After an
    /// invalid credit, all slots become link-down slots.
    pub(crate) fn send_link_down(&mut self) -> bool {
        self.publish();
        match self.read_credit() {
            Ok(0) => return false,
            Ok(_) => {}
            // An invalid credit: the peer's next slot is unknown.
            Err(_) => {
                self.fill_with_link_down();
                return true;
            }
        }
        self.link_down_at(self.next);
        self.next = after(self.next, 1, self.part.slots);
        (self.published, self.free) = (self.next, self.free - 1);
        true
    }

    /// Makes every slot a link-down slot, for a peer whose next slot is unknown: the packet
    /// numbers of such slots are not checked. The ring must be reset before its next use.
    pub(crate) fn fill_with_link_down(&mut self) {
        (0..self.part.slots).for_each(|slot| self.link_down_at(slot));
    }

    fn link_down_at(&mut self, slot: u32) {
        let header = [0; HEADER as usize];
        self.out.write(self.part.header_at(slot), header);
        self.flags[slot as usize].byte(0).store(DONE | LINK_DOWN, Ordering::Release);
    }

    /// True if the peer has consumed all published slots and no slot is taken.
    pub(crate) fn is_drained(&mut self) -> Result<bool, Violation> {
        Ok(self.read_credit()? == self.capacity())
    }
}

/// Copies the segments of a frame into the segments of a slot.
fn store<'a, 'b>(
    mut rooms: impl Iterator<Item = SpanMut<'a>>,
    pieces: impl Iterator<Item = Span<'b>>,
    streaming: Option<&Streaming>,
) {
    let Some(mut room) = rooms.next() else { return };
    for mut piece in pieces {
        while !piece.is_empty() {
            let n = room.store(piece, streaming);
            piece = piece.skip(n);
            room = room.split_at(n).1;
            if room.is_empty() && !piece.is_empty() {
                let Some(next) = rooms.next() else { return };
                room = next;
            }
        }
    }
}

impl WindowPart {
    /// Number of the last slot, which is also the largest number of slots in use.
    fn slots_last(&self) -> u32 {
        self.slots - 1
    }
}

/// True if a peer's mapping covers `0..len` without a gap, in one or more areas.
pub(super) fn covers(map: &MemoryMap, len: u32) -> bool {
    let mut end = 0;
    for area in map.areas() {
        if area.start != end {
            break;
        }
        end += area.len;
    }
    end >= u64::from(len)
}

/// Orders all earlier stores before all later loads: the arming of a notification before the check
/// for missed work.
pub(super) fn full_barrier() {
    // Pairs with the kernel's barrier between a header or a credit and its doorbell.
    fence(Ordering::SeqCst);
}
