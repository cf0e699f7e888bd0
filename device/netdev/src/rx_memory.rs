//! Description of the buffers that an RX queue gives to its device.

use mqnet_pktbuf::{Mapping, PoolStats};

/// Snapshot of the buffer layout of an RX queue, the reason for it, and statistics of its page
/// pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RxMemory {
    /// Number of the queue.
    pub queue: u16,
    /// Placement of frames in buffers: `small`, `mergeable` or `big`.
    pub mode: &'static str,
    /// Requested layout: `auto`, `frag` or `full`.
    pub wish: &'static str,
    /// True if each buffer has a page of its own.
    pub full: bool,
    /// Reason for the layout.
    pub reason: String,
    /// True if the layout does not depend on the requested one.
    pub forced: bool,
    /// Buffer size in bytes.
    pub size: u32,
    /// Bytes in front of the part that the device writes.
    pub headroom: u32,
    /// Number of buffers of this size that fit a page.
    pub per_page: u32,
    /// Average number of buffers per page since the last choice of layout, in hundredths.
    pub per_page_used: u32,
    /// Pages in use.
    pub pages: u32,
    /// Pages of the pool.
    pub pages_most: u32,
    /// Buffers given to the device.
    pub taken: u64,
    /// Buffers that another thread returned.
    pub foreign: u64,
    /// Duration of the last measured refill per buffer, in nanoseconds: with parts of pages, and
    /// with whole pages; 0 before the first.
    pub refill_ns: [u32; 2],
    /// Allocations that failed because no page was free.
    pub alloc_fail: u64,
    /// Frames shorter than their headers, or with missing buffers.
    pub length_errors: u64,
    /// Mapping of the pages for the device.
    pub mapping: Mapping,
    /// True if the consumer of the frames provides the pages.
    pub provided: bool,
    /// Statistics of the pool.
    pub pool: PoolStats,
}

impl RxMemory {
    /// `frag` or `full`.
    pub const fn layout(&self) -> &'static str {
        if self.full { "full" } else { "frag" }
    }
}
