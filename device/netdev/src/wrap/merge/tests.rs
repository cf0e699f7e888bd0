use std::sync::{Mutex, MutexGuard};

use mqnet_shmem::{Segments, Span, SpanMut, copies};
use mqnet_wire::offload::{Cut, UNFINISHED_HEADERS_MAX, fill_checksum};
use mqnet_wire::{VnetFields, VnetHdr};
use proptest::prelude::*;

use super::*;
use crate::limits::FRAME_MAX;
use crate::{Armed, Burst, Fault, FrameMeta, OwningTx, Queue, SyscallTx, WakeSource};

/// Remaining space of a queue in bytes, and the frames that the queue accepted.
#[derive(Default)]
struct Taken {
    room: usize,
    frames: Vec<(VnetHdr, Vec<u8>)>,
}

#[derive(Clone, Default)]
struct Sink {
    taken: Arc<Mutex<Taken>>,
    stats: Arc<QueuePairStats>,
}

impl Sink {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap()
    }

    fn take(&self, burst: &Burst<'_>, from: usize) -> usize {
        let mut taken = self.taken();
        let mut n = 0;
        for frame in &burst.frames()[from..] {
            if frame.len as usize > taken.room {
                break;
            }
            taken.room -= frame.len as usize;
            let mut bytes = Vec::new();
            for piece in std::iter::once(&frame.head).chain(burst.more(frame)) {
                let mut part = vec![0; piece.len()];
                piece.read_header(&mut part);
                bytes.extend(part);
            }
            assert_eq!(bytes.len(), frame.len as usize);
            taken.frames.push((frame.hdr, bytes));
            n += 1;
        }
        self.stats.tx.packets.add(n as u64);
        n
    }

    fn wrapped(&self, owning: bool, takes: Offloads) -> Tx {
        let how = Merging { layer: Layer::Ethernet, takes, frame_max: FRAME_MAX };
        let tx: Tx = match owning {
            true => Tx::Owning(Box::new(self.clone())),
            false => Tx::Syscall(Box::new(self.clone())),
        };
        wrap_tx(tx, how, self.stats.clone())
    }

    /// Checks that `came` input frames are accounted for.
    fn assert_conservation(&self, came: usize) {
        let tx = &self.stats.tx;
        assert_eq!(came as u64, tx.packets.get() + tx.merged.get(), "rx = tx + merged");
    }
}

impl Queue for Sink {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        Ok(Armed::Sleep)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl SyscallTx for Sink {
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        Ok(self.take(burst, from))
    }
}

