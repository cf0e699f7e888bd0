//! Page pool, owner side.

mod frag;
mod statistics;

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::slice;
use std::sync::Arc;

use arrayvec::ArrayVec;
use mqnet_rings::return_ring::{self, ReturnRingOwner};
use mqnet_shmem::{Region, RegionPart, Span, SpanMut};

use crate::arena::Arena;
use crate::config::{Mapping, PAGE_SIZE_MIN, PoolConfig, PoolError, check};
use crate::gauge::Inflight;
use crate::ledger::Ledger;
use crate::page::{Frag, INDEX_MASK, Page};
use crate::returner::{FRAG_BIT, Returner};
use crate::stats::PoolStats;
use crate::steps;
use frag::OpenPage;

/// Entries of the array for pages of 4 KiB.
const CACHE_MAX: usize = 128;
/// Bounds of the default size of the return ring.
const RING_MIN: u32 = 1024;
const RING_MAX: u32 = 16384;
/// Node value: no node is preferred.
const NODE_NONE: u32 = u32::MAX;
/// Node value of a page that was abandoned.
const NODE_GONE: u32 = u32::MAX - 1;

/// Page pool. A pool may move to another thread but is owned by one thread at a time:
///
/// ```compile_fail
/// fn shared<T: Sync>() {}
/// shared::<mqnet_pktbuf::PagePool>();
/// ```
#[derive(Debug)]
pub struct PagePool {
    /// Number of pages in `cache`, at most `CACHE_MAX`.
    cached: usize,
    /// Array of pages; only the first `cached` entries are valid.
    cache: [u32; CACHE_MAX],
    /// Maximum of `cached` on the fast path: `cache_size`, or 0 while pages of another node are in
    /// flight. With 0 the node of every freed page is checked.
    cache_limit: usize,
    cache_size: usize,
    pub(crate) counters: PoolStats,
    pub(crate) arena: Arc<Arena>,
    pub(crate) open: OpenPage,
    /// Reference counts of pages that are cut into fragments.
    pub(crate) refs: Vec<u32>,
    ledger: Ledger,
    returned: ReturnRingOwner,
    /// Recycled pages that exceed the array.
    spare: Vec<u32>,
    /// Used pages that were released to the arena.
    vacant: Vec<u32>,
    /// Node of each page that was ever used, as of its last allocation from the arena.
    nodes: Vec<u32>,
    node: u32,
    /// Pages outside the arena that belong to another node than `node`.
    strays: u32,
    pages: u32,
    mapping: Mapping,
    /// Pages and fragments freed by other threads.
    foreign: u64,
    /// Reused buffer for parked entries.
    parked: Vec<u32>,
    /// Published number of pages in use.
    published: Inflight,
    /// Makes the pool `!Sync`: one thread owns it.
    not_sync: PhantomData<Cell<()>>,
}

impl PagePool {
    /// Creates a pool on new memory (a memory file that can be passed to a peer).
    pub fn new(config: &PoolConfig) -> Result<Self, PoolError> {
        check(config)?;
        let &PoolConfig { pages, page_size, huge, .. } = config;
        let region = Region::shared("mqnet-pool", pages as usize * page_size as usize, huge)?;
        Self::over(RegionPart::whole(region), config)
    }

