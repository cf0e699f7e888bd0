use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

use mqnet_netdev::{Burst, OwningRx, Queue, Recv, SyscallRx, SyscallTx, WakeSource};
use mqnet_qdisc::{
    Attach, Blueprint, Fifo, Filters, Handle, NodeStats, ObjectType, Params, Scheduler, Tbf,
    TcCommand, Tree, Verb,
};
use mqnet_shmem::{Segments, Span};
use mqnet_wire::{Layer, VnetHdr};
use proptest::prelude::*;

use super::*;
use crate::egress::{Disciplines, LaneWakers, Queueing, Shared};

mod finishing;
mod hold_off;
mod hooked;
mod merging;
mod narrow;
mod turns;

/// Frames in the source, numbers of the frames that reached the sink, and number of frames for
/// which the sink has space.
#[derive(Default)]
struct World {
    source: VecDeque<Vec<u8>>,
    sink: Vec<u32>,
    room: usize,
    /// Poll hold-off that the source requests.
    hold_off: Duration,
}

#[derive(Clone, Default)]
struct Hands(Arc<Mutex<World>>);

impl Hands {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    fn push(&self, number: u32) {
        let mut frame = vec![0; 60 + number as usize % 900];
        frame[56..60].copy_from_slice(&number.to_le_bytes());
        self.world().source.push_back(frame);
    }
}

struct Source(Hands, Vec<Vec<u8>>);
struct Sink(Hands, Arc<QueuePairStats>);

impl Queue for Source {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        let empty = self.0.world().source.is_empty();
        Ok(if empty { Armed::Sleep } else { Armed::MoreWork })
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }

    fn hold_off(&self) -> Duration {
        self.0.world().hold_off
    }
}

impl OwningRx for Source {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        self.1 = self.0.world().source.iter().take(budget).cloned().collect();
        for frame in &self.1 {
            burst.push(VnetHdr::default(), frame.len() as u32, Span::of(frame));
        }
        Ok(())
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        self.0.world().source.drain(..frames);
        Ok(())
    }
}

impl Queue for Sink {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        Ok(if self.0.world().room > 0 { Armed::MoreWork } else { Armed::Sleep })
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl SyscallTx for Sink {
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        let mut world = self.0.world();
        let frames = &burst.frames()[from..];
        let taken = frames.len().min(world.room);
        world.room -= taken;
        for frame in &frames[..taken] {
            let mut bytes = [0; 60];
            frame.head.read_header(&mut bytes);
            world.sink.push(u32::from_le_bytes([bytes[56], bytes[57], bytes[58], bytes[59]]));
            self.1.tx.packets.add(1);
            self.1.tx.bytes.add(u64::from(frame.len));
        }
        Ok(taken)
    }
}

fn disciplines(params: Params) -> Disciplines {
    counted(params, Arc::default())
}

/// Creates disciplines with the given counters.
fn counted(params: Params, stats: Arc<NodeStats>) -> Disciplines {
    let (handle, classes, filters) = (Handle::new(1, 0), Vec::new(), Filters::default());
    let root = Blueprint { handle, params, stats, classes, filters };
    let schedulers = vec![Scheduler::new(root, Filters::default(), 1514, 7, Layer::Ethernet)];
    Disciplines { schedulers, map: None, channels: 1, noqueue: false }
}

fn pfifo(limit: u32) -> Disciplines {
    disciplines(Params::Pfifo(Fifo { limit }))
}

struct Bench {
    hands: Hands,
    lane: Lane,
    stats: Arc<QueuePairStats>,
    now: Duration,
}

impl Bench {
    fn new() -> Self {
        let (hands, stats) = (Hands::default(), Arc::<QueuePairStats>::default());
        let id = LaneId { set: 0, channel: 0, way: Direction::AToB };
        let rx = Rx::Owning(Box::new(Source(hands.clone(), Vec::new())));
        let tx = Tx::Syscall(Box::new(Sink(hands.clone(), stats.clone())));
        let lane = Lane::new(id, rx, tx, 1518, None, stats.clone()).unwrap();
        Self { hands, lane, stats, now: Duration::from_secs(1) }
    }

