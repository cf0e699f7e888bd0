//! Tests on real threads, and a comparison with a `VecDeque`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use crate::mpsc::*;

/// Wake-up of a parked thread.
struct Unpark(thread::Thread);

impl Waker for Unpark {
    fn ring(&self) {
        self.0.unpark();
    }
}

fn send(tx: &mut MpscSender<[u64; 2]>, begin: Instant, value: [u64; 2]) -> Result<(), Closed> {
    let mut permit = tx.reserve(|| begin.elapsed())?;
    *permit = value;
    permit.commit();
    Ok(())
}

#[derive(Clone, Debug)]
enum Op {
    Send(usize),
    Abort,
    Peek(usize),
    Release(usize),
    Resize(u32),
    Reattach,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (1usize..6).prop_map(Op::Send),
        1 => Just(Op::Abort),
        2 => (0usize..9).prop_map(Op::Peek),
        3 => (0usize..9).prop_map(Op::Release),
        1 => (1u32..9).prop_map(Op::Resize),
        1 => Just(Op::Reattach),
    ]
}

/// Removes `values` values from a queue, and the aborted slots before, between and after them.
fn forget(slots: &mut VecDeque<Option<u64>>, mut values: usize) {
    while let Some(slot) = slots.front() {
        if slot.is_some() {
            if values == 0 {
                return;
            }
            values -= 1;
        }
        slots.pop_front();
    }
}

proptest! {
    // Goal: on one thread, the ring is a bounded FIFO of exactly its size, through aborted slots,
    // resizes and new consumers. (The oracle has one queue for each ring of the chain.)
    #[test]
    fn ring_is_a_bounded_fifo(
        size in 1u32..9,
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let control = ring(size, || 0u64, Silent, Silent);
        let (mut tx, mut rx) = (control.sender(), control.attach().unwrap());
        // Size and slots of each ring; `None` is an aborted slot.
        let mut rings = VecDeque::from([(size as usize, VecDeque::new())]);
        let mut next = 0u64;
        for op in ops {
            match op {
                Op::Send(n) => for _ in 0..n {
                    let last = rings.len() - 1;
                    let (size, slots) = &mut rings[last];
                    match tx.try_reserve() {
                        Ok(mut permit) => {
                            prop_assert!(slots.len() < *size);
                            *permit = next;
                            permit.commit();
                            slots.push_back(Some(next));
                            next += 1;
                        }
                        Err(refused) => {
                            prop_assert_eq!(refused, ReserveError::Full);
                            prop_assert_eq!(slots.len(), *size);
                        }
                    }
                },
                Op::Abort => if let Ok(permit) = tx.try_reserve() {
                    drop(permit);
                    let last = rings.len() - 1;
                    rings[last].1.push_back(None);
                },
                Op::Peek(most) | Op::Release(most) => {
                    let seen: Vec<u64> = rx.peek().copied().take(most).collect();
                    forget(&mut rings[0].1, 0);
                    while rings.len() > 1 && rings[0].1.is_empty() {
                        rings.pop_front();
                        forget(&mut rings[0].1, 0);
                    }
                    let waiting: Vec<u64> =
                        rings[0].1.iter().flatten().copied().take(most).collect();
                    prop_assert_eq!(&seen, &waiting);
                    if matches!(op, Op::Release(_)) {
                        rx.release(seen.len());
                        forget(&mut rings[0].1, seen.len());
                    }
                }
                Op::Resize(size) => {
                    control.resize(size, || 0).unwrap();
                    rings.push_back((size as usize, VecDeque::new()));
                }
                Op::Reattach => {
                    drop(rx);
                    rx = control.attach().unwrap();
                }
            }
        }
    }
}

