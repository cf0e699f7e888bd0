//! Who has each page, in debug builds: the pool's own mistakes (and a page given back to the wrong
//! pool) stop at once. Handles cannot be copied, so that users cannot free twice by themselves.

/// One bit per page: handed out. Empty, and all calls nothing, in release builds.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    #[cfg(debug_assertions)]
    out: Vec<bool>,
}

impl Ledger {
    /// Pages are handed out.
    #[inline(always)]
    pub(crate) fn lend(&mut self, raws: &[u32]) {
        #[cfg(debug_assertions)]
        for raw in raws {
            let page = (raw & crate::page::INDEX_MASK) as usize;
            if self.out.len() <= page {
                self.out.resize(page + 1, false);
            }
            assert!(!self.out[page], "page {page} handed out twice");
            self.out[page] = true;
        }
        let _ = raws;
    }

    /// A page is given back.
    #[inline(always)]
    pub(crate) fn take_back(&mut self, raw: u32) {
        #[cfg(debug_assertions)]
        {
            let page = (raw & crate::page::INDEX_MASK) as usize;
            let out = self.out.get(page).copied().unwrap_or(false);
            assert!(out, "page {page} freed twice");
            self.out[page] = false;
        }
        let _ = raw;
    }
}
