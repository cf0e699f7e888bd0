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
    // Out of line it hands its result over in memory: 20 instructions.
    #[inline(always)]
    pub fn alloc_frag(&mut self, len: u32) -> Option<Frag> {
        let page_size = self.page_size();
        // One way out, so that the three numbers stay in registers.
        let (raw, offset, len) = if len > page_size / 2 {
            if len > page_size {
                return None;
            }
            let raw = self.alloc()?.raw();
            self.refs[(raw & INDEX_MASK) as usize] = 1;
            (raw, 0, page_size)
        } else {
            // Half a page is a multiple too.
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
                // The next one would not fit: this one takes the rest, and the pool's reference.
                self.open = OpenPage::default();
                (raw, offset, page_size - offset)
            }
        };
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
        let (left, was_none) = refs.overflowing_sub(1);
        assert!(!was_none, "fragment of page {} freed twice", raw & INDEX_MASK);
        *refs = left;
        left == 0
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

    /// Opens a new page, whose first `len` bytes are a fragment.
    #[inline(always)]
    fn open_page(&mut self, len: u32) -> Option<u32> {
        let raw = self.alloc()?.raw();
        self.cut_first(raw, len);
        Some(raw)
    }

    #[inline(always)]
    fn cut_first(&mut self, raw: u32, len: u32) {
        // The fragment's and the pool's own.
        self.refs[(raw & INDEX_MASK) as usize] = 2;
        self.open = OpenPage { raw, offset: len };
    }

    /// The same when what is left of the open page does not do.
    #[cold]
    #[inline(never)]
    fn open_another_page(&mut self, len: u32) -> Option<u32> {
        let raw = std::mem::take(&mut self.open).raw;
        if !self.drop_ref(raw) {
            return self.open_page(len);
        }
        // All its fragments are back: begin again at its start.
        self.counters.recycle_cached += 1;
        self.counters.alloc_fast += 1;
        self.cut_first(raw, len);
        Some(raw)
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
