use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mqnet_shmem::{Segments, Span, SpanMut, copies};
use mqnet_wire::VnetHdr;
use proptest::prelude::*;

use super::*;
use crate::loopback::Loopback;
use crate::null::Null;
use crate::probe::Probe;
use crate::{
    Armed, Burst, Channel, DropReason, Fault, FrameMeta, Function, OwningRx, OwningTx, Plan, Queue,
    Recv, SyscallRx, SyscallTx, WakeSource,
};

static TICKS: AtomicU64 = AtomicU64::new(1);

/// Clock that never returns the same time twice.
fn clock() -> u64 {
    TICKS.fetch_add(1, Ordering::Relaxed)
}

fn config(drops_only: bool, snaplen: u32, ring_bytes: u32) -> CaptureConfig {
    let direction = CaptureDirection::Inbound;
    CaptureConfig { channel: 3, direction, drops_only, snaplen, ring_bytes, clock }
}

/// Frame bytes that depend on the frame's number.
fn bytes(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (number * 7 + i) as u8).collect()
}

struct Fake {
    frames: VecDeque<(Vec<u8>, Option<DropReason>)>,
    split: usize,
    released: usize,
}

impl Fake {
    fn new(lens: &[usize]) -> Self {
        let frames = lens.iter().enumerate().map(|(i, &len)| (bytes(i, len), None)).collect();
        Self { frames, split: usize::MAX, released: 0 }
    }
}