    /// Creates a pool on the caller's memory. Received frames are then at addresses known to the
    /// caller and to a device. Page 0 begins at the start of the memory, which is never freed.
    pub fn over(memory: RegionPart, config: &PoolConfig) -> Result<Self, PoolError> {
        check(config)?;
        let &PoolConfig { pages, page_size, ring_size, node, huge: _, mapping } = config;
        let len = memory.len();
        // Fragments begin at multiples of a cache line, so pages must begin there too.
        if len < pages as usize * page_size as usize || !memory.offset().is_multiple_of(64) {
            return Err(PoolError::Memory { pages, page_size, len });
        }
        let arena = Arena::new(memory, page_size.trailing_zeros());
        // A ring with an entry for every page is never full of pages. Entries that find the ring
        // full wait in magazines, or on a list behind a lock, which is slower.
        let ring_size = if ring_size == 0 { pages.max(RING_MIN) } else { ring_size };
        let ring_size = ring_size.min(RING_MAX);
        // The array covers about the same number of bytes for every page size.
        let cache_size = (CACHE_MAX * PAGE_SIZE_MIN as usize / page_size as usize).max(2);
        let list = || Vec::with_capacity(pages as usize);
        Ok(Self {
            cached: 0,
            cache: [0; CACHE_MAX],
            cache_limit: cache_size,
            cache_size,
            counters: PoolStats { page_size, ..PoolStats::default() },
            arena: Arc::new(arena.ok_or(PoolError::TooManyPools)?),
            open: OpenPage::default(),
            refs: list(),
            ledger: Ledger::default(),
            returned: return_ring::ring(ring_size).1,
            spare: list(),
            vacant: list(),
            nodes: list(),
            node: node.unwrap_or(NODE_NONE),
            strays: 0,
            pages,
            mapping,
            foreign: 0,
            parked: Vec::new(),
            published: Inflight::default(),
            not_sync: PhantomData,
        })
    }

    /// Allocates one page. Returns `None` if all pages are in use.
    #[inline]
    pub fn alloc(&mut self) -> Option<Page> {
        if self.cached == 0 {
            return self.alloc_cold();
        }
        self.counters.alloc_fast += 1;
        Some(self.pop())
    }

    /// Allocates up to `n` pages, limited by the remaining capacity of `out` and by the pool, and
    /// appends them to `out`. Returns their number.
    #[inline]
    pub fn alloc_bulk<const N: usize>(&mut self, out: &mut ArrayVec<Page, N>, n: usize) -> usize {
        let n = n.min(out.remaining_capacity());
        if n > self.cached {
            return self.alloc_bulk_cold(out, n);
        }
        self.move_out(out, n);
        self.counters.alloc_fast += n as u64;
        n
    }

    /// Moves the top `n` pages of the array to `out`, which must have space for them.
    #[inline(always)]
    fn move_out<const N: usize>(&mut self, out: &mut ArrayVec<Page, N>, n: usize) {
        let left = self.cached - n;
        let from = &self.cache[left..self.cached];
        self.ledger.lend(from);
        let len = out.len();
        debug_assert!(n <= out.remaining_capacity());
        // SAFETY: `out` has space for n more pages, and this function borrows it exclusively.
        let room = unsafe {
            slice::from_raw_parts_mut(out.as_mut_ptr().add(len).cast::<MaybeUninit<Page>>(), n)
        };
        let page = |raw| MaybeUninit::new(Page::from_raw(raw));
        steps::copy(from, room, self.arena.tag(), |raw| *raw, page);
        // SAFETY: the n entries are written above.
        unsafe { out.set_len(len + n) };
        self.cached = left;
    }

    /// Frees a page.
    ///
    /// # Panics
    /// If the page is of another pool.
    #[inline]
    pub fn free(&mut self, page: Page) {
        if self.cached >= self.cache_limit {
            return self.free_cold(std::slice::from_ref(&page));
        }
        self.arena.check(page.raw());
        self.ledger.take_back(page.raw());
        self.cache[self.cached] = page.raw();
        self.cached += 1;
        self.counters.recycle_cached += 1;
    }

    /// Frees pages and leaves `pages` empty.
    ///
    /// # Panics
    /// If a page is of another pool.
    #[inline]
    pub fn free_bulk<const N: usize>(&mut self, pages: &mut ArrayVec<Page, N>) {
        let n = pages.len();
        if self.cached + n > self.cache_limit {
            self.free_cold(pages);
            return pages.clear();
        }
        self.move_in(pages);
        self.counters.recycle_cached += n as u64;
        pages.clear();
    }

    /// Pushes pages to the array, which must have space for them.
    #[inline(always)]
    fn move_in(&mut self, pages: &[Page]) {
        // One loop copies and checks, which is faster than two; `cached` is raised after the check.
        let room = &mut self.cache[self.cached..][..pages.len()];
        let foreign_bits = steps::copy(pages, room, self.arena.tag(), Page::raw, |raw| raw);
        if foreign_bits & !INDEX_MASK != 0 {
            self.arena.check_all(pages);
        }
        pages.iter().for_each(|page| self.ledger.take_back(page.raw()));
        self.cached += pages.len();
    }