    fn with(disciplines: Disciplines) -> Self {
        let mut bench = Self::new();
        let queueing = Queueing::new(disciplines, Layer::Ethernet, 1519, None).unwrap();
        bench.lane.install(Egress::own(0, queueing), bench.now);
        bench
    }

    fn poll(&mut self) -> Polled {
        self.now += Duration::from_micros(10);
        let now = self.now;
        self.lane.poll(|| now).unwrap()
    }

    fn sink(&self) -> Vec<u32> {
        self.hands.world().sink.clone()
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.stats.tx.drops.get(reason)
    }
}

// Goal: while the sink has space, frames bypass the discipline: all arrive in order, and none is
// copied.
#[test]
fn empty_disciplines_are_bypassed() {
    let mut bench = Bench::with(pfifo(10));
    bench.hands.world().room = usize::MAX;
    (0..100).for_each(|n| bench.hands.push(n));
    while bench.poll().moved() > 0 {}
    assert_eq!(bench.sink(), (0..100).collect::<Vec<_>>());
    assert_eq!(bench.stats.tx.copies.get(), 0);
}

// Goal: frames without space in the sink wait in the discipline, the source is emptied, and the
// lane counts as stopped and sleeps. When the sink has space, the waiting frames are sent in order,
// before newer frames.
#[test]
fn frames_without_room_wait_in_order() {
    let mut bench = Bench::with(pfifo(1000));
    bench.hands.world().room = 10;
    (0..200).for_each(|n| bench.hands.push(n));
    while bench.poll().moved() > 0 {}
    assert!(bench.hands.world().source.is_empty());
    assert_eq!((bench.sink().len(), bench.lane.waiting()), (10, 190));
    assert_eq!((bench.stats.tx.stops.get(), bench.stats.tx.wakes.get()), (1, 0));
    assert_eq!(bench.lane.arm().unwrap(), Armed::Sleep);
    bench.hands.world().room = usize::MAX;
    assert_eq!(bench.lane.arm().unwrap(), Armed::MoreWork);
    (200..230).for_each(|n| bench.hands.push(n));
    while bench.poll().moved() > 0 {}
    assert_eq!(bench.sink(), (0..230).collect::<Vec<_>>());
    assert_eq!((bench.lane.waiting(), bench.stats.tx.wakes.get()), (0, 1));
}

// Goal: with a full sink, only the frames above pfifo's limit are dropped, counted as
// `QdiscOverlimit`.
#[test]
fn only_the_policy_drops() {
    let mut bench = Bench::with(pfifo(50));
    (0..200).for_each(|n| bench.hands.push(n));
    while bench.poll().moved() > 0 {}
    assert_eq!(bench.dropped(DropReason::QdiscOverlimit), 149);
    bench.hands.world().room = usize::MAX;
    while bench.poll().moved() > 0 {}
    assert_eq!((bench.sink().len(), &bench.sink()[..50]), (51, &Vec::from_iter(0..50)[..]));
}

// Goal: without a discipline a full sink stops the source and no frame is lost. With full=drop,
// frames that arrive at a full sink are dropped and counted, and the source never stops.
#[test]
fn full_stops_or_drops() {
    for full in [Full::Stop, Full::Drop] {
        let mut bench = Bench::new();
        bench.lane.set_full(full).unwrap();
        bench.hands.world().room = 10;
        (0..100).for_each(|n| bench.hands.push(n));
        while bench.poll().moved() > 0 {}
        let lost = bench.dropped(DropReason::SinkFull);
        let left = bench.hands.world().source.len();
        let expected = if full == Full::Stop { (0, 90) } else { (90, 0) };
        assert_eq!((lost, left), expected);
        assert_eq!(bench.stats.tx.stops.get(), u64::from(full == Full::Stop));
        assert_eq!(bench.sink(), (0..10).collect::<Vec<_>>());
    }
}

