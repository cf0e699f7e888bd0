//! Tests of polls that copy several bursts of small frames.

use mqnet_netdev::OwningTx;
use mqnet_netdev::limits::{BUDGET, SMALL, TURN};

use super::*;

impl OwningTx for Sink {
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        SyscallTx::submit(self, burst, from)
    }

    fn reserve(&mut self, _max: u32) -> Result<Option<Segments<'_>>, Fault> {
        Ok(None)
    }

    fn commit(&mut self, _frame: &FrameMeta) {}

    fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn hold(&mut self, _on: bool) -> Result<(), Fault> {
        Ok(())
    }

    fn is_drained(&mut self) -> Result<bool, Fault> {
        Ok(true)
    }
}

/// Creates a lane between two owning queues. The source has frames of the lengths `lens`; the sink
/// has space for `room` frames.
fn bench(lens: impl IntoIterator<Item = u32>, room: usize) -> Bench {
    let mut bench = Bench::new();
    let rx = Rx::Owning(Box::new(Source(bench.hands.clone(), Vec::new())));
    let tx = Tx::Owning(Box::new(Sink(bench.hands.clone(), bench.stats.clone())));
    bench.lane = Lane::new(bench.lane.id(), rx, tx, 1518, None, bench.stats.clone()).unwrap();
    let frame = |(number, len): (u32, u32)| {
        let mut frame = vec![0; len as usize];
        frame[56..60].copy_from_slice(&number.to_le_bytes());
        frame
    };
    let mut world = bench.hands.world();
    world.source = (0..).zip(lens).map(frame).collect();
    world.room = room;
    drop(world);
    bench
}

// Goal: a poll moves up to four budgets of small frames. It moves one budget of other frames, even
// if the first and the last frame of a burst are small.
#[test]
fn small_frames_have_a_larger_budget() {
    let mut small = bench([SMALL; 300], 1000);
    let polled = small.poll();
    assert_eq!((polled.frames, polled.rest), (TURN, PollEnd::Budget));
    let polled = small.poll();
    assert_eq!((polled.frames, polled.rest), (300 - TURN, PollEnd::Budget));
    assert_eq!(small.poll().rest, PollEnd::Empty);
    let mixed = |number: usize| if number.is_multiple_of(BUDGET / 2) { 60 } else { 1500 };
    for lens in [[SMALL + 1; 300].to_vec(), (0..300).map(mixed).collect()] {
        let mut large = bench(lens, 1000);
        assert_eq!(large.poll().frames, BUDGET);
    }
    let mut ends = bench((0..300).map(|n| if n % 64 % 63 == 0 { 60 } else { 1500 }), 1000);
    assert_eq!(ends.poll().frames, BUDGET);
}

// Goal: a source that becomes empty between bursts ends the poll, and a full sink ends it as well.
#[test]
fn polls_end_with_source_or_sink() {
    let mut short = bench([60; 128], 1000);
    let polled = short.poll();
    assert_eq!((polled.frames, polled.rest), (128, PollEnd::Empty));
    let mut full = bench([60; 300], 100);
    let polled = full.poll();
    assert_eq!((polled.frames, polled.rest), (100, PollEnd::Full));
    full.hands.world().room = 1000;
    assert_eq!(full.poll().frames, 200);
    assert_eq!(full.hands.world().sink, (0..300).collect::<Vec<u32>>());
}

// Goal: with full=drop, a sink that becomes full between bursts ends the poll with `Budget`, not
// with `Empty`. The next poll drops and counts the frames.
#[test]
fn frames_left_by_a_full_sink_are_dropped_next() {
    let mut bench = bench([60; 300], 100);
    bench.lane.set_full(Full::Drop).unwrap();
    let polled = bench.poll();
    assert_eq!((polled.frames, polled.rest), (100, PollEnd::Budget));
    while bench.poll().rest != PollEnd::Empty {}
    let drops = bench.stats.tx.drops.get(DropReason::SinkFull);
    assert_eq!((bench.hands.world().sink.len(), drops), (100, 200));
}

// Goal: a lane with an empty discipline moves no more than the sink's allowance of bytes per poll.
#[test]
fn polls_end_with_the_allowance() {
    let mut lane = bench([60; 300], 1000);
    let polled = lane.lane.move_across::<true>(70 * 60).unwrap();
    assert_eq!((polled.frames, polled.rest), (70, PollEnd::Full));
    let polled = lane.lane.move_across::<true>(64 * 60).unwrap();
    assert_eq!((polled.frames, polled.rest), (64, PollEnd::Budget));
    let polled = lane.lane.move_across::<true>(u32::MAX).unwrap();
    assert_eq!((polled.frames, polled.rest), (166, PollEnd::Budget));
}

// Goal: an empty discipline counts the bypassing frames of all bursts. Frames for which the sink
// had no space are counted when they are sent.
#[test]
fn disciplines_count_all_bypassing_frames() {
    let mut bench = bench([60; 700], 400);
    let stats = Arc::<NodeStats>::default();
    let disciplines = counted(Params::Pfifo(Fifo { limit: 1000 }), stats.clone());
    let queueing = Queueing::new(disciplines, Layer::Ethernet, 1519, None).unwrap();
    bench.lane.install(Egress::own(0, queueing), bench.now);
    let same = |bench: &Bench| {
        let tx = &bench.stats.tx;
        assert_eq!((stats.packets.get(), stats.bytes.get()), (tx.packets.get(), tx.bytes.get()));
        tx.packets.get()
    };
    assert_eq!((bench.poll().frames, same(&bench)), (TURN, TURN as u64));
    while bench.poll().moved() > 0 {}
    assert_eq!(bench.stats.tx.packets.get(), 400);
    bench.hands.world().room = 1000;
    while bench.poll().moved() > 0 {}
    assert_eq!((same(&bench), bench.lane.waiting()), (700, 0));
    assert_eq!(bench.sink(), (0..700).collect::<Vec<_>>());
}

// Goal: a poll through a program is limited to one budget, because a program may drop many frames
// for each one that it delivers.
#[test]
fn polls_behind_a_program_have_one_budget() {
    let mut bench = bench([60; 300], 1000);
    hooked::hook(&mut bench, hooked::PASS);
    assert_eq!(bench.poll().frames, BUDGET);
    bench.lane.unhook();
    while bench.poll().moved() > 0 {}
    assert_eq!(bench.sink(), (0..300).collect::<Vec<_>>());
}
