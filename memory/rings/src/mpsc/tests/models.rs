//! Loom models, which explore every interleaving. Loom reports a lost wake-up as a deadlock, and
//! unordered accesses to a slot as a data race.

use std::time::Duration;

use loom::sync::Notify;
use loom::sync::atomic::AtomicBool;
use loom::thread;

use crate::mpsc::*;
use crate::primitive::sync::Arc;

struct Doorbell(Arc<Notify>);

impl Waker for Doorbell {
    fn ring(&self) {
        self.0.notify();
    }
}

/// Ring of numbers with a `Notify` on which its consumer sleeps.
fn numbers(size: u32) -> (Control<u32>, Arc<Notify>) {
    let bell = Arc::new(Notify::new());
    (ring(size, || 0, Doorbell(bell.clone()), Silent), bell)
}

fn send(tx: &mut MpscSender<u32>, value: u32) -> Result<(), Closed> {
    let mut permit = tx.reserve(|| Duration::ZERO)?;
    *permit = value;
    permit.commit();
    Ok(())
}

/// Takes up to `most` available values in one batch. Returns their number.
fn take(rx: &mut MpscConsumer<u32>, most: usize, into: &mut Vec<u32>) -> usize {
    let before = into.len();
    into.extend(rx.peek().take(most));
    rx.release(into.len() - before);
    into.len() - before
}

/// Takes batches until `n` values have arrived; sleeps while the ring is empty.
fn receive(rx: &mut MpscConsumer<u32>, bell: &Notify, n: usize) -> Vec<u32> {
    let mut got = Vec::new();
    while got.len() < n {
        if take(rx, 2, &mut got) == 0 && rx.arm() {
            bell.wait();
        }
    }
    got
}

fn bounded(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(body);
}

// Goal: with one sender, batches of two, and a ring that is often full, both sides sleep and no
// value is lost, duplicated or reordered.
#[test]
fn one_sender_stops_and_resumes() {
    bounded(2, || {
        let (control, bell) = numbers(2);
        let (mut tx, mut rx) = (control.sender(), control.attach().unwrap());
        let sender = thread::spawn(move || (0..3).for_each(|i| send(&mut tx, i).unwrap()));
        assert_eq!(receive(&mut rx, &bell, 3), [0, 1, 2]);
        sender.join().unwrap();
        let stops = control.stops();
        assert_eq!(stops.stops, stops.wakes);
    });
}

