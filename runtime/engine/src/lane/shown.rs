//! Occupancy of a lane's page pool, readable by the control thread.
//!
//! The pool belongs to the lane's worker. Statistics are read often, so a shared gauge avoids a
//! request to every lane, which would wake all workers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mqnet_pktbuf::Gauge;

use super::Lane;
use crate::egress::Egress;

/// Shared gauge of a lane's page pool. The lane replaces the gauge when its pool changes. It takes
/// the lock only then, never for a frame.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShownPool(Arc<Mutex<Option<Gauge>>>);

impl ShownPool {
    fn lock(&self) -> MutexGuard<'_, Option<Gauge>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of pages in use; `None` if the lane has no pool or has ended.
    pub(crate) fn inflight(&self) -> Option<u32> {
        self.lock().as_ref()?.inflight()
    }
}

impl Lane {
    /// Handle of the lane's shared gauge.
    pub(crate) fn shown_pool(&self) -> ShownPool {
        self.shown.clone()
    }

    /// Publishes the gauge of the pool that [`Lane::pool_stats`] reports.
    pub(super) fn show_pool(&mut self) {
        let attached = self.egress.as_mut().and_then(Egress::pool_gauge);
        *self.shown.lock() = attached.or_else(|| self.loan.as_ref().map(|loan| loan.pool.gauge()));
    }
}