    #[inline]
    fn pop(&mut self) -> Page {
        self.cached -= 1;
        let raw = self.cache[self.cached];
        self.ledger.lend(&[raw]);
        Page::from_raw(raw)
    }

    #[cold]
    #[inline(never)]
    fn alloc_cold(&mut self) -> Option<Page> {
        // `refill` counts this allocation.
        self.refill().then(|| self.pop())
    }

    #[cold]
    #[inline(never)]
    fn alloc_bulk_cold<const N: usize>(&mut self, out: &mut ArrayVec<Page, N>, n: usize) -> usize {
        let goal = out.len() + n;
        // `refill` counts one of the pages that it provides.
        let mut counted = 0;
        loop {
            let now = self.cached.min(goal - out.len());
            self.move_out(out, now);
            self.counters.alloc_fast += (now - counted) as u64;
            if out.len() == goal || !self.refill() {
                return n - (goal - out.len());
            }
            counted = 1;
        }
    }

    /// Frees pages if the array is too full, or if their nodes must be checked.
    #[cold]
    #[inline(never)]
    fn free_cold(&mut self, pages: &[Page]) {
        // All pages are checked first: a panic must not leave a page both in the pool and with the
        // caller.
        self.arena.check_all(pages);
        // While strays exist, the node of every page is checked.
        let chunk = if self.strays == 0 { self.bulk() } else { 1 };
        for pages in pages.chunks(chunk) {
            if self.waive(pages[0].raw()) {
                self.ledger.take_back(pages[0].raw());
                continue;
            }
            let fit = pages.len().min(self.cache_size - self.cached);
            if fit < pages.len() {
                self.spill();
            }
            self.move_in(pages);
            self.counters.recycle_cached += fit as u64;
            self.counters.recycle_cache_full += (pages.len() - fit) as u64;
        }
    }

    /// Frees half of the array: moves its oldest pages to the spare list. The most recently used
    /// pages stay.
    fn spill(&mut self) {
        let half = self.bulk().min(self.cached);
        self.spare.extend_from_slice(&self.cache[..half]);
        self.cache.copy_within(half..self.cached, 0);
        self.cached -= half;
    }

    /// Releases a page that belongs to another node than the pool. Returns false if the page is of
    /// the pool's node.
    #[inline]
    fn waive(&mut self, raw: u32) -> bool {
        if self.strays == 0 || self.nodes[(raw & INDEX_MASK) as usize] == self.node {
            return false;
        }
        self.counters.alloc_waive += 1;
        self.release_page(raw);
        true
    }

    /// Releases a page to the arena.
    pub(crate) fn release_page(&mut self, raw: u32) {
        self.vacant.push(raw);
        self.leave(raw);
    }

    /// Accounts for a page that leaves the pool.
    fn leave(&mut self, raw: u32) {
        self.counters.release = self.counters.release.wrapping_add(1);
        self.published.set(self.counters.inflight());
        if self.strays > 0 && self.nodes[(raw & INDEX_MASK) as usize] != self.node {
            self.strays -= 1;
            self.update_limit();
        }
    }

    fn update_limit(&mut self) {
        self.cache_limit = if self.strays == 0 { self.cache_size } else { 0 };
    }

    /// Fills the empty array with recycled pages, else with pages of the arena. Returns false if
    /// both are empty.
    #[cold]
    #[inline(never)]
    fn refill(&mut self) -> bool {
        debug_assert_eq!(self.cached, 0);
        while self.cached == 0 && self.drain_some() > 0 {}
        if self.cached == 0 {
            let bulk = self.bulk().min(self.spare.len());
            let at = self.spare.len() - bulk;
            self.cache[..bulk].copy_from_slice(&self.spare[at..]);
            self.spare.truncate(at);
            self.cached = bulk;
        }
        if self.cached > 0 {
            self.counters.alloc_refill += 1;
            return true;
        }
        self.counters.alloc_empty += 1;
        self.grow()
    }

    /// Number of pages moved at a time: half of the array.
    fn bulk(&self) -> usize {
        self.cache_size / 2
    }

