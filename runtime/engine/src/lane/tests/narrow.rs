//! Tests of lanes that receive in place into a sink with little memory.

use mqnet_netdev::limits::{BUDGET, room_for};
use mqnet_netdev::{Fill, OwningTx};
use mqnet_shmem::SpanMut;

use super::*;

const SIZE: u32 = 72 << 10;
const LARGEST: u32 = 64 << 10;

/// Sink with memory for [`SIZE`] bytes of frames.
struct Ring {
    hands: Hands,
    stats: Arc<QueuePairStats>,
    bytes: Vec<u8>,
    /// Lengths of the frames that the reader has not taken.
    lies: Arc<Mutex<VecDeque<u32>>>,
    /// Space that the last arm requested.
    need: Arc<AtomicU32>,
}

impl Ring {
    fn room(&self) -> u32 {
        SIZE - self.lies.lock().unwrap().iter().sum::<u32>()
    }

    fn note(&mut self, len: u32, start: [u8; 60]) {
        let number = u32::from_le_bytes([start[56], start[57], start[58], start[59]]);
        self.hands.world().sink.push(number);
        self.lies.lock().unwrap().push_back(len);
        self.stats.tx.packets.add(1);
        self.stats.tx.bytes.add(len.into());
    }
}

impl Queue for Ring {
    fn arm(&mut self, need: u32) -> Result<Armed, Fault> {
        self.need.store(need, Ordering::Relaxed);
        Ok(if self.room() >= need { Armed::MoreWork } else { Armed::Sleep })
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl OwningTx for Ring {
    fn fill(&mut self, _enough: u32) -> Result<Option<Fill>, Fault> {
        Ok(Some(Fill { used: SIZE - self.room(), size: SIZE }))
    }

    fn capacity(&self) -> Option<u32> {
        Some(SIZE)
    }

    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        for (taken, frame) in burst.frames()[from..].iter().enumerate() {
            if frame.len > self.room() {
                return Ok(taken);
            }
            let mut start = [0; 60];
            frame.head.read_header(&mut start);
            self.note(frame.len, start);
            self.stats.tx.copies.add(1);
        }
        Ok(burst.frames().len() - from)
    }

    fn reserve(&mut self, max: u32) -> Result<Option<Segments<'_>>, Fault> {
        if self.room() < max {
            return Ok(None);
        }
        let room = SpanMut::of(&mut self.bytes[..max as usize]);
        Ok(Some(Segments::new(room, SpanMut::empty())))
    }

    fn commit(&mut self, frame: &FrameMeta) {
        let mut start = [0; 60];
        start.copy_from_slice(&self.bytes[..60]);
        self.note(frame.len, start);
    }

    fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn hold(&mut self, _on: bool) -> Result<(), Fault> {
        Ok(())
    }

    fn is_drained(&mut self) -> Result<bool, Fault> {
        Ok(self.lies.lock().unwrap().is_empty())
    }
}

struct Narrow {
    bench: Bench,
    lies: Arc<Mutex<VecDeque<u32>>>,
    need: Arc<AtomicU32>,
    pushed: u32,
}

impl Narrow {
    fn new() -> Self {
        let (hands, stats) = (Hands::default(), Arc::<QueuePairStats>::default());
        let (lies, need) = (Arc::default(), Arc::default());
        let ring = Ring {
            hands: hands.clone(),
            stats: stats.clone(),
            bytes: vec![0; SIZE as usize],
            lies: Arc::clone(&lies),
            need: Arc::clone(&need),
        };
        let id = LaneId { set: 0, channel: 0, way: Direction::AToB };
        let (rx, tx) = (Rx::Syscall(Box::new(Calls(hands.clone()))), Tx::Owning(Box::new(ring)));
        let lane = Lane::new(id, rx, tx, LARGEST, None, stats.clone()).unwrap();
        let bench = Bench { hands, lane, stats, now: Duration::from_secs(1) };
        Self { bench, lies, need, pushed: 0 }
    }

    fn push(&mut self, len: u32) {
        let mut frame = vec![0; len as usize];
        frame[56..60].copy_from_slice(&self.pushed.to_le_bytes());
        self.bench.hands.world().source.push_back(frame);
        self.pushed += 1;
    }

    fn run(&mut self) {
        while self.bench.poll().moved() > 0 {}
    }

    /// Removes frames from the sink, as its reader does.
    fn take(&self, frames: usize) {
        let mut lies = self.lies.lock().unwrap();
        let frames = frames.min(lies.len());
        lies.drain(..frames);
    }

    fn occupancy(&self) -> u32 {
        self.lies.lock().unwrap().iter().sum()
    }

    fn copies(&self) -> u64 {
        self.bench.stats.tx.copies.get()
    }

    fn left(&self) -> usize {
        self.bench.hands.world().source.len()
    }

    fn came_in_order(&self) -> usize {
        let sink = self.bench.sink();
        assert!(sink.iter().copied().eq(0..sink.len() as u32), "{sink:?}");
        sink.len()
    }
}

// Goal: small frames use all of the sink's memory, even if the free memory is too small for a frame
// of the maximum length. Excess frames stay in the source, except for a few that the lane holds.
// The lane sleeps until the sink has space for the first held frame.
#[test]
fn small_frames_use_all_sink_memory() {
    let mut narrow = Narrow::new();
    (0..2000).for_each(|_| narrow.push(100));
    narrow.run();
    assert!(narrow.occupancy() > SIZE - 100, "{} of {SIZE}", narrow.occupancy());
    let (came, left) = (narrow.came_in_order(), narrow.left());
    assert!(narrow.bench.lane.holds_a_frame() && came + left + 16 >= 2000);
    assert_eq!(narrow.bench.lane.arm().unwrap(), Armed::Sleep);
    assert_eq!(narrow.need.load(Ordering::Relaxed), 100);
    narrow.take(usize::MAX);
    narrow.run();
    narrow.take(usize::MAX);
    narrow.run();
    narrow.take(usize::MAX);
    narrow.run();
    assert_eq!((narrow.came_in_order(), narrow.left()), (2000, 0));
    assert!(!narrow.bench.lane.holds_a_frame());
}

