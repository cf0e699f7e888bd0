//! Statistics of a channel, with the names of the kernel's `netdev` family where it has one.

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

/// Drops by reason.
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

    /// Frames dropped for `reason`.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.by_reason[reason as usize].get()
    }

    /// Frames dropped for any reason.
    pub fn total(&self) -> u64 {
        self.by_reason.iter().map(Counter::get).sum()
    }
}

/// Statistics of one channel; they outlive its queues.
#[derive(Debug, Default)]
pub struct QueuePairStats {
    /// RX half.
    pub rx: Padded<RxStats>,
    /// TX half.
    pub tx: Padded<TxStats>,
}
