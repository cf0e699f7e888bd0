use super::*;

fn pool(pages: u32) -> PagePool {
    PagePool::new(&PoolConfig { pages, ..PoolConfig::default() }).unwrap()
}

fn take<const N: usize>(pool: &mut PagePool) -> ArrayVec<Page, N> {
    let mut pages = ArrayVec::new();
    assert_eq!(pool.alloc_bulk(&mut pages, N), N);
    pages
}

// Goal: the array is LIFO, so that the page with the hottest cache lines is allocated first.
#[test]
fn array_is_last_in_first_out() {
    let mut pool = pool(200);
    let (one, two) = (pool.alloc().unwrap(), pool.alloc().unwrap());
    let (first, second) = (one.index(), two.index());
    pool.free(one);
    pool.free(two);
    let (one, two) = (pool.alloc().unwrap(), pool.alloc().unwrap());
    assert_eq!((one.index(), two.index()), (second, first));
    pool.free(two);
    pool.free(one);
    assert_eq!(pool.close().unwrap().inflight(), 0);
}

// Goal: invalid configurations are rejected, and the message names the allowed values.
#[test]
fn invalid_configurations_are_rejected() {
    let refused = |pages, page_size| {
        let config = PoolConfig { pages, page_size, ..PoolConfig::default() };
        PagePool::new(&config).unwrap_err().to_string()
    };
    assert!(refused(1, 5000).contains("power of two from 4096"));
    assert!(refused(1, 2048).contains("power of two from 4096"));
    assert!(refused(0, 4096).contains("1 to 1048576"));
    assert!(refused(crate::page::PAGES_MAX + 1, 4096).contains("1 to 1048576"));
}

// Goal: every statistic counts the event of its name, with exact values.
#[test]
fn every_statistic_counts() {
    let config = PoolConfig { pages: 256, ring_size: 2, node: Some(0), ..PoolConfig::default() };
    let mut pool = PagePool::new(&config).unwrap();
    let mut returner = pool.returner();
    // 200 pages: four bulks of 64 from the arena; the first page of each bulk counts as "slow".
    let mut pages = take::<200>(&mut pool);
    let stats = pool.stats();
    assert_eq!((stats.alloc_slow, stats.alloc_empty, stats.alloc_fast), (4, 4, 196));
    assert_eq!((stats.hold, pool.outstanding()), (256, 200));
    // The array holds 56 of at most 128 pages, and a full array spills 64. Of the groups of 64 that
    // are freed, 64, 8 and 8 pages are cached, and all of the last 8.
    pool.free_bulk(&mut pages);
    let stats = pool.stats();
    assert_eq!((stats.recycle_cached, stats.recycle_cache_full), (88, 112));
    // 128 pages are in the array and 128 outside; the pages outside are refilled in two bulks.
    let mut pages = take::<256>(&mut pool);
    let stats = pool.stats();
    assert_eq!((stats.alloc_slow, stats.alloc_refill, stats.alloc_fast), (4, 2, 196 + 254));
    assert!(pool.alloc().is_none());
    assert_eq!(pool.stats().alloc_empty, 5);
    // Three pages go through a ring of two: one stays in the magazine, then is parked.
    for _ in 0..3 {
        returner.free_page(pages.pop().unwrap());
    }
    assert!(!returner.flush());
    drop(returner);
    assert_eq!(pool.drain(), 3);
    let stats = pool.stats();
    assert_eq!((stats.recycle_ring, stats.recycle_ring_full), (3, 2));
    // The owner moves to another node: the three cached pages are released immediately, the other
    // pages when they are freed.
    pool.set_node(Some(1));
    assert_eq!((pool.inflight(), pool.stats().alloc_waive), (253, 0));
    pool.free(pages.pop().unwrap());
    let mut returner = pool.returner();
    returner.free_page(pages.pop().unwrap());
    drop(returner);
    pool.drain();
    assert_eq!((pool.inflight(), pool.stats().alloc_waive), (251, 2));
    // One page leaves the pool, because another party keeps using it.
    pool.abandon(pages.pop().unwrap());
    assert_eq!(pool.stats().recycle_released_refcnt, 1);
    pool.free_bulk(&mut pages);
    let stats = pool.close().unwrap();
    assert_eq!((stats.inflight(), stats.inflight_bytes(), stats.release), (0, 0, 256));
    let silent: Vec<_> =
        stats.counters().filter(|(_, value)| *value == 0).map(|(row, _)| row.name).collect();
    assert_eq!(silent, ["alloc-slow-high-order"]);
}

