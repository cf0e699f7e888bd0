//! TX half of a queue pair: writes records and the tail index into the peer's window.

use std::sync::atomic::Ordering;

use mqnet_netdev::{Armed, Burst, Fault, Fill, Frame, FrameMeta, OwningTx, Queue, WakeSource};
use mqnet_rings::arm::wake_threshold;
use mqnet_rings::{Cursor, Ringer, Waiter};
use mqnet_shmem::{Segments, Span, StoreMode, Stores, Streaming, Window};

use crate::layout::{Record, UNIT, control, record_size};
use crate::rx::wrap;
use crate::shared::Common;

pub(crate) struct TxHalf {
    common: Common,
    cursor: Cursor,
    ring: Window,
    /// Largest number of unconsumed bytes in the ring.
    depth: u32,
    number: u16,
    sent: u64,
    /// True if the ring has records that are not yet published.
    unpublished: bool,
    /// True while nothing may be published: the peer still reads frames of an older queue pair.
    held: bool,
    waiter: Waiter,
    ringer: Ringer,
    stores: Stores,
}

impl TxHalf {
    pub(crate) fn new(common: Common, ring: Window, depth: u32) -> Self {
        let generation = common.generation as u16;
        Self {
            cursor: Cursor::producer(ring.len()),
            depth: depth.min(ring.len()),
            ring,
            number: 0,
            sent: 0,
            unpublished: false,
            held: false,
            waiter: Waiter::new(generation),
            ringer: Ringer::new(generation),
            stores: Stores::default(),
            common,
        }
    }

    /// Bytes of the ring that always stay empty, because the depth is smaller than the ring.
    #[inline]
    fn spare(&self) -> u32 {
        self.cursor.size() - self.depth
    }

    /// Free bytes, by the last credit.
    #[inline]
    fn room(&self) -> u32 {
        self.cursor.available().saturating_sub(self.spare())
    }

    /// Reads the peer's credit; returns the free bytes, or `Err` for an invalid index. Not inlined,
    /// for rare calls.
    #[cold]
    fn refresh_room_cold(&mut self) -> Result<u32, Fault> {
        self.refresh_room()
    }

    /// Reads the peer's credit; returns the free bytes, or `Err` for an invalid index. Inlined, for
    /// use in every poll.
    #[inline(always)]
    fn refresh_room(&mut self) -> Result<u32, Fault> {
        let credit = self.common.inbound.index(control::CREDIT, self.common.generation);
        let credit = credit.map_err(|word| self.common.stale(word))?;
        let free = self.cursor.refresh(credit).map_err(|e| self.common.violated(&e))?;
        if free % UNIT != 0 {
            return Err(self.common.off_boundary("credit", credit));
        }
        Ok(self.room())
    }

    /// Places a record of several segments, or one that wraps. Not inlined, so that the loop over
    /// small frames stays small.
    #[inline(never)]
    fn place_pieces(
        &mut self,
        at: u32,
        header: [u64; 2],
        burst: &Burst<'_>,
        frame: &Frame<'_>,
        streaming: Option<&Streaming>,
    ) {
        self.ring.store_unit(at, header);
        let room = self.ring.write(wrap(at + UNIT, self.ring.len()), frame.len);
        gather(room, frame.head, burst.more(frame), streaming);
    }

    /// Places frames until the free space is used up; returns their number. `Err` if the peer's
    /// credit is invalid.
    #[inline(always)]
    fn place(
        &mut self,
        burst: &Burst<'_>,
        from: usize,
        streaming: Option<&Streaming>,
    ) -> Result<usize, Fault> {
        let size = self.ring.len();
        let (mut at, mut used, mut room) = (self.cursor.position(), 0, u64::from(self.room()));
        let (frames, mut number) = (&burst.frames()[from..], self.number);
        for frame in frames {
            let record = record_size(frame.len);
            let end = used + u64::from(record);
            if end > room {
                // The new number may be smaller than the last: the peer may withdraw credit.
                room = self.refresh_room_cold()?.into();
                if end > room {
                    break;
                }
            }
            let header = Record { len: frame.len, hdr: frame.hdr, number }.encode();
            let mut place = |header, bytes| match streaming {
                None => self.ring.place(at, header, bytes),
                Some(streaming) => self.ring.stream(at, header, bytes, streaming),
            };
            if !(frame.is_one_piece() && place(header, frame.head)) {
                self.place_pieces(at, header, burst, frame, streaming);
            }
            at = wrap(at + record, size);
            number = number.wrapping_add(1);
            used = end;
        }
        let taken = usize::from(number.wrapping_sub(self.number));
        if taken > 0 {
            self.number = number;
            // The bytes of a ring fit 32 bits. A second pass costs less than a sum in the loop
            // above, which has no register left for it.
            let bytes: u32 = frames[..taken].iter().map(|frame| frame.len).sum();
            self.take(used as u32, taken as u64, bytes.into());
            self.common.stats.tx.copies.add(taken as u64);
        }
        Ok(taken)
    }

