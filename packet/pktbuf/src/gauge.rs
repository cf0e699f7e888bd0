//! How many pages of a pool are in use, for other threads than its owner's.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use crate::pool::PagePool;

/// What a pool shows. It has cache lines of its own: whoever looks also counts references there.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shown(AtomicU32);

/// The pool's end.
#[derive(Debug, Default)]
pub(crate) struct Inflight(Arc<Shown>);

impl Inflight {
    pub(crate) fn set(&self, pages: u32) {
        // Relaxed: a statistic; it orders nothing.
        self.0.0.store(pages, Ordering::Relaxed);
    }
}

/// Tells what [`PoolStats::inflight`](crate::PoolStats::inflight) is, from any thread and without
/// the pool's owner. It keeps nothing of the pool alive.
#[derive(Clone, Debug)]
pub struct Gauge(Weak<Shown>);

impl PagePool {
    /// A gauge of this pool.
    pub fn gauge(&self) -> Gauge {
        Gauge(Arc::downgrade(&self.shown.0))
    }
}

impl Gauge {
    /// Pages that are not in the arena; `None` when the pool is gone.
    pub fn inflight(&self) -> Option<u32> {
        // Relaxed: a statistic; it orders nothing.
        self.0.upgrade().map(|shown| shown.0.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::{PagePool, PoolConfig};

    // Goal: from another thread the gauge shows what the statistics do, while pages go and come,
    // and ends with the pool.
    #[test]
    fn shows_what_is_in_use() {
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