// Goal: large frames wait in the source and are received in place. Of 100 small and 10 large
// frames, at most 19 are copied.
#[test]
fn large_frames_are_not_copied() {
    let mut narrow = Narrow::new();
    (0..10).for_each(|_| narrow.push(60_000));
    for _ in 0..10 {
        narrow.run();
        narrow.take(1);
    }
    narrow.run();
    assert_eq!((narrow.came_in_order(), narrow.copies()), (10, 0));
    (0..100).for_each(|_| narrow.push(100));
    (0..10).for_each(|_| narrow.push(60_000));
    for _ in 0..12 {
        narrow.run();
        narrow.take(usize::MAX);
    }
    narrow.run();
    assert_eq!(narrow.came_in_order(), 120);
    assert!(narrow.copies() <= 19, "{} copies", narrow.copies());
}

// Goal: at least eight jumbo frames of 9,014 bytes are in the sink's memory at the same time.
#[test]
fn jumbo_frames_are_small_enough() {
    let mut narrow = Narrow::new();
    (0..20).for_each(|_| narrow.push(9014));
    narrow.run();
    assert!(narrow.occupancy() >= 8 * 9014, "{}", narrow.occupancy());
}

// Goal: with full=drop, frames for a full sink are dropped and counted, and the lane keeps none.
#[test]
fn tail_drop_keeps_no_batched_frame() {
    let mut narrow = Narrow::new();
    narrow.bench.lane.set_full(Full::Drop).unwrap();
    (0..2000).for_each(|_| narrow.push(100));
    narrow.run();
    let lost = narrow.bench.dropped(DropReason::SinkFull);
    assert_eq!((narrow.came_in_order() as u64 + lost, narrow.left()), (2000, 0));
    assert!(!narrow.bench.lane.holds_a_frame() && narrow.occupancy() > SIZE - 100);
}

// Goal: with full=drop, no frame is dropped for which the sink has space, whatever the sizes.
#[test]
fn tail_drop_drops_only_frames_without_room() {
    let mut narrow = Narrow::new();
    narrow.bench.lane.set_full(Full::Drop).unwrap();
    narrow.push(20_000);
    narrow.push(20_000);
    (0..10).for_each(|_| narrow.push(1000));
    narrow.push(20_000);
    narrow.run();
    assert_eq!((narrow.came_in_order(), narrow.bench.dropped(DropReason::SinkFull)), (13, 0));
}

// Goal: a lane that is being detached receives no frame that would have to wait in it. The lane can
// therefore leave even if its source is never empty and its sink is slow. A lane with a cancelled
// detach receives frames again.
#[test]
fn leaving_lanes_settle() {
    let mut narrow = Narrow::new();
    (0..5000).for_each(|_| narrow.push(1514));
    narrow.run();
    assert!(!narrow.bench.lane.is_settled());
    narrow.bench.lane.close_intake(true);
    for _ in 0..3 {
        narrow.take(10);
        narrow.bench.poll();
    }
    assert!(narrow.bench.lane.is_settled() && narrow.left() > 4000);
    narrow.bench.lane.close_intake(false);
    narrow.take(10);
    narrow.bench.poll();
    assert!(!narrow.bench.lane.is_settled());
    narrow.came_in_order();
}

// Goal: new disciplines first send the frames of the batch, and then select from the other frames.
#[test]
fn disciplines_send_batched_frames_first() {
    let mut narrow = Narrow::new();
    (0..1000).for_each(|_| narrow.push(100));
    narrow.run();
    let queueing = Queueing::new(pfifo(5000), Layer::Ethernet, room_for(LARGEST), None).unwrap();
    narrow.bench.lane.install(Egress::own(0, queueing), narrow.bench.now);
    narrow.run();
    assert_eq!(narrow.left(), 0);
    for _ in 0..4 {
        narrow.take(usize::MAX);
        narrow.run();
    }
    assert_eq!((narrow.came_in_order(), narrow.bench.lane.waiting()), (1000, 0));
}

proptest! {
    // Goal: every frame arrives once and in order for all arrivals and readers, and no poll exceeds
    // its budget. Frames that wait when the lane is closed are counted.
    #[test]
    fn frames_arrive_in_order_for_any_reader(
        steps in prop::collection::vec((0u8..4, 60u32..4500, 1usize..40), 1..120),
        closes: bool,
    ) {
        let mut narrow = Narrow::new();
        for (what, len, many) in steps {
            match what {
                0 => (0..many).for_each(|_| narrow.push(len)),
                1 => narrow.push(len * 14),
                2 => narrow.take(many),
                _ => prop_assert!(narrow.bench.poll().frames <= BUDGET),
            }
            narrow.came_in_order();
        }
        if closes {
            let came = narrow.came_in_order() + narrow.left();
            let Narrow { bench, pushed, .. } = narrow;
            let Bench { lane, stats, now, .. } = bench;
            lane.into_queues(now);
            let lost = stats.tx.drops.get(DropReason::LinkClosed);
            prop_assert_eq!(came as u64 + lost, u64::from(pushed));
        } else {
            for _ in 0..narrow.pushed * 2 + 10 {
                narrow.run();
                narrow.take(usize::MAX);
            }
            prop_assert_eq!(narrow.came_in_order(), narrow.pushed as usize);
            prop_assert!(narrow.bench.lane.is_settled());
        }
    }
}
