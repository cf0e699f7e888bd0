//! How much of its page pool a lane uses, where the control thread can see it.
//!
//! The pool belongs to the lane's worker, and statistics are read a hundred times a second: to ask
//! each lane of 64 channels took 128 doorbells and every worker's sleep.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mqnet_pktbuf::Gauge;

use super::Lane;
use crate::egress::Egress;

/// The gauge of a lane's pool, which the lane changes with the pool. The lock is taken by the lane
/// when something is attached or comes off, never for a frame.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShownPool(Arc<Mutex<Option<Gauge>>>);

impl ShownPool {
    fn lock(&self) -> MutexGuard<'_, Option<Gauge>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pages in use; `None`: the lane has no pool, or is gone.
    pub(crate) fn inflight(&self) -> Option<u32> {
        self.lock().as_ref()?.inflight()
    }
}

impl Lane {
    /// Where its pool is shown as long as it lives.
    pub(crate) fn shown_pool(&self) -> ShownPool {
        self.shown.clone()
    }

    /// Shows the pool that [`Lane::pool_stats`] tells of.
    pub(super) fn show_pool(&mut self) {
        let attached = self.egress.as_mut().and_then(Egress::pool_gauge);
        *self.shown.lock() = attached.or_else(|| self.loan.as_ref().map(|loan| loan.pool.gauge()));
    }
}