// Goal: larger pages have a smaller array and count as high order.
#[test]
fn large_pages_have_a_small_array() {
    for (page_size, expected) in [(8192, 64), (16384, 32), (65536, 8), (2 << 20, 2)] {
        let config = PoolConfig { pages: 40, page_size, ..PoolConfig::default() };
        let mut pool = PagePool::new(&config).unwrap();
        assert_eq!(pool.cache_size, expected);
        let mut pages = take::<40>(&mut pool);
        let stats = pool.stats();
        assert_eq!(stats.alloc_slow_high_order, 40u64.div_ceil(expected as u64 / 2));
        assert_eq!(stats.alloc_slow, 0);
        pool.free_bulk(&mut pages);
        assert_eq!(pool.close().unwrap().inflight(), 0);
    }
}

// Goal: after a change of the node the fast path resumes when the last stray page is released. A
// page that is reused although it is remote is not waived again.
#[test]
fn fast_path_resumes_after_the_last_stray() {
    let config = PoolConfig { pages: 64, node: Some(0), ..PoolConfig::default() };
    let mut pool = PagePool::new(&config).unwrap();
    let mut pages = take::<64>(&mut pool);
    pool.abandon(pages.pop().unwrap());
    pool.set_node(Some(1));
    assert_eq!((pool.strays, pool.cache_limit), (63, 0));
    pool.free_bulk(&mut pages);
    assert_eq!((pool.strays, pool.cache_limit), (0, 128));
    assert_eq!((pool.stats().alloc_waive, pool.inflight()), (63, 0));
    let mut pages = take::<63>(&mut pool);
    pool.free_bulk(&mut pages);
    assert_eq!(pool.stats().alloc_waive, 63);
    // Pages in the arena are not strays.
    for node in [2, 0] {
        pool.set_node(Some(node));
        assert_eq!((pool.inflight(), pool.strays, pool.cache_limit), (0, 0, 128));
    }
    assert_eq!(pool.close().unwrap().inflight(), 0);
}

// Goal: the number of pages in flight stays exact when hold and release wrap around.
#[test]
fn inflight_survives_the_wrap_of_its_counters() {
    let mut pool = pool(64);
    (pool.counters.hold, pool.counters.release) = (u32::MAX - 1, u32::MAX - 1);
    let mut pages = take::<3>(&mut pool);
    assert_eq!((pool.counters.hold, pool.inflight(), pool.outstanding()), (62, 64, 3));
    pool.free_bulk(&mut pages);
    assert_eq!(pool.close().unwrap().inflight(), 0);
}

// Goal: fragments are multiples of 64 B, and the last fragment of a page takes the rest of the
// page. A length of more than half a page is rounded up to a page, and more than a page is refused.
#[test]
fn fragments_have_documented_sizes() {
    let mut pool = pool(64);
    let mut cut = |len| {
        let frag = pool.alloc_frag(len)?;
        let seen = (frag.page_index(), frag.offset(), frag.len());
        let _lost = frag;
        Some(seen)
    };
    assert_eq!(cut(1500), Some((0, 0, 1536)));
    assert_eq!(cut(1500), Some((0, 1536, 4096 - 1536)));
    assert_eq!(cut(2049), Some((1, 0, 4096)));
    assert_eq!(cut(0), Some((2, 0, 64)));
    assert_eq!(cut(2048), Some((2, 64, 4096 - 64)));
    assert_eq!(cut(4096), Some((3, 0, 4096)));
    assert_eq!(cut(4097), None);
    assert_eq!(pool.outstanding(), 4);
    assert_eq!(pool.close().unwrap_err().in_flight(), 4);
}

