//! Description of the buffers that an RX queue provides to its device.

use mqnet_pktbuf::{Mapping, PoolStats};

use crate::stats::RxBufferTotals;

/// Snapshot of an RX queue's buffers: layout, reason for the layout, and statistics of the page
/// pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RxMemory {
    /// Number of the queue.
    pub queue: u16,
    /// Placement of frames in buffers: `small`, `mergeable` or `big`.
    pub mode: &'static str,
    /// Requested layout: `auto`, `frag` or `full`.
    pub requested: &'static str,
    /// True if each buffer has a whole page.
    pub full: bool,
    /// Reason for the layout.
    pub reason: String,
    /// True if the user's request has no effect on the layout.
    pub forced: bool,
    /// Counters and sizes of the buffers.
    pub buffers: RxBufferTotals,
    /// Mapping of the pages for the device.
    pub mapping: Mapping,
    /// True if the consumer of the frames provides the pages.
    pub provided: bool,
    /// Statistics of the page pool.
    pub pool: PoolStats,
}

impl RxMemory {
    /// Name of the layout: `frag` or `full`.
    pub const fn layout(&self) -> &'static str {
        if self.full { "full" } else { "frag" }
    }
}
