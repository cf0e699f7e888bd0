//! The chunks of an RX queue as pages of a pool, so that a frame can leave with its memory.
//!
//! All pages are out of the pool: each belongs to the queue (it is with the kernel, or shown), or
//! to whoever keeps it. What comes and is released goes back to the kernel by its number and never
//! sees the pool.

use std::sync::{Arc, Mutex, PoisonError};

use mqnet_pktbuf::{Detached, Frag, Mapping, PagePool, PoolConfig, PoolError, Returner};
use mqnet_shmem::Part;

use crate::side::CHUNK;

/// Pools of queues that are gone, some of whose pages are still kept.
#[derive(Debug, Default)]
pub(crate) struct Closing(Mutex<Vec<Detached>>);

impl Closing {
    fn add(&self, pool: Detached) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(pool);
    }

    /// Ends those whose pages are all back: their memory goes, and their number can be used again.
    pub(crate) fn settle(&self) {
        let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *pools = pools.drain(..).filter_map(|pool| pool.retry().err()).collect();
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Pages {
    /// There until the end.
    pool: Option<PagePool>,
    /// The right to each page that nobody keeps.
    own: Box<[Option<Frag>]>,
    /// Pages that somebody keeps.
    kept: u16,
    /// Of these, pages that the pool has back.
    home: u16,
    closing: Arc<Closing>,
}

impl Pages {
    /// The pages of this memory.
    pub(crate) fn over(memory: Part, closing: Arc<Closing>) -> Result<Self, PoolError> {
        let pages = (memory.len() / CHUNK as usize) as u32;
        let config = PoolConfig {
            pages,
            page_size: CHUNK,
            // Everything that can be kept finds room on its way home.
            ring_size: pages,
            // The kernel has them by their place in the memory of all sockets.
            mapping: Mapping::Device(memory.offset() as u64),
            ..PoolConfig::default()
        };
        let mut pool = PagePool::over(memory, &config)?;
        let mut own: Box<[Option<Frag>]> = (0..pages).map(|_| None).collect();
        while let Some(frag) = pool.alloc_frag(CHUNK) {
            let place = frag.page_index() as usize;
            own[place] = Some(frag);
        }
        Ok(Self { pool: Some(pool), own, kept: 0, home: 0, closing })
    }

    /// True when nobody keeps a page.
    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        self.kept == 0
    }

    /// True when so many pages more can be kept: half of them stay, so that what comes has room and
    /// wakes whoever waits for it.
    pub(crate) fn can_spare(&self, pages: usize) -> bool {
        usize::from(self.kept) + pages <= self.own.len() / 2
    }

    /// True when nobody keeps this page.
    pub(crate) fn has(&self, number: u16) -> bool {
        self.own.get(usize::from(number)).is_some_and(Option::is_some)
    }

    /// Lets go of a page; `None` when somebody keeps it already.
    pub(crate) fn keep(&mut self, number: u16) -> Option<Frag> {
        let frag = self.own.get_mut(usize::from(number))?.take()?;
        self.kept += 1;
        Some(frag)
    }

    /// A page that was kept and is back.
    pub(crate) fn next_home(&mut self) -> Option<u16> {
        let pool = self.pool.as_mut()?;
        if self.home == 0 {
            // A page is one fragment.
            self.home = pool.drain() as u16;
        }
        self.home = self.home.checked_sub(1)?;
        let frag = pool.alloc_frag(CHUNK)?;
        let number = frag.page_index();
        *self.own.get_mut(number as usize)? = Some(frag);
        self.kept -= 1;
        Some(number as u16)
    }

    /// The way home.
    pub(crate) fn returner(&self) -> Option<Returner> {
        self.pool.as_ref().map(PagePool::returner)
    }
}

impl Drop for Pages {
    /// The kernel may still write into its pages: nobody is given them any more.
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
        let mut all = Part::whole(Region::private((count + 3) * 4096, false, None).unwrap());
        all.take(3 * 4096).unwrap();
        let closing = Arc::new(Closing::default());
        (Pages::over(all, closing.clone()).unwrap(), closing)
    }

    // Goal: a page that is kept is nobody else's until it is back, by whatever thread and whatever
    // order, and it comes back under its own number; half of them cannot be kept.
    #[test]
    fn pages_leave_and_come_home() {
        let (mut pages, _) = pages(300);
        assert!(pages.is_whole() && pages.can_spare(150) && !pages.can_spare(151));
        let mut frags: Vec<Frag> = (0..150).map(|n| pages.keep(2 * n).unwrap()).collect();
        assert!(frags.iter().zip(0..).all(|(frag, n)| frag.page_index() == 2 * n));
        assert!(pages.keep(0).is_none() && pages.keep(300).is_none());
        assert!(!pages.has(0) && pages.has(1) && !pages.has(300));
        assert!(!pages.can_spare(1) && pages.next_home().is_none());
        let mut home = pages.returner().unwrap();
        std::thread::spawn(move || {
            frags.reverse();
            frags.into_iter().for_each(|frag| home.free_frag(frag));
        })
        .join()
        .unwrap();
        let mut back: Vec<u16> = std::iter::from_fn(|| pages.next_home()).collect();
        back.sort_unstable();
        assert_eq!(back, (0..150).map(|n| 2 * n).collect::<Vec<_>>());
        assert!(pages.is_whole() && pages.can_spare(150) && (0..300).all(|n| pages.has(n)));
    }

    // Goal: what is kept outlives its queue, stays readable, and ends the pool when it is back.
    #[test]
    fn kept_pages_outlive_their_queue() {
        let (mut pages, closing) = pages(64);
        let mut home = pages.returner().unwrap();
        let mut frag = pages.keep(7).unwrap();
        home.frag_span_mut(&mut frag).split_at(100).1.write_header(b"still here");
        assert_eq!(home.frag_place(&frag), 10 * 4096);
        drop(pages);
        closing.settle();
        assert_eq!(closing.len(), 1);
        assert_eq!(&home.frag_span(&frag).skip(100).header::<10>().unwrap(), b"still here");
        home.free_frag(frag);
        closing.settle();
        assert_eq!(closing.len(), 1, "on its way");
        home.flush();
        closing.settle();
        assert_eq!(closing.len(), 0);
    }

    // Goal: a queue whose pages are all back leaves no pool behind, however many come and go.
    #[test]
    fn pools_do_not_run_out() {
        for _ in 0..5000 {
            let (mut pages, closing) = pages(2);
            let mut home = pages.returner().unwrap();
            home.free_frag(pages.keep(1).unwrap());
            drop(home);
            drop(pages);
            assert_eq!(closing.len(), 0);
        }
    }
}
