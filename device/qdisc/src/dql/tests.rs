use proptest::prelude::*;

use super::*;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const MTU: u32 = 1514;
/// Bytes per second of one Mbit/s.
const MBIT: u64 = 125_000;

/// Simulated sink with a byte limit. Each visit of a source that always has packets fills the sink;
/// a reader removes whole frames.
struct Model {
    limit: ByteLimit,
    sink: std::collections::VecDeque<u32>,
    used: u32,
    now: u64,
    last_read: u64,
    /// Bytes that the reader may take, in billionths of a byte.
    credit: u128,
    taken: u64,
    /// Largest number of bytes in the sink after a visit, since the test last set this field to 0.
    peak: u32,
    /// Bytes that the reader could have taken while the sink was empty.
    missed: u64,
}

impl Model {
    fn new(size: u32) -> Self {
        Self {
            limit: ByteLimit::new(MTU, size),
            sink: Default::default(),
            used: 0,
            now: 0,
            last_read: 0,
            credit: 0,
            taken: 0,
            peak: 0,
            missed: 0,
        }
    }

    fn read(&mut self, rate: u64) {
        self.credit += u128::from(rate) * u128::from(self.now - self.last_read);
        self.last_read = self.now;
        while let Some(frame) = self.sink.front() {
            let price = u128::from(*frame) * 1_000_000_000;
            if self.credit < price {
                return;
            }
            self.credit -= price;
            self.taken += u64::from(*frame);
            self.used -= frame;
            self.sink.pop_front();
        }
        // Limit the credit to one frame: a reader cannot save time in which the sink is empty.
        let keep = u128::from(MTU) * 1_000_000_000;
        self.missed += (self.credit.saturating_sub(keep) / 1_000_000_000) as u64;
        self.credit = self.credit.min(keep);
    }

    fn visit(&mut self, frame: u32) {
        self.limit.observe(self.used, self.now > 0, self.now);
        while self.limit.allow(self.used) > 0 {
            self.sink.push_back(frame);
            self.used += frame;
            self.limit.sent(frame);
        }
        self.peak = self.peak.max(self.used);
    }

    /// Simulates `time`: the source visits every `poll`; the reader reads every `period` at `rate`
    /// (0: the reader is stalled).
    fn run(&mut self, time: u64, poll: u64, period: u64, rate: u64) {
        let end = self.now + time;
        while self.now < end {
            let next_poll = (self.now / poll + 1) * poll;
            let next_read = (self.now / period + 1) * period;
            self.now = next_poll.min(next_read).min(end);
            if self.now == next_read {
                if rate > 0 {
                    self.read(rate);
                } else {
                    self.last_read = self.now;
                }
            }
            if self.now == next_poll {
                self.visit(MTU);
            }
        }
    }
}

// Goal: a slow sink, read in bursts every millisecond, holds at most 3 ms of bytes, and the reader
// gets at least 99.8 % of its rate.
#[test]
fn a_slow_sink_stays_shallow_and_busy() {
    let mut model = Model::new(1 << 20);
    model.visit(MTU);
    model.run(5_000 * MS, 50 * US, MS, 10 * MBIT);
    assert!(u64::from(model.peak) <= 10 * MBIT * 3 / 1000, "{}", model.peak);
    let offered = 10 * MBIT * 5;
    assert!(model.taken * 1000 >= offered * 998, "{} of {offered}", model.taken);
}

// Goal: a fast sink is not slowed: the limit reaches the required value within ten visits.
#[test]
fn a_fast_sink_is_not_slowed() {
    for poll in [10 * US, 50 * US, 500 * US] {
        let mut model = Model::new(4 << 20);
        model.visit(MTU);
        model.run(10 * poll, poll, 10 * US, 10_000 * MBIT);
        (model.taken, model.missed) = (0, 0);
        model.run(2_000 * MS, poll, 10 * US, 10_000 * MBIT);
        let offered = 10_000 * MBIT * 2;
        assert!(model.taken * 1000 >= offered * 998, "{poll}: {} of {offered}", model.taken);
        // Require a limit of about a quarter of a millisecond's bytes: with less, the reader would
        // need a visit every few frames.
        assert!(u64::from(model.limit.limit()) >= 10_000 * MBIT / 4500);
    }
}