    /// Places frames with non-temporal stores. Not inlined, so that each kind of store has its
    /// own loop.
    #[inline(never)]
    fn place_streamed(
        &mut self,
        burst: &Burst<'_>,
        from: usize,
        streaming: Streaming,
    ) -> Result<usize, Fault> {
        self.place(burst, from, Some(&streaming))
    }

    /// Advances the cursor over complete records, and counts their frames.
    #[inline]
    fn take(&mut self, ring: u32, frames: u64, bytes: u64) {
        self.cursor.advance(ring);
        self.unpublished = true;
        self.sent += frames;
        self.common.stats.tx.packets.add(frames);
        self.common.stats.tx.bytes.add(bytes);
    }
}

/// Copies a frame into `room`; both may have several segments.
fn gather(room: Segments<'_>, head: Span<'_>, more: &[Span<'_>], streaming: Option<&Streaming>) {
    let (mut room, mut next) = (room.head, Some(room.tail));
    for piece in std::iter::once(&head).chain(more) {
        let mut rest = *piece;
        while !rest.is_empty() {
            let n = room.store(rest, streaming);
            rest = rest.skip(n);
            room = room.split_at(n).1;
            if room.is_empty() {
                let Some(tail) = next.take() else { return };
                room = tail;
            }
        }
    }
}

impl Queue for TxHalf {
    fn arm(&mut self, need: u32) -> Result<Armed, Fault> {
        // Limit the need to the depth: more bytes are never free.
        let bytes = record_size(need).min(self.depth);
        // The peer compares this number with all free bytes of the ring, including `spare`.
        let want = self.spare() + wake_threshold(self.depth, bytes);
        self.waiter.arm(self.common.outbound.get(control::TX_ARM), want);
        self.common.stats.tx.arms.add(1);
        Ok(if self.refresh_room_cold()? >= bytes { Armed::MoreWork } else { Armed::Sleep })
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        Some(self.common.watch())
    }
}

impl OwningTx for TxHalf {
    fn fill(&mut self, enough: u32) -> Result<Option<Fill>, Fault> {
        let size = self.depth;
        let mut used = size - self.room();
        if used > enough {
            used = size - self.refresh_room()?;
        }
        Ok(Some(Fill { used, size }))
    }

    fn capacity(&self) -> Option<u32> {
        Some(self.depth)
    }

    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        let StoreMode { streaming, watch, .. } = self.stores.begin();
        let taken = match streaming {
            None => self.place(burst, from, None)?,
            Some(streaming) => self.place_streamed(burst, from, streaming)?,
        };
        if let Some(watch) = watch {
            let records = burst.frames()[from..][..taken].iter();
            let bytes = records.map(|frame| u64::from(record_size(frame.len))).sum();
            self.stores.end(watch, taken, bytes);
        }
        Ok(taken)
    }

    fn reserve(&mut self, max: u32) -> Result<Option<Segments<'_>>, Fault> {
        let record = record_size(max);
        if self.room() < record && self.refresh_room_cold()? < record {
            return Ok(None);
        }
        let at = wrap(self.cursor.position() + UNIT, self.ring.len());
        Ok(Some(self.ring.write(at, max)))
    }

    fn commit(&mut self, frame: &FrameMeta) {
        let record = Record { len: frame.len, hdr: frame.hdr, number: self.number };
        self.ring.store_unit(self.cursor.position(), record.encode());
        self.number = self.number.wrapping_add(1);
        self.take(record_size(frame.len), 1, u64::from(frame.len));
    }

    fn flush(&mut self) -> Result<(), Fault> {
        if !self.unpublished || self.held {
            return Ok(());
        }
        self.unpublished = false;
        self.common.outbound.post(control::TAIL, self.common.generation, self.cursor.index());
        if self.ringer.due(self.common.inbound.get(control::RX_ARM), u32::MAX) {
            self.common.stats.tx.kicks.add(1);
            self.common.ring()?;
        }
        Ok(())
    }

    fn hold(&mut self, on: bool) -> Result<(), Fault> {
        self.held = on;
        self.flush()
    }

    fn is_drained(&mut self) -> Result<bool, Fault> {
        self.flush()?;
        // The peer returns the space of a frame after it has delivered the frame.
        Ok(self.refresh_room_cold()? == self.depth)
    }
}

impl Drop for TxHalf {
    /// Counts frames that the peer has not taken as lost. The peer's number of taken frames is not
    /// trusted: the loss is never larger than the number of sent frames.
    fn drop(&mut self) {
        let taken = self.common.inbound.get(control::TAKEN).load(Ordering::Relaxed);
        let lost = self.sent.saturating_sub(u64::from_le(taken));
        // Unused queues may be dropped on any thread; skip the counter so that it keeps a single
        // writer.
        if lost > 0 {
            self.common.stats.tx.lost.add(lost);
        }
    }
}
