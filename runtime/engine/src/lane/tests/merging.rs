//! Tests of lanes with coalescing.

use mqnet_netdev::limits::FRAME_MAX;
use mqnet_netdev::wrap::merge::Merging;
use mqnet_netdev::{Offloads, OwningTx};
use mqnet_shmem::SpanMut;
use mqnet_wire::VnetFields;
use mqnet_wire::offload::{Cut, Sum};

use super::*;
use crate::lane::Merges;

const PAYLOAD: u32 = 1000;

/// Source of segments of one flow, with partial checksums.
struct Segmented(Hands, Vec<Vec<u8>>);

fn begun() -> VnetHdr {
    let csum = VnetFields { flags: 1, csum_start: 34, csum_offset: 16, ..VnetFields::default() };
    VnetHdr::new(csum)
}

pub(super) fn segment(number: u32) -> Vec<u8> {
    let mut frame = vec![0; 54 + PAYLOAD as usize];
    frame[12] = 8;
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&(40 + PAYLOAD as u16).to_be_bytes());
    frame[18..20].copy_from_slice(&(number as u16).to_be_bytes());
    (frame[20], frame[22], frame[23]) = (0x40, 64, 6);
    let mut sum = Sum::new();
    sum.bytes(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.header_field());
    frame[38..42].copy_from_slice(&(number * PAYLOAD).to_be_bytes());
    (frame[46], frame[47]) = (0x50, 0x10);
    frame[54..58].copy_from_slice(&number.to_be_bytes());
    let mut pseudo = Sum::new();
    pseudo.bytes(&frame[26..34]);
    pseudo.number(6);
    pseudo.number(20 + PAYLOAD as u16);
    frame[50..52].copy_from_slice(&pseudo.unfinished());
    frame
}

impl Queue for Segmented {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        Ok(Armed::Sleep)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl OwningRx for Segmented {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        self.1 = self.0.world().source.iter().take(budget).cloned().collect();
        self.1.iter().for_each(|frame| burst.push(begun(), frame.len() as u32, Span::of(frame)));
        Ok(())
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        self.0.world().source.drain(..frames);
        Ok(())
    }
}

impl SyscallRx for Segmented {
    fn recv(&mut self, room: &mut Segments<'_>) -> Result<Recv, Fault> {
        let Some(frame) = self.0.world().source.pop_front() else { return Ok(Recv::Empty) };
        let len = room.head.copy_from(Span::of(&frame)) as u32;
        assert_eq!(len as usize, frame.len());
        Ok(Recv::Frame(FrameMeta { len, hdr: begun() }))
    }
}

/// Sink that accepts large frames and records the numbers of the segments in them.
struct Stack(Hands, Arc<QueuePairStats>, Vec<u8>);

impl Stack {
    fn note(&self, hdr: VnetHdr, bytes: &[u8]) {
        let mut world = self.0.world();
        let at = |from: usize| {
            u32::from_be_bytes([bytes[from], bytes[from + 1], bytes[from + 2], bytes[from + 3]])
        };
        if !hdr.is_large() {
            world.sink.push(at(54));
            return;
        }
        let cut = Cut::new(hdr, bytes.len() as u32, &bytes[..100], Layer::Ethernet).unwrap();
        (0..cut.count()).for_each(|n| world.sink.push(at(54 + (n * PAYLOAD) as usize)));
    }

    fn take(&self, burst: &Burst<'_>, from: usize) -> usize {
        let frames = &burst.frames()[from..];
        let taken = frames.len().min(self.0.world().room);
        self.0.world().room -= taken;
        for frame in &frames[..taken] {
            let mut bytes = Vec::new();
            for piece in std::iter::once(&frame.head).chain(burst.more(frame)) {
                let mut part = vec![0; piece.len()];
                piece.read_header(&mut part);
                bytes.extend(part);
            }
            self.note(frame.hdr, &bytes);
        }
        self.1.tx.packets.add(taken as u64);
        taken
    }
}

impl Queue for Stack {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        Ok(Armed::Sleep)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl SyscallTx for Stack {
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        Ok(self.take(burst, from))
    }
}

