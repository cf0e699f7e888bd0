//! Pool compared with a shadow allocator, over arbitrary sequences of one thread's calls.

#![cfg(not(loom))]

use std::collections::HashMap;

use arrayvec::ArrayVec;
use mqnet_pktbuf::{Frag, Page, PagePool, PoolConfig, Returner};
use mqnet_shmem::{Span, SpanMut};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Alloc,
    AllocBulk(usize),
    AllocFrag(u32),
    Free(usize),
    FreeBulk(usize, usize),
    FreeFrag(usize),
    ForeignFree(usize, usize),
    ForeignFrag(usize, usize),
    ForeignBulk(usize, usize, usize),
    Flush(usize),
    Replace(usize),
    Drain,
    SetNode(u32),
    Abandon(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let (at, returner) = (any::<usize>(), 0usize..2);
    prop_oneof![
        4 => Just(Op::Alloc),
        6 => (0usize..200).prop_map(Op::AllocBulk),
        12 => (0u32..4200).prop_map(Op::AllocFrag),
        12 => (0u32..700).prop_map(Op::AllocFrag),
        4 => at.prop_map(Op::Free),
        4 => (any::<usize>(), 0usize..200).prop_map(|(at, n)| Op::FreeBulk(at, n)),
        8 => any::<usize>().prop_map(Op::FreeFrag),
        4 => (any::<usize>(), returner).prop_map(|(at, returner)| Op::ForeignFree(at, returner)),
        8 => (any::<usize>(), 0usize..2).prop_map(|(at, returner)| Op::ForeignFrag(at, returner)),
        4 => (any::<usize>(), 0usize..200, 0usize..2)
            .prop_map(|(at, n, returner)| Op::ForeignBulk(at, n, returner)),
        2 => (0usize..2).prop_map(Op::Flush),
        1 => (0usize..2).prop_map(Op::Replace),
        2 => Just(Op::Drain),
        1 => (0u32..3).prop_map(Op::SetNode),
        1 => any::<usize>().prop_map(Op::Abandon),
    ]
}

/// Pool under test, with every allocated handle and the expected state.
struct Shadow {
    pool: PagePool,
    returners: [Returner; 2],
    pages: Vec<(Page, u64)>,
    frags: Vec<(Frag, u64)>,
    /// Allocated ranges (offset and length) by page index; ranges of one page never overlap.
    ranges: HashMap<u32, Vec<(u32, u32)>>,
    next_stamp: u64,
    /// Number of pages that this test allocated; the sum of the pool's allocation counters must not
    /// be less.
    allocated: u64,
    abandoned: u32,
}

/// Writes the stamp at the start and at the end of `bytes`.
fn sign(mut bytes: SpanMut<'_>, stamp: u64) {
    let stamp = stamp.to_le_bytes();
    bytes.copy_from(Span::of(&stamp));
    let end = bytes.len() - stamp.len();
    bytes.split_at(end).1.copy_from(Span::of(&stamp));
}

/// True if both stamps are unchanged: no other holder wrote these bytes.
fn signed(bytes: Span<'_>, stamp: u64) -> bool {
    let (mut start, mut end) = ([0; 8], [0; 8]);
    bytes.read_header(&mut start);
    bytes.skip(bytes.len() - 8).read_header(&mut end);
    start == stamp.to_le_bytes() && end == stamp.to_le_bytes()
}

impl Shadow {
    fn new(config: &PoolConfig) -> Self {
        let pool = PagePool::new(config).unwrap();
        let returners = [pool.returner(), pool.returner()];
        let (pages, frags, ranges) = (Vec::new(), Vec::new(), HashMap::new());
        Self { pool, returners, pages, frags, ranges, next_stamp: 1, allocated: 0, abandoned: 0 }
    }

    fn lent(&mut self, page: u32, offset: u32, len: u32) -> u64 {
        let ranges = self.ranges.entry(page).or_default();
        let disjoint = |&(o, l): &(u32, u32)| offset + len <= o || o + l <= offset;
        assert!(ranges.iter().all(disjoint), "page {page}: {offset}+{len} is out: {ranges:?}");
        assert!(offset + len <= self.pool.page_size());
        ranges.push((offset, len));
        self.next_stamp += 1;
        self.next_stamp
    }

    fn back(&mut self, page: u32, offset: u32) {
        let ranges = self.ranges.get_mut(&page).unwrap();
        ranges.retain(|&(o, _)| o != offset);
        if ranges.is_empty() {
            self.ranges.remove(&page);
        }
    }

    fn take_page(&mut self, mut page: Page) {
        let stamp = self.lent(page.index(), 0, self.pool.page_size());
        sign(self.pool.span_mut(&mut page), stamp);
        self.pages.push((page, stamp));
        self.allocated += 1;
    }

    fn pick_page(&mut self, at: usize) -> Option<Page> {
        let at = at.checked_rem(self.pages.len())?;
        let (page, stamp) = self.pages.swap_remove(at);
        assert!(signed(self.returners[0].span(&page), stamp));
        self.back(page.index(), 0);
        Some(page)
    }

    fn pick_frag(&mut self, at: usize) -> Option<Frag> {
        let at = at.checked_rem(self.frags.len())?;
        let (frag, stamp) = self.frags.swap_remove(at);
        assert!(signed(self.pool.frag_span(&frag), stamp));
        self.back(frag.page_index(), frag.offset());
        Some(frag)
    }

