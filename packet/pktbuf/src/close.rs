//! The end of a pool.

use crate::page::{Frag, Page};
use crate::pool::PagePool;
use crate::stats::PoolStats;

/// A closed pool with pages in flight: it hands out nothing more, takes back what comes, and can
/// be asked again. Its memory stays mapped.
#[derive(Debug, thiserror::Error)]
#[error("page pool closed with {} pages in flight", self.in_flight())]
pub struct Detached {
    /// Boxed: this travels as an error.
    pool: Box<PagePool>,
}

impl PagePool {
    /// Takes everything home that is on its way and empties the pool. Succeeds, with the final
    /// statistics, when no page is in flight any more; what other threads still hold in the
    /// magazine of a [`crate::Returner`] is in flight.
    pub fn close(mut self) -> Result<PoolStats, Detached> {
        self.scrub();
        if self.inflight() == 0 {
            return Ok(self.stats());
        }
        Err(Detached { pool: Box::new(self) })
    }

    /// Releases to the arena all that the pool has.
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
    /// Pages in flight, as of the last attempt to close and what was freed here since.
    pub fn in_flight(&self) -> u32 {
        self.pool.outstanding()
    }

    /// Gives back a page.
    ///
    /// # Panics
    /// When the page is of another pool.
    pub fn free(&mut self, page: Page) {
        self.pool.free(page);
    }

    /// Gives back a fragment.
    ///
    /// # Panics
    /// When the fragment is of another pool.
    pub fn free_frag(&mut self, frag: Frag) {
        self.pool.free_frag(frag);
    }

    /// The statistics so far.
    pub fn stats(&self) -> PoolStats {
        self.pool.stats()
    }

    /// Tries to close again.
    pub fn retry(self) -> Result<PoolStats, Self> {
        (*self.pool).close()
    }
}
