//! Fragments of pages.
//!
//! The page that is being cut is *open*: the pool holds one reference to the page, which is
//! therefore not freed while its end is unused. A reference count is a plain number per page,
//! written by the owner only. A fragment freed on another thread is subtracted when the owner
//! drains it.

use mqnet_shmem::{Span, SpanMut};

use super::PagePool;
use crate::arena::ArenaView;
use crate::page::{Frag, INDEX_MASK, Page};

/// Alignment of fragments: two fragments never share a cache line.
const FRAG_ALIGN: u32 = 64;

/// Page that is being cut. The default is none: no handle is 0.
#[derive(Debug, Default)]
pub(crate) struct OpenPage {
    raw: u32,
    /// Offset of the next fragment.
    offset: u32,
}

impl PagePool {
    /// Allocates at least `len` bytes of a page. The last fragment that fits receives the remaining
    /// bytes of its page. A length of more than half a page is rounded up to a whole page. Returns
    /// `None` if `len` exceeds a page or if no page is left.
    // Inlined: out of line the result would be returned in memory.
    #[inline(always)]
    pub fn alloc_frag(&mut self, len: u32) -> Option<Frag> {
        let page_size = self.page_size();
        // One exit, so that the three numbers stay in registers.
        let (raw, offset, len) = if len > page_size / 2 {
            if len > page_size {
                return None;
            }
            let raw = self.alloc()?.raw();
            self.refs[(raw & INDEX_MASK) as usize] = 1;
            (raw, 0, page_size)
        } else {
            // Half a page is a multiple of the alignment, so the rounded length fits.
            let len = len.max(1).next_multiple_of(FRAG_ALIGN);
            let OpenPage { raw, offset } = self.open;
            let end = offset + len;
            if raw == 0 {
                (self.open_page(len)?, 0, len)
            } else if end + len <= page_size {
                self.refs[(raw & INDEX_MASK) as usize] += 1;
                self.open.offset = end;
                (raw, offset, len)
            } else if end > page_size {
                (self.open_another_page(len)?, 0, len)
            } else {
                // The next fragment would not fit: the current fragment takes the rest of the page,
                // and the pool's reference.
                self.open = OpenPage::default();
                (raw, offset, page_size - offset)
            }
        };
        Some(Frag::new(raw, offset, len))
    }

    /// Frees a fragment. The last fragment of a page frees the page.
    ///
    /// # Panics
    /// If the fragment is of another pool.
    #[inline]
    pub fn free_frag(&mut self, frag: Frag) {
        let raw = frag.page();
        self.arena.check(raw);
        let is_last = self.drop_ref(raw);
        self.free_if_last(raw, is_last);
    }

    /// Bytes of a fragment.
    ///
    /// # Panics
    /// If the fragment is of another pool.
    #[inline]
    pub fn frag_span<'a>(&'a self, frag: &'a Frag) -> Span<'a> {
        self.arena.frag_span(frag)
    }

    /// Memory of the pool, for reads of many fragments.
    #[inline]
    pub fn view(&self) -> ArenaView<'_> {
        self.arena.view()
    }

    /// Writable bytes of a fragment.
    ///
    /// # Panics
    /// If the fragment is of another pool.
    #[inline]
    pub fn frag_span_mut<'a>(&'a self, frag: &'a mut Frag) -> SpanMut<'a> {
        self.arena.frag_span_mut(frag)
    }

    /// Removes a reference. Returns true if it was the last one.
    #[inline]
    pub(crate) fn drop_ref(&mut self, raw: u32) -> bool {
        let refs = &mut self.refs[(raw & INDEX_MASK) as usize];
        let (left, was_none) = refs.overflowing_sub(1);
        assert!(!was_none, "fragment of page {} freed twice", raw & INDEX_MASK);
        *refs = left;
        left == 0
    }

    /// Frees page `raw` if `is_last`, without a branch. Of two frames in one page either may be
    /// freed last, so a branch would be unpredictable.
    #[inline]
    fn free_if_last(&mut self, raw: u32, is_last: bool) {
        if self.cached >= self.cache_limit {
            if is_last {
                self.free_cold(&[Page::from_raw(raw)]);
            }
            return;
        }
        if cfg!(debug_assertions) && is_last {
            self.ledger.take_back(raw);
        }
        // Entries above the top are unused.
        self.cache[self.cached] = raw;
        self.cached += usize::from(is_last);
        self.counters.recycle_cached += u64::from(is_last);
    }

    /// Opens a new page and cuts its first `len` bytes.
    #[inline(always)]
    fn open_page(&mut self, len: u32) -> Option<u32> {
        let raw = self.alloc()?.raw();
        self.cut_first(raw, len);
        Some(raw)
    }

    #[inline(always)]
    fn cut_first(&mut self, raw: u32, len: u32) {
        // One reference of the fragment and one of the pool.
        self.refs[(raw & INDEX_MASK) as usize] = 2;
        self.open = OpenPage { raw, offset: len };
    }

    /// Opens a page for a fragment that does not fit in the open page. Returns the page, or `None`
    /// if no page is left.
    #[cold]
    #[inline(never)]
    fn open_another_page(&mut self, len: u32) -> Option<u32> {
        let raw = std::mem::take(&mut self.open).raw;
        if !self.drop_ref(raw) {
            return self.open_page(len);
        }
        // All fragments of the page are freed: the page is reused from its start.
        self.counters.recycle_cached += 1;
        self.counters.alloc_fast += 1;
        self.cut_first(raw, len);
        Some(raw)
    }

    /// Drops the pool's reference to the open page.
    pub(crate) fn close_open_page(&mut self) {
        let raw = std::mem::take(&mut self.open).raw;
        if raw != 0 && self.drop_ref(raw) {
            self.free(Page::from_raw(raw));
        }
    }

    /// Number of open pages without a fragment in use: 1 or 0.
    pub(crate) fn idle_open_page(&self) -> u32 {
        let raw = self.open.raw;
        u32::from(raw != 0 && self.refs[(raw & INDEX_MASK) as usize] == 1)
    }
}
