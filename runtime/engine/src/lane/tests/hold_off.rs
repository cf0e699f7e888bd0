//! Tests of the poll hold-off that a source requests.

use std::sync::mpsc::channel;

use mqnet_sysio::eventfd::EventFd;

use super::*;
use crate::idle::IdlePolicy;
use crate::worker::{FaultLine, Leave, Worker};

const TIME: Duration = Duration::from_micros(2);

fn bench(mut bench: Bench, hold_off: Duration, frames: u32) -> Bench {
    bench.hands.world().hold_off = hold_off;
    (0..frames).for_each(|n| bench.hands.push(n));
    bench.hands.world().room = 10;
    bench.poll();
    bench
}

// Goal: the lane returns the hold-off of its source. While frames wait in disciplines, or if the
// source has a program, the hold-off is zero.
#[test]
fn hold_off_requires_empty_disciplines() {
    assert_eq!(bench(Bench::with(pfifo(1000)), TIME, 5).lane.poll_hold_off(), TIME);
    let mut waits = bench(Bench::with(pfifo(1000)), TIME, 20);
    assert_eq!((waits.lane.waiting(), waits.lane.poll_hold_off()), (10, Duration::ZERO));
    let mut hooked = bench(Bench::new(), TIME, 0);
    (0..100).for_each(|n| hooked.hands.push(n));
    hooked::hook(&mut hooked, hooked::PASS);
    assert_eq!((hooked.poll().frames, hooked.lane.poll_hold_off()), (10, Duration::ZERO));
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        std::thread::yield_now();
    }
}

// Goal: a worker pauses a lane after a poll with few frames, unless the lane is being detached.
#[test]
fn workers_honour_the_hold_off() {
    let bench = bench(Bench::new(), Duration::from_secs(3600), 0);
    let (hands, id) = (bench.hands.clone(), bench.lane.id());
    bench.hands.push(0);
    let (sender, _faults) = channel();
    let faults = FaultLine { sender, wake: Arc::new(EventFd::new().unwrap()) };
    let worker = Worker::spawn(0, None, IdlePolicy::default(), faults).unwrap();
    worker.attach(bench.lane);
    wait_until(|| !hands.world().sink.is_empty());
    hands.push(1);
    let passes = worker.stats().passes.get();
    wait_until(|| worker.stats().passes.get() > passes + 1000);
    assert_eq!(hands.world().sink, [0]);
    let (reply, lanes) = channel();
    worker.detach(vec![id], Leave::Drained { most: 100 }, &reply);
    lanes.recv().unwrap();
    assert_eq!(hands.world().sink, [0, 1]);
}