    fn pick_bulk(&mut self, at: usize, n: usize) -> ArrayVec<Page, 200> {
        (0..n).map_while(|_| self.pick_page(at)).collect()
    }

    /// Checks that a failed allocation was right. After all foreign frees are drained, every page
    /// is in use, except one that may be open for fragments.
    fn exhausted(&mut self) {
        self.settle();
        let held = self.ranges.len() as u32 + self.abandoned;
        let (idle, free) =
            (self.pool.inflight() - self.pool.outstanding(), self.pool.pages() - held);
        let again = self.pool.alloc();
        assert!(
            again.is_some() || free <= 1,
            "{free} of {} pages free, {idle} idle",
            self.pool.pages()
        );
        if let Some(page) = again {
            self.take_page(page);
        }
    }

    /// Drains all foreign frees, so that all counts are exact.
    fn settle(&mut self) {
        self.returners.iter_mut().for_each(|returner| {
            while !returner.flush() {
                self.pool.drain();
            }
        });
        self.pool.drain();
        assert_eq!(self.pool.outstanding() as usize, self.ranges.len());
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Alloc => match self.pool.alloc() {
                Some(page) => self.take_page(page),
                None => self.exhausted(),
            },
            Op::AllocBulk(n) => {
                let mut pages = ArrayVec::<Page, 150>::new();
                let got = self.pool.alloc_bulk(&mut pages, n);
                assert_eq!(got, pages.len());
                pages.into_iter().for_each(|page| self.take_page(page));
                if got < n.min(150) {
                    self.exhausted();
                }
            }
            Op::AllocFrag(len) => match self.pool.alloc_frag(len) {
                Some(mut frag) => {
                    assert!(frag.len() >= len && frag.len() % 64 == 0 && frag.offset() % 64 == 0);
                    let stamp = self.lent(frag.page_index(), frag.offset(), frag.len());
                    sign(self.pool.frag_span_mut(&mut frag), stamp);
                    self.frags.push((frag, stamp));
                }
                None if len <= self.pool.page_size() => self.exhausted(),
                None => {}
            },
            Op::Free(at) => {
                let _ = self.pick_page(at).map(|page| self.pool.free(page));
            }
            Op::FreeBulk(at, n) => {
                let mut pages = self.pick_bulk(at, n);
                self.pool.free_bulk(&mut pages);
                assert!(pages.is_empty());
            }
            Op::FreeFrag(at) => {
                let _ = self.pick_frag(at).map(|frag| self.pool.free_frag(frag));
            }
            Op::ForeignFree(at, returner) => {
                let _ = self.pick_page(at).map(|page| self.returners[returner].free_page(page));
            }
            Op::ForeignFrag(at, returner) => {
                let _ = self.pick_frag(at).map(|frag| self.returners[returner].free_frag(frag));
            }
            Op::ForeignBulk(at, n, returner) => {
                let mut pages = self.pick_bulk(at, n);
                self.returners[returner].free_bulk(&mut pages);
            }
            Op::Flush(returner) => {
                self.returners[returner].flush();
            }
            Op::Replace(returner) => self.returners[returner] = self.pool.returner(),
            Op::Drain => {
                self.pool.drain();
            }
            Op::SetNode(node) => self.pool.set_node((node < 2).then_some(node)),
            Op::Abandon(at) => {
                if let Some(page) = self.pick_page(at) {
                    self.pool.abandon(page);
                    self.abandoned += 1;
                }
            }
        }
        // Held pages are in flight; pages in magazines and the return ring may be counted too.
        assert!(self.pool.outstanding() as usize >= self.ranges.len());
        assert!(self.pool.inflight() <= self.pool.pages() - self.abandoned);
    }

    fn finish(mut self) {
        self.settle();
        while let Some(page) = self.pick_page(0) {
            self.pool.free(page);
        }
        while let Some(frag) = self.pick_frag(0) {
            self.returners[0].free_frag(frag);
        }
        drop(self.returners);
        let stats = self.pool.close().unwrap();
        assert_eq!(stats.inflight(), 0);
        let handed_out =
            stats.alloc_fast + stats.alloc_refill + stats.alloc_slow + stats.alloc_slow_high_order;
        assert!(handed_out >= self.allocated);
        // Each freed page is counted in exactly one recycle statistic, or only in `alloc-waive` if
        // the owner freed a page of another node.
        let taken_back = stats.recycle_cached
            + stats.recycle_cache_full
            + stats.recycle_ring
            + stats.recycle_released_refcnt;
        let waived_by_owner = handed_out - taken_back;
        assert!(waived_by_owner <= stats.alloc_waive, "{stats:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    // Goal: for any sequence of calls no byte is allocated twice, and counts are exact after all
    // foreign frees are drained. Allocation fails only if all pages are in use, and no page is in
    // flight at the end.
    #[test]
    fn pool_agrees_with_a_shadow_allocator(
        pages in 1u32..300,
        ring_size in 1u32..100,
        order in 0u32..3,
        node in prop::option::of(0u32..2),
        ops in prop::collection::vec(op(), 1..300),
    ) {
        let page_size = 4096 << order;
        let config = PoolConfig { pages, page_size, ring_size, node, ..PoolConfig::default() };
        let mut shadow = Shadow::new(&config);
        for op in ops {
            shadow.run(op);
        }
        shadow.finish();
    }
}
