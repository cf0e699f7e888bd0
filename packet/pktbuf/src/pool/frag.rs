//! Parts of pages.
//!
//! A page that is being cut is *open*: the pool itself holds one reference to it, so that it does
//! not go home while its end is unused. References are a plain number per page, written by the
//! owner only; a fragment freed on another thread is subtracted when the owner drains it.

use mqnet_shmem::{Span, SpanMut};

use super::PagePool;
use crate::arena::Look;
use crate::page::{Frag, INDEX_MASK, Page};

/// Fragments begin and end at multiples of this: two of them never share a cache line.
const FRAG_ALIGN: u32 = 64;

/// The page that is being cut. Default: none (no handle is 0).
#[derive(Debug, Default)]
pub(crate) struct OpenPage {
    raw: u32,
    /// Where the next fragment begins.
    offset: u32,
}

impl PagePool {
    /// At least `len` bytes of a page; the page's remaining bytes are added to the last fragment
    /// that fits. More than half a page is a whole page. `None` when `len` exceeds a page or no
    /// page is left.
    #[inline]
    pub fn alloc_frag(&mut self, len: u32) -> Option<Frag> {
        let page_size = self.page_size();
        if len > page_size {
            return None;
        }
        let len = len.max(1).next_multiple_of(FRAG_ALIGN);
        if 2 * len > page_size {
            let raw = self.cut_new_page()?;
            return Some(Frag::new(raw, 0, page_size));
        }
        if self.open.raw == 0 || self.open.offset + len > page_size {
            self.open_page()?;
        }
        let OpenPage { raw, offset } = self.open;
        let end = offset + len;
        if end + len > page_size {
            // The next one would not fit: this one takes the rest, and the pool's own reference.
            self.open = OpenPage::default();
            return Some(Frag::new(raw, offset, page_size - offset));
        }
        self.refs[(raw & INDEX_MASK) as usize] += 1;
        self.open.offset = end;
        Some(Frag::new(raw, offset, len))
    }

    /// Gives back a fragment; its page goes home with the last one.
    ///
    /// # Panics
    /// When the fragment is of another pool.
    #[inline]
    pub fn free_frag(&mut self, frag: Frag) {
        let raw = frag.page();
        self.arena.check(raw);
        let is_last = self.drop_ref(raw);
        self.free_if(raw, is_last);
    }

    /// The bytes of a fragment.
    ///
    /// # Panics
    /// When the fragment is of another pool.
    #[inline]
    pub fn frag_span<'a>(&'a self, frag: &'a Frag) -> Span<'a> {
        self.arena.frag_span(frag)
    }

    /// The pool's memory, to look into many fragments.
    #[inline]
    pub fn look(&self) -> Look<'_> {
        self.arena.look()
    }

    /// The bytes of a fragment, to write.
    ///
    /// # Panics
    /// When the fragment is of another pool.
    #[inline]
    pub fn frag_span_mut<'a>(&'a self, frag: &'a mut Frag) -> SpanMut<'a> {
        self.arena.frag_span_mut(frag)
    }

    /// Subtracts a reference; true when it was the last one.
    #[inline]
    pub(crate) fn drop_ref(&mut self, raw: u32) -> bool {
        let refs = &mut self.refs[(raw & INDEX_MASK) as usize];
        assert!(*refs > 0, "fragment of page {} freed twice", raw & INDEX_MASK);
        *refs -= 1;
        *refs == 0
    }

    /// Gives back a page of ours that nobody has any more, or does nothing, and without a branch on
    /// which it is: which of two frames in one page is freed last is a coin's toss, and half of
    /// such branches are guessed wrong.
    #[inline]
    fn free_if(&mut self, raw: u32, is_over: bool) {
        if self.cached >= self.cache_limit {
            if is_over {
                self.free_cold(&[Page::from_raw(raw)]);
            }
            return;
        }
        if cfg!(debug_assertions) && is_over {
            self.ledger.take_back(raw);
        }
        // What lies above the top is nobody's.
        self.cache[self.cached] = raw;
        self.cached += usize::from(is_over);
        self.counters.recycle_cached += u64::from(is_over);
    }

    /// Takes a page with one reference.
    fn cut_new_page(&mut self) -> Option<u32> {
        let page = self.alloc()?;
        self.refs[page.index() as usize] = 1;
        Some(page.raw())
    }

    #[cold]
    #[inline(never)]
    fn open_page(&mut self) -> Option<()> {
        let raw = std::mem::take(&mut self.open).raw;
        if raw != 0 && self.drop_ref(raw) {
            // All its fragments are back: begin again at its start.
            self.refs[(raw & INDEX_MASK) as usize] = 1;
            self.counters.recycle_cached += 1;
            self.counters.alloc_fast += 1;
            self.open = OpenPage { raw, offset: 0 };
            return Some(());
        }
        self.open = OpenPage { raw: self.cut_new_page()?, offset: 0 };
        Some(())
    }

    /// Gives up the pool's own reference to the page that is being cut.
    pub(crate) fn close_open_page(&mut self) {
        let raw = std::mem::take(&mut self.open).raw;
        if raw != 0 && self.drop_ref(raw) {
            self.free(Page::from_raw(raw));
        }
    }

    /// 1 when a page is open and none of its fragments is out.
    pub(crate) fn idle_open_page(&self) -> u32 {
        let raw = self.open.raw;
        u32::from(raw != 0 && self.refs[(raw & INDEX_MASK) as usize] == 1)
    }
}
