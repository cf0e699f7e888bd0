//! Pages freed by other threads than the one that allocated them.

use arrayvec::ArrayVec;
use mqnet_pktbuf::{PagePool, PoolConfig};
#[cfg(not(loom))]
use mqnet_shmem::Span;

// Goal: in every interleaving of two freeing threads and an allocating owner, pages and fragments
// are drained exactly once, and none stays in flight. (The loom model allows at most three
// preemptions; the ring is so small that the magazines are parked too.)
#[cfg(loom)]
#[test]
fn foreign_frees_are_drained_exactly_once() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let config = PoolConfig { pages: 3, ring_size: 1, ..PoolConfig::default() };
        let mut pool = PagePool::new(&config).unwrap();
        let mut pages = ArrayVec::<_, 2>::new();
        assert_eq!(pool.alloc_bulk(&mut pages, 2), 2);
        let (one, two) = (pages.pop().unwrap(), pages.pop().unwrap());
        let [a, b] = [0; 2].map(|_| pool.alloc_frag(2048).unwrap());
        let threads = [(one, a), (two, b)].map(|(page, frag)| {
            let mut returner = pool.returner();
            loom::thread::spawn(move || {
                returner.free_frag(frag);
                returner.flush();
                returner.free_page(page);
            })
        });
        if let Some(page) = pool.alloc() {
            assert!(pool.outstanding() >= 1);
            pool.free(page);
        }
        for thread in threads {
            thread.join().unwrap();
        }
        let stats = pool.close().unwrap();
        assert_eq!((stats.inflight(), stats.hold, stats.recycle_ring), (0, 3, 3));
    });
}

// Goal: no buffer is allocated twice or lost, and no page is in flight at the end. (Three threads
// check and free buffers that the owner stamped, through a small ring.)
#[cfg(not(loom))]
#[test]
fn foreign_frees_conserve_pages_under_load() {
    use std::sync::mpsc;
    const ROUNDS: u64 = 20_000;
    let config = PoolConfig { pages: 500, ring_size: 64, ..PoolConfig::default() };
    let mut pool = PagePool::new(&config).unwrap();
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let mut returner = pool.returner();
            let (tx, rx) = mpsc::sync_channel::<(ArrayVec<_, 32>, _, u64)>(4);
            let thread = std::thread::spawn(move || {
                for (mut pages, frag, stamp) in rx {
                    let mut read = [0; 8];
                    for page in &pages {
                        returner.span(page).read_header(&mut read);
                        assert_eq!(u64::from_le_bytes(read), stamp);
                    }
                    returner.frag_span(&frag).read_header(&mut read);
                    assert_eq!(u64::from_le_bytes(read), stamp);
                    // Overwrite the stamps: the thread owns its pages until it frees them.
                    pages.iter_mut().for_each(|page| {
                        returner.span_mut(page).copy_from(Span::of(&[0xff; 8]));
                    });
                    returner.free_bulk(&mut pages);
                    returner.free_frag(frag);
                }
            });
            (tx, thread)
        })
        .collect();
    let mut stamp = 0u64;
    while stamp < ROUNDS {
        let mut pages = ArrayVec::new();
        pool.alloc_bulk(&mut pages, 32);
        let Some(mut frag) = pool.alloc_frag(300) else {
            pool.free_bulk(&mut pages);
            std::thread::yield_now();
            continue;
        };
        let bytes = stamp.to_le_bytes();
        for page in &mut pages {
            pool.span_mut(page).copy_from(Span::of(&bytes));
        }
        pool.frag_span_mut(&mut frag).copy_from(Span::of(&bytes));
        threads[stamp as usize % 3].0.send((pages, frag, stamp)).unwrap();
        stamp += 1;
    }
    for (tx, thread) in threads {
        drop(tx);
        thread.join().unwrap();
    }
    let stats = pool.close().unwrap();
    assert_eq!(stats.inflight(), 0);
    assert!(stats.recycle_ring > 0);
}
