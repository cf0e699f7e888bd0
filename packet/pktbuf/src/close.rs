//! Closing of a pool.

use crate::page::{Frag, Page};
use crate::pool::PagePool;
use crate::stats::PoolStats;

/// Closed pool with pages in flight. Allocates nothing, still accepts freed pages, and can retry
/// the close. The memory stays mapped.
#[derive(Debug, thiserror::Error)]
#[error("page pool closed with {} pages in flight", self.in_flight())]
pub struct Detached {
    /// Boxed to keep the error small.
    pool: Box<PagePool>,
}

impl PagePool {
    /// Drains foreign frees and empties the pool. Returns the final statistics if no page is in
    /// flight, else the pool as an error. Pages in the magazine of another thread's
    /// [`crate::Returner`] count as in flight.
    pub fn close(mut self) -> Result<PoolStats, Detached> {
        self.scrub();
        if self.inflight() == 0 {
            return Ok(self.stats());
        }
        Err(Detached { pool: Box::new(self) })
    }

    /// Releases all pages of the pool to the arena.
    fn scrub(&mut self) {
        self.close_open_page();
        self.drain();
        while let Some(raw) = self.take_any() {
            self.release_page(raw);
        }
    }
}

impl Drop for PagePool {
    fn drop(&mut self) {
        self.scrub();
        if self.inflight() == 0 {
            self.arena.settle();
        }
    }
}

impl Detached {
    /// Number of pages in flight at the last attempt to close, less the pages that
    /// [`free`](Self::free) and [`free_frag`](Self::free_frag) have freed since.
    pub fn in_flight(&self) -> u32 {
        self.pool.outstanding()
    }

    /// Frees a page.
    ///
    /// # Panics
    /// If the page is of another pool.
    pub fn free(&mut self, page: Page) {
        self.pool.free(page);
    }

    /// Frees a fragment.
    ///
    /// # Panics
    /// If the fragment is of another pool.
    pub fn free_frag(&mut self, frag: Frag) {
        self.pool.free_frag(frag);
    }

    /// Statistics so far.
    pub fn stats(&self) -> PoolStats {
        self.pool.stats()
    }

    /// Retries the close. Returns the pool as an error if pages are still in flight.
    pub fn retry(self) -> Result<PoolStats, Self> {
        (*self.pool).close()
    }
}
