use std::sync::{Mutex, MutexGuard};

use mqnet_shmem::{Region, Segments, Span, SpanMut, Window, copies};
use mqnet_wire::VnetFields;
use proptest::prelude::*;

use super::*;
use crate::{Armed, Burst, DropReason, Fault, FrameMeta, OwningTx, Queue, SyscallTx, WakeSource};

const HEADERS: usize = 54;

/// Remaining space of a queue in frames, and the frames that the queue accepted.
#[derive(Default)]
struct Taken {
    room: usize,
    frames: Vec<(VnetHdr, Vec<u8>)>,
    /// Modification by the peer, which runs after each burst that the sink takes.
    tamper: Option<Box<dyn Fn() + Send>>,
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
        let frames = &burst.frames()[from..];
        let fits = frames.len().min(taken.room);
        taken.room -= fits;
        for frame in &frames[..fits] {
            let mut bytes = Vec::new();
            for piece in std::iter::once(&frame.head).chain(burst.more(frame)) {
                let mut part = vec![0; piece.len()];
                piece.read_header(&mut part);
                bytes.extend(part);
            }
            assert_eq!(bytes.len(), frame.len as usize);
            taken.frames.push((frame.hdr, bytes));
        }
        if let Some(tamper) = &taken.tamper {
            tamper();
        }
        self.stats.tx.packets.add(fits as u64);
        fits
    }

    /// Wraps the sink with offload emulation.
    fn wrapped(&self, owning: bool, takes: Offloads, frame_max: u32) -> (Tx, GsoProgress) {
        let how = Finish { layer: Layer::Ethernet, takes, frame_max };
        let tx: Tx = match owning {
            true => Tx::Owning(Box::new(self.clone())),
            false => Tx::Syscall(Box::new(self.clone())),
        };
        wrap_tx(tx, how, self.stats.clone(), 0)
    }

    /// Checks that `came` input frames are accounted for.
    fn assert_conservation(&self, came: usize) {
        let tx = &self.stats.tx;
        let (left, made) = (tx.packets.get() + tx.drops.total(), tx.segments.get());
        assert_eq!(came as u64 + made, left, "rx + segments = tx + drops");
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

    fn reserve(&mut self, max: u32) -> Result<Option<Segments<'_>>, Fault> {
        assert!(max <= 2000, "more than its largest frame: {max}");
        let open = self.taken().room > 0;
        Ok(open.then(|| Segments::new(SpanMut::empty(), SpanMut::empty())))
    }

    fn commit(&mut self, _frame: &FrameMeta) {
        panic!("it was received elsewhere");
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

/// Checksum over the pseudo header of a TCP frame over IPv4 and over `rest`.
fn tcp_sum(frame: &[u8], rest: &[u8]) -> u32 {
    let mut all = frame[26..34].to_vec();
    all.extend([0, 6]);
    all.extend(((frame.len() - 34) as u16).to_be_bytes());
    all.extend(rest);
    slow_sum(&all)
}

/// Creates a TCP frame over IPv4 with a unique payload and a partial checksum.
fn tcp(number: u32, payload: usize) -> Vec<u8> {
    let mut frame = vec![0u8; HEADERS];
    frame[12] = 8;
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&((40 + payload) as u16).to_be_bytes());
    frame[23] = 6;
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame[38..42].copy_from_slice(&number.to_be_bytes());
    frame[46] = 0x50;
    frame.extend((0..payload).map(|at| (at as u32 ^ number.wrapping_mul(0x9e37)) as u8));
    let sum = tcp_sum(&frame, &[]) as u16;
    frame[50..52].copy_from_slice(&sum.to_be_bytes());
    frame
}

const CSUM: VnetFields =
    VnetFields { flags: 1, gso_type: 0, hdr_len: 0, gso_size: 0, csum_start: 34, csum_offset: 16 };

fn tso(size: u16) -> VnetHdr {
    VnetHdr::new(VnetFields { gso_type: 1, gso_size: size, ..CSUM })
}

/// An input frame.
#[derive(Clone, Debug)]
struct Given {
    hdr: VnetHdr,
    bytes: Vec<u8>,
    /// Offsets at which the frame is split into segments of memory.
    cuts: Vec<usize>,
}

