use super::*;

#[cfg(not(loom))]
use proptest::prelude::*;

// Goal: up to `n` slots after a burst of `n` are returned for prefetch, across the ring's end. The
// consumer has seen each of these slots published.
#[cfg(not(loom))]
#[test]
fn prefetched_burst_follows_the_current_one() {
    let (mut tx, mut rx) = ring::<u64>(40);
    let check = |rx: &SpscConsumer<u64>, n: usize, expected: &[usize]| {
        let (slots, more) = rx.burst_after(n);
        let places: Vec<_> = slots.iter().chain(more).map(std::ptr::from_ref).collect();
        let expected: Vec<_> =
            expected.iter().map(|&i| std::ptr::from_ref(&rx.shared.slots[i])).collect();
        assert_eq!(places, expected, "behind {n}");
    };
    tx.push(&[0; 40]);
    rx.len();
    check(&rx, 2, &[2, 3]);
    check(&rx, 40, &[]);
    assert_eq!(rx.pop(&mut [0; 36]), 36);
    check(&rx, 3, &[39]);
    tx.push(&[0; 36]);
    // The new entries are published, but the consumer has not reloaded the producer's index yet.
    check(&rx, 3, &[39]);
    rx.len();
    check(&rx, 3, &[39, 0, 1]);
    check(&rx, 4, &[0, 1, 2, 3]);
}

#[cfg(not(loom))]
proptest! {
    // Goal: the ring is a bounded FIFO (the oracle: a VecDeque) for partial and bulk calls of every
    // size.
    #[test]
    fn ring_is_a_bounded_fifo(
        size in 1u32..70,
        ops in prop::collection::vec((any::<bool>(), any::<bool>(), 0usize..80), 1..200),
    ) {
        let (mut tx, mut rx) = ring::<u64>(size);
        let mut oracle = std::collections::VecDeque::new();
        let mut next = 0u64;
        for (push, bulk, n) in ops {
            if push {
                let burst: Vec<u64> = (next..next + n as u64).collect();
                let room = size as usize - oracle.len();
                let pushed = if bulk {
                    let fits = tx.push_bulk(&burst);
                    prop_assert_eq!(fits, n <= room);
                    if fits { n } else { 0 }
                } else {
                    tx.push(&burst)
                };
                prop_assert!(bulk || pushed == n.min(room));
                oracle.extend(&burst[..pushed]);
                next += pushed as u64;
            } else {
                let mut out = vec![0; n];
                let popped = match bulk {
                    true => n * usize::from(rx.pop_bulk(&mut out)),
                    false => rx.pop(&mut out),
                };
                let there = if bulk && n > oracle.len() { 0 } else { n.min(oracle.len()) };
                let expected: Vec<u64> = oracle.drain(..there).collect();
                prop_assert_eq!(popped, there);
                prop_assert_eq!(&out[..popped], &expected[..]);
            }
            prop_assert_eq!(tx.free(), size as usize - oracle.len());
            prop_assert_eq!(rx.len(), oracle.len());
        }
    }
}

#[cfg(not(loom))]
proptest! {
    // Goal: entries that can only be moved arrive once and in order, and entries that do not fit
    // stay with the caller. Partial and bulk calls agree on the available space.
    #[test]
    fn entries_are_moved(
        size in 1u32..70,
        ops in prop::collection::vec((any::<bool>(), any::<bool>(), 0usize..41), 1..200),
    ) {
        let (mut tx, mut rx) = ring::<Box<u64>>(size);
        let mut oracle = std::collections::VecDeque::new();
        let (mut waiting, mut out) = (ArrayVec::<_, 40>::new(), ArrayVec::<Box<u64>, 40>::new());
        let mut next = 0u64;
        for (push, bulk, n) in ops {
            if push {
                waiting.extend((next..).map(Box::new).take(n.min(waiting.remaining_capacity())));
                let offered: Vec<u64> = waiting.iter().map(|entry| **entry).collect();
                next = offered.last().map_or(next, |last| last + 1);
                let room = size as usize - oracle.len();
                let pushed = match bulk {
                    true => offered.len() * usize::from(tx.push_bulk_from(&mut waiting)),
                    false => tx.push_from(&mut waiting),
                };
                let fits = if bulk && offered.len() > room { 0 } else { offered.len().min(room) };
                prop_assert_eq!(pushed, fits);
                oracle.extend(&offered[..pushed]);
                prop_assert!(waiting.iter().map(|entry| **entry).eq(offered[pushed..].to_vec()));
            } else {
                // Begin with `n` entries in `out`: its remaining capacity limits the number of
                // popped entries.
                out.clear();
                out.extend((0..n.min(40) as u64).map(Box::new));
                let wanted = 40 - n.min(40);
                let popped = match bulk {
                    true => wanted * usize::from(rx.pop_bulk_into(&mut out)),
                    false => rx.pop_into(&mut out),
                };
                let are_there = wanted.min(oracle.len());
                prop_assert_eq!(popped, if bulk && wanted > are_there { 0 } else { are_there });
                prop_assert!(out.drain(n.min(40)..).map(|entry| *entry).eq(oracle.drain(..popped)));
            }
            prop_assert_eq!((tx.free(), rx.len()), (size as usize - oracle.len(), oracle.len()));
        }
    }
}

