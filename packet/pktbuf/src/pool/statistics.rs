//! Statistics of a pool.

use super::PagePool;
use crate::gauge::Gauge;
use crate::stats::PoolStats;

impl PagePool {
    /// Current statistics.
    pub fn stats(&self) -> PoolStats {
        PoolStats { recycle_ring_full: self.arena.ring_full(), ..self.counters }
    }

    /// Gauge of the pages in use, readable by any thread.
    pub fn gauge(&self) -> Gauge {
        self.published.gauge()
    }

    /// Number of pages and fragments freed by other threads. Their recycling misses the owner's
    /// cache. ([`PoolStats::recycle_ring`] counts whole pages only.)
    pub fn foreign(&self) -> u64 {
        self.foreign
    }
}