impl Given {
    fn pieces(&self) -> Vec<Span<'_>> {
        let mut rest = &self.bytes[..];
        let mut pieces = Vec::new();
        for cut in &self.cuts {
            let (piece, more) = rest.split_at(*cut % (rest.len() + 1));
            pieces.push(Span::of(piece));
            rest = more;
        }
        pieces.push(Span::of(rest));
        pieces
    }

    /// Compares the frame with the output. Returns the number of output frames made from it.
    fn check(&self, came: &[(VnetHdr, Vec<u8>)], takes: Offloads) -> usize {
        let size = match self.hdr.fields().gso_size {
            0 => usize::MAX,
            size => usize::from(size),
        };
        let payload = &self.bytes[HEADERS..];
        let parts = payload.chunks(size.min(payload.len().max(1)));
        let parts: Vec<&[u8]> = if payload.is_empty() { vec![payload] } else { parts.collect() };
        for (part, (hdr, bytes)) in parts.iter().zip(came) {
            assert_eq!(&bytes[HEADERS..], *part);
            if takes.has(Offloads::CSUM) && self.hdr.needs_checksum() {
                assert_eq!(*hdr, VnetHdr::new(CSUM));
                let sum = u32::from(u16::from_be_bytes([bytes[50], bytes[51]]));
                assert_eq!(sum, tcp_sum(bytes, &[]));
            } else if self.hdr.needs_checksum() {
                assert_eq!(*hdr, VnetHdr::default());
                assert_eq!(tcp_sum(bytes, &bytes[34..]), 0xffff);
            } else {
                assert_eq!((*hdr, bytes), (self.hdr, &self.bytes));
            }
        }
        parts.len()
    }
}

fn given() -> impl Strategy<Value = Given> {
    let cuts = || prop::collection::vec(0usize..3000, 0..4);
    let large = (0u32..1000, 0usize..12_000, 64u16..1400, cuts())
        .prop_map(|(n, len, size, cuts)| Given { hdr: tso(size), bytes: tcp(n, len), cuts });
    let small = (0u32..1000, 0usize..1400, 0u8..3, cuts()).prop_map(|(n, len, flags, cuts)| {
        let hdr = match flags {
            0 => VnetHdr::default(),
            1 => VnetHdr::new(CSUM),
            _ => VnetHdr::new(VnetFields { flags: 2, ..VnetFields::default() }),
        };
        Given { hdr, bytes: tcp(n, len), cuts }
    });
    prop_oneof![large, small]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    // Goal: for any frames, memory segments and small sink space, each frame is sent once,
    // completely and in order, without offloads that the sink lacks. Every frame is accounted for.
    #[test]
    fn every_frame_leaves_once(
        given in prop::collection::vec(given(), 1..80),
        rooms in prop::collection::vec(0usize..70, 1..20),
        csum: bool, owning: bool,
    ) {
        let takes = if csum { Offloads::CSUM } else { Offloads::NONE };
        let sink = Sink::default();
        let (mut tx, in_hand) = sink.wrapped(owning, takes, 1500);
        let before = copies::made();
        let (mut done, mut turn) = (0, 0);
        while done < given.len() {
            sink.taken().room = rooms[turn % rooms.len()] + usize::from(turn >= rooms.len());
            turn += 1;
            let mut burst = Burst::new();
            for frame in given[done..].iter().take(64) {
                let pieces = frame.pieces();
                let len = frame.bytes.len() as u32;
                if !burst.push_pieces(frame.hdr, len, pieces[0], &pieces[1..]) {
                    break;
                }
            }
            done += tx.submit(&burst, 0).unwrap();
            let shown = sink.stats.tx.packets.get() + sink.stats.tx.drops.total();
            prop_assert_eq!(shown, done as u64 + sink.stats.tx.segments.get());
        }
        prop_assert!(in_hand.is_empty());
        sink.assert_conservation(given.len());
        prop_assert_eq!(copies::made(), before, "the wrapper copies no payload");
        let taken = sink.taken();
        let mut at = 0;
        for frame in &given {
            at += frame.check(&taken.frames[at..], takes);
        }
        prop_assert_eq!(at, taken.frames.len());
    }
}

fn submit(tx: &mut Tx, hdr: VnetHdr, bytes: &[u8]) -> usize {
    let mut burst = Burst::new();
    burst.push(hdr, bytes.len() as u32, Span::of(bytes));
    tx.submit(&burst, 0).unwrap()
}

