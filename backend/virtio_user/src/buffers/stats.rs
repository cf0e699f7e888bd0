//! Buffer statistics of an RX queue.

use mqnet_counters::Counter;
use mqnet_netdev::stats::RxBufferCounters;
use mqnet_pktbuf::{Mapping, PagePool, PoolStats};
use mqnet_virtio::rxbuf::layout::{Cause, Layout};

/// Buffer statistics of an RX queue, written by the worker that polls the queue.
#[derive(Debug, Default)]
pub struct RxBufferStats {
    /// Counters and sizes of the buffers.
    pub counters: RxBufferCounters,
    /// Number of the setting that the buffers follow.
    pub(crate) applied: Counter,
    /// Device address of the first page plus 1; 0 if the pages have no device mapping.
    mapped_at: Counter,
    /// Counters of the pool, and the three serial numbers of the pool.
    pool: [Counter; PoolStats::COUNTERS],
    serials: [Counter; 3],
    /// Layout and cause, encoded for [`reason`](Self::reason).
    layout: Counter,
}

impl RxBufferStats {
    /// Layout of the buffers and its cause; `None` before the first decision.
    pub fn reason(&self) -> Option<Layout> {
        let word = self.layout.get();
        let (kind, value, second) = (word & 15, (word >> 32) as u32, (word >> 4) as u32);
        let second = second & 0xfff_ffff;
        let cause = match kind {
            1 => Cause::Jumbo { size: value, page: second },
            2 => Cause::Xdp,
            3 | 4 => Cause::Asked,
            5 => Cause::Foreign(value),
            6 => Cause::Memory(value),
            7 => Cause::Cheap,
            8 => Cause::Dear { full: value, frag: second },
            9 => Cause::RolledBack { pages: value },
            _ => return None,
        };
        Some(Layout { full: matches!(kind, 1 | 2 | 4 | 5), cause })
    }

    pub(super) fn set_reason(&self, layout: Layout) {
        let two = |kind: u64, value: u32, second: u32| {
            kind | u64::from(second.min(0xfff_ffff)) << 4 | u64::from(value) << 32
        };
        self.layout.set(match layout.cause {
            Cause::Jumbo { size, page } => two(1, size, page),
            Cause::Xdp => 2,
            Cause::Asked if layout.full => 4,
            Cause::Asked => 3,
            Cause::Foreign(share) => two(5, share, 0),
            Cause::Memory(share) => two(6, share, 0),
            Cause::Cheap => 7,
            Cause::Dear { full, frag } => two(8, full, frag),
            Cause::RolledBack { pages } => two(9, pages, 0),
        });
    }

    /// Statistics of the queue's page pool.
    pub fn pool(&self) -> PoolStats {
        let counters = self.pool.each_ref().map(Counter::get);
        PoolStats::of(counters, self.serials.each_ref().map(|serial| serial.get() as u32))
    }

    /// Mapping of the pages for the device.
    pub fn mapping(&self) -> Mapping {
        self.mapped_at.get().checked_sub(1).map_or(Mapping::Allocation, Mapping::Device)
    }

    /// Copies the statistics of a pool.
    pub(super) fn publish(&self, pool: &PagePool) {
        let stats = pool.stats();
        for (at, (_, value)) in stats.counters().enumerate() {
            self.pool[at].set(value);
        }
        for (at, value) in [stats.hold, stats.release, stats.page_size].into_iter().enumerate() {
            self.serials[at].set(value.into());
        }
        self.counters.pages.set(u64::from(pool.outstanding()));
        self.counters.pages_most.set(u64::from(pool.pages()));
        self.counters.foreign.set(pool.foreign());
        self.mapped_at.set(match pool.mapping() {
            Mapping::Allocation => 0,
            Mapping::Device(base) => base + 1,
        });
    }
}

#[cfg(test)]
mod tests {
    use mqnet_pktbuf::PoolConfig;

    use super::*;

    // Goal: a layout is read as written, with all values of its cause.
    #[test]
    fn reasons_are_read_as_written() {
        let stats = RxBufferStats::default();
        assert_eq!(stats.reason(), None);
        let causes = [
            (true, Cause::Jumbo { size: 2112, page: 4096 }),
            (true, Cause::Jumbo { size: 131_072, page: 131_072 }),
            (true, Cause::Xdp),
            (true, Cause::Asked),
            (false, Cause::Asked),
            (true, Cause::Foreign(60)),
            (false, Cause::Memory(80)),
            (false, Cause::Dear { full: 40, frag: 30 }),
            (false, Cause::RolledBack { pages: 300 }),
            (false, Cause::Cheap),
        ];
        for (full, cause) in causes {
            stats.set_reason(Layout { full, cause });
            assert_eq!(stats.reason(), Some(Layout { full, cause }));
        }
    }

    // Goal: pool statistics and mapping are read as written.
    #[test]
    fn pool_statistics_are_complete() {
        for mapping in [Mapping::Allocation, Mapping::Device(0), Mapping::Device(1 << 40)] {
            let config = PoolConfig { pages: 8, mapping, ..PoolConfig::default() };
            let mut pool = PagePool::new(&config).unwrap();
            let frag = pool.alloc_frag(1536).unwrap();
            let stats = RxBufferStats::default();
            stats.publish(&pool);
            assert_eq!((stats.pool(), stats.mapping()), (pool.stats(), mapping));
            assert_eq!((stats.counters.pages.get(), stats.counters.pages_most.get()), (1, 8));
            pool.free_frag(frag);
        }
    }
}
