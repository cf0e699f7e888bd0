use super::*;
#[cfg(loom)]
use crate::spsc;

// Goal: each arming causes exactly one doorbell, not before enough units are available.
#[cfg(not(loom))]
#[test]
fn one_arming_one_doorbell() {
    let word = AtomicU64::new(0);
    let (mut waiter, mut ringer) = (Waiter::new(7), Ringer::new(7));
    assert!(!ringer.due(&word, 100));
    waiter.arm(&word, 50);
    assert!(!ringer.due(&word, 49));
    assert!(ringer.due(&word, 50));
    assert!(!ringer.due(&word, 100));
}

// Goal: an arming of another session of the link is ignored.
#[cfg(not(loom))]
#[test]
fn stale_generations_are_ignored() {
    let word = AtomicU64::new(0);
    Waiter::new(6).arm(&word, 0);
    assert!(!Ringer::new(7).due(&word, 100));
}

// Goal: the wake threshold is half the ring, or the need if that is larger, but at most the whole
// ring.
#[cfg(not(loom))]
#[test]
fn threshold_is_reachable() {
    assert_eq!(wake_threshold(100, 10), 50);
    assert_eq!(wake_threshold(100, 80), 80);
    assert_eq!(wake_threshold(100, 101), 100);
}

/// Doorbell in the loom model, in which a lost doorbell is a deadlock that loom reports.
#[cfg(loom)]
struct Doorbell(loom::sync::Notify);

// Goal: a consumer that sleeps on an empty ring is woken by the next entry. Loom explores every
// interleaving, and a lost wake-up is a deadlock.
#[cfg(loom)]
#[test]
fn sleeping_consumer_is_woken() {
    loom::model(|| {
        let (mut tx, mut rx) = spsc::ring::<u32>(2);
        let shared = loom::sync::Arc::new((AtomicU64::new(0), Doorbell(loom::sync::Notify::new())));
        let other = shared.clone();
        let producer = loom::thread::spawn(move || {
            let mut ringer = Ringer::new(1);
            for value in 0..2u32 {
                assert_eq!(tx.push(&[value]), 1);
                if ringer.due(&other.0, 1) {
                    other.1.0.notify();
                }
            }
        });
        let mut waiter = Waiter::new(1);
        let mut expected = 0;
        while expected < 2 {
            let mut value = [0];
            if rx.pop(&mut value) == 1 {
                assert_eq!(value[0], expected);
                expected += 1;
                continue;
            }
            waiter.arm(&shared.0, 0);
            if rx.is_empty() {
                shared.1.0.wait();
            }
        }
        producer.join().unwrap();
    });
}

// Goal: a producer that stops on a full ring is woken when half of the ring is free, if the
// consumer takes batches.
#[cfg(loom)]
#[test]
fn stopped_producer_is_woken() {
    loom::model(|| {
        let (mut tx, mut rx) = spsc::ring::<u32>(2);
        let shared = loom::sync::Arc::new((AtomicU64::new(0), Doorbell(loom::sync::Notify::new())));
        let other = shared.clone();
        let consumer = loom::thread::spawn(move || {
            let mut ringer = Ringer::new(1);
            let mut taken = 0;
            while taken < 3 {
                let mut values = [0; 2];
                let n = rx.pop(&mut values);
                if n == 0 {
                    loom::thread::yield_now();
                    continue;
                }
                taken += n;
                // Pass the number of units that were just consumed: at least these are free for the
                // producer.
                if ringer.due(&other.0, n as u32) {
                    other.1.0.notify();
                }
            }
        });
        let mut waiter = Waiter::new(1);
        let mut sent = 0;
        while sent < 3 {
            let n = tx.push(&[sent]);
            sent += n as u32;
            if n == 1 {
                continue;
            }
            waiter.arm(&shared.0, wake_threshold(2, 1));
            if tx.free() == 0 {
                shared.1.0.wait();
            }
        }
        consumer.join().unwrap();
    });
}