// Goal: the last fragment frees its page, on any thread and in any order. An open page is cut again
// in place when all its fragments are free.
#[test]
fn last_fragment_frees_its_page() {
    let mut pool = pool(64);
    let mut returner = pool.returner();
    let [a, b, c] = [0; 3].map(|_| pool.alloc_frag(1024).unwrap());
    returner.free_frag(b);
    pool.free_frag(a);
    assert_eq!(pool.outstanding(), 1);
    returner.free_frag(c);
    returner.flush();
    assert_eq!(pool.drain(), 2);
    assert_eq!((pool.outstanding(), pool.stats().recycle_ring), (0, 0));
    // 2048 does not fit after the three fragments, so the page is reused from its start.
    let (before, again) = (pool.stats(), pool.alloc_frag(2048).unwrap());
    assert_eq!((again.page_index(), again.offset()), (0, 0));
    assert_eq!(pool.stats().alloc_fast, before.alloc_fast + 1);
    assert_eq!(pool.stats().recycle_cached, before.recycle_cached + 1);
    let last = pool.alloc_frag(2048).unwrap();
    pool.free_frag(again);
    returner.free_frag(last);
    returner.flush();
    pool.drain();
    assert_eq!((pool.outstanding(), pool.stats().recycle_ring), (0, 1));
    drop(returner);
    assert_eq!(pool.close().unwrap().inflight(), 0);
}

