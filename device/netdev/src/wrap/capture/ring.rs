//! From a tap to its reader: a bounded ring of blocks, a record in as many as it needs.

use std::sync::Arc;

use mqnet_counters::Counter;
use mqnet_rings::spsc::{self, Consumer, Producer};
use mqnet_shmem::Span;

use crate::DropReason;
use crate::limits::FRAME_MAX;

/// What the ring is counted in: a small frame and its record fit into two.
const BLOCK: usize = 64;
type Block = [u8; BLOCK];

/// Time, length, bytes kept, and 1 + the number of the drop reason, or 0.
const HEADER: usize = 8 + 4 + 4 + 1;

/// Which way the frames of a tap go, seen from the netdev that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// They arrived there.
    Inbound,
    /// They leave there.
    Outbound,
}

/// What a tap keeps.
#[derive(Clone, Copy, Debug)]
pub struct CaptureConfig {
    /// Channel of the queue.
    pub channel: u16,
    /// Which way its frames go.
    pub direction: Direction,
    /// Only frames that are dropped.
    pub drops_only: bool,
    /// Bytes kept of each frame; more than the largest frame has are taken as that.
    pub snaplen: u32,
    /// Memory for frames that wait for their reader; at least one always fits.
    pub ring_bytes: u32,
    /// Nanoseconds since the epoch.
    pub clock: fn() -> u64,
}

/// One captured frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Nanoseconds since the epoch.
    pub time_ns: u64,
    /// Channel of the queue.
    pub channel: u16,
    /// Which way it went.
    pub direction: Direction,
    /// Its whole length.
    pub len: u32,
    /// What was kept of it.
    pub bytes: Vec<u8>,
    /// Why it was dropped, if it was.
    pub drop_reason: Option<DropReason>,
}

/// The end in the data path.
#[derive(Debug)]
pub struct CaptureTap {
    config: CaptureConfig,
    ring: Producer<Block>,
    /// Where a record is put together, so that the reader sees whole ones only.
    scratch: Box<[Block]>,
    missed: Arc<Counter>,
    /// Frames at the front of an RX queue that were captured and are not released yet.
    pub(super) seen: usize,
}

/// The end of whoever watches. The tap is of no use once it is dropped.
#[derive(Debug)]
pub struct CaptureReader {
    channel: u16,
    direction: Direction,
    ring: Consumer<Block>,
    scratch: Box<[Block]>,
    missed: Arc<Counter>,
    told: u64,
}

/// A tap and its reader.
pub fn tap(config: CaptureConfig) -> (CaptureTap, CaptureReader) {
    let config = CaptureConfig { snaplen: config.snaplen.min(FRAME_MAX), ..config };
    let record = blocks(config.snaplen as usize);
    let scratch = || vec![[0; BLOCK]; record].into_boxed_slice();
    let size = (config.ring_bytes / BLOCK as u32).max(record as u32);
    let (producer, consumer) = spsc::ring(size);
    let missed = Arc::new(Counter::new());
    let reader = CaptureReader {
        channel: config.channel,
        direction: config.direction,
        ring: consumer,
        scratch: scratch(),
        missed: missed.clone(),
        told: 0,
    };
    (CaptureTap { config, ring: producer, scratch: scratch(), missed, seen: 0 }, reader)
}

const fn blocks(kept: usize) -> usize {
    (HEADER + kept).div_ceil(BLOCK)
}

impl CaptureTap {
    /// True when only drops are kept.
    pub fn drops_only(&self) -> bool {
        self.config.drops_only
    }

    /// True when nobody reads any more: the tap can be taken off for good.
    pub fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.missed) == 1
    }

    pub(super) fn now(&self) -> u64 {
        (self.config.clock)()
    }

    /// Keeps a frame that is dropped by what lies around a queue.
    pub fn dropped(&mut self, reason: DropReason, frame: &[u8]) {
        let now = self.now();
        self.keep(now, frame.len() as u32, Some(reason), Span::of(frame), &[]);
    }

    /// Keeps a frame of `len` bytes that begins in `head` and goes on in `more`.
    pub(super) fn keep(
        &mut self,
        time_ns: u64,
        len: u32,
        dropped: Option<DropReason>,
        head: Span<'_>,
        more: &[Span<'_>],
    ) {
        if self.config.drops_only && dropped.is_none() {
            return;
        }
        let limit = len.min(self.config.snaplen) as usize;
        let there = head.len() + more.iter().map(Span::len).sum::<usize>();
        let kept = limit.min(there);
        let used = blocks(kept);
        if self.ring.free() < used {
            self.missed.add(1);
            return;
        }
        let record = self.scratch[..used].as_flattened_mut();
        record[..8].copy_from_slice(&time_ns.to_ne_bytes());
        record[8..12].copy_from_slice(&len.to_ne_bytes());
        record[12..16].copy_from_slice(&(kept as u32).to_ne_bytes());
        record[16] = dropped.map_or(0, |reason| reason as u8 + 1);
        let mut room = &mut record[HEADER..HEADER + kept];
        for piece in std::iter::once(&head).chain(more) {
            let n = piece.read_header(room);
            room = &mut room[n..];
        }
        self.ring.push(&self.scratch[..used]);
    }
}

impl CaptureReader {
    /// Takes what was captured since, in order, and says how many frames were missed since because
    /// the ring was full. It ends even if the tap goes on.
    pub fn take(&mut self, frames: &mut Vec<Captured>) -> u64 {
        let mut left = self.ring.len();
        while left > 0 && self.ring.pop(&mut self.scratch[..1]) == 1 {
            let header = self.scratch[0];
            let word = |at: usize| {
                u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
            };
            let (len, kept) = (word(8), word(12) as usize);
            let mut time_ns = [0; 8];
            time_ns.copy_from_slice(&header[..8]);
            let used = blocks(kept);
            // A record is published whole.
            self.ring.pop(&mut self.scratch[1..used]);
            let bytes = self.scratch[..used].as_flattened()[HEADER..HEADER + kept].to_vec();
            frames.push(Captured {
                time_ns: u64::from_ne_bytes(time_ns),
                channel: self.channel,
                direction: self.direction,
                len,
                bytes,
                drop_reason: DropReason::ALL.get(usize::from(header[16]).wrapping_sub(1)).copied(),
            });
            left = left.saturating_sub(used);
        }
        let missed = self.missed.get();
        missed - std::mem::replace(&mut self.told, missed)
    }
}

/// Takes what several taps have captured since, oldest first, and how many frames they missed.
pub fn take_all(readers: &mut [CaptureReader], frames: &mut Vec<Captured>) -> u64 {
    let first = frames.len();
    let missed = readers.iter_mut().map(|reader| reader.take(frames)).sum();
    frames[first..].sort_by_key(|frame| frame.time_ns);
    missed
}
