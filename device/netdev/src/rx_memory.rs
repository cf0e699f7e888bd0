//! Description of the buffers that an RX queue gives to its device.

use mqnet_pktbuf::{Mapping, PoolStats};

use crate::stats::RxBufferTotals;

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
    /// Counters and sizes of the buffers.
    pub buffers: RxBufferTotals,
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
