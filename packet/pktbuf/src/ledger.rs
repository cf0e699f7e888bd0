//! Record of the pages that are handed out, in debug builds. A double allocation or double free
//! inside the pool panics immediately. Handles cannot be copied, so users cannot free a page twice.

/// One flag per page, set while the page is handed out. In release builds the ledger is empty and
/// its calls do nothing.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    #[cfg(debug_assertions)]
    out: Vec<bool>,
}

impl Ledger {
    /// Records that pages are handed out. Panics if one is handed out already.
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

    /// Records that a page was freed. Panics if the page was not handed out.
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