/// Sends `values` through a ring of one slot, and checks that all values arrive in the order of
/// each sender.
fn share_a_slot(preemptions: usize, values: [&'static [u32]; 2]) {
    bounded(preemptions, move || {
        let (control, bell) = numbers(1);
        let mut rx = control.attach().unwrap();
        let senders = values.map(|values| {
            let mut tx = control.sender();
            thread::spawn(move || values.iter().for_each(|&v| send(&mut tx, v).unwrap()))
        });
        let got = receive(&mut rx, &bell, values.concat().len());
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        for values in values {
            let mine: Vec<u32> = got.iter().copied().filter(|v| values.contains(v)).collect();
            assert_eq!(mine, values);
        }
    });
}

// Goal: of two senders on a ring of one slot, a waiting sender is woken.
#[test]
fn two_senders_share_a_slot() {
    share_a_slot(2, [&[1], &[11]]);
}

// Goal: of two senders on a ring of one slot, a sender that waits twice is woken each time. (A
// deeper search takes many minutes.)
#[test]
fn two_senders_share_a_slot_again_and_again() {
    share_a_slot(1, [&[1, 2], &[11]]);
}

// Goal: a sender that does not wait gets a slot or `Full`. All committed values arrive, and a full
// ring is never overwritten.
#[test]
fn full_is_reported_to_two_senders() {
    bounded(2, || {
        let (control, _) = numbers(1);
        let mut rx = control.attach().unwrap();
        let senders = [1, 2].map(|value| {
            let mut tx = control.sender();
            thread::spawn(move || match tx.try_reserve() {
                Ok(mut permit) => {
                    *permit = value;
                    permit.commit();
                    Some(value)
                }
                Err(refused) => {
                    assert_eq!(refused, ReserveError::Full);
                    None
                }
            })
        });
        let mut got = Vec::new();
        take(&mut rx, 1, &mut got);
        let mut sent: Vec<u32> = senders.into_iter().filter_map(|s| s.join().unwrap()).collect();
        take(&mut rx, 1, &mut got);
        sent.sort_unstable();
        got.sort_unstable();
        assert_eq!(got, sent);
        assert!(!got.is_empty());
    });
}

// Goal: an aborted slot never delays the committed slots after it, for a sleeping and for a running
// consumer.
#[test]
fn dropped_permits_are_skipped() {
    bounded(2, || {
        let (control, bell) = numbers(2);
        let mut rx = control.attach().unwrap();
        let (mut first, mut second) = (control.sender(), control.sender());
        let quitter = thread::spawn(move || drop(first.reserve(|| Duration::ZERO)));
        let sender = thread::spawn(move || send(&mut second, 7).unwrap());
        assert_eq!(receive(&mut rx, &bell, 1), [7]);
        quitter.join().unwrap();
        sender.join().unwrap();
    });
}

// Goal: a waiting sender gets `Full` after its condition becomes true and `wake_senders` is called,
// in every interleaving.
#[test]
fn waiting_sender_gives_up_when_woken() {
    bounded(3, || {
        let (control, _bell) = numbers(1);
        let (mut tx, waits) = (control.sender(), Arc::new(AtomicBool::new(true)));
        send(&mut tx, 1).unwrap();
        let condition = waits.clone();
        let sender = thread::spawn(move || {
            let gives_up = || !condition.load(Ordering::Acquire);
            tx.reserve_unless(|| Duration::ZERO, gives_up).err()
        });
        waits.store(false, Ordering::Release);
        control.wake_senders();
        assert_eq!(sender.join().unwrap(), Some(ReserveError::Full));
    });
}

// Goal: a close wakes a waiting sender, and every committed value is still delivered.
#[test]
fn close_wakes_senders_and_loses_nothing() {
    bounded(3, || {
        let (control, bell) = numbers(1);
        let (mut tx, mut rx) = (control.sender(), control.attach().unwrap());
        let sender = thread::spawn(move || {
            let sent = (0..3).take_while(|&i| send(&mut tx, i).is_ok()).count();
            assert_eq!(tx.try_reserve().err().filter(|_| sent < 3), Some(ReserveError::Closed));
            sent
        });
        let mut got = receive(&mut rx, &bell, 1);
        control.close();
        while !rx.is_closed() {
            if take(&mut rx, 1, &mut got) == 0 && rx.arm() {
                bell.wait();
            }
        }
        let sent = sender.join().unwrap();
        assert_eq!(got, (0..sent as u32).collect::<Vec<_>>());
    });
}

// Goal: a dropped consumer leaves unreleased values to the next consumer, and a sender that waited
// during the change resumes.
#[test]
fn next_consumer_continues() {
    bounded(2, || {
        let (control, bell) = numbers(2);
        let (mut tx, mut rx) = (control.sender(), control.attach().unwrap());
        let sender = thread::spawn(move || (0..3).for_each(|i| send(&mut tx, i).unwrap()));
        let mut got = receive(&mut rx, &bell, 1);
        // Peek without a release: the values stay in the ring.
        let _ = rx.peek().count();
        assert!(control.attach().is_none());
        drop(rx);
        let mut rx = control.attach().unwrap();
        let left = 3 - got.len();
        got.extend(receive(&mut rx, &bell, left));
        assert_eq!(got, [0, 1, 2]);
        sender.join().unwrap();
    });
}

// Goal: after a resize while a sender waits on a full ring, the old ring is delivered first, and
// the sender resumes in the new ring. The order is kept, and no sleep is permanent.
#[test]
fn resize_keeps_order() {
    bounded(2, || {
        let (control, bell) = numbers(1);
        let (mut tx, mut rx) = (control.sender(), control.attach().unwrap());
        let sender = thread::spawn(move || (0..3).for_each(|i| send(&mut tx, i).unwrap()));
        control.resize(2, || 0).unwrap();
        assert_eq!(receive(&mut rx, &bell, 3), [0, 1, 2]);
        sender.join().unwrap();
    });
}

// Goal: a resize while two senders compete for one slot loses and duplicates no value, and keeps
// the order of each sender.
#[test]
fn resize_with_two_senders() {
    bounded(1, || {
        let (control, bell) = numbers(1);
        let mut rx = control.attach().unwrap();
        let (mut one, mut two) = (control.sender(), control.sender());
        let senders = [
            thread::spawn(move || (1..3).for_each(|v| send(&mut one, v).unwrap())),
            thread::spawn(move || send(&mut two, 11).unwrap()),
        ];
        control.resize(1, || 0).unwrap();
        let mut got = receive(&mut rx, &bell, 3);
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        assert!(got.iter().position(|&v| v == 1) < got.iter().position(|&v| v == 2));
        got.sort_unstable();
        assert_eq!(got, [1, 2, 11]);
    });
}

// Goal: a sender that sleeps outside of the ring (on a descriptor in a poll loop) is woken once
// there is space.
#[test]
fn armed_sender_is_woken() {
    bounded(3, || {
        let room = Arc::new(Notify::new());
        let control = ring(1, || 0, Silent, Doorbell(room.clone()));
        let (mut tx, mut rx) = (control.sender(), control.attach().unwrap());
        let sender = thread::spawn(move || {
            let mut sent = 0;
            while sent < 2 {
                if let Ok(mut permit) = tx.try_reserve() {
                    *permit = sent;
                    permit.commit();
                    sent += 1;
                    continue;
                }
                if tx.arm().unwrap() {
                    room.wait();
                }
            }
        });
        let mut got = Vec::new();
        while got.len() < 2 {
            if take(&mut rx, 1, &mut got) == 0 {
                thread::yield_now();
            }
        }
        assert_eq!(got, [0, 1]);
        sender.join().unwrap();
    });
}
