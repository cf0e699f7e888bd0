//! Giving back from a thread that does not own the pool.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;

use arrayvec::ArrayVec;
use mqnet_rings::return_ring::{ENTRY_LIMIT, Producer};
use mqnet_shmem::{Span, SpanMut};

use crate::arena::Arena;
use crate::page::{Frag, INDEX_BITS, INDEX_MASK, Page};

/// Entries that a returner collects before it hands them over. (Four times as many, with an array
/// of four times as many in the pool, are a tenth faster; but a thread would keep up to 255 pages.)
const MAGAZINE: usize = 64;
/// In an entry of the return ring: a fragment of the page, not the whole page.
pub(crate) const FRAG_BIT: u32 = 1 << INDEX_BITS;
const _: () = assert!(FRAG_BIT << 1 <= ENTRY_LIMIT);

/// One foreign thread's way to give back pages and to reach the bytes of pages that it holds.
///
/// What is freed waits in a magazine of 64 entries and is handed over when that is full, at
/// [`flush`](Self::flush) and at drop; a thread that goes idle should flush. When the return ring
/// is full the magazine keeps the rest for later; when both are full, or at drop, the entries are
/// parked on a list behind a lock: nothing is ever lost, and nobody waits for the owner.
///
/// It has cache lines of its own: it is written at each page, and one that lay on the stack beside
/// what another thread writes cost both of them a third of their speed.
#[derive(Debug)]
#[repr(align(128))]
pub struct Returner {
    arena: Arc<Arena>,
    ring: Producer,
    held: usize,
    magazine: [u32; MAGAZINE],
    /// One thread's.
    not_sync: PhantomData<Cell<()>>,
}

impl Returner {
    pub(crate) fn new(arena: Arc<Arena>, ring: Producer) -> Self {
        Self { arena, ring, held: 0, magazine: [0; MAGAZINE], not_sync: PhantomData }
    }

    /// Gives back a page.
    ///
    /// # Panics
    /// When the page is of another pool.
    #[inline]
    pub fn free_page(&mut self, page: Page) {
        self.arena.check(page.raw());
        self.put(page.index());
    }

    /// Gives back pages; `pages` is empty afterwards.
    ///
    /// # Panics
    /// When a page is of another pool.
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

    /// Gives back a fragment.
    ///
    /// # Panics
    /// When the fragment is of another pool.
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

    /// Between calls the magazine has room for one more.
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

    /// Hands over what the magazine holds; false when the return ring had no room for all of it,
    /// in which case the rest stays in the magazine.
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

    /// The bytes of a page that this thread holds.
    ///
    /// # Panics
    /// When the page is of another pool.
    #[inline]
    pub fn span<'a>(&'a self, page: &'a Page) -> Span<'a> {
        self.arena.span(page)
    }

    /// The bytes of a page that this thread holds, to write.
    ///
    /// # Panics
    /// When the page is of another pool.
    #[inline]
    pub fn span_mut<'a>(&'a self, page: &'a mut Page) -> SpanMut<'a> {
        self.arena.span_mut(page)
    }

    /// Where in the region of the pool's memory a fragment begins: its place in the caller's own
    /// file, when the pages are the caller's.
    ///
    /// # Panics
    /// When the fragment is of another pool.
    pub fn frag_place(&self, frag: &Frag) -> u64 {
        self.arena.check(frag.page());
        let page = u64::from(frag.page_index()) * u64::from(self.arena.page_size());
        self.arena.start() as u64 + page + u64::from(frag.offset())
    }

    /// The bytes of a fragment that this thread holds.
    ///
    /// # Panics
    /// When the fragment is of another pool.
    #[inline]
    pub fn frag_span<'a>(&'a self, frag: &'a Frag) -> Span<'a> {
        self.arena.frag_span(frag)
    }

    /// The bytes of a fragment that this thread holds, to write.
    ///
    /// # Panics
    /// When the fragment is of another pool.
    #[inline]
    pub fn frag_span_mut<'a>(&'a self, frag: &'a mut Frag) -> SpanMut<'a> {
        self.arena.frag_span_mut(frag)
    }
}

impl Clone for Returner {
    /// A returner for another thread, with an empty magazine.
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
