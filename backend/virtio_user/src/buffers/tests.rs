//! Tests of the buffers of one queue, without a device.

use mqnet_pktbuf::{Mapping, PoolConfig};

use super::*;

const RING: u16 = 256;

fn buffers_of(mode: BufferMode, pages: u32) -> Buffers {
    let config = PoolConfig { pages, mapping: Mapping::Device(1 << 32), ..PoolConfig::default() };
    Buffers::new(PagePool::new(&config).unwrap(), mode, 1500, RING)
}

fn buffers(mode: BufferMode) -> Buffers {
    buffers_of(mode, 8)
}

fn setting(requested: RequestedLayout, xdp: bool) -> Setting {
    let cell = SettingCell::default();
    cell.set(requested, xdp);
    cell.get()
}

/// Takes up to `n` buffers in one refill.
fn refill(buffers: &mut Buffers, setting: Setting, stats: &RxBufferStats, n: usize) -> Vec<Buffer> {
    buffers.begin_refill(setting, stats);
    let taken = (0..n).map_while(|_| buffers.take(stats)).collect();
    buffers.end_refill(stats);
    taken
}

fn free(buffers: &mut Buffers, all: Vec<Buffer>) {
    all.into_iter().for_each(|buffer| buffers.pool.free_frag(buffer.frag));
}

// Goal: the last buffer of a page includes the rest of the page: 1600 and 2496 bytes, or 1920 and
// 2176. A header ends at the end of the first cache line.
#[test]
fn last_buffer_includes_rest_of_page() {
    let stats = RxBufferStats::default();
    for (mode, lens, shown, front) in [
        (BufferMode::Mergeable, [1600, 2496], [1548, 2444], 52),
        (BufferMode::Small, [1920, 2176], [1534, 1534], 52),
    ] {
        let mut buffers = buffers(mode);
        let all = refill(&mut buffers, setting(RequestedLayout::Frag, false), &stats, 2);
        assert_eq!([0, 1].map(|i: usize| all[i].frag.len()), lens);
        assert_eq!([0, 1].map(|i: usize| buffers.shown(&all[i])), shown);
        assert_eq!(stats.counters.per_page.get(), 2);
        assert_eq!(all[0].frag.page_index(), all[1].frag.page_index());
        let second = (1 << 32) + u64::from(lens[0] + front);
        assert_eq!(buffers.address(&all[1]), Some(second));
        free(&mut buffers, all);
    }
}

// Goal: with an XDP program every buffer has its own page and 256 bytes of headroom in every
// mode. The device sees a length that ends within the page.
#[test]
fn xdp_buffers_have_page_and_headroom() {
    for (mode, front, shown) in [(BufferMode::Mergeable, 308, 3520), (BufferMode::Small, 308, 1534)]
    {
        let stats = RxBufferStats::default();
        let mut buffers = buffers(mode);
        for requested in [RequestedLayout::Frag, RequestedLayout::Full, RequestedLayout::Auto] {
            let all = refill(&mut buffers, setting(requested, true), &stats, 1);
            assert_eq!((all[0].front, buffers.shown(&all[0])), (front, shown));
            assert_eq!(stats.reason(), Some(Layout { full: true, cause: Cause::Xdp }));
            assert_eq!(stats.counters.headroom.get(), u64::from(front));
            free(&mut buffers, all);
        }
        let all = refill(&mut buffers, setting(RequestedLayout::Frag, false), &stats, 1);
        assert_eq!((all[0].front, stats.reason().unwrap().full), (front - 256, false));
        free(&mut buffers, all);
    }
}

// Goal: a changed setting affects later buffers only, and can be reverted.
#[test]
fn a_switch_is_for_the_next_buffers() {
    let stats = RxBufferStats::default();
    let mut buffers = buffers_of(BufferMode::Mergeable, 1024);
    let mut all = Vec::new();
    for (requested, size) in [
        (RequestedLayout::Frag, 1600),
        (RequestedLayout::Full, 4096),
        (RequestedLayout::Frag, 1600),
    ] {
        all.extend(refill(&mut buffers, setting(requested, false), &stats, 1));
        assert_eq!(stats.counters.size.get(), size);
        assert_eq!(stats.reason().unwrap().full, requested == RequestedLayout::Full);
    }
    assert_eq!(all[1].frag.len(), 4096);
    free(&mut buffers, all);
    assert_eq!(buffers.pool.outstanding(), 0);
}

// Goal: frames near the page size force whole pages, and the cause is reported as forced.
#[test]
fn large_frames_force_pages() {
    let stats = RxBufferStats::default();
    let mut buffers = buffers(BufferMode::Mergeable);
    buffers.average.add(9000);
    buffers.begin_refill(setting(RequestedLayout::Frag, false), &stats);
    assert_eq!(stats.counters.size.get(), 4096);
    assert!(stats.reason().unwrap().cause.to_string().starts_with("forced"));
}