// Goal: the limit shrinks within 3 s for a sink that becomes slow, and grows within 1 ms for a sink
// that becomes fast.
#[test]
fn the_limit_follows_the_rate() {
    let mut model = Model::new(4 << 20);
    model.visit(MTU);
    model.run(200 * MS, 50 * US, 50 * US, 10_000 * MBIT);
    assert!(model.limit.limit() >= 62_500);
    model.run(3_000 * MS, 50 * US, MS, 10 * MBIT);
    model.peak = 0;
    model.run(1_000 * MS, 50 * US, MS, 10 * MBIT);
    assert!(u64::from(model.peak) <= 10 * MBIT * 4 / 1000, "{}", model.peak);
    model.run(MS, 50 * US, 50 * US, 10_000 * MBIT);
    (model.taken, model.missed) = (0, 0);
    model.run(100 * MS, 50 * US, 50 * US, 10_000 * MBIT);
    assert!(model.missed * 1000 <= model.taken, "{} of {}", model.missed, model.taken);
}

// Goal: a stall of the reader changes the limit by less than 10 %: the bytes left during a stall do
// not count as excess.
#[test]
fn a_stall_teaches_nothing() {
    let mut model = Model::new(4 << 20);
    model.visit(MTU);
    model.run(2_000 * MS, 100 * US, 100 * US, 1_000 * MBIT);
    let before = model.limit.limit();
    model.run(10_000 * MS, 100 * US, 100 * US, 0);
    // The observation that was in progress when the reader stopped may still complete.
    assert!(model.limit.limit().abs_diff(before) * 10 < before);
}

// Goal: a source that is the bottleneck leaves the limit unchanged.
#[test]
fn a_slow_source_teaches_nothing() {
    let mut limit = ByteLimit::new(MTU, 1 << 20);
    let before = limit.limit();
    for at in 0..10_000 {
        limit.observe(0, false, at * MS);
        limit.sent(MTU);
    }
    assert_eq!(limit.limit(), before);
}

proptest! {
    // Goal: for any inputs the limit stays within its bounds, an empty sink always accepts a frame,
    // and no arithmetic overflows.
    #[test]
    fn bounds_hold(
        mtu: u32,
        sink: u32,
        steps in prop::collection::vec(any::<(u32, bool, u64, u32)>(), 0..60),
    ) {
        let mut limit = ByteLimit::new(mtu, sink);
        let least = (2 * mtu.clamp(64, 1514)).min(sink.max(1));
        for (used, backlog, now, bytes) in steps {
            limit.observe(used, backlog, now);
            prop_assert!(limit.allow(0) > 0);
            prop_assert!(limit.limit() >= least && limit.limit() <= sink.max(1));
            prop_assert!(limit.allow(used) <= limit.limit());
            limit.sent(bytes);
        }
    }

    // Goal: for any steady reader and visit interval, the reader gets 97 % of its rate after 1.5 s.
    // The sink holds at most four times the bytes read in the sum of both intervals (at least 250
    // us), plus four frames.
    #[test]
    fn any_steady_reader_is_served(
        mbit in 5u64..2_000,
        poll in 20u64..2_000,
        period in 20u64..2_000,
    ) {
        let (poll, period, rate) = (poll * US, period * US, mbit * MBIT);
        let mut model = Model::new(16 << 20);
        model.visit(MTU);
        model.run(1_500 * MS, poll, period, rate);
        (model.taken, model.peak) = (0, 0);
        model.run(2_000 * MS, poll, period, rate);
        let offered = rate * 2;
        prop_assert!(model.taken * 100 >= offered * 97, "{} of {offered}", model.taken);
        let needed = rate * (poll + period).max(250 * US) / 1_000_000_000;
        let bound = 4 * needed + 4 * u64::from(MTU);
        prop_assert!(u64::from(model.peak) <= bound, "{} > {bound}", model.peak);
    }
}