    /// Takes a bulk of pages from the arena. Never-used pages come first: the kernel places them on
    /// the owner's node when the owner first touches them.
    fn grow(&mut self) -> bool {
        let used = self.nodes.len() as u32;
        let fresh = self.bulk().min((self.pages - used) as usize);
        if fresh > 0 {
            // In reverse order: the array is emptied from its end, so the arena is used from its
            // start.
            for (slot, index) in self.cache.iter_mut().zip((used..used + fresh as u32).rev()) {
                *slot = self.arena.tag() | index;
            }
            self.refs.resize(self.refs.len() + fresh, 0);
            self.nodes.resize(self.nodes.len() + fresh, self.node);
            self.cached = fresh;
        } else {
            let at = self.vacant.len() - self.bulk().min(self.vacant.len());
            for (slot, raw) in self.cache.iter_mut().zip(self.vacant.drain(at..)) {
                // Count the page as one of the pool's node: no better page exists, so the page is
                // not waived again.
                self.nodes[(raw & INDEX_MASK) as usize] = self.node;
                *slot = raw;
                self.cached += 1;
            }
        }
        if self.cached == 0 {
            return false;
        }
        self.counters.hold = self.counters.hold.wrapping_add(self.cached as u32);
        self.published.set(self.counters.inflight());
        if self.page_size() > 4096 {
            self.counters.alloc_slow_high_order += 1;
        } else {
            self.counters.alloc_slow += 1;
        }
        true
    }

    /// Drains all entries returned by other threads and returns their number. Allocation drains one
    /// bulk at a time if the array is empty, so calling this is optional.
    pub fn drain(&mut self) -> usize {
        let mut entries = 0;
        loop {
            match self.drain_some() {
                0 => return entries,
                n => entries += n,
            }
        }
    }

    fn drain_some(&mut self) -> usize {
        let bulk = self.bulk();
        let mut n;
        if self.cached + bulk <= self.cache_size {
            n = self.returned.drain(&mut self.cache[self.cached..][..bulk]);
            self.settle(n);
        } else {
            let mut entries = [0; CACHE_MAX / 2];
            n = self.returned.drain(&mut entries[..bulk]);
            self.account_foreign(&entries[..n]);
        }
        if self.returned.any_parked() {
            let mut parked = std::mem::take(&mut self.parked);
            n += self.returned.take_parked(&mut parked);
            self.account_foreign(&parked);
            parked.clear();
            self.parked = parked;
        }
        n
    }

    /// Accounts for `n` drained entries that are stored above the array's top.
    fn settle(&mut self, n: usize) {
        let entries = &mut self.cache[self.cached..][..n];
        let kinds = entries.iter().fold(0, |kinds, entry| kinds | entry);
        if kinds & FRAG_BIT != 0 || self.strays > 0 {
            let mut copy = [0; CACHE_MAX / 2];
            copy[..n].copy_from_slice(entries);
            return self.account_foreign(&copy[..n]);
        }
        // Whole pages only: they stay in place. The tag is read once: the compiler cannot prove
        // that none of these words aliases the tag, and would not vectorize the loop.
        let tag = self.arena.tag();
        for entry in &mut *entries {
            *entry |= tag;
            self.ledger.take_back(*entry);
        }
        self.cached += n;
        self.foreign += n as u64;
        self.counters.recycle_ring += n as u64;
    }

    /// Accounts for drained entries one by one.
    fn account_foreign(&mut self, entries: &[u32]) {
        self.foreign += entries.len() as u64;
        entries.iter().for_each(|&entry| self.account_foreign_entry(entry));
    }

    fn account_foreign_entry(&mut self, entry: u32) {
        // The returner has checked the pool identity.
        let raw = self.arena.tag() | (entry & INDEX_MASK);
        if entry & FRAG_BIT != 0 && !self.drop_ref(raw) {
            return;
        }
        self.ledger.take_back(raw);
        self.counters.recycle_ring += 1;
        if self.waive(raw) {
            return;
        }
        if self.cached < self.cache_size {
            self.cache[self.cached] = raw;
            self.cached += 1;
        } else {
            self.spare.push(raw);
        }
    }