impl Queue for Fake {
    fn arm(&mut self, need: u32) -> Result<Armed, Fault> {
        Err(Fault { channel: need as u16, what: "armed".into() })
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl OwningRx for Fake {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        for (frame, _) in self.frames.iter().take(budget) {
            let (head, tail) = frame.split_at(self.split.min(frame.len()));
            let len = frame.len() as u32;
            burst.push_pieces(VnetHdr::default(), len, Span::of(head), &[Span::of(tail)]);
        }
        Ok(())
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        self.frames.drain(..frames);
        self.released += frames;
        Ok(())
    }
}

impl SyscallRx for Fake {
    fn recv(&mut self, room: &mut Segments<'_>) -> Result<Recv, Fault> {
        let Some((frame, dropped)) = self.frames.pop_front() else { return Ok(Recv::Empty) };
        let n = room.head.copy_from(Span::of(&frame));
        room.tail.copy_from(Span::of(&frame).skip(n));
        let len = frame.len() as u32;
        Ok(match dropped {
            Some(reason) => Recv::Dropped { len, reason },
            None => Recv::Frame(FrameMeta { len, hdr: VnetHdr::default() }),
        })
    }
}

/// A sink with limited space that drops some frames and fails at one.
struct Picky {
    room: usize,
    drop: Vec<Option<DropReason>>,
    fault_at: usize,
    at: usize,
    stats: Arc<QueuePairStats>,
}

impl Queue for Picky {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        Ok(Armed::Sleep)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl SyscallTx for Picky {
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        let mut taken = 0;
        for _ in &burst.frames()[from..] {
            if self.room == 0 {
                break;
            }
            if self.at == self.fault_at {
                return Err(Fault { channel: 3, what: "gone".into() });
            }
            self.room -= 1;
            match self.drop.get(self.at).copied().flatten() {
                Some(reason) => self.stats.tx.drops.count(reason, 1),
                None => self.stats.tx.packets.add(1),
            }
            self.at += 1;
            taken += 1;
        }
        Ok(taken)
    }
}

fn taken(reader: &mut CaptureReader) -> Vec<Captured> {
    let mut frames = Vec::new();
    assert_eq!(reader.take(&mut frames), 0, "missed");
    frames
}

fn channel(function: &mut dyn Function) -> Channel {
    let caps = function.caps();
    let plan = Plan::join(&caps, &caps).unwrap();
    function.open(&plan).unwrap().remove(0)
}

proptest! {
    // Goal: for any sequence of peeks and releases, each frame is captured exactly once, in order
    // and complete, and the inner queue receives every release.
    #[test]
    fn repeated_peeks_capture_once(
        lens in proptest::collection::vec(1usize..300, 0..80),
        split in 0usize..300,
        steps in proptest::collection::vec((1usize..=64, 0usize..=64), 1..40),
        refit in any::<u8>(),
    ) {
        let mut fake = Fake::new(&lens);
        fake.split = split;
        let (tap, mut reader) = tap(config(false, 70_000, 1 << 20));
        let mut rx = wrap_rx(Rx::Owning(Box::new(fake)), tap);
        let (mut released, mut shown) = (0, 0);
        for (i, &(budget, part)) in steps.iter().enumerate() {
            let Rx::Owning(q) = &mut rx else { panic!("shape") };
            let now = {
                let mut burst = Burst::new();
                q.peek(&mut burst, budget).unwrap();
                burst.frames().len()
            };
            prop_assert_eq!(now, budget.min(lens.len() - released));
            shown = shown.max(released + now);
            q.release(part.min(now)).unwrap();
            released += part.min(now);
            if i == usize::from(refit) {
                let (bare, tap) = unwrap_rx(rx);
                rx = wrap_rx(bare, tap.unwrap());
            }
        }
        let frames = taken(&mut reader);
        prop_assert_eq!(frames.len(), shown);
        for (i, frame) in frames.iter().enumerate() {
            prop_assert_eq!(&frame.bytes, &bytes(i, lens[i]));
            prop_assert_eq!((frame.len as usize, frame.channel), (lens[i], 3));
            prop_assert!(i == 0 || frames[i - 1].time_ns <= frame.time_ns);
        }
    }

    // Goal: for any ring size and reading interval, captured and missed frames together are exactly
    // the frames that passed. Captured bytes are correct up to the snap length.
    #[test]
    fn missed_count_is_exact(
        lens in proptest::collection::vec(1usize..500, 1..200),
        snaplen in 1u32..200,
        ring_bytes in 0u32..4000,
        every in 1usize..50,
    ) {
        let (tap, mut reader) = tap(config(false, snaplen, ring_bytes));
        let mut rx = wrap_rx(Rx::Syscall(Box::new(Fake::new(&lens))), tap);
        let (mut frames, mut missed, mut room) = (Vec::new(), 0, vec![0u8; 600]);
        for (i, &len) in lens.iter().enumerate() {
            let Rx::Syscall(q) = &mut rx else { panic!("shape") };
            let (head, tail) = room.split_at_mut(i);
            let (head, tail) = (SpanMut::of(head), SpanMut::of(tail));
            let got = q.recv(&mut Segments::new(head, tail)).unwrap();
            prop_assert!(matches!(got, Recv::Frame(f) if f.len as usize == len));
            if i % every == 0 {
                missed += reader.take(&mut frames);
            }
        }
        missed += reader.take(&mut frames);
        prop_assert_eq!(frames.len() as u64 + missed, lens.len() as u64);
        prop_assert!(!frames.is_empty(), "one frame always fits");
        let mut next = 0;
        for frame in &frames {
            let kept = frame.bytes.len();
            prop_assert_eq!(kept, (frame.len).min(snaplen) as usize);
            let same = |&i: &usize| {
                lens[i] == frame.len as usize && bytes(i, lens[i])[..kept] == frame.bytes
            };
            next = (next..lens.len()).find(same).unwrap() + 1;
        }
    }

    // Goal: a TX queue with a tap accepts the same prefix as one without, and the tap captures each
    // dropped frame with its reason. A fault after accepted frames is returned by the next call.
    #[test]
    fn tx_drops_are_captured_with_reason(
        room in 0usize..70,
        drop in proptest::collection::vec(proptest::option::of(0usize..5), 64),
        fault_at in 0usize..100,
        count in 1usize..=64,
        from in 0usize..64,
    ) {
        let from = from.min(count);
        let drop: Vec<_> = drop.iter().map(|d| d.map(|i| DropReason::ALL[i])).collect();
        let stats = Arc::new(QueuePairStats::default());
        let picky = Picky { room, drop: drop.clone(), fault_at, at: 0, stats: stats.clone() };
        let (tap, mut reader) = tap(config(true, 70_000, 1 << 20));
        let mut tx = wrap_tx(Tx::Syscall(Box::new(picky)), tap, stats);
        let Tx::Syscall(q) = &mut tx else { panic!("shape") };
        let memory: Vec<Vec<u8>> = (0..count).map(|i| bytes(i, 20 + i)).collect();
        let mut burst = Burst::new();
        for frame in &memory {
            burst.push(VnetHdr::default(), frame.len() as u32, Span::of(frame));
        }
        let expected = (count - from).min(room).min(fault_at);
        let broken = fault_at < (count - from).min(room);
        match q.submit(&burst, from) {
            Ok(taken) => prop_assert_eq!(taken, expected),
            Err(_) => prop_assert!(broken && expected == 0),
        }
        prop_assert_eq!(q.submit(&burst, count).is_err(), broken && expected > 0);
        let want: Vec<(Vec<u8>, Option<DropReason>)> = (0..expected)
            .filter(|&i| drop[i].is_some())
            .map(|i| (memory[from + i].clone(), drop[i]))
            .collect();
        let got = taken(&mut reader).into_iter().map(|f| (f.bytes, f.drop_reason));
        let got: Vec<_> = got.collect();
        prop_assert_eq!(got, want);
    }
}

// Goal: drops at an RX queue are captured with reason, full length and the received bytes. A
// capture of drops skips other frames and does not count them as missed.
#[test]
fn rx_drops_are_captured_with_reason() {
    for drops_only in [false, true] {
        let mut fake = Fake::new(&[10, 20, 4000]);
        fake.frames[2].1 = Some(DropReason::TooLong);
        let (tap, mut reader) = tap(config(drops_only, 70_000, 8000));
        let Rx::Syscall(mut q) = wrap_rx(Rx::Syscall(Box::new(fake)), tap) else { panic!() };
        let mut room = vec![0u8; 2000];
        for _ in 0..4 {
            let (head, tail) = (SpanMut::of(&mut room), SpanMut::empty());
            q.recv(&mut Segments::new(head, tail)).unwrap();
        }
        let frames = taken(&mut reader);
        assert_eq!(frames.len(), if drops_only { 1 } else { 3 });
        let last = frames.last().unwrap();
        assert_eq!(last.drop_reason, Some(DropReason::TooLong));
        assert_eq!((last.len, &last.bytes), (4000, &bytes(2, 4000)[..2000].to_vec()));
        assert!(frames[..frames.len() - 1].iter().all(|f| f.drop_reason.is_none()));
    }
}

/// An owning TX queue that drops every second frame.
struct Choosy {
    page: Vec<u8>,
    at: usize,
    /// Number of reservations until the queue is full.
    rooms: usize,
    stats: Arc<crate::QueuePairStats>,
}

impl Choosy {
    fn take(&mut self) {
        match self.at % 2 {
            1 => self.stats.tx.drops.count(DropReason::BadHeader, 1),
            _ => self.stats.tx.packets.add(1),
        }
        self.at += 1;
    }
}

impl Queue for Choosy {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        Ok(Armed::Sleep)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl OwningTx for Choosy {
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        let frames = burst.frames().len() - from;
        (0..frames).for_each(|_| self.take());
        Ok(frames)
    }