// Goal: entries with ownership are handed over once, and entries left in a ring are dropped with
// the ring, for any position of its indexes.
#[cfg(not(loom))]
#[test]
fn remaining_entries_are_dropped() {
    for offset in 0..7 {
        let (mut tx, mut rx) = ring(3);
        let entry = std::sync::Arc::new(());
        for _ in 0..offset {
            tx.push_one(entry.clone()).unwrap();
            drop(rx.pop_one().unwrap());
        }
        for _ in 0..3 {
            tx.push_one(entry.clone()).unwrap();
        }
        assert!(tx.push_one(entry.clone()).is_err());
        assert!(rx.pop_one().is_some());
        assert_eq!(std::sync::Arc::strong_count(&entry), 3);
        drop((tx, rx));
        assert_eq!(std::sync::Arc::strong_count(&entry), 1);
    }
}

// Goal: no entry is lost, duplicated or torn between two real threads.
#[cfg(not(loom))]
#[test]
fn two_threads_keep_order() {
    const TOTAL: u64 = 200_000;
    let (mut tx, mut rx) = ring::<[u64; 2]>(64);
    let producer = std::thread::spawn(move || {
        let mut next = 0u64;
        while next < TOTAL {
            let burst: Vec<_> = (next..TOTAL.min(next + 17)).map(|n| [n, !n]).collect();
            let pushed = tx.push(&burst);
            next += pushed as u64;
            if pushed == 0 {
                std::thread::yield_now();
            }
        }
    });
    let (mut expected, mut out) = (0u64, [[0u64; 2]; 23]);
    while expected < TOTAL {
        let n = rx.pop(&mut out);
        for entry in &out[..n] {
            assert_eq!(*entry, [expected, !expected]);
            expected += 1;
        }
        if n == 0 {
            std::thread::yield_now();
        }
    }
    producer.join().unwrap();
}

// Goal: in every interleaving an entry that can only be moved is owned by exactly one side, across
// the wrap of the ring.
#[cfg(loom)]
#[test]
fn moved_entries_are_handed_over() {
    loom::model(|| {
        let (mut tx, mut rx) = ring::<Box<u32>>(2);
        let producer = loom::thread::spawn(move || {
            let mut entries: ArrayVec<_, 3> = (0..3).map(Box::new).collect();
            while !entries.is_empty() {
                if tx.push_from(&mut entries) == 0 {
                    loom::thread::yield_now();
                }
            }
        });
        let mut out = ArrayVec::<Box<u32>, 3>::new();
        while !out.is_full() {
            if rx.pop_into(&mut out) == 0 {
                loom::thread::yield_now();
            }
        }
        assert!(out.iter().map(|entry| **entry).eq(0..3));
        producer.join().unwrap();
    });
}

// Goal: in every interleaving the consumer reads only slots that were written before (loom's cells
// report unordered accesses), in order, across the wrap of the ring.
#[cfg(loom)]
#[test]
fn slots_are_handed_over_in_order() {
    loom::model(|| {
        let (mut tx, mut rx) = ring::<u32>(2);
        let producer = loom::thread::spawn(move || {
            let mut sent = 0;
            while sent < 3 {
                let burst: Vec<u32> = (sent..3).collect();
                let n = tx.push(&burst) as u32;
                sent += n;
                if n == 0 {
                    loom::thread::yield_now();
                }
            }
        });
        let (mut expected, mut out) = (0, [0; 2]);
        while expected < 3 {
            let n = rx.pop(&mut out);
            for &value in &out[..n] {
                assert_eq!(value, expected);
                expected += 1;
            }
            if n == 0 {
                loom::thread::yield_now();
            }
        }
        producer.join().unwrap();
    });
}