// Goal: a lack of memory for the first ring of whole pages rolls the queue back to parts of pages
// until the next request. After a complete trial whole pages are kept, and failures are only
// counted.
#[test]
fn whole_pages_are_rolled_back() {
    let stats = RxBufferStats::default();
    let mut buffers = buffers_of(BufferMode::Mergeable, 200);
    let (frag, full) =
        (setting(RequestedLayout::Frag, false), setting(RequestedLayout::Full, false));
    let all = refill(&mut buffers, frag, &stats, RING.into());
    assert_eq!((all.len(), stats.counters.alloc_fail.get()), (256, 0));
    free(&mut buffers, all);
    let all = refill(&mut buffers, full, &stats, 199);
    assert!(stats.reason().unwrap().full);
    let more = refill(&mut buffers, full, &stats, 3);
    assert_eq!((more.len(), stats.counters.alloc_fail.get()), (1, 1));
    let rolled_back = Some(Layout { full: false, cause: Cause::RolledBack { pages: 200 } });
    assert_eq!(stats.reason(), rolled_back);
    free(&mut buffers, all);
    free(&mut buffers, more);
    let all = refill(&mut buffers, full, &stats, RING.into());
    assert_eq!((all.len(), stats.reason()), (256, rolled_back));
    free(&mut buffers, all);
    let cell = SettingCell::default();
    cell.set(RequestedLayout::Full, false);
    cell.set(RequestedLayout::Full, false);
    let again = cell.get();
    for _ in 0..2 {
        let all = refill(&mut buffers, again, &stats, 150);
        assert!(stats.reason().unwrap().full, "enough memory this time");
        free(&mut buffers, all);
    }
    let all = refill(&mut buffers, again, &stats, RING.into());
    assert_eq!((all.len(), stats.counters.alloc_fail.get()), (200, 2));
    assert!(stats.reason().unwrap().full, "the trial was over");
    free(&mut buffers, all);
}

/// Takes and returns buffers in turn, `share` percent of them by another thread's handle.
fn traffic(buffers: &mut Buffers, stats: &RxBufferStats, share: usize) {
    let mut returner = buffers.pool.returner();
    for _ in 0..=2 * DECIDE_EVERY {
        let all = refill(buffers, setting(RequestedLayout::Auto, false), stats, 64);
        for (at, buffer) in all.into_iter().enumerate() {
            if at * 100 < share * 64 {
                returner.free_frag(buffer.frag);
            } else {
                buffers.pool.free_frag(buffer.frag);
            }
        }
        returner.flush();
        buffers.pool.drain();
    }
}

thread_local! {
    /// Time of the simulated clock, and its increment per reading, in microseconds.
    static TIME: std::cell::Cell<[u64; 2]> = const { std::cell::Cell::new([0; 2]) };
}

fn step(micros: u64) {
    TIME.with(|time| time.set([time.get()[0], micros]));
}

fn time() -> Duration {
    TIME.with(|time| {
        let [now, step] = time.get();
        time.set([now + step, step]);
        Duration::from_micros(now)
    })
}

// Goal: `auto` measures foreign returns, and selects whole pages above half of all returns. With
// a hysteresis, it returns to parts of pages when most returns are local. The reason shows the
// measured share.
#[test]
fn auto_follows_foreign_returns() {
    let stats = RxBufferStats::default();
    let mut buffers = buffers_of(BufferMode::Mergeable, 1024);
    buffers.clock = time;
    step(1);
    traffic(&mut buffers, &stats, 0);
    assert_eq!(stats.reason(), Some(Layout { full: false, cause: Cause::Cheap }));
    assert_eq!((stats.counters.per_page_used.get(), stats.counters.foreign.get()), (200, 0));
    for (share, full) in [(40, false), (75, true), (35, true), (5, false)] {
        traffic(&mut buffers, &stats, share);
        let layout = stats.reason().unwrap();
        assert_eq!(layout.full, full, "{share}: {layout:?}");
        if let Cause::Foreign(seen) = layout.cause {
            assert!(seen.abs_diff(share as u32) <= 2, "{share}: {seen}");
        }
    }
    assert!(stats.counters.foreign.get() > 5000 && stats.counters.taken.get() > 30_000);
}

// Goal: whole pages with slower refills are abandoned, and not tried again for a while.
#[test]
fn auto_abandons_slow_whole_pages() {
    let stats = RxBufferStats::default();
    let mut buffers = buffers_of(BufferMode::Mergeable, 1024);
    buffers.clock = time;
    step(1);
    traffic(&mut buffers, &stats, 0);
    assert_eq!(stats.counters.refill_frag_ns.get(), 15, "1 us for 64 buffers");
    step(2);
    traffic(&mut buffers, &stats, 75);
    traffic(&mut buffers, &stats, 75);
    // The slower clock also affected the last refills with parts of pages.
    let dear = stats.reason().unwrap();
    let cause = dear.cause;
    assert!(!dear.full && matches!(cause, Cause::Dear { full: 31, frag: 15..26 }), "{cause:?}");
    step(1);
    traffic(&mut buffers, &stats, 75);
    assert!(!stats.reason().unwrap().full, "too early to try again");
}
