//! Handles.

/// Bits of a handle that are the page's index; the others are the pool's identity.
pub(crate) const INDEX_BITS: u32 = 20;
/// Selects the index.
pub(crate) const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
/// Most pages that a pool may have.
pub(crate) const PAGES_MAX: u32 = 1 << INDEX_BITS;

/// The right to one whole page. It can be moved, to another thread too, but not copied: whoever
/// holds it is the only one who may write the page.
#[derive(Debug, PartialEq, Eq, Hash)]
#[must_use = "a page that is not freed is in flight for ever"]
#[repr(transparent)]
pub struct Page(u32);

impl Page {
    /// `raw` must have been taken from a `Page` that no longer exists.
    #[inline]
    pub(crate) fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    #[inline]
    pub(crate) fn raw(&self) -> u32 {
        self.0
    }

    /// Which page of its pool: its bytes begin at this many page sizes in the arena.
    #[inline]
    pub fn index(&self) -> u32 {
        self.0 & INDEX_MASK
    }
}

/// The right to a part of a page; see [`Page`].
#[derive(Debug, PartialEq, Eq, Hash)]
#[must_use = "a fragment that is not freed keeps its whole page in flight for ever"]
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

    /// Which page of its pool.
    #[inline]
    pub fn page_index(&self) -> u32 {
        self.page & INDEX_MASK
    }

    /// Where it begins in its page.
    #[inline]
    pub fn offset(&self) -> u32 {
        self.offset
    }

    /// Its length, which may exceed what was asked for.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Never true: the smallest fragment has 64 bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
