//! Chunks of an RX queue as pages of a pool, so that frames can be detached with their memory.
//!
//! All pages are allocated from the pool. A page belongs to the queue (in the fill ring, the RX
//! ring or a burst), or to the owner of a detached frame. A page that is released in order
//! returns to the fill ring by its number, without the pool.

use std::sync::{Arc, Mutex, PoisonError};

use mqnet_pktbuf::{Detached, Frag, Mapping, PagePool, PoolConfig, PoolError, Returner};
use mqnet_shmem::RegionPart;

/// Bytes of a chunk: one page, supported by every driver.
pub(crate) const CHUNK: u32 = 4096;

/// Pools of closed queues that still have detached pages.
#[derive(Debug, Default)]
pub(crate) struct Closing(Mutex<Vec<Detached>>);

impl Closing {
    fn add(&self, pool: Detached) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(pool);
    }

    /// Closes the pools without detached pages: frees their memory and pool numbers.
    pub(crate) fn settle(&self) {
        let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *pools = pools.drain(..).filter_map(|pool| pool.retry().err()).collect();
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Pages of one RX queue.
#[derive(Debug)]
pub(crate) struct Pages {
    /// Pool of the pages; `Some` until drop.
    pool: Option<PagePool>,
    /// Fragments by page number; `None` for detached pages.
    own: Box<[Option<Frag>]>,
    /// Number of detached pages.
    kept: u16,
    /// Number of detached pages that have returned to the pool and are not yet collected.
    returned: u16,
    closing: Arc<Closing>,
}

impl Pages {
    /// Creates a pool over this memory and allocates all its pages.
    pub(crate) fn over(memory: RegionPart, closing: Arc<Closing>) -> Result<Self, PoolError> {
        let pages = (memory.len() / CHUNK as usize) as u32;
        let config = PoolConfig {
            pages,
            page_size: CHUNK,
            // The return ring has space for every page.
            ring_size: pages,
            // The kernel addresses the pages by their offset in the UMEM.
            mapping: Mapping::Device(memory.offset() as u64),
            ..PoolConfig::default()
        };
        let mut pool = PagePool::over(memory, &config)?;
        let mut own: Box<[Option<Frag>]> = (0..pages).map(|_| None).collect();
        while let Some(frag) = pool.alloc_frag(CHUNK) {
            let place = frag.page_index() as usize;
            own[place] = Some(frag);
        }
        Ok(Self { pool: Some(pool), own, kept: 0, returned: 0, closing })
    }

    /// True if no page is detached.
    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        self.kept == 0
    }

    /// True if `pages` more pages can be detached. Half of the pages always stay with the queue,
    /// so that frames can still arrive and wake a lane that waits for memory.
    pub(crate) fn can_spare(&self, pages: usize) -> bool {
        usize::from(self.kept) + pages <= self.own.len() / 2
    }

    /// True if the page is not detached.
    pub(crate) fn has(&self, number: u16) -> bool {
        self.own.get(usize::from(number)).is_some_and(Option::is_some)
    }

    /// Detaches a page; `None` if the page is detached already.
    pub(crate) fn keep(&mut self, number: u16) -> Option<Frag> {
        let frag = self.own.get_mut(usize::from(number))?.take()?;
        self.kept += 1;
        Some(frag)
    }

    /// Number of the next detached page that has returned; `None` if there is none.
    pub(crate) fn next_returned(&mut self) -> Option<u16> {
        let pool = self.pool.as_mut()?;
        if self.returned == 0 {
            // Each page is one fragment.
            self.returned = pool.drain() as u16;
        }
        self.returned = self.returned.checked_sub(1)?;
        let frag = pool.alloc_frag(CHUNK)?;
        let number = frag.page_index();
        *self.own.get_mut(number as usize)? = Some(frag);
        self.kept -= 1;
        Some(number as u16)
    }

    /// Handle that returns detached pages to the pool.
    pub(crate) fn returner(&self) -> Option<Returner> {
        self.pool.as_ref().map(PagePool::returner)
    }
}

impl Drop for Pages {
    /// Closes the pool. The kernel may still write to the pages, so they are not allocated again.
    fn drop(&mut self) {
        let Some(mut pool) = self.pool.take() else { return };
        for frag in self.own.iter_mut().filter_map(Option::take) {
            pool.free_frag(frag);
        }
        if let Err(kept) = pool.close() {
            self.closing.add(kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use mqnet_shmem::Region;

    use super::*;

    fn pages(count: usize) -> (Pages, Arc<Closing>) {
        let mut all = RegionPart::whole(Region::private((count + 3) * 4096, false, None).unwrap());
        all.take(3 * 4096).unwrap();
        let pages = all.take(count * 4096).unwrap();
        let closing = Arc::new(Closing::default());
        (Pages::over(pages, closing.clone()).unwrap(), closing)
    }

    // Goal: a detached page is not detached again until it returns, from any thread and in any
    // order, and keeps its number. Half of the pages cannot be detached.
    #[test]
    fn detached_pages_return_under_their_number() {
        let (mut pages, _) = pages(300);
        assert!(pages.is_whole() && pages.can_spare(150) && !pages.can_spare(151));
        let mut frags: Vec<Frag> = (0..150).map(|n| pages.keep(2 * n).unwrap()).collect();
        assert!(frags.iter().zip(0..).all(|(frag, n)| frag.page_index() == 2 * n));
        assert!(pages.keep(0).is_none() && pages.keep(300).is_none());
        assert!(!pages.has(0) && pages.has(1) && !pages.has(300));
        assert!(!pages.can_spare(1) && pages.next_returned().is_none());
        let mut returner = pages.returner().unwrap();
        std::thread::spawn(move || {
            frags.reverse();
            frags.into_iter().for_each(|frag| returner.free_frag(frag));
        })
        .join()
        .unwrap();
        let mut back: Vec<u16> = std::iter::from_fn(|| pages.next_returned()).collect();
        back.sort_unstable();
        assert_eq!(back, (0..150).map(|n| 2 * n).collect::<Vec<_>>());
        assert!(pages.is_whole() && pages.can_spare(150) && (0..300).all(|n| pages.has(n)));
    }

    // Goal: detached pages outlive their queue and stay readable; the pool closes when all pages
    // have returned.
    #[test]
    fn kept_pages_outlive_their_queue() {
        let (mut pages, closing) = pages(64);
        let mut returner = pages.returner().unwrap();
        let mut frag = pages.keep(7).unwrap();
        returner.frag_span_mut(&mut frag).split_at(100).1.write_header(b"still here");
        assert_eq!(returner.frag_place(&frag), 10 * 4096);
        drop(pages);
        closing.settle();
        assert_eq!(closing.len(), 1);
        assert_eq!(&returner.frag_span(&frag).skip(100).header::<10>().unwrap(), b"still here");
        returner.free_frag(frag);
        closing.settle();
        assert_eq!(closing.len(), 1, "on its way");
        returner.flush();
        closing.settle();
        assert_eq!(closing.len(), 0);
    }

    // Goal: queues without detached pages leave no pool, after any number of queues.
    #[test]
    fn pools_do_not_run_out() {
        for _ in 0..5000 {
            let (mut pages, closing) = pages(2);
            let mut returner = pages.returner().unwrap();
            returner.free_frag(pages.keep(1).unwrap());
            drop(returner);
            drop(pages);
            assert_eq!(closing.len(), 0);
        }
    }
}