// Goal: progress is reported while a frame is partly sent. Another frame that is submitted instead
// is sent from its beginning.
#[test]
fn partial_frame_is_reported_and_resumed() {
    let sink = Sink::default();
    let (mut tx, in_hand) = sink.wrapped(false, Offloads::NONE, 1500);
    let (one, two) = (tcp(1, 3000), tcp(2, 3000));
    sink.taken().room = 2;
    assert_eq!(submit(&mut tx, tso(1000), &one), 0);
    assert!(!in_hand.is_empty() && !in_hand.has_a_frame());
    sink.taken().room = 1;
    assert_eq!(submit(&mut tx, tso(1000), &one), 1, "only the last was missing");
    assert!(in_hand.is_empty());
    sink.taken().room = 1;
    assert_eq!(submit(&mut tx, tso(1000), &one), 0);
    sink.taken().room = 5;
    assert_eq!(submit(&mut tx, tso(1000), &two), 1);
    let seqs: Vec<u8> = sink.taken().frames.iter().map(|(_, frame)| frame[41]).collect();
    let seq = |at: u32| (at % 256) as u8;
    assert_eq!(seqs, [1, 1001, 2001, 1, 2, 1002, 2002].map(seq));
}

// Goal: after a lane drops a partly sent frame, the same frame is sent from its beginning.
#[test]
fn dropped_partial_frame_restarts() {
    let sink = Sink::default();
    let (mut tx, in_hand) = sink.wrapped(false, Offloads::NONE, 1500);
    sink.taken().room = 2;
    assert_eq!(submit(&mut tx, tso(1000), &tcp(1, 3000)), 0);
    in_hand.give_up();
    assert!(in_hand.is_empty());
    sink.taken().room = 3;
    assert_eq!(submit(&mut tx, tso(1000), &tcp(1, 3000)), 1);
    assert_eq!(sink.taken().frames.len(), 5);
}

// Goal: a peer that modifies headers while a frame is segmented has no effect, because headers are
// read once. (Longer headers would result in fewer segments than are sent already.)
#[test]
fn changed_headers_have_no_effect() {
    let sink = Sink::default();
    let (mut tx, _) = sink.wrapped(false, Offloads::NONE, 1500);
    let frame = tcp(1, 65 * 64 - 44);
    let region = Arc::new(Region::private(8192, false, None).unwrap());
    let mut window = Window::new(region.clone(), 0, 8192);
    window.write(0, frame.len() as u32).head.copy_from(Span::of(&frame));
    sink.taken().room = 1000;
    // TCP data offset: a header length of 60 bytes instead of 20.
    let doff = 0xf0u64 << (8 * (46 % 8));
    let tamper = move || {
        region.word(40).fetch_or(doff, Ordering::Relaxed);
    };
    sink.taken().tamper = Some(Box::new(tamper));
    let mut burst = Burst::new();
    burst.push(tso(64), frame.len() as u32, window.read(0, frame.len() as u32).0);
    assert_eq!(tx.submit(&burst, 0).unwrap(), 1);
    let payload: usize = sink.taken().frames.iter().map(|(_, cut)| cut.len() - HEADERS).sum();
    assert_eq!((sink.taken().frames.len(), payload), (65, frame.len() - HEADERS));
    sink.assert_conservation(1);
}

// Goal: a frame that cannot be completed is dropped with its reason, and later frames are sent.
#[test]
fn incompletable_frames_are_dropped_with_reason() {
    let sink = Sink::default();
    let (mut tx, _) = sink.wrapped(true, Offloads::NONE, 1200);
    sink.taken().room = 100;
    let drops = |reason| sink.stats.tx.drops.get(reason);
    let frame = tcp(1, 3000);
    assert_eq!(submit(&mut tx, tso(1200), &frame), 1);
    assert_eq!(drops(DropReason::GsoOverMtu), 1, "segments longer than the sink's largest");
    assert_eq!(submit(&mut tx, VnetHdr::default(), &frame), 1);
    assert_eq!(drops(DropReason::TooLong), 1);
    let udp = VnetHdr::new(VnetFields { gso_type: 5, ..tso(1000).fields() });
    assert_eq!(submit(&mut tx, udp, &frame), 1);
    let beyond = VnetHdr::new(VnetFields { csum_start: 1100, ..CSUM });
    assert_eq!(submit(&mut tx, beyond, &tcp(1, 1000)), 1);
    assert_eq!(drops(DropReason::BadHeader), 2);
    assert_eq!(submit(&mut tx, tso(1000), &frame), 1);
    assert_eq!(sink.taken().frames.len(), 3);
    sink.assert_conservation(5);
}

