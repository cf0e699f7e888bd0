//! Statistics of a channel, with the names of the kernel's `netdev` family if the family has one.

mod lane;
mod reason;
mod resources;
mod table;

use mqnet_counters::{Counter, Padded};

pub use mqnet_pktbuf::pool_counter_table;

pub use lane::{LaneSums, equation};
pub use reason::DropReason;
pub use resources::{ResourceCounter, RxBufferCounters, RxBufferTotals, WorkerStats, WorkerTotals};
pub use table::{
    Check, LaneCounter, LaneCounters, LaneSide, QueueCounter, RxStats, TxStats, Unit, XdpStats,
};

/// Counters of drops by reason.
#[derive(Debug, Default)]
pub struct Drops {
    by_reason: [Counter; DropReason::ALL.len()],
}

impl Drops {
    /// Counts `n` frames dropped for `reason`.
    #[inline]
    pub fn count(&self, reason: DropReason, n: u64) {
        self.by_reason[reason as usize].add(n);
    }

    /// Number of frames dropped for `reason`.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.by_reason[reason as usize].get()
    }

    /// Number of frames dropped for any reason.
    pub fn total(&self) -> u64 {
        self.by_reason.iter().map(Counter::get).sum()
    }
}

/// Statistics of one channel; they outlive its queues.
#[derive(Debug, Default)]
pub struct QueuePairStats {
    /// Statistics of the RX queue.
    pub rx: Padded<RxStats>,
    /// Statistics of the TX queue.
    pub tx: Padded<TxStats>,
}
