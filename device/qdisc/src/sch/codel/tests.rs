use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

/// A queue of packets of 1000 bytes, represented by their arrival times.
#[derive(Default)]
struct Bare {
    waiting: VecDeque<u64>,
    dropped: Vec<u64>,
    marked: Vec<u64>,
    understands: bool,
    /// Bytes of other queues of the same link.
    others: u64,
}

impl Source for Bare {
    type Item = u64;

    fn pop(&mut self) -> Option<u64> {
        self.waiting.pop_front()
    }

    fn since(item: &u64) -> u64 {
        *item
    }

    fn backlog(&self) -> u64 {
        self.others + self.waiting.len() as u64 * 1000
    }

    fn drop(&mut self, item: u64) {
        self.dropped.push(item);
    }

    fn mark(&mut self, item: &mut u64, _why: Mark) -> bool {
        if self.understands {
            self.marked.push(*item);
        }
        self.understands
    }
}

fn law(ecn: bool) -> CodelParameters {
    CodelParameters { target: 5 * MS, interval: 100 * MS, ecn, ce_threshold: None, tolerance: 1514 }
}

/// Pseudocode of RFC 8289, section 5, which shares no code with the implementation.
#[derive(Default)]
struct Rfc {
    first_above_time: f64,
    drop_next: f64,
    count: f64,
    lastcount: f64,
    dropping: bool,
    waiting: VecDeque<u64>,
    dropped: Vec<u64>,
}

impl Rfc {
    fn control_law(t: f64, count: f64) -> f64 {
        t + (100e6 / count.sqrt()).trunc()
    }

    fn dodequeue(&mut self, now: f64) -> (Option<u64>, bool) {
        let Some(p) = self.waiting.pop_front() else {
            self.first_above_time = 0.;
            return (None, false);
        };
        if now - (p as f64) < 5e6 || self.waiting.len() * 1000 <= 1514 {
            self.first_above_time = 0.;
        } else if self.first_above_time == 0. {
            self.first_above_time = now + 100e6;
        } else if now >= self.first_above_time {
            return (Some(p), true);
        }
        (Some(p), false)
    }

    fn deque(&mut self, now: f64) -> Option<u64> {
        let (mut p, mut ok_to_drop) = self.dodequeue(now);
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
            }
            while now >= self.drop_next && self.dropping {
                self.dropped.extend(p);
                self.count += 1.;
                (p, ok_to_drop) = self.dodequeue(now);
                if !ok_to_drop {
                    self.dropping = false;
                } else {
                    self.drop_next = Self::control_law(self.drop_next, self.count);
                }
            }
        } else if ok_to_drop {
            self.dropped.extend(p);
            p = self.dodequeue(now).0;
            self.dropping = true;
            let delta = self.count - self.lastcount;
            let recently = now - self.drop_next < 16. * 100e6;
            self.count = if delta > 1. && recently { delta } else { 1. };
            self.drop_next = Self::control_law(now, self.count);
            self.lastcount = self.count;
        }
        p
    }
}

proptest! {
    // Goal: for any arrivals and services, the implementation drops the same packets as the RFC's
    // pseudocode and delivers the others at the same time.
    #[test]
    fn as_the_rfc_does(steps in prop::collection::vec((0usize..40, 1u64..60), 1..400)) {
        let (mut ours, mut state, mut rfc) = (Bare::default(), Codel::default(), Rfc::default());
        // Start above 0: in the RFC's pseudocode, 0 means no time.
        let mut now = 10_000 * MS;
        for (arrivals, services) in steps {
            for at in 0..arrivals as u64 {
                ours.waiting.push_back(now + at);
                rfc.waiting.push_back(now + at);
            }
            for _ in 0..services {
                now += MS / 2 + 7;
                let packet = state.dequeue(&law(false), now, &mut ours);
                prop_assert_eq!(packet, rfc.deque(now as f64));
                prop_assert_eq!(&ours.dropped, &rfc.dropped);
            }
        }
    }

    // Goal: in a standing queue, ECN-capable packets are marked and never dropped.
    #[test]
    fn marks_take_the_place_of_drops(load in 2u64..6) {
        let mut source = Bare { understands: true, ..Bare::default() };
        let mut state = Codel::default();
        let (mut now, mut left) = (10_000 * MS, 0);
        for tick in 0..4000u64 {
            now += MS;
            (0..load.min(1 + tick % load)).for_each(|_| source.waiting.push_back(now));
            left += u64::from(state.dequeue(&law(true), now, &mut source).is_some());
        }
        prop_assert_eq!(source.dropped.len(), 0);
        prop_assert_eq!(left, 4000);
        prop_assert!(source.marked.len() > 10);
    }
}

// Goal: the first drop occurs one interval after the delay exceeds the target, and the following
// drops occur at intervals of interval / sqrt(n).
#[test]
fn drops_follow_control_law() {
    let (mut source, mut state) = (Bare::default(), Codel::default());
    (0..10_000).for_each(|_| source.waiting.push_back(1000 * MS));
    let mut times = Vec::new();
    for tick in 0..600 {
        let now = 1010 * MS + tick * MS;
        let before = source.dropped.len();
        state.dequeue(&law(false), now, &mut source);
        times.extend((before..source.dropped.len()).map(|_| tick));
    }
    assert_eq!(times[..5], [100, 200, 271, 329, 379]);
}

// Goal: a queue that becomes empty resets its state: packets after a long pause are not dropped,
// even if their delay is above the target.
#[test]
fn a_pause_is_forgotten() {
    let (mut source, mut state) = (Bare { others: 50_000, ..Bare::default() }, Codel::default());
    let start = 1000 * MS;
    (0..5).for_each(|_| source.waiting.push_back(start));
    let now = start + 50 * MS;
    while state.dequeue(&law(false), now, &mut source).is_some() {}
    assert!(source.dropped.is_empty());
    let later = now + 5_000 * MS;
    (0..5).for_each(|_| source.waiting.push_back(later - 20 * MS));
    while state.dequeue(&law(false), later, &mut source).is_some() {}
    assert_eq!(source.dropped, []);
}

// Goal: at any delay, nothing is dropped while the backlog is within the tolerance.
#[test]
fn the_link_is_kept_busy() {
    let (mut source, mut state) = (Bare::default(), Codel::default());
    for tick in 0..1000 {
        let now = 1000 * MS + tick * 100 * MS;
        while source.waiting.len() < 2 {
            source.waiting.push_back(now - 80 * MS);
        }
        assert!(state.dequeue(&law(false), now, &mut source).is_some());
    }
    assert!(source.dropped.is_empty());
}
