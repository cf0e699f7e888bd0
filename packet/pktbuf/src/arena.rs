//! Memory and identity of one pool.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use mqnet_rings::primitive::counted::AtomicU64;
use mqnet_shmem::{PartView, Region, RegionPart, Span, SpanMut};

use crate::page::{Frag, INDEX_BITS, INDEX_MASK, Page};

/// Words of the identity bitmap. Identity 0 is never allocated.
const ID_WORDS: usize = (1 << (32 - INDEX_BITS)) / 64;
/// Bitmap of identities in use.
static IDS: Mutex<[u64; ID_WORDS]> = Mutex::new([0; ID_WORDS]);

/// Allocates an identity. Returns `None` if all 4095 are in use, by live pools or by closed pools
/// that lost pages.
fn take_id() -> Option<u32> {
    let mut ids = IDS.lock().unwrap_or_else(|e| e.into_inner());
    ids[0] |= 1;
    let (at, word) = ids.iter_mut().enumerate().find(|(_, word)| **word != u64::MAX)?;
    let bit = word.trailing_ones();
    *word |= 1 << bit;
    Some(at as u32 * 64 + bit)
}

fn release_id(id: u32) {
    let mut ids = IDS.lock().unwrap_or_else(|e| e.into_inner());
    ids[id as usize / 64] &= !(1 << (id % 64));
}

/// State shared by a pool and its returners. The memory stays mapped until the last of them is
/// dropped.
#[derive(Debug)]
pub(crate) struct Arena {
    memory: RegionPart,
    /// Pool identity, shifted to its position in a handle.
    tag: u32,
    page_shift: u32,
    /// True if no handle of this pool exists any more. The identity may then be reused.
    settled: AtomicBool,
    /// Pushes that found the return ring full. No other statistic is written by returners.
    ring_full: AtomicU64,
}

impl Arena {
    /// Creates the arena with a new identity. `page_shift` is the binary logarithm of the page
    /// size.
    pub(crate) fn new(memory: RegionPart, page_shift: u32) -> Option<Self> {
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

    /// Offset of the first page in the region.
    pub(crate) fn start(&self) -> usize {
        self.memory.offset()
    }

    /// Marks the identity as reusable. Requires that no page is in flight.
    pub(crate) fn settle(&self) {
        // Relaxed: read in drop only, and the arena's reference count orders that.
        self.settled.store(true, Ordering::Relaxed);
    }

    #[cold]
    pub(crate) fn count_ring_full(&self) {
        // Relaxed: a statistic orders nothing.
        self.ring_full.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn ring_full(&self) -> u64 {
        // Relaxed: a statistic orders nothing.
        self.ring_full.load(Ordering::Relaxed)
    }

    /// Panics when the handle belongs to another pool.
    ///
    /// Soundness depends on this check, so release builds include it. A handle is a number, and a
    /// foreign handle would give write access to a page with another owner.
    #[inline]
    pub(crate) fn check(&self, raw: u32) {
        if raw & !INDEX_MASK != self.tag {
            foreign(raw, self.tag);
        }
    }

    /// Panics when a page belongs to another pool; see [`check`](Self::check).
    #[inline]
    pub(crate) fn check_all(&self, pages: &[Page]) {
        let foreign_bits =
            pages.iter().fold(0, |foreign_bits, page| foreign_bits | (page.raw() ^ self.tag));
        if foreign_bits & !INDEX_MASK != 0 {
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
        // SAFETY: each page that is out has exactly one handle, and pages in the pool's lists have
        // none. The handle is of this pool (checked by `offset`), and it is mutably borrowed as
        // long as the result.
        unsafe { self.memory.span_mut(offset, 1 << self.page_shift) }
    }

    #[inline]
    pub(crate) fn frag_span<'a>(&'a self, frag: &'a Frag) -> Span<'a> {
        self.memory.span(self.offset(frag.page()) + frag.offset() as usize, frag.len() as usize)
    }

    #[inline]
    pub(crate) fn view(&self) -> ArenaView<'_> {
        ArenaView { memory: self.memory.view(), tag: self.tag, page_shift: self.page_shift }
    }

    #[inline]
    pub(crate) fn frag_span_mut<'a>(&'a self, frag: &'a mut Frag) -> SpanMut<'a> {
        let offset = self.offset(frag.page()) + frag.offset() as usize;
        // SAFETY: a page that is cut into fragments has no `Page` handle, and its fragments do not
        // overlap. This fragment is of this pool (checked by `offset`), and it is mutably borrowed
        // as long as the result.
        unsafe { self.memory.span_mut(offset, frag.len() as usize) }
    }
}

/// Memory of a pool, borrowed for reads of many fragments in a row.
#[derive(Clone, Copy, Debug)]
pub struct ArenaView<'a> {
    memory: PartView<'a>,
    tag: u32,
    page_shift: u32,
}

impl<'a> ArenaView<'a> {
    /// Returns `len` bytes of a fragment, starting at its byte `from`. Release builds check only
    /// the bounds of the pool: bytes after the fragment belong to other fragments.
    ///
    /// # Panics
    /// If the fragment is of another pool, or if the bytes are beyond the pool.
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

    /// Returns `len` bytes at offset `start` of the pool's memory, for callers that know the
    /// fragment's offset. Only the pool's bounds are checked.
    ///
    /// # Panics
    /// If the bytes are beyond the pool.
    #[inline(always)]
    pub fn span_at(&self, _frag: &'a Frag, start: usize, len: u32) -> Span<'a> {
        self.memory.span(start, len)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // The identity is not reused while a handle with it may exist.
        if *self.settled.get_mut() {
            release_id(self.tag >> INDEX_BITS);
        }
    }
}

#[cold]
#[inline(never)]
fn foreign(raw: u32, tag: u32) -> ! {
    let (theirs, ours) = (raw >> INDEX_BITS, tag >> INDEX_BITS);
    panic!("page {} of another pool ({theirs}) given to pool {ours}", raw & INDEX_MASK)
}