impl OwningTx for Stack {
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        Ok(self.take(burst, from))
    }

    fn reserve(&mut self, max: u32) -> Result<Option<Segments<'_>>, Fault> {
        if self.0.world().room == 0 {
            return Ok(None);
        }
        self.2.resize(max as usize, 0);
        Ok(Some(Segments::new(SpanMut::of(&mut self.2), SpanMut::empty())))
    }

    fn commit(&mut self, frame: &FrameMeta) {
        self.0.world().room -= 1;
        self.note(frame.hdr, &self.2[..frame.len as usize]);
        self.1.tx.packets.add(1);
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

pub(super) fn bench(rx_brings: bool, tx_brings: bool) -> Bench {
    let mut bench = Bench::new();
    let (hands, stats) = (bench.hands.clone(), bench.stats.clone());
    let source = Segmented(hands.clone(), Vec::new());
    let rx = match rx_brings {
        true => Rx::Owning(Box::new(source)),
        false => Rx::Syscall(Box::new(source)),
    };
    let sink = Stack(hands, stats.clone(), Vec::new());
    let tx = match tx_brings {
        true => Tx::Owning(Box::new(sink)),
        false => Tx::Syscall(Box::new(sink)),
    };
    let id = LaneId { set: 0, channel: 0, way: Direction::AToB };
    bench.lane = Lane::new(id, rx, tx, 1518, None, stats).unwrap();
    bench
}

pub(super) fn merges() -> Option<Merges> {
    let (layer, takes, frame_max) = (Layer::Ethernet, Offloads::ALL, FRAME_MAX);
    Some(Merges { how: Merging { layer, takes, frame_max }, gathers: true })
}

fn push(bench: &Bench, numbers: std::ops::Range<u32>) {
    bench.hands.world().source.extend(numbers.map(segment));
}

/// Asserts that the first `came` frames were sent in order, and that each of them is counted as
/// sent or as merged.
fn assert_in_order(bench: &Bench, came: u32) {
    let tx = &bench.stats.tx;
    assert_eq!(bench.sink(), (0..came).collect::<Vec<_>>());
    let left = tx.packets.get() + tx.merged.get();
    assert_eq!((left, tx.drops.total()), (u64::from(came), 0), "rx = tx + merged");
}

// Goal: 40 segments of one flow are sent as at most two frames, for all combinations of queue
// kinds.
#[test]
fn every_shape_coalesces() {
    for (rx, tx) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut bench = bench(rx, tx);
        bench.lane.set_merging(merges());
        bench.hands.world().room = usize::MAX;
        push(&bench, 0..40);
        while bench.poll().moved() > 0 {}
        assert_in_order(&bench, 40);
        assert!(bench.stats.tx.packets.get() <= 2, "{rx} {tx}: {:?}", bench.stats.tx.packets);
        assert!(bench.lane.is_settled());
    }
}

// Goal: a single frame is sent in the poll in which it arrives.
#[test]
fn single_frames_leave_in_the_same_poll() {
    for (rx, tx) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut bench = bench(rx, tx);
        bench.lane.set_merging(merges());
        bench.hands.world().room = usize::MAX;
        for number in 0..100 {
            push(&bench, number..number + 1);
            bench.poll();
            assert_in_order(&bench, number + 1);
        }
        assert_eq!(bench.stats.tx.merged.get(), 0);
    }
}

proptest! {
    // Goal: each frame is sent once and in order and is accounted for, whatever space the sink has.
    // The rule holds with and without a discipline, and when coalescing is enabled or disabled at
    // any time.
    #[test]
    fn coalescing_may_change_at_any_time(
        rx: bool, tx: bool, queued: bool,
        steps in prop::collection::vec((0u32..40, 0usize..6, 0u8..6), 1..60),
    ) {
        let mut bench = bench(rx, tx);
        if queued {
            let queueing = Queueing::new(pfifo(10_000), Layer::Ethernet, 1519, None).unwrap();
            bench.lane.install(Egress::own(0, queueing), bench.now);
        }
        let mut came = 0;
        for (frames, room, switch) in steps {
            match switch {
                0 => bench.lane.set_merging(merges()),
                1 => bench.lane.set_merging(None),
                _ => {}
            }
            push(&bench, came..came + frames);
            came += frames;
            bench.hands.world().room = room;
            bench.poll();
            let _ = bench.lane.arm().unwrap();
        }
        bench.hands.world().room = usize::MAX;
        // Poll repeatedly: a poll that sends only batched frames moves no frame from the source.
        for _ in 0..60 {
            bench.poll();
        }
        assert_in_order(&bench, came);
        prop_assert!(bench.lane.is_settled());
    }
}

// Goal: frames of a batch that are not sent are counted when the lane is closed.
#[test]
fn batched_frames_are_accounted_for() {
    for tx in [true, false] {
        let mut bench = bench(false, tx);
        bench.lane.set_merging(merges());
        push(&bench, 0..10);
        bench.poll();
        let (stats, now) = (bench.stats.clone(), bench.now);
        let waits = 10 - bench.hands.world().source.len() as u64;
        assert!(!bench.lane.is_settled() && waits > 0);
        bench.lane.into_queues(now);
        assert_eq!(stats.tx.drops.get(DropReason::LinkClosed), waits);
    }
}