// Goal: no frame is dropped before a held sink is released, even with `full=drop`. A held sink may
// be full of frames that wait for frames of an older lane.
#[test]
fn a_held_sink_drops_nothing() {
    let mut bench = merging::bench(true, true);
    bench.lane.set_full(Full::Drop).unwrap();
    bench.lane.hold(true).unwrap();
    bench.hands.world().room = 10;
    bench.hands.world().source.extend((0..100).map(merging::segment));
    while bench.poll().moved() > 0 {}
    assert_eq!((bench.sink().len(), bench.stats.tx.drops.total()), (10, 0));
    bench.lane.hold(false).unwrap();
    while bench.poll().moved() > 0 {}
    assert_eq!(bench.dropped(DropReason::SinkFull), 90);
}

// Goal: a held lane collects frames in its discipline and sends none; after the hold, all frames
// are sent in order.
#[test]
fn a_held_lane_collects_frames() {
    let mut bench = Bench::with(pfifo(1000));
    bench.hands.world().room = usize::MAX;
    bench.lane.hold(true).unwrap();
    (0..100).for_each(|n| bench.hands.push(n));
    while bench.poll().moved() > 0 {}
    assert_eq!((bench.sink().len(), bench.lane.waiting()), (0, 100));
    bench.lane.hold(false).unwrap();
    while bench.poll().moved() > 0 {}
    assert_eq!(bench.sink(), (0..100).collect::<Vec<_>>());
}

// Goal: a lane with frames behind a token bucket sleeps until the bucket releases the next frame.
// Without waiting frames the lane sets no wake time.
#[test]
fn token_buckets_set_the_wake_time() {
    let rate = 1_000_000;
    let tbf = Tbf { rate, burst: 2000, peakrate: 0, mtu: 0, limit: 1 << 20 };
    let mut bench = Bench::with(disciplines(Params::Tbf(tbf)));
    bench.hands.world().room = usize::MAX;
    (0..50).for_each(|n| bench.hands.push(500 + n));
    let begin = bench.now;
    while bench.sink().len() < 50 {
        while bench.poll().moved() > 0 {}
        if bench.lane.waiting() > 0 {
            assert_eq!(bench.lane.arm().unwrap(), Armed::Sleep);
            let at = bench.lane.wake_at().expect("an alarm");
            assert!(at > bench.now);
            bench.now = at;
        }
    }
    let bytes = bench.stats.tx.bytes.get() as f64;
    let takes = (bytes - 2000.0) / rate as f64;
    let took = (bench.now - begin).as_secs_f64();
    assert!((takes * 0.97..takes * 1.1).contains(&took), "{took} s for {takes}");
    assert_eq!(bench.lane.arm().unwrap(), Armed::Sleep);
    assert_eq!(bench.lane.wake_at(), None);
}

/// Source that delivers its frames by a system call.
struct Calls(Hands);

