//! Handles of pages and fragments.

/// Bits of a handle that hold the page index; the other bits hold the pool identity.
pub(crate) const INDEX_BITS: u32 = 20;
/// Mask of the page index.
pub(crate) const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
/// Maximum number of pages of a pool.
pub(crate) const PAGES_MAX: u32 = 1 << INDEX_BITS;

/// Exclusive handle of one whole page. The handle can be moved, also between threads, but not
/// copied. The holder is therefore the only writer of the page.
#[derive(Debug, PartialEq, Eq, Hash)]
#[must_use = "a page that is not freed stays in flight"]
#[repr(transparent)]
pub struct Page(u32);

impl Page {
    /// Creates a handle. Requires that `raw` comes from a `Page` that no longer exists.
    #[inline]
    pub(crate) fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    #[inline]
    pub(crate) fn raw(&self) -> u32 {
        self.0
    }

    /// Page number. The page begins at this many page sizes in the arena.
    #[inline]
    pub fn index(&self) -> u32 {
        self.0 & INDEX_MASK
    }
}

/// Exclusive handle of a part of a page; see [`Page`].
#[derive(Debug, PartialEq, Eq, Hash)]
#[must_use = "a fragment that is not freed keeps its whole page in flight"]
pub struct Frag {
    page: u32,
    offset: u32,
    len: u32,
}

impl Frag {
    #[inline]
    pub(crate) fn new(page: u32, offset: u32, len: u32) -> Self {
        Self { page, offset, len }
    }

    #[inline]
    pub(crate) fn page(&self) -> u32 {
        self.page
    }

    /// Page number, as [`Page::index`].
    #[inline]
    pub fn page_index(&self) -> u32 {
        self.page & INDEX_MASK
    }

    /// Offset of the fragment in its page.
    #[inline]
    pub fn offset(&self) -> u32 {
        self.offset
    }

    /// Length in bytes, which may exceed the requested length.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Always false: the smallest fragment has 64 bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
