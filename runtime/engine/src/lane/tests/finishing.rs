//! Tests of lanes with segmentation emulation.

use mqnet_netdev::{Offloads, OwningTx};
use mqnet_shmem::SpanMut;
use mqnet_wire::VnetFields;

use super::*;

const PAYLOAD: usize = 3000;

/// Source of large frames, as an owning or a system-call queue.
struct Large(Hands, Vec<Vec<u8>>);

fn tso() -> VnetHdr {
    VnetHdr::new(VnetFields {
        flags: 1,
        gso_type: 1,
        gso_size: 1000,
        csum_start: 34,
        csum_offset: 16,
        ..VnetFields::default()
    })
}

pub(super) fn large(number: u8) -> Vec<u8> {
    let mut frame = vec![number; 54 + PAYLOAD];
    frame[..54].fill(0);
    (frame[12], frame[14], frame[23], frame[46]) = (8, 0x45, 6, 0x50);
    frame[38] = number;
    frame
}

impl Queue for Large {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        Ok(Armed::Sleep)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl OwningRx for Large {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        self.1 = self.0.world().source.iter().take(budget).cloned().collect();
        self.1.iter().for_each(|frame| burst.push(tso(), frame.len() as u32, Span::of(frame)));
        Ok(())
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        self.0.world().source.drain(..frames);
        Ok(())
    }
}

impl SyscallRx for Large {
    fn recv(&mut self, room: &mut Segments<'_>) -> Result<Recv, Fault> {
        let Some(frame) = self.0.world().source.pop_front() else { return Ok(Recv::Empty) };
        let len = room.head.copy_from(Span::of(&frame)) as u32;
        assert_eq!(len as usize, frame.len(), "room for the largest that arrives");
        Ok(Recv::Frame(FrameMeta { len, hdr: tso() }))
    }
}

/// Sink that records each segment as the number of its frame and the offset of its payload.
struct Cuts(Hands, Arc<QueuePairStats>);

impl Queue for Cuts {
    fn arm(&mut self, need: u32) -> Result<Armed, Fault> {
        assert!(need <= 1519, "{need} is more than its largest frame");
        Ok(Armed::Sleep)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl SyscallTx for Cuts {
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        self.take(burst, from)
    }
}

impl OwningTx for Cuts {
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        self.take(burst, from)
    }

    fn reserve(&mut self, max: u32) -> Result<Option<Segments<'_>>, Fault> {
        assert!(max <= 1519, "{max} is more than its largest frame");
        let is_full = self.0.world().room == 0;
        Ok((!is_full).then(|| Segments::new(SpanMut::empty(), SpanMut::empty())))
    }

    fn commit(&mut self, _frame: &FrameMeta) {
        unreachable!("what finishes frames receives them into pages of its own");
    }

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

impl Cuts {
    fn take(&self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        let mut world = self.0.world();
        let frames = &burst.frames()[from..];
        let taken = frames.len().min(world.room);
        world.room -= taken;
        for frame in &frames[..taken] {
            assert_eq!((frame.len, frame.hdr), (1054, VnetHdr::default()));
            let mut head = [0; 42];
            frame.head.read_header(&mut head);
            let at = u32::from_be_bytes([0, head[39], head[40], head[41]]);
            world.sink.push(u32::from(head[38]) << 16 | at);
        }
        self.1.tx.packets.add(taken as u64);
        Ok(taken)
    }
}

/// Creates a lane with segmentation emulation, from an owning (`brings`) or system-call source to a
/// system-call sink.
pub(super) fn bench(brings: bool) -> Bench {
    bench_of(brings, false)
}

/// Creates a lane as [`bench`] does, with an owning or a system-call sink.
pub(super) fn bench_of(rx_brings: bool, tx_brings: bool) -> Bench {
    let mut bench = Bench::new();
    let (hands, stats) = (bench.hands.clone(), bench.stats.clone());
    let source = Large(hands.clone(), Vec::new());
    let rx = match rx_brings {
        true => Rx::Owning(Box::new(source)),
        false => Rx::Syscall(Box::new(source)),
    };
    let sink = Cuts(hands, stats.clone());
    let tx = match tx_brings {
        true => Tx::Owning(Box::new(sink)),
        false => Tx::Syscall(Box::new(sink)),
    };
    let id = LaneId { set: 0, channel: 0, way: Direction::AToB };
    let lane = Lane::new(id, rx, tx, 1518, None, stats).unwrap();
    let how = Finish { layer: Layer::Ethernet, takes: Offloads::NONE, frame_max: 1518 };
    bench.lane = lane.finishing(65_554, how).unwrap();
    bench
}

/// Records that [`Cuts`] makes of all segments of the given number of frames, in order.
pub(super) fn segments(frames: u32) -> Vec<u32> {
    (0..frames).flat_map(|number| [0, 1000, 2000].map(|at| number << 16 | at)).collect()
}

// Goal: each segment is sent once and in order, whatever space the sink has in each poll. The rule
// holds for both kinds of sources, with and without a discipline.
#[test]
fn each_segment_leaves_once() {
    for (brings, queued) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut bench = bench(brings);
        if queued {
            let queueing = Queueing::new(pfifo(1000), Layer::Ethernet, 65_555, None).unwrap();
            bench.lane.install(Egress::own(0, queueing), bench.now);
        }
        let frames = 20u32;
        (0..frames).for_each(|n| bench.hands.world().source.push_back(large(n as u8)));
        for turn in 0..200 {
            bench.hands.world().room = turn % 5;
            bench.poll();
            let _ = bench.lane.arm().unwrap();
        }
        assert_eq!(bench.sink(), segments(frames), "{brings} {queued}");
        let tx = &bench.stats.tx;
        let counted = (tx.packets.get(), tx.segments.get(), tx.drops.total());
        assert_eq!(counted, (60, 40, 0));
        assert!(bench.lane.is_settled());
    }
}

