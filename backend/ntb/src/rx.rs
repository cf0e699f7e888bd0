//! RX half of a queue pair: reads records in this end's window and posts credit into the peer's
//! window.

use std::sync::atomic::Ordering;

use mqnet_netdev::limits::{BURST_BYTES, BURST_FRAMES};
use mqnet_netdev::{Armed, Burst, Fault, OwningRx, Queue, WakeSource};
use mqnet_rings::{Cursor, Ringer, Waiter, prefetch};
use mqnet_shmem::Window;
use mqnet_wire::offload::{UNFINISHED_HEADERS_MAX, with_own_hdr_len};
use mqnet_wire::{Layer, VnetHdr};

use crate::layout::{Record, UNIT, control, record_size};
use crate::shared::Common;

/// Bytes of records that are prefetched before the first peek.
const FIRST_LINES: u32 = 4 * 64;

/// Prefetch distance of record headers, in records of one size. The distance is half a burst, so a
/// burst also prefetches half of the headers of the lane's next burst. Without prefetch the
/// processor cannot fetch two headers at a time, because each record determines the position of the
/// next record.
const AHEAD: u32 = 32;

pub(crate) struct RxHalf {
    common: Common,
    cursor: Cursor,
    ring: Window,
    frame_max: u32,
    /// Lengths of the frames that the last peek returned.
    lens: [u32; BURST_FRAMES],
    shown: usize,
    number: u16,
    taken: u64,
    waiter: Waiter,
    ringer: Ringer,
}

impl RxHalf {
    pub(crate) fn new(common: Common, ring: Window, frame_max: u32) -> Self {
        let generation = common.generation as u16;
        Self {
            cursor: Cursor::consumer(ring.len()),
            ring,
            frame_max,
            lens: [0; BURST_FRAMES],
            shown: 0,
            number: 0,
            taken: 0,
            waiter: Waiter::new(generation),
            ringer: Ringer::new(generation),
            common,
        }
    }

    /// Reads the peer's tail index; returns the number of published bytes, or `Err` for an invalid
    /// index.
    #[inline]
    fn refresh(&mut self) -> Result<u32, Fault> {
        let tail = self.common.inbound.index(control::TAIL, self.common.generation);
        let tail = tail.map_err(|word| self.common.stale(word))?;
        let there = self.cursor.refresh(tail).map_err(|e| self.common.violated(&e))?;
        if there % UNIT != 0 {
            return Err(self.common.off_boundary("tail", tail));
        }
        Ok(there)
    }
}

/// Limit of the header prefetch in a burst that begins at `at`: a record prefetches ahead while
/// more than this number of bytes are left. The headers after the ring's end are prefetched here,
/// because they are at its start.
#[inline(always)]
fn fetched_until(ring: &Window, at: u32, left: u32, record: u32) -> u32 {
    let (size, ahead) = (ring.len(), record.saturating_mul(AHEAD));
    let end = at.saturating_add(left);
    // A burst has at most two prefetch distances, so its prefetches end within three distances.
    let most = end.min(at.saturating_add(ahead.saturating_mul(3)));
    if most > size {
        fetch_from_the_start(ring, at, record, most);
    }
    ahead.max(end.saturating_add(ahead).saturating_sub(size))
}

/// Prefetches the headers up to `most` that wrap to the start of the ring. Called once or twice per
/// pass through a ring of more than 96 records.
#[cold]
#[inline(never)]
fn fetch_from_the_start(ring: &Window, at: u32, record: u32, most: u32) {
    let size = ring.len();
    let first = (size - at).next_multiple_of(record) - (size - at);
    (first..most - size).step_by(record as usize).for_each(|header| ring.prefetch_line(header));
}

/// Expected number of the next record, and limits of its length.
struct Due {
    left: u32,
    number: u16,
    frame_max: u32,
}

/// Appends a frame that needs offloads or wraps at the ring's end; `Err` if the record is invalid.
/// Not inlined, so that the loop over small frames stays small.
#[inline(never)]
fn push_other<'a>(
    ring: &'a Window,
    at: u32,
    header: [u64; 2],
    due: &Due,
    burst: &mut Burst<'a>,
) -> Result<(), String> {
    let record = Record::decode(header);
    let len = record.len;
    if record.number != due.number {
        return Err(format!("record {}, expected {}", record.number, due.number));
    }
    if len == 0 || len > due.frame_max {
        return Err(format!("a frame of {len} bytes, allowed are 1 to {}", due.frame_max));
    }
    let (bytes, left) = (record_size(len), due.left);
    if bytes > left {
        return Err(format!("a record of {bytes} bytes, {left} are published"));
    }
    if let Err(why) = record.hdr.check(len) {
        let hdr = record.hdr;
        return Err(format!("a frame of {len} bytes with a wrong header ({why:?}): {hdr:?}"));
    }
    let (head, tail) = ring.read(wrap(at + UNIT, ring.len()), len);
    let mut hdr = record.hdr.normalised();
    if hdr.is_large() {
        let mut headers = [0; UNFINISHED_HEADERS_MAX];
        let mut n = head.read_header(&mut headers);
        n += tail.read_header(&mut headers[n..]);
        hdr = with_own_hdr_len(hdr, len, &headers[..n], Layer::Ethernet);
    }
    if tail.is_empty() {
        burst.push(hdr, len, head);
    } else {
        burst.push_pieces(hdr, len, head, &[tail]);
    }
    Ok(())
}