    /// Removes any page from the array or the spare list. Returns `None` if both are empty.
    pub(crate) fn take_any(&mut self) -> Option<u32> {
        if self.cached > 0 {
            self.cached -= 1;
            return Some(self.cache[self.cached]);
        }
        self.spare.pop()
    }

    /// Abandons a page that another party (a kernel ring or a lost peer) still references. The page
    /// leaves the pool and is never handed out again.
    ///
    /// # Panics
    /// If the page is of another pool.
    pub fn abandon(&mut self, page: Page) {
        self.arena.check(page.raw());
        self.ledger.take_back(page.raw());
        self.counters.recycle_released_refcnt += 1;
        self.leave(page.raw());
        self.nodes[page.index() as usize] = NODE_GONE;
    }

    /// Sets the preferred NUMA node after the owner moved. Pages of other nodes are released
    /// (`alloc-waive`): cached ones immediately, the others when they are freed.
    pub fn set_node(&mut self, node: Option<u32>) {
        let node = node.unwrap_or(NODE_NONE);
        if node == self.node {
            return;
        }
        self.node = node;
        if node == NODE_NONE {
            self.strays = 0;
            return self.update_limit();
        }
        let of_others = |other: &&u32| **other != node && **other != NODE_GONE;
        let of_others = self.nodes.iter().filter(of_others).count();
        let is_stray = |raw: &&u32| self.nodes[(**raw & INDEX_MASK) as usize] != node;
        let resting = self.vacant.iter().filter(is_stray).count();
        self.strays = (of_others - resting) as u32;
        let at_hand: Vec<u32> = std::iter::from_fn(|| self.take_any()).collect();
        // In reverse order: the most recently used page was taken first and is pushed last.
        for raw in at_hand.into_iter().rev() {
            if self.nodes[(raw & INDEX_MASK) as usize] != node {
                self.release_page(raw);
            } else if self.cached < self.cache_size {
                self.cache[self.cached] = raw;
                self.cached += 1;
            } else {
                self.spare.push(raw);
            }
        }
        self.update_limit();
    }

    /// Bytes of a page.
    ///
    /// # Panics
    /// If the page is of another pool.
    #[inline]
    pub fn span<'a>(&'a self, page: &'a Page) -> Span<'a> {
        self.arena.span(page)
    }

    /// Writable bytes of a page.
    ///
    /// # Panics
    /// If the page is of another pool.
    #[inline]
    pub fn span_mut<'a>(&'a self, page: &'a mut Page) -> SpanMut<'a> {
        self.arena.span_mut(page)
    }

    /// Creates a handle through which another thread frees pages.
    pub fn returner(&self) -> Returner {
        Returner::new(self.arena.clone(), self.returned.producer())
    }

    /// Memory of the pages.
    pub fn region(&self) -> &Region {
        self.arena.region()
    }

    /// Offset of the first page in [`region`](Self::region).
    #[inline]
    pub fn start(&self) -> usize {
        self.arena.start()
    }

    /// Page size in bytes.
    #[inline]
    pub fn page_size(&self) -> u32 {
        self.arena.page_size()
    }

    /// Number of pages of the arena.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Number of pages that are not in the arena. These are handed out, waiting in a return ring or
    /// magazine, or cached.
    pub fn inflight(&self) -> u32 {
        self.counters.inflight()
    }

    /// Number of pages that are handed out, or wait in a magazine or in the return ring.
    pub fn outstanding(&self) -> u32 {
        let idle = self.cached as u32 + self.spare.len() as u32 + self.idle_open_page();
        self.inflight() - idle
    }

    /// Address space in which a device reaches the pages.
    pub fn mapping(&self) -> Mapping {
        self.mapping
    }

    /// Device address of a fragment, or `None` in a pool for allocation only.
    #[inline]
    pub fn device_address(&self, frag: &Frag) -> Option<u64> {
        let Mapping::Device(base) = self.mapping else { return None };
        let page = u64::from(frag.page_index()) << self.page_size().trailing_zeros();
        Some(base + page + u64::from(frag.offset()))
    }

    /// Device address of the pool's first byte, or 0 in a pool for allocation only.
    pub fn device_start(&self) -> u64 {
        match self.mapping {
            Mapping::Device(base) => base,
            _ => 0,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
