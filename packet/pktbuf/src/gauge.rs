//! Number of pages in use, readable by any thread.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

/// Published value, on separate cache lines: its readers also write the reference count there.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Published(AtomicU32);

/// Writer of the gauge, held by the pool.
#[derive(Debug, Default)]
pub(crate) struct Inflight(Arc<Published>);

impl Inflight {
    pub(crate) fn set(&self, pages: u32) {
        // Relaxed: a statistic; it orders nothing.
        self.0.0.store(pages, Ordering::Relaxed);
    }

    pub(crate) fn gauge(&self) -> Gauge {
        Gauge(Arc::downgrade(&self.0))
    }
}

/// Reader of [`PoolStats::inflight`](crate::PoolStats::inflight) for any thread, without the pool's
/// owner. A gauge does not keep the pool alive.
#[derive(Clone, Debug)]
pub struct Gauge(Weak<Published>);

impl Gauge {
    /// Number of pages that are not in the arena, or `None` if the pool was dropped.
    pub fn inflight(&self) -> Option<u32> {
        // Relaxed: a statistic; it orders nothing.
        self.0.upgrade().map(|published| published.0.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::{PagePool, PoolConfig};

    // Goal: a gauge read on another thread equals the statistics while pages are allocated and
    // freed. The gauge ends with the pool.
    #[test]
    fn gauge_equals_inflight_statistic() {
        let config = PoolConfig { pages: 512, ..PoolConfig::default() };
        let mut pool = PagePool::new(&config).unwrap();
        let gauge = pool.gauge();
        let seen = || {
            let gauge = gauge.clone();
            std::thread::spawn(move || gauge.inflight()).join().unwrap()
        };
        assert_eq!(seen(), Some(0));
        let mut pages: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
        assert_eq!((pages.len(), seen()), (512, Some(512)));
        assert_eq!(seen(), Some(pool.stats().inflight()));
        pages.drain(..).for_each(|page| pool.free(page));
        assert_eq!(seen(), Some(pool.stats().inflight()));
        pool.close().unwrap();
        assert_eq!(seen(), None);
    }
}