impl Queue for RxHalf {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        self.waiter.arm(self.common.outbound.get(control::RX_ARM), 0);
        self.common.stats.rx.arms.add(1);
        Ok(if self.refresh()? > 0 { Armed::MoreWork } else { Armed::Sleep })
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        Some(self.common.watch())
    }

    fn prefetch(&self) {
        // Prefetch the tail and the first records, on lines that the peer has just written; after
        // some lines the hardware prefetches further ones. Prefetch published records only: a
        // line that the peer is about to write would have to be fetched back by the peer.
        prefetch::for_reading(self.common.inbound.get(control::TAIL));
        self.ring.prefetch(self.cursor.position(), FIRST_LINES.min(self.cursor.available()));
    }
}

impl OwningRx for RxHalf {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        self.shown = 0;
        if self.cursor.available() == 0 && self.refresh()? == 0 {
            return Ok(());
        }
        let (mut at, mut left) = (self.cursor.position(), self.cursor.available());
        let (mut number, frame_max) = (self.number, self.frame_max);
        // The burst borrows the ring only, so the lengths stay writable.
        let Self { common, ring, lens, shown, .. } = self;
        let (ring, size): (&'a Window, u32) = (ring, ring.len());
        // Bytes left at which this burst ends, because it then has at least `BURST_BYTES`.
        let stop = left.saturating_sub(BURST_BYTES as u32);
        // Assumed size of a record: that of the first frame of the last burst. A wrong size only
        // costs speed.
        let record = record_size(lens[0]);
        // Prefetch only headers that are published and precede the ring's end. One comparison with
        // `last` checks both.
        let (ahead, last) = (record.wrapping_mul(AHEAD), fetched_until(ring, at, left, record));
        let mut n = 0;
        for slot in &mut lens[..budget.min(BURST_FRAMES)] {
            if left <= stop {
                break;
            }
            // Read the header once, and check its values against the published bytes.
            let header = ring.load_unit(at);
            let record = Record::decode(header);
            let bytes = record_size(record.len);
            if left > last {
                ring.prefetch_line(at.wrapping_add(ahead));
            }
            let sound =
                record.number == number && record.len.wrapping_sub(1) < frame_max && bytes <= left;
            if sound
                && record.hdr.is_finished()
                && let Some(head) = ring.piece(at + UNIT, record.len)
            {
                burst.push(VnetHdr::default(), record.len, head);
            } else {
                let what = Due { left, number, frame_max };
                push_other(ring, at, header, &what, burst).map_err(|e| common.fault(e))?;
            }
            let len = record.len;
            at = wrap(at + bytes, size);
            left -= bytes;
            *slot = len;
            n += 1;
            number = number.wrapping_add(1);
        }
        *shown = n;
        Ok(())
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        if frames == 0 {
            return Ok(());
        }
        // Sum in 32 bits, enough for the bytes of a ring: the compiler vectorises these sums.
        let lens = &self.lens[..self.shown][..frames];
        let payload: u32 = lens.iter().sum();
        let ring: u32 = lens.iter().map(|&len| record_size(len)).sum();
        let stats = &self.common.stats.rx;
        stats.packets.add(frames as u64);
        stats.bytes.add(payload.into());
        self.cursor.advance(ring);
        self.shown = 0;
        self.number = self.number.wrapping_add(frames as u16);
        self.taken += frames as u64;
        let out = &self.common.outbound;
        out.get(control::TAKEN).store(self.taken.to_le(), Ordering::Relaxed);
        out.post(control::CREDIT, self.common.generation, self.cursor.index());
        // Free bytes for the producer. Records published since the last refresh still count as
        // free.
        let free = self.cursor.size() - self.cursor.available();
        if self.ringer.due(self.common.inbound.get(control::TX_ARM), free) {
            stats.kicks.add(1);
            self.common.ring()?;
        }
        Ok(())
    }
}

/// Reduces a ring position that may exceed the ring's end once.
#[inline]
pub(crate) fn wrap(at: u32, size: u32) -> u32 {
    // Without a branch, and without a register for 0.
    at.min(at.wrapping_sub(size))
}
