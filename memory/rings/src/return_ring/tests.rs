use super::*;

#[cfg(loom)]
use loom::thread;
#[cfg(not(loom))]
use std::thread;

#[cfg(not(loom))]
use proptest::prelude::*;

/// Runs `body` with loom in every interleaving with up to three preemptions, otherwise 2,000 times
/// on real threads. (A full search of three threads takes minutes; the bounded search finds each
/// ordering that is weakened by hand.)
fn explore(body: impl Fn() + Sync + Send + 'static) {
    #[cfg(loom)]
    {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(body);
    }
    #[cfg(not(loom))]
    for _ in 0..2000 {
        body();
    }
}

/// Drains all available entries, two at a time.
fn drain_all(rx: &mut ReturnRingOwner, into: &mut Vec<u32>) {
    let mut out = [0; 2];
    loop {
        let n = rx.drain(&mut out);
        into.extend_from_slice(&out[..n]);
        if n == 0 {
            return;
        }
    }
}

/// Runs two producers that push their batches to a ring of `size`. A producer discards entries that
/// do not fit. Checks that all other entries arrive once, in the order of each producer.
fn two_producers(size: u32, batches: &'static [[&'static [u32]; 2]; 2]) {
    let (tx, mut rx) = ring(size);
    let producers = batches.map(|mine| {
        let tx = tx.clone();
        thread::spawn(move || {
            let mut taken = Vec::new();
            for batch in mine {
                let n = tx.push(batch);
                taken.extend_from_slice(&batch[..n]);
            }
            taken
        })
    });
    let mut got = Vec::new();
    drain_all(&mut rx, &mut got);
    let taken = producers.map(|producer| producer.join().unwrap());
    drain_all(&mut rx, &mut got);
    // Compare with the accepted entries: the entries of the producers are disjoint, so that
    // equality excludes loss and duplication.
    for (mine, offered) in taken.iter().zip(batches) {
        let of_mine = |entry: &&u32| offered.iter().any(|batch| batch.contains(entry));
        let seen: Vec<u32> = got.iter().filter(of_mine).copied().collect();
        assert_eq!(&seen, mine);
    }
    assert_eq!(got.len(), taken[0].len() + taken[1].len());
    assert!(got.len() >= size.min(6) as usize, "{got:?}: a batch was refused while there was room");
}

// Goal: with two producers no entry is lost or duplicated while the owner drains, over several
// laps.
#[test]
fn two_producers_lose_nothing() {
    explore(|| two_producers(4, &[[&[1, 2], &[3]], [&[11, 12], &[13]]]));
}

// Goal: a ring that is too small accepts a prefix of each batch, at most its capacity.
#[test]
fn full_ring_takes_a_prefix() {
    explore(|| two_producers(2, &[[&[1, 2], &[3]], [&[11, 12], &[13]]]));
}

// Goal: the owner sees the writes that a producer made to an object before it returned the object.
// The rule holds for the first entry of a batch and for later entries. (Loom's cell reports
// unordered accesses.)
#[cfg(loom)]
#[test]
fn owner_sees_the_producers_writes() {
    use crate::primitive::cell::UnsafeCell;
    struct Things([UnsafeCell<u32>; 2]);
    // SAFETY: the producer accesses object i before entry i is pushed, and the owner accesses
    // object i after entry i is drained.
    unsafe impl Sync for Things {}
    explore(|| {
        let (tx, mut rx) = ring(2);
        let things = Arc::new(Things([UnsafeCell::new(0), UnsafeCell::new(0)]));
        let shared_things = things.clone();
        let producer = thread::spawn(move || {
            for (i, thing) in shared_things.0.iter().enumerate() {
                // SAFETY: entry i is not yet pushed, see `Things`.
                thing.with_mut(|p| unsafe { *p = 7 + i as u32 });
            }
            assert_eq!(tx.push(&[0, 1]), 2);
        });
        let (mut out, mut seen) = ([0; 1], 0);
        while seen < 2 {
            if rx.drain(&mut out) == 0 {
                thread::yield_now();
                continue;
            }
            // SAFETY: the entry of this object is drained, see `Things`.
            things.0[out[0] as usize].with_mut(|p| unsafe {
                assert_eq!(*p, 7 + out[0]);
                *p = 0;
            });
            seen += 1;
        }
        producer.join().unwrap();
    });
}