impl Queue for Calls {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        let empty = self.0.world().source.is_empty();
        Ok(if empty { Armed::Sleep } else { Armed::MoreWork })
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl SyscallRx for Calls {
    fn recv(&mut self, room: &mut Segments<'_>) -> Result<Recv, Fault> {
        let Some(frame) = self.0.world().source.pop_front() else { return Ok(Recv::Empty) };
        assert_eq!(room.head.copy_from(Span::of(&frame)), frame.len(), "no room for a frame");
        Ok(Recv::Frame(FrameMeta { len: frame.len() as u32, hdr: VnetHdr::default() }))
    }
}

// Goal: with full=drop between two system-call queues, the lane keeps no frame while the sink is
// full. A kept frame would be sent long after its arrival.
#[test]
fn tail_drop_keeps_no_frame() {
    let (hands, stats) = (Hands::default(), Arc::<QueuePairStats>::default());
    let id = LaneId { set: 0, channel: 0, way: Direction::AToB };
    let rx = Rx::Syscall(Box::new(Calls(hands.clone())));
    let tx = Tx::Syscall(Box::new(Sink(hands.clone(), stats.clone())));
    let mut lane = Lane::new(id, rx, tx, 1518, None, stats.clone()).unwrap();
    lane.set_full(Full::Drop).unwrap();
    hands.world().room = 3;
    (0..10).for_each(|n| hands.push(n));
    while lane.poll(|| Duration::from_secs(1)).unwrap().moved() > 0 {}
    assert_eq!((hands.world().sink.len(), stats.tx.drops.get(DropReason::SinkFull)), (3, 7));
    assert!(!lane.holds_a_frame());
    assert_eq!(lane.arm().unwrap(), Armed::Sleep);
}

/// Disciplines of two channels: mqprio assigns traffic class 1 to channel 1.
fn classes() -> Arc<Shared> {
    let mut tree = Tree::new("", Layer::Ethernet).unwrap();
    let words = "num_tc 2 map 0 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 1@0 1@1 hw 0";
    let command = TcCommand {
        verb: Verb::Add,
        object: ObjectType::Qdisc,
        attach: Attach::Root,
        handle: None,
        prio: None,
        protocol: None,
        kind: Some("mqprio".to_owned()),
        options: words.split(' ').map(str::to_owned).collect(),
    };
    assert!(tree.apply(&command, 2, 2).unwrap());
    let schedulers = (0..2).filter_map(|channel| tree.build(channel, 1514, 7)).collect();
    let map = Some(tree.channel_map());
    let disciplines = Disciplines { schedulers, map, channels: 2, noqueue: false };
    let queueing = Queueing::new(disciplines, Layer::Ethernet, 1519, None).unwrap();
    Shared::new(queueing, Arc::new(LaneWakers::new(2).unwrap()))
}

/// Creates an IPv4 frame with TOS 8, which selects priority 2 and traffic class 1.
fn of_class_1() -> Vec<u8> {
    let mut frame = vec![0u8; 100];
    (frame[12], frame[14], frame[15]) = (8, 0x45, 8);
    (frame[17], frame[22], frame[23]) = (86, 64, 17);
    frame
}

// Goal: with mqprio, a frame moves to the channel of its traffic class even if no frame waits in
// any discipline.
#[test]
fn classes_choose_the_channel_of_every_frame() {
    let shared = classes();
    let mut bench = Bench::new();
    bench.lane.install(Egress::shared(0, &shared), bench.now);
    bench.hands.world().room = 5;
    // The frames arrive on channel 0.
    bench.hands.world().source.extend((0..10).map(|_| of_class_1()));
    while bench.poll().moved() > 0 {}
    let mut other = Egress::shared(1, &shared);
    assert_eq!((bench.sink().len(), bench.lane.waiting(), other.waiting()), (0, 0, 10));
}

// Goal: a closing lane stays while another closing lane may add frames to its queue. The lane is
// polled again without a wake, and sends the added frames before it leaves. A lane with its own
// disciplines leaves immediately.
#[test]
fn lanes_close_together() {
    let mut bench = Bench::new();
    bench.lane.id.channel = 1;
    let shared = classes();
    bench.lane.install(Egress::shared(1, &shared), bench.now);
    bench.hands.world().room = 5;
    let mut other = Egress::shared(0, &shared);
    let mut both = Closing::of(2);
    bench.lane.close_source(both.remove(0));
    assert_eq!(bench.poll().moved(), 0);
    assert!(!bench.lane.is_settled());
    // The other member ends between the check and the sleep, so this lane must be polled again
    // without a wake.
    drop(both);
    assert_eq!((bench.lane.arm().unwrap(), bench.lane.wake_at().is_some()), (Armed::Sleep, true));
    let (hands, stats) = (Hands::default(), QueuePairStats::default());
    hands.world().source.push_back(of_class_1());
    let mut rx = Rx::Owning(Box::new(Source(hands, Vec::new())));
    let call = Call { channel: 0, now: 1, stats: &stats.tx };
    other.access().absorb(&mut rx, &call, &mut 0).unwrap();
    assert!(!bench.lane.is_settled(), "a frame would have been left behind");
    while bench.poll().moved() > 0 {}
    assert_eq!((bench.sink().len(), bench.lane.is_settled()), (1, true));
    other.close(&call);

    let mut alone = Bench::with(pfifo(10));
    let mut both = Closing::of(2);
    alone.lane.close_source(both.remove(0));
    assert!(alone.lane.is_settled(), "no frame is given to it");
}

// Goal: exactly one of two lanes that leave shared disciplines concurrently is the last. That lane
// takes the frames that a third lane has left behind.
#[test]
fn exactly_one_leaving_lane_is_last() {
    let queueing = || Queueing::new(pfifo(100), Layer::Ethernet, 1519, None).unwrap();
    for _ in 0..300 {
        let shared = Shared::new(queueing(), Arc::new(LaneWakers::new(3).unwrap()));
        let [first, second, mut gone] = [0, 1, 2].map(|channel| Egress::shared(channel, &shared));
        let stats: [QueuePairStats; 3] = Default::default();
        let call = |channel: u16| Call { channel, now: 1, stats: &stats[usize::from(channel)].tx };
        let hands = Hands::default();
        hands.push(1);
        let mut rx = Rx::Owning(Box::new(Source(hands, Vec::new())));
        gone.access().absorb(&mut rx, &call(2), &mut 0).unwrap();
        gone.close(&call(2));
        let (ready, call) = (&AtomicU32::new(0), &call);
        let leave = |channel: u16, old: Egress| {
            let mut next = Egress::own(channel, queueing());
            move || {
                ready.fetch_add(1, Ordering::SeqCst);
                while ready.load(Ordering::SeqCst) < 2 {
                    std::hint::spin_loop();
                }
                next.take_over(old, &call(channel));
                let waiting = next.waiting();
                next.close(&call(channel));
                waiting
            }
        };
        let jobs = [leave(0, first), leave(1, second)];
        let waiting: u32 = std::thread::scope(|scope| {
            let threads = jobs.map(|job| scope.spawn(job));
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(waiting, 1, "a frame was abandoned");
    }
}

#[derive(Clone, Copy, Debug)]
enum Deed {
    Push(u8),
    Room(u8),
    Poll,
    Change(u16),
    Retire,
    Hold(bool),
    CloseSource(bool),
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        6 => any::<u8>().prop_map(Deed::Push),
        6 => any::<u8>().prop_map(Deed::Room),
        8 => Just(Deed::Poll),
        1 => (2000u16..3000).prop_map(Deed::Change),
        1 => Just(Deed::Retire),
        1 => any::<bool>().prop_map(Deed::Hold),
        1 => any::<bool>().prop_map(Deed::CloseSource),
    ]
}

proptest! {
    // Goal: for any sequence of events at the sink, the source and the disciplines, frames arrive
    // in order and none is lost. At the end, each stop has been followed by a wake, and the lane
    // sleeps.
    #[test]
    fn frames_arrive_once_and_in_order(deeds in proptest::collection::vec(deed(), 1..200)) {
        let mut bench = Bench::with(pfifo(100_000));
        let mut next = 0;
        for deed in deeds {
            match deed {
                Deed::Push(n) => {
                    (next..next + u32::from(n)).for_each(|n| bench.hands.push(n));
                    next += u32::from(n);
                }
                Deed::Room(n) => bench.hands.world().room += usize::from(n),
                Deed::Poll => {
                    bench.poll();
                }
                Deed::Change(limit) => {
                    let now = bench.now;
                    if bench.lane.succeed(pfifo(u32::from(limit) * 100), now).is_err() {
                        let queueing =
                            Queueing::new(pfifo(100_000), Layer::Ethernet, 1519, None);
                        bench.lane.install(Egress::own(0, queueing.unwrap()), now);
                    }
                }
                Deed::Retire => bench.lane.retire_disciplines(),
                // The engine never holds a lane while its disciplines are being removed.
                Deed::Hold(on) => bench.lane.hold(on && bench.lane.has_disciplines()).unwrap(),
                Deed::CloseSource(true) => bench.lane.close_source(Closing::of(1).remove(0)),
                Deed::CloseSource(false) => bench.lane.open_source(),
            }
        }
        bench.lane.hold(false).unwrap();
        bench.lane.open_source();
        bench.hands.world().room = usize::MAX;
        let mut idle = 0;
        while idle < 3 {
            idle = if bench.poll().moved() > 0 { 0 } else { idle + 1 };
        }
        prop_assert_eq!(bench.sink(), (0..next).collect::<Vec<_>>());
        prop_assert_eq!(bench.lane.waiting(), 0);
        prop_assert_eq!(bench.stats.tx.drops.total(), 0);
        prop_assert_eq!(bench.lane.arm().unwrap(), Armed::Sleep);
        prop_assert_eq!(bench.stats.tx.stops.get(), bench.stats.tx.wakes.get());
    }
}