impl OwningTx for Sink {
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        Ok(self.take(burst, from))
    }

    fn reserve(&mut self, _max: u32) -> Result<Option<Segments<'_>>, Fault> {
        Ok(Some(Segments::new(SpanMut::empty(), SpanMut::empty())))
    }

    fn commit(&mut self, _frame: &FrameMeta) {
        self.stats.tx.packets.add(1);
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

fn slow_sum(bytes: &[u8]) -> u32 {
    let mut sum = 0u32;
    for (at, byte) in bytes.iter().enumerate() {
        sum += u32::from(*byte) << if at % 2 == 0 { 8 } else { 0 };
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// A TCP segment over IPv4 with valid checksums.
fn tcp(flow: u8, seq: u32, id: u16, flags: u8, payload: usize) -> Vec<u8> {
    let mut frame = vec![0u8; 54];
    frame[12] = 8;
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&((40 + payload) as u16).to_be_bytes());
    frame[18..20].copy_from_slice(&id.to_be_bytes());
    (frame[20], frame[22], frame[23]) = (0x40, 64, 6);
    frame[26..34].copy_from_slice(&[10, 0, 0, flow, 10, 0, 0, 2]);
    frame[38..42].copy_from_slice(&seq.to_be_bytes());
    (frame[46], frame[47]) = (0x50, flags);
    frame.extend((0..payload).map(|at| (at as u32 ^ seq.wrapping_mul(0x9e37)) as u8));
    let sum = !slow_sum(&frame[14..34]) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    let mut all = frame[26..34].to_vec();
    all.extend([0, 6]);
    all.extend(((frame.len() - 34) as u16).to_be_bytes());
    all.extend(&frame[34..]);
    let sum = match !slow_sum(&all) as u16 {
        0 => 0xffff,
        sum => sum,
    };
    frame[50..52].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Segments of an accepted frame, with checksums filled in.
fn cut((hdr, bytes): &(VnetHdr, Vec<u8>)) -> Vec<Vec<u8>> {
    if !hdr.is_large() {
        assert_eq!(*hdr, VnetHdr::default());
        return vec![bytes.clone()];
    }
    let head = &bytes[..bytes.len().min(UNFINISHED_HEADERS_MAX)];
    let cut = Cut::new(*hdr, bytes.len() as u32, head, Layer::Ethernet).expect("a cut");
    let segment = |number| {
        let mut out = vec![0; cut.headers()];
        let segment = cut.segment(number, head, &mut out);
        out.extend(&bytes[segment.at..][..segment.payload]);
        fill_checksum(segment.hdr, &mut out, std::iter::empty()).unwrap();
        out
    };
    (0..cut.count()).map(segment).collect()
}

/// Complete frames, each with the offsets at which it is split into segments of memory.
type Given = Vec<(Vec<u8>, Vec<usize>)>;

fn show(given: &[(Vec<u8>, Vec<usize>)], burst: &mut impl FnMut(&Burst<'_>)) {
    let mut out = Burst::new();
    for (bytes, cuts) in given.iter().take(64) {
        let (mut rest, mut pieces) = (&bytes[..], Vec::new());
        for cut in cuts {
            let (piece, more) = rest.split_at(*cut % (rest.len() + 1));
            pieces.push(Span::of(piece));
            rest = more;
        }
        pieces.push(Span::of(rest));
        let len = bytes.len() as u32;
        if !out.push_pieces(VnetHdr::default(), len, pieces[0], &pieces[1..]) {
            break;
        }
    }
    burst(&out);
}

fn given() -> impl Strategy<Value = Given> {
    let cuts = prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(0usize..1500, 1..3)];
    let payload = prop_oneof![6 => Just(1000usize), 1 => 0usize..1001];
    let flags = prop_oneof![6 => Just(0x10u8), 1 => Just(0x18), 1 => Just(0x11)];
    let flow = prop_oneof![8 => Just(1u8), 1 => Just(2)];
    let one = (flow, payload, flags, prop_oneof![9 => Just(false), 1 => Just(true)], cuts);
    prop::collection::vec(one, 1..150).prop_map(|steps| {
        let (mut seq, mut id) = ([0u32; 3], [0u16; 3]);
        let frame = |(flow, payload, flags, spoilt, cuts): (u8, usize, u8, bool, Vec<usize>)| {
            let at = usize::from(flow);
            let mut frame = tcp(flow, seq[at], id[at], flags, payload);
            seq[at] = seq[at].wrapping_add(payload as u32);
            id[at] = id[at].wrapping_add(1);
            if spoilt && payload > 0 {
                frame[54] ^= 1;
            }
            (frame, cuts)
        };
        steps.into_iter().map(frame).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    // Goal: for any frames, memory segments and queue space, segmentation restores each original
    // frame once and in order. Every frame is accounted for, and no payload is copied.
    #[test]
    fn every_frame_leaves_once(
        given in given(), rooms in prop::collection::vec(0usize..100_000, 1..20), owning: bool,
    ) {
        let sink = Sink::default();
        let mut tx = sink.wrapped(owning, Offloads::ALL);
        let before = copies::made();
        let (mut done, mut turn) = (0, 0);
        while done < given.len() {
            sink.taken().room = rooms[turn % rooms.len()] + 1100 * usize::from(turn >= rooms.len());
            turn += 1;
            let mut taken = 0;
            show(&given[done..], &mut |burst| taken = tx.submit(burst, 0).unwrap());
            done += taken;
            sink.assert_conservation(done);
        }
        prop_assert_eq!(copies::made(), before);
        let taken = sink.taken();
        let back: Vec<Vec<u8>> = taken.frames.iter().flat_map(cut).collect();
        prop_assert_eq!(back.len(), given.len());
        for (at, (back, (was, _))) in back.iter().zip(&given).enumerate() {
            prop_assert!(back == was, "frame {}", at);
        }
    }
}

fn stream(flow: u8, frames: u32) -> Given {
    (0..frames).map(|n| (tcp(flow, 1000 * n, n as u16, 0x10, 1000), Vec::new())).collect()
}

// Goal: a burst of one flow becomes one frame, limited by the largest frame. A kind of frame
// without segmentation offload is not coalesced.
#[test]
fn one_flow_becomes_one_frame() {
    for (takes, frames, merged) in
        [(Offloads::ALL, 1, 63), (Offloads::CSUM.or(Offloads::TSO6), 64, 0)]
    {
        let sink = Sink::default();
        let mut tx = sink.wrapped(true, takes);
        sink.taken().room = 1 << 20;
        show(&stream(1, 64), &mut |burst| assert_eq!(tx.submit(burst, 0).unwrap(), 64));
        assert_eq!(sink.taken().frames.len(), frames);
        assert_eq!(sink.stats.tx.merged.get(), merged);
        sink.assert_conservation(64);
    }
    let sink = Sink::default();
    let how = Merging { layer: Layer::Ethernet, takes: Offloads::ALL, frame_max: 10_100 };
    let mut tx = wrap_tx(Tx::Syscall(Box::new(sink.clone())), how, sink.stats.clone());
    sink.taken().room = 1 << 20;
    show(&stream(1, 64), &mut |burst| assert_eq!(tx.submit(burst, 0).unwrap(), 64));
    let lengths: Vec<usize> = sink.taken().frames.iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!(lengths, [10_054, 10_054, 10_054, 10_054, 10_054, 10_054, 4054]);
}

// Goal: without space for a large frame, the small frames that fit are sent.
#[test]
fn small_frames_fill_the_rest_of_the_room() {
    let sink = Sink::default();
    let mut tx = sink.wrapped(false, Offloads::ALL);
    sink.taken().room = 5 * 1054 + 100;
    show(&stream(1, 20), &mut |burst| assert_eq!(tx.submit(burst, 0).unwrap(), 5));
    assert_eq!((sink.taken().frames.len(), sink.stats.tx.merged.get()), (5, 0));
    sink.taken().room = 1 << 20;
    show(&stream(1, 20)[5..], &mut |burst| assert_eq!(tx.submit(burst, 0).unwrap(), 15));
    assert_eq!((sink.taken().frames.len(), sink.stats.tx.merged.get()), (6, 14));
    sink.assert_conservation(20);
}

// Goal: after 500 bursts that cannot be coalesced, bursts of one flow are detected within 65
// bursts, and all later ones are coalesced.
#[test]
fn inspection_backs_off() {
    let sink = Sink::default();
    let mut tx = sink.wrapped(false, Offloads::ALL);
    sink.taken().room = usize::MAX;
    let mixed: Given = (0..40).flat_map(|n| [stream(1, 1), stream(n + 2, 1)].concat()).collect();
    for _ in 0..500 {
        show(&mixed[..64], &mut |burst| assert_eq!(tx.submit(burst, 0).unwrap(), 64));
    }
    assert_eq!(sink.stats.tx.merged.get(), 0);
    let bulk = stream(1, 64);
    let turns = (1..=100).find(|_| {
        show(&bulk, &mut |burst| assert_eq!(tx.submit(burst, 0).unwrap(), 64));
        sink.stats.tx.merged.get() > 0
    });
    assert!(turns.expect("merged again") <= 65);
    let before = sink.stats.tx.merged.get();
    show(&bulk, &mut |burst| assert_eq!(tx.submit(burst, 0).unwrap(), 64));
    assert_eq!(sink.stats.tx.merged.get(), before + 63, "from then on all of it");
}

// Goal: after coalescing is removed, the inner queue accepts every frame unchanged.
#[test]
fn coalescing_is_removable() {
    for owning in [true, false] {
        let sink = Sink::default();
        let mut tx = unwrap_tx(sink.wrapped(owning, Offloads::ALL));
        sink.taken().room = 1 << 20;
        show(&stream(1, 9), &mut |burst| assert_eq!(tx.submit(burst, 0).unwrap(), 9));
        assert_eq!((sink.taken().frames.len(), sink.stats.tx.merged.get()), (9, 0));
    }
}

// Goal: frames with partial checksums are coalesced without a read of their payload. Frames with
// wrong checksums are never coalesced, for any other flags.
#[test]
fn wrong_checksums_are_not_merged() {
    let csum = VnetFields { csum_start: 34, csum_offset: 16, ..VnetFields::default() };
    for (flags, left) in [(1, 1), (0, 8), (2, 8), (4, 8), (0xfe, 8)] {
        let sink = Sink::default();
        let mut tx = sink.wrapped(true, Offloads::ALL);
        sink.taken().room = 1 << 20;
        let mut given = stream(1, 8);
        for (frame, _) in &mut given {
            frame[100] ^= 1;
            if flags == 1 {
                let mut pseudo = frame[26..34].to_vec();
                pseudo.extend([0, 6]);
                pseudo.extend(((frame.len() - 34) as u16).to_be_bytes());
                frame[50..52].copy_from_slice(&(slow_sum(&pseudo) as u16).to_be_bytes());
            }
        }
        let hdr = VnetHdr::new(VnetFields { flags, ..csum });
        let mut burst = Burst::new();
        given.iter().for_each(|(frame, _)| burst.push(hdr, frame.len() as u32, Span::of(frame)));
        assert_eq!(tx.submit(&burst, 0).unwrap(), 8);
        assert_eq!(sink.taken().frames.len(), left, "flags {flags:#x}");
    }
}

// Goal: coalescing needs checksum and segmentation offload, and a largest frame above twice the
// MTU.
#[test]
fn coalescing_needs_larger_frames() {
    let how = |takes, frame_max| Merging { layer: Layer::Ethernet, takes, frame_max };
    assert!(how(Offloads::ALL, FRAME_MAX).useful(1500).is_some());
    assert_eq!(how(Offloads::CSUM, FRAME_MAX).useful(1500), None);
    assert_eq!(how(Offloads::TSO4, FRAME_MAX).useful(1500), None, "no checksums");
    assert_eq!(how(Offloads::ALL, 1518).useful(1500), None);
    assert_eq!(how(Offloads::ALL, FRAME_MAX).useful(65_521), None);
}
