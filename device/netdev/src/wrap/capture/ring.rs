//! Bounded ring from a tap to its reader. A record occupies one or more blocks.

use std::sync::Arc;

use mqnet_counters::Counter;
use mqnet_rings::spsc::{self, SpscConsumer, SpscProducer};
use mqnet_shmem::Span;

use crate::DropReason;
use crate::limits::FRAME_MAX;

/// Block size in bytes: a small frame with its record header fits two blocks.
const BLOCK: usize = 64;
type Block = [u8; BLOCK];

/// Bytes of the record header: time (8), frame length (4), captured length (4), and drop reason
/// (1). The drop reason is 0 for none, otherwise the number of the [`DropReason`] plus 1.
const HEADER: usize = 8 + 4 + 4 + 1;

/// Direction of the captured frames, relative to the captured netdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureDirection {
    /// The netdev receives the frames.
    Inbound,
    /// The netdev sends the frames.
    Outbound,
}

/// Settings of a tap.
#[derive(Clone, Copy, Debug)]
pub struct CaptureConfig {
    /// Channel of the queue.
    pub channel: u16,
    /// Direction of the frames.
    pub direction: CaptureDirection,
    /// True to capture only dropped frames.
    pub drops_only: bool,
    /// Maximum number of captured bytes of a frame, limited to the largest frame.
    pub snaplen: u32,
    /// Ring size in bytes; increased to at least one record.
    pub ring_bytes: u32,
    /// Clock that returns nanoseconds since the epoch.
    pub clock: fn() -> u64,
}

/// One captured frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Capture time in nanoseconds since the epoch.
    pub time_ns: u64,
    /// Channel of the queue.
    pub channel: u16,
    /// Direction of the frame.
    pub direction: CaptureDirection,
    /// Length of the complete frame.
    pub len: u32,
    /// Captured bytes, at most the snap length.
    pub bytes: Vec<u8>,
    /// Drop reason; `None` if the frame was not dropped.
    pub drop_reason: Option<DropReason>,
}

/// Producer of a capture, in the data path.
#[derive(Debug)]
pub struct CaptureTap {
    config: CaptureConfig,
    ring: SpscProducer<Block>,
    /// Buffer in which a record is assembled, so that the reader receives only complete records.
    scratch: Box<[Block]>,
    missed: Arc<Counter>,
    /// Number of frames at the front of an RX queue that are captured and not released.
    pub(super) seen: usize,
}

/// Consumer of a capture. Dropping the reader marks the tap as abandoned.
#[derive(Debug)]
pub struct CaptureReader {
    channel: u16,
    direction: CaptureDirection,
    ring: SpscConsumer<Block>,
    scratch: Box<[Block]>,
    missed: Arc<Counter>,
    reported: u64,
}

/// Creates a tap and its reader.
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
        reported: 0,
    };
    (CaptureTap { config, ring: producer, scratch: scratch(), missed, seen: 0 }, reader)
}

const fn blocks(kept: usize) -> usize {
    (HEADER + kept).div_ceil(BLOCK)
}

impl CaptureTap {
    /// True if the tap captures only dropped frames.
    pub fn drops_only(&self) -> bool {
        self.config.drops_only
    }

    /// True if the reader was dropped, so that the tap can be removed.
    pub fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.missed) == 1
    }

    /// Channel of the queue.
    pub(super) fn channel(&self) -> u16 {
        self.config.channel
    }

    pub(super) fn now(&self) -> u64 {
        (self.config.clock)()
    }

    /// Captures a frame that a wrapper of the queue drops for `reason`.
    pub fn dropped(&mut self, reason: DropReason, frame: &[u8]) {
        let now = self.now();
        self.keep(now, frame.len() as u32, Some(reason), Span::of(frame), &[]);
    }

    /// Captures a frame of `len` bytes with the segments `head` and `more`, if the settings select
    /// it. Without space in the ring, the frame is counted as missed.
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
    /// Appends the frames captured since the last call to `frames`, in order. Returns the number of
    /// frames missed since then because the ring was full. The call reads only records that were
    /// present at its start, so that the call ends even if the tap adds records.
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
            // Expect a complete record: records are published as one.
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
        missed - std::mem::replace(&mut self.reported, missed)
    }
}

/// Appends the frames that several taps captured since the last call to `frames`, oldest first.
/// Returns the number of frames that the taps missed.
pub fn take_all(readers: &mut [CaptureReader], frames: &mut Vec<Captured>) -> u64 {
    let first = frames.len();
    let missed = readers.iter_mut().map(|reader| reader.take(frames)).sum();
    frames[first..].sort_by_key(|frame| frame.time_ns);
    missed
}