/// Models a returner of a page pool with a magazine of two entries. A full magazine is pushed, and
/// parked if the ring accepts nothing. At the end, the remaining entries are pushed or parked.
fn return_through_magazine(tx: &ReturnRingProducer, things: impl IntoIterator<Item = u32>) {
    let mut magazine = Vec::new();
    for thing in things {
        magazine.push(thing);
        if magazine.len() == 2 {
            let n = tx.push(&magazine);
            magazine.drain(..n);
        }
        if magazine.len() == 2 {
            tx.park(&magazine);
            magazine.clear();
        }
    }
    let n = tx.push(&magazine);
    tx.park(&magazine[n..]);
}

// Goal: the whole return path (magazine, ring, parking, drain) conserves objects. After both
// producers end, the owner has each object exactly once, although the ring is far too small.
#[test]
fn return_path_conserves_entries() {
    explore(|| {
        let (tx, mut rx) = ring(1);
        let first = tx.clone();
        let producers = [
            thread::spawn(move || return_through_magazine(&first, 1..=3)),
            thread::spawn(move || return_through_magazine(&tx, 4..=5)),
        ];
        let mut returned = Vec::new();
        drain_all(&mut rx, &mut returned);
        if rx.any_parked() {
            rx.take_parked(&mut returned);
        }
        for producer in producers {
            producer.join().unwrap();
        }
        drain_all(&mut rx, &mut returned);
        if rx.any_parked() {
            rx.take_parked(&mut returned);
        }
        returned.sort_unstable();
        assert_eq!(returned, [1, 2, 3, 4, 5]);
    });
}

#[cfg(not(loom))]
proptest! {
    // Goal: on one thread, the ring is a bounded FIFO (the oracle: a VecDeque) for every size,
    // batch and number of laps.
    #[test]
    fn ring_is_a_bounded_fifo(
        size in 1u32..20,
        ops in prop::collection::vec((any::<bool>(), 0usize..25), 1..200),
    ) {
        let (tx, mut rx) = ring(size);
        let mut oracle = std::collections::VecDeque::new();
        let mut next = ENTRY_LIMIT - 1;
        for (push, n) in ops {
            if push {
                let batch: Vec<u32> = (next - n as u32..next).rev().collect();
                let pushed = tx.push(&batch);
                prop_assert_eq!(pushed, n.min(tx.size() - oracle.len()));
                oracle.extend(&batch[..pushed]);
                next -= pushed as u32;
            } else {
                let mut out = vec![0; n];
                let drained = rx.drain(&mut out);
                let expected: Vec<u32> = oracle.drain(..n.min(oracle.len())).collect();
                prop_assert_eq!(&out[..drained], &expected[..]);
            }
        }
    }
}

// Goal: `push` accepts at most BATCH_MAX entries. The largest entry and the largest length do not
// change the parity bit.
#[cfg(not(loom))]
#[test]
fn longest_batch() {
    let (tx, mut rx) = ring(2 * BATCH_MAX as u32);
    let entries = vec![ENTRY_LIMIT - 1; BATCH_MAX + 5];
    for _ in 0..3 {
        assert_eq!(tx.push(&entries), BATCH_MAX);
        assert_eq!(tx.push(&entries[BATCH_MAX..]), 5);
        let mut out = vec![0; 2 * BATCH_MAX];
        assert_eq!(rx.drain(&mut out), BATCH_MAX + 5);
        assert_eq!(&out[..BATCH_MAX + 5], &entries);
    }
}

// Goal: under load from four threads every entry arrives once, in the order of each thread.
#[cfg(not(loom))]
#[test]
fn four_threads_keep_their_order() {
    const EACH: u32 = 100_000;
    let (tx, mut rx) = ring(256);
    let producers: Vec<_> = (0..4u32)
        .map(|id| {
            let tx = tx.clone();
            thread::spawn(move || {
                let mut next = 0;
                while next < EACH {
                    let batch: Vec<u32> =
                        (next..EACH.min(next + 7 * (id + 1))).map(|n| id << 19 | n).collect();
                    let n = tx.push(&batch);
                    next += n as u32;
                    if n == 0 {
                        thread::yield_now();
                    }
                }
            })
        })
        .collect();
    let (mut next, mut out) = ([0u32; 4], [0; 64]);
    while next.iter().sum::<u32>() < 4 * EACH {
        let n = rx.drain(&mut out);
        for entry in &out[..n] {
            let expected = &mut next[(entry >> 19) as usize];
            assert_eq!(entry & 0x7_ffff, *expected);
            *expected += 1;
        }
        if n == 0 {
            thread::yield_now();
        }
    }
    for producer in producers {
        producer.join().unwrap();
    }
    assert_eq!(rx.drain(&mut out), 0);
}