/// Runs `senders` threads that each send `each` values through a ring of `size`, with a consumer
/// that sleeps if idle. If `restless`, the ring is also resized and its consumer replaced.
fn storm(senders: u64, each: u64, size: u32, restless: bool) {
    let control = ring(size, || [0; 2], Unpark(thread::current()), Silent);
    let begin = Instant::now();
    let mut rx = control.attach().unwrap();
    let threads: Vec<_> = (0..senders)
        .map(|sender| {
            let mut tx = control.sender();
            thread::spawn(move || {
                for i in 0..each {
                    if i % 97 == 96 {
                        drop(tx.reserve(|| begin.elapsed()).unwrap());
                    }
                    send(&mut tx, begin, [sender, i]).unwrap();
                }
            })
        })
        .collect();
    let (mut expected, mut got) = (vec![0; senders as usize], 0);
    while got < senders * each {
        let mut n = 0;
        for &[sender, i] in rx.peek().take(64) {
            assert_eq!(i, expected[sender as usize], "sender {sender}");
            expected[sender as usize] += 1;
            n += 1;
        }
        rx.release(n);
        got += n as u64;
        if n == 0 && rx.arm() {
            thread::park_timeout(Duration::from_secs(20));
            assert!(begin.elapsed() < Duration::from_secs(60), "stuck: {:?}", control.stops());
        }
        if restless && got % 511 == 1 {
            control.resize(1 + (got as u32 % 37), || [0; 2]).unwrap();
            drop(rx);
            rx = control.attach().unwrap();
        }
    }
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(rx.peek().count(), 0);
    let stops = control.stops();
    assert_eq!(stops.stops, stops.wakes);
    assert_eq!(stops.stops == 0, stops.stopped_ns == 0);
}

// Goal: with 1, 2, 4 and 8 senders no value is lost, duplicated or reordered, and no sleep is
// permanent, through small and large rings.
#[test]
fn any_number_of_senders_loses_nothing() {
    for senders in [1, 2, 4, 8] {
        for size in [1, 2, 31, 256] {
            storm(senders, 20_000 / senders, size, false);
        }
    }
}

// Goal: no value is lost, duplicated or reordered while the ring is resized and its consumer
// replaced repeatedly.
#[test]
fn resizes_and_reattaches_lose_nothing() {
    for senders in [1, 2, 4, 8] {
        storm(senders, 20_000 / senders, 16, true);
    }
}

// Goal: a close ends the wait of every sender, and no committed value is lost.
#[test]
fn close_ends_all_senders() {
    for senders in [1, 2, 8] {
        let control = ring(4, || [0; 2], Silent, Silent);
        let (begin, sent) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let mut rx = control.attach().unwrap();
        let threads: Vec<_> = (0..senders)
            .map(|sender| {
                let (mut tx, sent) = (control.sender(), sent.clone());
                thread::spawn(move || {
                    while send(&mut tx, begin, [sender, 0]).is_ok() {
                        sent.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let mut got = 0;
        while got < 1000 {
            let n = rx.peek().take(3).count();
            rx.release(n);
            got += n as u64;
        }
        control.close();
        threads.into_iter().for_each(|t| t.join().unwrap());
        loop {
            let n = rx.peek().count();
            rx.release(n);
            got += n as u64;
            if rx.is_closed() {
                break;
            }
        }
        assert_eq!(got, sent.load(Ordering::Relaxed));
        assert!(control.resize(2, || [0; 2]).is_err());
        assert_eq!(control.sender().try_reserve().err(), Some(ReserveError::Closed));
        assert!(control.sender().arm().is_err());
    }
}

// Goal: the value of a slot is created once and exists as long as its ring.
#[test]
fn slots_stay_in_place() {
    let thing = Arc::new(());
    let control = ring(3, || thing.clone(), Silent, Silent);
    let (mut tx, mut rx) = (control.sender(), control.attach().unwrap());
    for _ in 0..10 {
        tx.try_reserve().unwrap().commit();
        assert_eq!(rx.peek().count(), 1);
        rx.release(1);
    }
    assert_eq!(Arc::strong_count(&thing), 4);
    control.resize(1, || thing.clone()).unwrap();
    tx.try_reserve().unwrap().commit();
    assert_eq!(rx.peek().count(), 1);
    assert_eq!(Arc::strong_count(&thing), 2, "the old ring is gone");
    drop((tx, rx, control));
    assert_eq!(Arc::strong_count(&thing), 1);
}