    fn reserve(&mut self, max: u32) -> Result<Option<Segments<'_>>, Fault> {
        let Some(rooms) = self.rooms.checked_sub(1) else { return Ok(None) };
        self.rooms = rooms;
        self.page.resize(max as usize, 0);
        let (head, tail) = SpanMut::of(&mut self.page).split_at(10);
        Ok(Some(Segments::new(head, tail)))
    }

    fn commit(&mut self, frame: &FrameMeta) {
        assert_eq!(self.page[..frame.len as usize], bytes(self.at, frame.len as usize));
        self.take();
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

// Goal: drops of an owning queue are captured, both of submitted and of committed frames. The queue
// receives every frame completely, and the tap can be removed.
#[test]
fn drops_of_memory_queues_are_captured() {
    let stats = Arc::<crate::QueuePairStats>::default();
    let inner = Choosy { page: Vec::new(), at: 0, rooms: usize::MAX, stats: stats.clone() };
    let (tap_out, mut reader) = tap(config(true, 2000, 1 << 16));
    let mut out = wrap_tx(Tx::Owning(Box::new(inner)), tap_out, stats.clone());
    let Tx::Owning(tx) = &mut out else { panic!("shape") };
    let frames: Vec<Vec<u8>> = (0..8).map(|n| bytes(n, 40 + n)).collect();
    let mut burst = Burst::new();
    for frame in &frames[..4] {
        burst.push(VnetHdr::default(), frame.len() as u32, Span::of(frame));
    }
    assert_eq!(tx.submit(&burst, 0).unwrap(), 4);
    for frame in &frames[4..] {
        let mut room = tx.reserve(100).unwrap().unwrap();
        assert_eq!(room.head.copy_from(Span::of(frame)), frame.len());
        tx.commit(&FrameMeta { len: frame.len() as u32, hdr: VnetHdr::default() });
    }
    assert!(tx.is_drained().unwrap());
    let seen: Vec<Vec<u8>> = taken(&mut reader).into_iter().map(|frame| frame.bytes).collect();
    let dropped = [1, 3, 5, 7].map(|n| frames[n].clone());
    assert_eq!(seen, dropped);
    assert_eq!((stats.tx.packets.get(), stats.tx.drops.total()), (4, 4));
    assert!(unwrap_tx(out).1.is_some());
}

// Goal: loopback and null queues work with taps, and a capture makes no counted payload copy.
#[test]
fn taps_make_no_payload_copy() {
    let (mut looped, mut null) = (Loopback::new(1), Null::new(1));
    let (ours, nothing) = (channel(&mut looped), channel(&mut null));
    let (tap_in, mut reader) = tap(config(false, 64, 1 << 16));
    let (tap_out, _out) = tap(config(true, 64, 1 << 16));
    let (Rx::Owning(mut rx), Tx::Owning(mut tx)) =
        (wrap_rx(ours.rx, tap_in), wrap_tx(ours.tx, tap_out, looped.stats()[0].clone()))
    else {
        panic!("shapes")
    };
    let payload = bytes(1, 100);
    let mut room = tx.reserve(100).unwrap().unwrap();
    assert_eq!(room.head.copy_from(Span::of(&payload)), 100);
    tx.commit(&FrameMeta { len: 100, hdr: VnetHdr::default() });
    tx.flush().unwrap();
    let before = copies::made();
    let mut burst = Burst::new();
    rx.peek(&mut burst, 64).unwrap();
    assert_eq!(burst.frames().len(), 1);
    let (tap_null, mut drops) = tap(config(true, 64, 1 << 16));
    let Tx::Syscall(mut sink) = wrap_tx(nothing.tx, tap_null, null.stats()[0].clone()) else {
        panic!("shape")
    };
    assert_eq!(sink.submit(&burst, 0).unwrap(), 1);
    drop(burst);
    rx.release(1).unwrap();
    assert_eq!(copies::made(), before, "a capture is no payload copy");
    assert_eq!(null.stats()[0].tx.packets.get(), 1);
    assert_eq!(looped.stats()[0].rx.packets.get(), 1);
    let frames = taken(&mut reader);
    assert_eq!((frames.len(), &frames[0].bytes), (1, &payload[..64].to_vec()));
    assert_eq!(taken(&mut drops), []);
}

// Goal: a tap can be removed, forwards calls to the inner queue, and detects that its reader was
// dropped.
#[test]
fn taps_are_removable() {
    let (tap_a, reader) = tap(config(false, 64, 0));
    let (tap_b, _other) = tap(config(false, 64, 0));
    let rx = wrap_rx(Rx::Owning(Box::new(Fake::new(&[1]))), tap_a);
    let mut rx = wrap_rx(rx, tap_b);
    assert_eq!(rx.queue().arm(77).unwrap_err().channel, 77);
    drop(reader);
    let (rx, tap_b) = unwrap_rx(rx);
    assert!(!tap_b.unwrap().is_abandoned());
    let (rx, tap_a) = unwrap_rx(rx);
    assert!(tap_a.unwrap().is_abandoned());
    let (rx, none) = unwrap_rx(rx);
    assert!(none.is_none() && matches!(rx, Rx::Owning(_)));
    let (tx, none) = unwrap_tx(channel(&mut Null::new(1)).tx);
    assert!(none.is_none() && matches!(tx, Tx::Syscall(_)));
}

// Goal: frames of several taps are returned in the order of their capture times.
#[test]
fn readers_are_merged_by_time() {
    let (mut one, first) = tap(config(false, 64, 4096));
    let (mut two, second) = tap(config(false, 64, 4096));
    for (time, tap) in [(5, 0), (1, 1), (7, 0), (6, 1)] {
        let tap = if tap == 0 { &mut one } else { &mut two };
        tap.keep(time, 1, None, Span::of(&[time as u8]), &[]);
    }
    let mut frames = Vec::new();
    assert_eq!(take_all(&mut [first, second], &mut frames), 0);
    assert_eq!(frames.iter().map(|f| f.time_ns).collect::<Vec<_>>(), [1, 5, 6, 7]);
}

// Goal: the fault of a queue that loses its reserved space names the channel of the queue.
#[test]
fn faults_of_taps_name_the_channel() {
    let stats = Arc::<crate::QueuePairStats>::default();
    let inner = Choosy { page: Vec::new(), at: 0, rooms: 1, stats: stats.clone() };
    let (tap_out, _reader) = tap(config(true, 2000, 1 << 16));
    let Tx::Owning(mut tx) = wrap_tx(Tx::Owning(Box::new(inner)), tap_out, stats.clone()) else {
        panic!("shape")
    };
    assert!(tx.reserve(60).unwrap().is_some());
    tx.commit(&FrameMeta { len: 60, hdr: VnetHdr::default() });
    assert_eq!(tx.reserve(60).unwrap_err().channel, 3);
    assert_eq!(stats.tx.drops.get(DropReason::LinkClosed), 1);
}

// Goal: frames can be detached through a tap, and each is captured once.
#[test]
fn detached_frames_are_captured_once() {
    let mut probe = Probe::new().unwrap();
    probe.frames = 3;
    let (tap_in, mut reader) = tap(config(false, 2000, 1 << 16));
    let Rx::Owning(mut rx) = wrap_rx(Rx::Owning(Box::new(probe)), tap_in) else { panic!("shape") };
    let mut returner = rx.returner().unwrap();
    for budget in [1, 2, 3] {
        rx.peek(&mut Burst::new(), budget).unwrap();
        rx.detach().unwrap().expect("a waiting frame").free(&mut returner);
    }
    assert!(rx.detach().unwrap().is_none());
    assert_eq!(taken(&mut reader).len(), 3);
}