// Goal: unused pages of a pool are not resident, even if huge pages are requested.
#[test]
fn unused_arena_memory_is_not_resident() {
    let config = PoolConfig { pages: 1 << 20, huge: true, ..PoolConfig::default() };
    let mut pool = PagePool::new(&config).unwrap();
    let mut page = pool.alloc().unwrap();
    assert_eq!(pool.span_mut(&mut page).copy_from(Span::of(&[7; 5000])), 4096);
    assert_eq!(pool.region().len(), 4 << 30);
    assert!(resident() < 64 << 20, "{} bytes resident", resident());
    pool.free(page);
    assert_eq!(pool.close().unwrap().inflight(), 0);
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

// Goal: closing a pool with pages in flight returns a detached pool, which can be closed when the
// last page is free. The bytes of pages in flight stay readable until then.
#[test]
fn detached_pool_accepts_the_last_pages() {
    let mut pool = pool(64);
    let (mut ours, theirs) = (pool.alloc().unwrap(), pool.alloc().unwrap());
    pool.span_mut(&mut ours).copy_from(Span::of(b"bytes"));
    let frag = pool.alloc_frag(100).unwrap();
    let mut returner = pool.returner();
    let detached = pool.close().unwrap_err();
    assert_eq!(detached.to_string(), "page pool closed with 3 pages in flight");
    let mut read = [0; 5];
    returner.span(&ours).read_header(&mut read);
    assert_eq!(&read, b"bytes");
    returner.free_page(theirs);
    let mut detached = detached.retry().unwrap_err();
    assert_eq!(detached.in_flight(), 3);
    returner.flush();
    detached.free_frag(frag);
    detached.free(ours);
    let stats = detached.retry().unwrap();
    assert_eq!((stats.inflight(), stats.hold, stats.release), (0, 64, 64));
}

// Goal: every call rejects a page of another pool, also in release builds. (A handle contains an
// index: with the handle of another pool, one page would have two writers.)
#[test]
fn pages_of_other_pools_are_rejected() {
    fn refused(f: impl FnOnce(&mut PagePool, Page)) {
        let (mut ours, mut theirs) = (pool(4), pool(4));
        let _held = ours.alloc().unwrap();
        let page = theirs.alloc().unwrap();
        let run = std::panic::AssertUnwindSafe(|| f(&mut ours, page));
        let message = std::panic::catch_unwind(run).unwrap_err();
        assert!(message.downcast_ref::<String>().unwrap().contains("of another pool"));
    }
    refused(|pool, page| pool.free(page));
    refused(|pool, page| pool.free_bulk(&mut ArrayVec::from([page])));
    refused(|pool, page| pool.free_frag(crate::Frag::new(page.raw(), 0, 64)));
    refused(|pool, page| pool.abandon(page));
    refused(|pool, page| pool.returner().free_page(page));
    refused(|pool, page| assert!(pool.span(&page).is_empty()));
    refused(|pool, mut page| assert!(pool.span_mut(&mut page).is_empty()));
}

// Goal: a pool's identity is reused if and only if no page was lost.
#[test]
fn identities_are_reused_when_nothing_is_lost() {
    for _ in 0..10_000 {
        drop(pool(1));
    }
    let mut leaky = pool(1);
    let _lost = leaky.alloc();
    let tag = leaky.arena.tag();
    drop(leaky);
    let tags: Vec<u32> = (0..200).map(|_| pool(1).arena.tag()).collect();
    assert!(!tags.contains(&tag));
}

// Goal: debug builds detect a double free, which is impossible through the interface, for pages of
// every tier.
#[cfg(debug_assertions)]
#[test]
fn double_frees_are_caught() {
    fn caught(f: impl FnOnce(&mut PagePool, Page, Page)) {
        let mut pool = pool(4);
        let page = pool.alloc().unwrap();
        let twin = Page::from_raw(page.raw());
        let run = std::panic::AssertUnwindSafe(|| f(&mut pool, page, twin));
        let message = std::panic::catch_unwind(run).unwrap_err();
        assert!(message.downcast_ref::<String>().unwrap().contains("freed twice"));
        // The pool's state is undefined after the panic.
        std::mem::forget(pool);
    }
    caught(|pool, page, twin| [page, twin].map(|page| pool.free(page)).into_iter().collect());
    caught(|pool, page, twin| pool.free_bulk(&mut ArrayVec::from([page, twin])));
    caught(|pool, page, twin| {
        pool.free(page);
        pool.returner().free_page(twin);
        pool.drain();
    });
}

// Goal: a pool uses the caller's memory in place. Bytes written to its pages are read back at the
// caller's offsets, without a copy.
#[test]
fn the_callers_memory_is_the_pages() {
    let region = Region::private(10 * 4096, false, None).unwrap();
    let (region, mut rest) = RegionPart::whole(region).shared();
    let (first, mine) = (rest.take(64).unwrap(), rest.take(8 * 4096).unwrap());
    let config = PoolConfig { pages: 8, ..PoolConfig::default() };
    let mut pool = PagePool::over(mine, &config).unwrap();
    assert_eq!((pool.start(), first.offset()), (64, 0));
    let mut frags = [pool.alloc_frag(1536).unwrap(), pool.alloc_frag(1536).unwrap()];
    for frag in &mut frags {
        pool.frag_span_mut(frag).copy_from(Span::of(b"payload"));
        let at = pool.start() + frag.page_index() as usize * 4096 + frag.offset() as usize;
        let mut read = [0; 7];
        region.span(at, 7).read_header(&mut read);
        assert_eq!(&read, b"payload");
    }
    frags.into_iter().for_each(|frag| pool.free_frag(frag));
    assert_eq!(pool.close().unwrap().inflight(), 0);
}

// Goal: memory that is too short, or would let two fragments share a cache line, is rejected.
#[test]
fn unsuitable_memory_is_rejected() {
    let config = PoolConfig { pages: 8, ..PoolConfig::default() };
    let mut rest = RegionPart::whole(Region::private(20 * 4096, false, None).unwrap());
    let short = rest.take(8 * 4096 - 64).unwrap();
    let refused = PagePool::over(short, &config).unwrap_err();
    assert!(refused.to_string().contains("8 pages of 4096 bytes do not fit into 32704"));
    rest.take(8).unwrap();
    assert!(matches!(PagePool::over(rest, &config), Err(PoolError::Memory { .. })));
}
