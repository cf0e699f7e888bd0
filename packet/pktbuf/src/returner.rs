//! Freeing from threads that do not own the pool.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;

use arrayvec::ArrayVec;
use mqnet_rings::return_ring::{ENTRY_LIMIT, ReturnRingProducer};
use mqnet_shmem::{Span, SpanMut};

use crate::arena::Arena;
use crate::page::{Frag, INDEX_BITS, INDEX_MASK, Page};

/// Entries that a returner collects before it pushes them. A larger magazine is faster, but keeps
/// more pages from the owner.
const MAGAZINE: usize = 64;
/// Flag of a return-ring entry: a fragment of the page, not the whole page.
pub(crate) const FRAG_BIT: u32 = 1 << INDEX_BITS;
const _: () = assert!(FRAG_BIT << 1 <= ENTRY_LIMIT);

/// Handle with which one foreign thread frees pages and accesses the bytes of pages that it holds.
///
/// Freed pages are collected in a magazine of 64 entries. The magazine is pushed to the return ring
/// when it is full, by [`flush`](Self::flush), and at drop. A thread that becomes idle should
/// flush. If the return ring is full, the rest stays in the magazine. If both are full, or at drop,
/// the entries are parked on a list behind a lock. No entry is lost, and no thread waits for the
/// owner.
///
/// The alignment prevents false sharing: a returner is written for each page, and may be on a stack
/// next to data that another thread writes.
#[derive(Debug)]
#[repr(align(128))]
pub struct Returner {
    arena: Arc<Arena>,
    ring: ReturnRingProducer,
    held: usize,
    magazine: [u32; MAGAZINE],
    /// Makes the returner `!Sync`: one thread uses it.
    not_sync: PhantomData<Cell<()>>,
}

impl Returner {
    pub(crate) fn new(arena: Arc<Arena>, ring: ReturnRingProducer) -> Self {
        Self { arena, ring, held: 0, magazine: [0; MAGAZINE], not_sync: PhantomData }
    }

    /// Frees a page.
    ///
    /// # Panics
    /// If the page is of another pool.
    #[inline]
    pub fn free_page(&mut self, page: Page) {
        self.arena.check(page.raw());
        self.put(page.index());
    }

    /// Frees pages and leaves `pages` empty.
    ///
    /// # Panics
    /// If a page is of another pool.
    #[inline]
    pub fn free_bulk<const N: usize>(&mut self, pages: &mut ArrayVec<Page, N>) {
        self.arena.check_all(pages);
        let mut rest = pages.as_slice();
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(MAGAZINE - self.held));
            for (slot, page) in self.magazine[self.held..].iter_mut().zip(now) {
                *slot = page.index();
            }
            self.held += now.len();
            self.make_room();
            rest = later;
        }
        pages.clear();
    }

    /// Frees a fragment.
    ///
    /// # Panics
    /// If the fragment is of another pool.
    #[inline]
    pub fn free_frag(&mut self, frag: Frag) {
        self.arena.check(frag.page());
        self.put((frag.page() & INDEX_MASK) | FRAG_BIT);
    }

    #[inline]
    fn put(&mut self, entry: u32) {
        self.magazine[self.held] = entry;
        self.held += 1;
        self.make_room();
    }

    /// Restores the invariant that the magazine has space for one entry between calls.
    #[inline]
    fn make_room(&mut self) {
        if self.held < MAGAZINE {
            return;
        }
        self.flush();
        if self.held == MAGAZINE {
            self.park();
        }
    }

    /// Pushes the magazine to the return ring. Returns false if the ring had no space for all
    /// entries; the rest stays in the magazine.
    pub fn flush(&mut self) -> bool {
        let n = self.ring.push(&self.magazine[..self.held]);
        if n < self.held {
            self.arena.count_ring_full();
            self.magazine.copy_within(n..self.held, 0);
        }
        self.held -= n;
        self.held == 0
    }

    #[cold]
    fn park(&mut self) {
        self.ring.park(&self.magazine[..self.held]);
        self.held = 0;
    }

    /// Bytes of a page that this thread holds.
    ///
    /// # Panics
    /// If the page is of another pool.
    #[inline]
    pub fn span<'a>(&'a self, page: &'a Page) -> Span<'a> {
        self.arena.span(page)
    }

    /// Writable bytes of a page that this thread holds.
    ///
    /// # Panics
    /// If the page is of another pool.
    #[inline]
    pub fn span_mut<'a>(&'a self, page: &'a mut Page) -> SpanMut<'a> {
        self.arena.span_mut(page)
    }

    /// Offset of a fragment in the region of the pool's memory. For a pool on the caller's memory
    /// the offset is that in the caller's file.
    ///
    /// # Panics
    /// If the fragment is of another pool.
    pub fn frag_place(&self, frag: &Frag) -> u64 {
        self.arena.check(frag.page());
        let page = u64::from(frag.page_index()) * u64::from(self.arena.page_size());
        self.arena.start() as u64 + page + u64::from(frag.offset())
    }

    /// Bytes of a fragment that this thread holds.
    ///
    /// # Panics
    /// If the fragment is of another pool.
    #[inline]
    pub fn frag_span<'a>(&'a self, frag: &'a Frag) -> Span<'a> {
        self.arena.frag_span(frag)
    }

    /// Writable bytes of a fragment that this thread holds.
    ///
    /// # Panics
    /// If the fragment is of another pool.
    #[inline]
    pub fn frag_span_mut<'a>(&'a self, frag: &'a mut Frag) -> SpanMut<'a> {
        self.arena.frag_span_mut(frag)
    }
}

impl Clone for Returner {
    /// Creates a returner for another thread, with an empty magazine.
    fn clone(&self) -> Self {
        Self::new(self.arena.clone(), self.ring.clone())
    }
}

impl Drop for Returner {
    fn drop(&mut self) {
        if !self.flush() {
            self.park();
        }
    }
}
