//! The memory of one pool, and its identity.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use mqnet_rings::primitive::counted::AtomicU64;
use mqnet_shmem::{Part, PartView, Region, Span, SpanMut};

use crate::page::{Frag, INDEX_BITS, INDEX_MASK, Page};

/// Words of the map of identities; identity 0 is never given.
const ID_WORDS: usize = (1 << (32 - INDEX_BITS)) / 64;
/// Identities in use.
static IDS: Mutex<[u64; ID_WORDS]> = Mutex::new([0; ID_WORDS]);

/// Takes a free identity; `None` when 4095 pools are alive (or lost pages).
fn take_id() -> Option<u32> {
    let mut ids = IDS.lock().unwrap_or_else(|e| e.into_inner());
    ids[0] |= 1;
    let (at, word) = ids.iter_mut().enumerate().find(|(_, word)| **word != u64::MAX)?;
    let bit = word.trailing_ones();
    *word |= 1 << bit;
    Some(at as u32 * 64 + bit)
}

fn give_id(id: u32) {
    let mut ids = IDS.lock().unwrap_or_else(|e| e.into_inner());
    ids[id as usize / 64] &= !(1 << (id % 64));
}

/// Shared by a pool and its returners; the mapping lives as long as one of them.
#[derive(Debug)]
pub(crate) struct Arena {
    memory: Part,
    /// The pool's identity in the place where handles have it.
    tag: u32,
    page_shift: u32,
    /// No handle of this pool exists any more, so that its identity may be given again.
    settled: AtomicBool,
    /// Pushes that found the return ring full (the only thing that returners count).
    ring_full: AtomicU64,
}

impl Arena {
    /// Gives the memory an identity. `page_shift` is the binary logarithm of the page size.
    pub(crate) fn new(memory: Part, page_shift: u32) -> Option<Self> {
        let tag = take_id()? << INDEX_BITS;
        let (settled, ring_full) = (AtomicBool::new(false), AtomicU64::new(0));
        Some(Self { memory, tag, page_shift, settled, ring_full })
    }

    #[inline]
    pub(crate) fn tag(&self) -> u32 {
        self.tag
    }

    #[inline]
    pub(crate) fn page_size(&self) -> u32 {
        1 << self.page_shift
    }

    pub(crate) fn region(&self) -> &Region {
        self.memory.region()
    }

    /// Where in the region the first page begins.
    pub(crate) fn start(&self) -> usize {
        self.memory.offset()
    }

    /// To be called when nothing is in flight.
    pub(crate) fn settle(&self) {
        // Relaxed: read in drop, which the reference count of the arena orders.
        self.settled.store(true, Ordering::Relaxed);
    }

    #[cold]
    pub(crate) fn count_ring_full(&self) {
        // Relaxed: a statistic; it orders nothing.
        self.ring_full.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn ring_full(&self) -> u64 {
        // Relaxed: a statistic; it orders nothing.
        self.ring_full.load(Ordering::Relaxed)
    }

    /// Refuses the handle of another pool.
    ///
    /// This check (always on) is what makes handles sound: they are numbers, and without it a page
    /// of one pool could be used to write a page of another that somebody else holds.
    #[inline]
    pub(crate) fn check(&self, raw: u32) {
        if raw & !INDEX_MASK != self.tag {
            foreign(raw, self.tag);
        }
    }

    /// Refuses pages of another pool; see [`check`](Self::check).
    #[inline]
    pub(crate) fn check_all(&self, pages: &[Page]) {
        let strange = pages.iter().fold(0, |strange, page| strange | (page.raw() ^ self.tag));
        if strange & !INDEX_MASK != 0 {
            pages.iter().for_each(|page| self.check(page.raw()));
        }
    }

    #[inline]
    fn offset(&self, raw: u32) -> usize {
        self.check(raw);
        ((raw & INDEX_MASK) as usize) << self.page_shift
    }

    #[inline]
    pub(crate) fn span<'a>(&'a self, page: &'a Page) -> Span<'a> {
        self.memory.span(self.offset(page.raw()), 1 << self.page_shift)
    }

    #[inline]
    pub(crate) fn span_mut<'a>(&'a self, page: &'a mut Page) -> SpanMut<'a> {
        let offset = self.offset(page.raw());
        // SAFETY: one handle exists per page that is out (pages in the pool's lists have none),
        // it is of this pool (checked by `offset`), and it is borrowed mutably for the result.
        unsafe { self.memory.span_mut(offset, 1 << self.page_shift) }
    }

    #[inline]
    pub(crate) fn frag_span<'a>(&'a self, frag: &'a Frag) -> Span<'a> {
        self.memory.span(self.offset(frag.page()) + frag.offset() as usize, frag.len() as usize)
    }

    #[inline]
    pub(crate) fn look(&self) -> Look<'_> {
        Look { memory: self.memory.view(), tag: self.tag, page_shift: self.page_shift }
    }

    #[inline]
    pub(crate) fn frag_span_mut<'a>(&'a self, frag: &'a mut Frag) -> SpanMut<'a> {
        let offset = self.offset(frag.page()) + frag.offset() as usize;
        // SAFETY: a page that is cut into fragments has no `Page` handle, its fragments do not
        // overlap, this one is of this pool (checked) and borrowed mutably for the result.
        unsafe { self.memory.span_mut(offset, frag.len() as usize) }
    }
}

/// A pool's memory, for whoever looks into many fragments in a row.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    memory: PartView<'a>,
    tag: u32,
    page_shift: u32,
}

impl<'a> Look<'a> {
    /// `len` bytes of a fragment from `from` on. (Beyond its end lie others of the pool.)
    ///
    /// # Panics
    /// When the fragment is of another pool, or the bytes are beyond the pool.
    #[inline(always)]
    pub fn span(&self, frag: &'a Frag, from: u32, len: u32) -> Span<'a> {
        if frag.page() & !INDEX_MASK != self.tag {
            foreign(frag.page(), self.tag);
        }
        debug_assert!(u64::from(from) + u64::from(len) <= u64::from(frag.len()));
        let page = ((frag.page() & INDEX_MASK) as usize) << self.page_shift;
        let start = page + frag.offset() as usize + from as usize;
        self.memory.span(start, len)
    }

    /// `len` bytes of a fragment from `start` on, counted from the pool's beginning, for who knows
    /// where the fragment lies: nothing but the pool's bounds is checked.
    ///
    /// # Panics
    /// When the bytes are beyond the pool.
    #[inline(always)]
    pub fn span_at(&self, _frag: &'a Frag, start: usize, len: u32) -> Span<'a> {
        self.memory.span(start, len)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // An identity of which a handle may still exist is never given again.
        if *self.settled.get_mut() {
            give_id(self.tag >> INDEX_BITS);
        }
    }
}

#[cold]
#[inline(never)]
fn foreign(raw: u32, tag: u32) -> ! {
    let (theirs, ours) = (raw >> INDEX_BITS, tag >> INDEX_BITS);
    panic!("page {} of another pool ({theirs}) given to pool {ours}", raw & INDEX_MASK)
}