// Goal: a lane does not leave before it has sent the rest of a partly sent frame. A closed lane
// accounts for all frames that it had taken.
#[test]
fn lanes_complete_partial_frames() {
    for brings in [true, false] {
        let mut bench = bench(brings);
        bench.hands.world().source.push_back(large(0));
        bench.hands.world().room = 2;
        assert_eq!(bench.poll().rest, PollEnd::Full);
        assert!(!bench.lane.is_settled());
        bench.hands.world().room = 9;
        bench.poll();
        assert!(bench.lane.is_settled());
        assert_eq!(bench.sink(), segments(1));
        bench.hands.world().source.push_back(large(1));
        bench.hands.world().room = 1;
        bench.poll();
        let (stats, now) = (bench.stats.clone(), bench.now);
        bench.lane.into_queues(now);
        let came = if brings { 1 } else { 2 };
        let left = stats.tx.packets.get() + stats.tx.drops.total();
        assert_eq!(came + stats.tx.segments.get(), left);
        assert_eq!(stats.tx.drops.get(DropReason::LinkClosed), u64::from(!brings));
    }
}

// Goal: no frame overtakes a partly sent frame in a discipline that reorders frames, so no segment
// is sent twice.
#[test]
fn partial_frames_are_not_overtaken() {
    for first_room in 1..3 {
        let mut bench = bench(true);
        bench.lane = bench.lane.with_qdisc("prio", Layer::Ethernet).unwrap();
        let bulk = |number: u8| {
            let mut frame = large(number);
            frame[15] = 8;
            frame
        };
        let urgent = |number: u8| {
            let mut frame = large(number);
            frame[15] = 0x10;
            frame
        };
        bench.hands.world().source.extend([bulk(0), bulk(1)]);
        bench.hands.world().room = first_room;
        bench.poll();
        bench.hands.world().source.extend([urgent(2), urgent(3)]);
        // Frames without space in the sink wait in the discipline, behind the partly sent frame.
        bench.poll();
        bench.hands.world().room = 1;
        bench.poll();
        bench.hands.world().source.push_back(urgent(4));
        for _ in 0..20 {
            bench.hands.world().room = 2;
            bench.poll();
            let _ = bench.lane.arm().unwrap();
        }
        let sink = bench.sink();
        assert_eq!(sink[..3], segments(1)[..], "the frame that was begun comes first");
        let mut all = sink.clone();
        all.sort_unstable();
        assert_eq!(all, segments(5), "each segment once: {sink:x?}");
        let tx = &bench.stats.tx;
        assert_eq!((tx.packets.get(), tx.segments.get(), tx.drops.total()), (15, 10, 0));
        assert!(bench.lane.is_settled());
    }
}

// Goal: a lane with a closed source still sends the rest of a partly sent frame.
#[test]
fn partial_frames_of_closed_sources_complete() {
    let mut bench = bench(true);
    bench.lane = bench.lane.with_qdisc("pfifo", Layer::Ethernet).unwrap();
    bench.hands.world().source.extend([large(0), large(1)]);
    bench.hands.world().room = 1;
    bench.poll();
    bench.lane.close_source(Closing::of(1).remove(0));
    bench.hands.world().room = 9;
    bench.poll();
    assert!(bench.lane.is_settled());
    assert_eq!((bench.sink(), bench.hands.world().source.len()), (segments(1), 1));
}

// Goal: no frame overtakes a partly sent frame when its disciplines are replaced, so no segment is
// sent twice.
#[test]
fn partial_frames_stay_first_after_a_discipline_change() {
    let mut bench = bench(true);
    bench.lane = bench.lane.with_qdisc("pfifo", Layer::Ethernet).unwrap();
    let of_priority = |number: u8, tos: u8| {
        let mut frame = large(number);
        frame[15] = tos;
        frame
    };
    // The frame is enqueued, then partly sent from the discipline.
    bench.hands.world().source.extend([of_priority(0, 8), of_priority(1, 8)]);
    bench.poll();
    bench.hands.world().room = 1;
    bench.poll();
    assert_eq!((bench.sink().len(), bench.hands.world().source.len()), (1, 0));
    // The third frame has a higher priority, and waits in the discipline when `prio` replaces
    // `pfifo`.
    bench.hands.world().source.push_back(of_priority(2, 0x10));
    bench.poll();
    bench.lane = bench.lane.with_qdisc("prio", Layer::Ethernet).unwrap();
    bench.hands.world().room = 100;
    while bench.poll().moved() > 0 {}
    let sink = bench.sink();
    assert_eq!(sink[..3], segments(1)[..], "the frame that was begun comes first: {sink:x?}");
    assert_eq!(sink[3] >> 16, 2, "then by priority");
    let mut all = sink.clone();
    all.sort_unstable();
    assert_eq!(all, segments(3), "each segment once: {sink:x?}");
    assert!(bench.lane.is_settled());
}
