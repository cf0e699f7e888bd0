//! What is told of the buffers that an RX queue gives to its device.

use mqnet_pktbuf::{Mapping, PoolStats};

/// How the buffers of an RX queue lie, why, and what its page pool has done: a reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RxMemory {
    /// Which queue.
    pub queue: u16,
    /// How frames lie in buffers: `small`, `mergeable` or `big`.
    pub mode: &'static str,
    /// What was asked for: `auto`, `frag` or `full`.
    pub wish: &'static str,
    /// Each buffer has a page of its own.
    pub full: bool,
    /// Why.
    pub reason: String,
    /// The user's wish has no say here.
    pub forced: bool,
    /// Bytes of a buffer.
    pub size: u32,
    /// Room in front of what the device writes.
    pub headroom: u32,
    /// Buffers of this size that fit a page.
    pub per_page: u32,
    /// Hundredths of a buffer that pages did hold, since the layout was decided last.
    pub per_page_used: u32,
    /// Pages in use, and pages that there are.
    pub pages: u32,
    /// See `pages`.
    pub pages_most: u32,
    /// Buffers given to the device.
    pub taken: u64,
    /// Buffers that came back from another thread than the queue's.
    pub foreign: u64,
    /// Nanoseconds that the last measured refill has taken for a buffer: with parts of pages, and
    /// with whole ones; 0 before the first.
    pub refill_ns: [u32; 2],
    /// Times that there was no page for a buffer.
    pub alloc_fail: u64,
    /// Frames that were shorter than their headers, or whose buffers were not all there.
    pub length_errors: u64,
    /// How the device finds the pages.
    pub mapping: Mapping,
    /// The pages are the memory of whoever uses the frames.
    pub provided: bool,
    /// The pool's statistics.
    pub pool: PoolStats,
}

impl RxMemory {
    /// `frag` or `full`.
    pub const fn layout(&self) -> &'static str {
        if self.full { "full" } else { "frag" }
    }
}