// Goal: a checksum is filled in at any offset, for any split into memory segments.
#[test]
fn checksums_are_filled_in_at_any_offset() {
    for (start, cuts) in [(34, vec![]), (100, vec![150]), (500, vec![516]), (900, vec![7, 910])] {
        for owning in [false, true] {
            let sink = Sink::default();
            let (mut tx, _) = sink.wrapped(owning, Offloads::NONE, 1500);
            sink.taken().room = 10;
            let hdr = VnetHdr::new(VnetFields { csum_start: start, ..CSUM });
            let field = usize::from(start) + 16;
            let mut bytes = tcp(1, 1000);
            bytes[field..field + 2].copy_from_slice(&[0x12, 0x34]);
            let mut want = bytes.clone();
            let sum = !slow_sum(&bytes[usize::from(start)..]) as u16;
            want[field..field + 2].copy_from_slice(&sum.to_be_bytes());
            let given = Given { hdr, bytes, cuts: cuts.clone() };
            let pieces = given.pieces();
            let mut burst = Burst::new();
            assert!(burst.push_pieces(hdr, want.len() as u32, pieces[0], &pieces[1..]));
            assert_eq!(tx.submit(&burst, 0).unwrap(), 1);
            let came = sink.taken().frames.remove(0);
            assert_eq!(came, (VnetHdr::default(), want), "from {start} on");
        }
    }
}

// Goal: a frame with more GSO segments than a burst holds is sent completely, by several bounded
// calls.
#[test]
fn many_segments_take_several_calls() {
    let sink = Sink::default();
    let (mut tx, in_hand) = sink.wrapped(false, Offloads::NONE, 1500);
    sink.taken().room = 100_000;
    let frame = tcp(1, 60_000);
    let mut calls = 1;
    while submit(&mut tx, tso(1), &frame) == 0 {
        assert!(in_hand.is_begun());
        calls += 1;
    }
    assert!(calls > 10, "{calls} calls");
    assert_eq!(sink.taken().frames.len(), 60_000);
    let payload: Vec<u8> = sink.taken().frames.iter().map(|(_, cut)| cut[HEADERS]).collect();
    assert!(payload == frame[HEADERS..], "in order, each once");
    sink.assert_conservation(1);
}

// Goal: a large frame is segmented if it exceeds the sink's largest frame, even if the sink offers
// segmentation. A smaller frame passes unchanged, unless its ECN bit needs an offload that the sink
// lacks.
#[test]
fn only_unsupported_frames_are_segmented() {
    let sink = Sink::default();
    let takes = Offloads::CSUM.or(Offloads::TSO4);
    let (mut tx, _) = sink.wrapped(false, takes, 1500);
    sink.taken().room = 100;
    submit(&mut tx, tso(1000), &tcp(1, 1400));
    assert_eq!(sink.taken().frames.len(), 1);
    submit(&mut tx, tso(1000), &tcp(1, 2000));
    assert_eq!(sink.taken().frames.len(), 3);
    let ecn = VnetHdr::new(VnetFields { gso_type: 0x81, ..tso(1000).fields() });
    submit(&mut tx, ecn, &tcp(1, 1400));
    assert_eq!(sink.taken().frames.len(), 5);
    assert_eq!(sink.stats.tx.checksums.get(), 0, "the sink fills them in");
}

fn receive(tx: &mut Tx, hdr: VnetHdr, bytes: &[u8]) -> bool {
    let Tx::Owning(tx) = tx else { panic!("it has no memory") };
    let Some(mut room) = tx.reserve(70_000).unwrap() else { return false };
    assert_eq!(room.head.copy_from(Span::of(bytes)), bytes.len());
    tx.commit(&FrameMeta { len: bytes.len() as u32, hdr });
    true
}

// Goal: a frame received for an owning sink is segmented into the sink's memory. The next frame is
// received only after all segments of the first are sent. A frame that is dropped with the wrapper
// is counted.
#[test]
fn received_frames_are_segmented() {
    let sink = Sink::default();
    let (mut tx, in_hand) = sink.wrapped(true, Offloads::NONE, 1500);
    sink.taken().room = 3;
    assert!(receive(&mut tx, tso(1000), &tcp(7, 5000)));
    assert!(in_hand.has_a_frame());
    assert!(!receive(&mut tx, tso(1000), &tcp(8, 5000)), "the other is still there");
    sink.taken().room = 3;
    assert!(receive(&mut tx, VnetHdr::new(CSUM), &tcp(8, 100)));
    assert!(in_hand.is_empty());
    assert_eq!(sink.taken().frames.len(), 6);
    let all = Given { hdr: tso(1000), bytes: tcp(7, 5000), cuts: Vec::new() };
    assert_eq!(all.check(&sink.taken().frames, Offloads::NONE), 5);
    sink.taken().room = 1;
    assert!(receive(&mut tx, tso(1000), &tcp(9, 5000)));
    drop(tx);
    assert_eq!(sink.stats.tx.drops.get(DropReason::LinkClosed), 1);
    sink.assert_conservation(3);
}
