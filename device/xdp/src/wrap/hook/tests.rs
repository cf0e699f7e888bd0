//! Tests of programs with GSO frames.

use mqnet_netdev::Rx;
use mqnet_netdev::probe::hidden_by_rx;
use mqnet_wire::VnetFields;

use super::super::prepare::tests::{frame, gso, sum};
use super::super::{ReinjectConfig, hook, strip, unhook, way};
use super::*;
use mqnet_ebpf::{ExecutionMode, Insn, ObjectProgram};

struct Silent;

impl super::super::ReinjectWaker for Silent {
    fn ring(&self) {}
}

/// A queue with given frames.
struct Frames(VecDeque<(Vec<u8>, VnetHdr)>);

impl Queue for Frames {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        Ok(Armed::Sleep)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl OwningRx for Frames {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        for (bytes, hdr) in self.0.iter().take(budget) {
            burst.push(*hdr, bytes.len() as u32, Span::of(bytes));
        }
        Ok(())
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        self.0.drain(..frames);
        Ok(())
    }
}

struct Bench {
    rx: Rx,
    stats: Arc<QueuePairStats>,
    hooked: Hooked,
}

impl Bench {
    fn new(frames: Vec<(Vec<u8>, VnetHdr)>, section: &str, verdict: i32) -> Self {
        Self::over(Rx::Owning(Box::new(Frames(frames.into()))), section, verdict)
    }

    fn over(rx: Rx, section: &str, verdict: i32) -> Self {
        let answer = Insn { code: 0xb7, imm: verdict, ..Insn::default() };
        let exit = Insn { code: 0x95, ..Insn::default() };
        let (name, section) = ("all".to_owned(), section.to_owned());
        let object = ObjectProgram { name, section, insns: vec![answer, exit], maps: Vec::new() };
        let program = Program::new(object, ExecutionMode::Interpret, 1).expect("a program");
        let (stats, hooked) = (Arc::<QueuePairStats>::default(), Hooked::default());
        let inlet = ReinjectConfig {
            stats: stats.clone(),
            frame_max: 70_000,
            tx_offloads: Offloads::ALL,
            joined: Hooked::default(),
        };
        let config = HookConfig {
            program,
            origin: Origin::default(),
            other: 0,
            stats: stats.clone(),
            pages: Pages::new(70_000),
            frame_max: 70_000,
            offloads: Offloads::ALL,
            tx_offloads: Offloads::ALL,
            outlet: way(inlet, Box::new(Silent)).0,
            hooked: hooked.clone(),
        };
        let rx = hook(rx, config, None);
        Self { rx, stats, hooked }
    }

    /// Peeks frames, then releases them. Returns their bytes and virtio headers.
    fn poll(&mut self, budget: usize) -> Vec<(Vec<u8>, VnetHdr)> {
        let Rx::Owning(rx) = &mut self.rx else { panic!("it owns its memory") };
        let mut seen = Vec::new();
        let mut burst = Burst::new();
        rx.peek(&mut burst, budget).expect("frames");
        for frame in burst.frames() {
            let mut bytes = vec![0; frame.len as usize];
            SpanMut::of(&mut bytes).copy_from(frame.head);
            seen.push((bytes, frame.hdr));
        }
        drop(burst);
        rx.release(seen.len()).expect("released");
        seen
    }
}

fn large(payload: usize, size: u16) -> (Vec<u8>, VnetHdr) {
    let mut bytes = frame(false, true, payload, 0);
    let hdr = gso(&mut bytes, size);
    (bytes, hdr)
}

// Goal: a program without frags receives each segment of a GSO frame, in order and complete, up to
// the budget. The counters include all segments.
#[test]
fn large_frames_reach_the_program_as_segments() {
    let small = frame(true, false, 100, 0x1111);
    let frames = vec![large(60_000, 100), (small.clone(), VnetHdr::default()), large(300, 100)];
    let mut bench = Bench::new(frames, "xdp", 2);
    let mut seen = Vec::new();
    loop {
        let shown = bench.poll(64);
        assert!(shown.len() <= 64);
        if shown.is_empty() {
            break;
        }
        seen.extend(shown);
        assert_eq!(bench.hooked.waiting() == 0, seen.len() == 604);
    }
    assert_eq!((seen.len(), &seen[600].0), (604, &small));
    assert!(seen.iter().all(|(bytes, hdr)| bytes.len() <= 162 && hdr.is_finished()));
    seen.remove(600);
    assert!(seen.iter().all(|(bytes, _)| bytes.len() == 154 && sum(bytes) == 0xffff));
    let xdp = &bench.stats.rx.xdp;
    assert_eq!((xdp.packets.get(), xdp.segments.get(), xdp.drops.get()), (604, 601, 0));
}

// Goal: a program in section `xdp.frags` receives a GSO frame unsegmented, and the frame stays a
// GSO frame.
#[test]
fn frags_programs_get_large_frames_whole() {
    for section in ["xdp.frags", "xdp.frags/name"] {
        let (bytes, hdr) = large(60_000, 1000);
        let mut bench = Bench::new(vec![(bytes.clone(), hdr)], section, 2);
        assert_eq!(bench.poll(64), [(bytes, hdr)]);
        assert_eq!(bench.stats.rx.xdp.packets.get(), 1);
    }
}

// Goal: every segment is counted if a program drops it, or if the queue ends. If the program is
// detached in the middle of a frame, the remaining segments are passed.
#[test]
fn segments_are_accounted_for() {
    let mut bench = Bench::new(vec![large(60_000, 100)], "xdp", 1);
    while !bench.poll(64).is_empty() || bench.hooked.waiting() > 0 {}
    assert_eq!(bench.stats.rx.drops.get(DropReason::XdpDrop), 600);

    let mut bench = Bench::new(vec![large(60_000, 100)], "xdp", 2);
    assert_eq!(bench.poll(10).len(), 10);
    drop(bench.rx);
    assert_eq!(bench.stats.rx.drops.get(DropReason::LinkClosed), 590);

    let mut bench = Bench::new(vec![large(60_000, 100)], "xdp", 2);
    assert_eq!(bench.poll(10).len(), 10);
    bench.rx = unhook(bench.rx);
    assert_eq!(bench.poll(10).len(), 10);
    let (_, passed) = strip(bench.rx);
    assert_eq!(passed.len(), 580);
    assert!(passed.iter().all(|(bytes, hdr)| sum(bytes) == 0xffff && hdr.is_finished()));

    let mut wrong = large(60_000, 100);
    wrong.0[23] = 1;
    let mut bench = Bench::new(vec![wrong], "xdp", 2);
    assert!(bench.poll(64).is_empty());
    assert_eq!(bench.stats.rx.drops.get(DropReason::BadHeader), 1);
}

// Goal: the checksum of a small frame is complete for the program and afterwards, for frames with
// NEEDS_CSUM or DATA_VALID.
#[test]
fn small_frames_reach_the_program_with_complete_checksums() {
    let mut begun = frame(false, true, 100, 0);
    let fields = gso(&mut begun, 50).fields();
    let csum = VnetFields { gso_type: 0, gso_size: 0, hdr_len: 0, ..fields };
    let valid = VnetFields { flags: 2, ..VnetFields::default() };
    let vouched = frame(true, false, 100, 0x1111);
    let frames = vec![(begun, VnetHdr::new(csum)), (vouched, VnetHdr::new(valid))];
    let seen = Bench::new(frames, "xdp", 2).poll(64);
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|(bytes, hdr)| sum(bytes) == 0xffff && hdr.is_finished()));
}

// Goal: the header of a GSO frame that passed a program is derived from its bytes, not from the
// peer's header.
#[test]
fn headers_of_passed_gso_frames_match_their_bytes() {
    let (bytes, hdr) = large(60_000, 1000);
    let wrong = VnetHdr::new(VnetFields { hdr_len: 70, ..hdr.fields() });
    let mut bench = Bench::new(vec![(bytes.clone(), wrong)], "xdp.frags", 2);
    assert_eq!(bench.poll(64), [(bytes, hdr)]);
}

// Goal: a program hides no method of the queue, except that poll hold-off is disabled and no frame
// can be detached. (Frames are in pages of the hook.)
#[test]
fn programs_forward_every_default_method() {
    let wrap = |rx| Bench::over(rx, "xdp", 2).rx;
    assert_eq!(hidden_by_rx(true, wrap).unwrap(), ["hold_off", "detach", "returner"]);
    assert_eq!(hidden_by_rx(false, wrap).unwrap(), ["hold_off", "detach", "returner"]);
}

// Goal: a GSO frame with one byte per segment occupies one page while a program drops its segments.
// Each poll runs the program a limited number of times.
#[test]
fn smallest_segments_are_processed_in_limited_polls() {
    let frames: Vec<_> = (0..100).map(|_| large(60_000, 1)).collect();
    let mut bench = Bench::new(frames, "xdp", 1);
    let mut runs = 0;
    for _ in 0..70 {
        assert!(bench.poll(64).is_empty());
        assert!((1..60_000).contains(&bench.hooked.waiting()), "{}", bench.hooked.waiting());
        let now = bench.stats.rx.xdp.packets.get();
        assert!((1..=DROPS_MAX as u64).contains(&(now - runs)), "{now} after {runs}");
        runs = now;
    }
    assert!(bench.hooked.has_more());
    assert_eq!(bench.stats.rx.drops.get(DropReason::XdpDrop), runs);
}

// Goal: dropped segments of GSO frames count towards the limit of a poll.
#[test]
fn dropped_segments_count_for_the_limit() {
    let mut bench = Bench::new((0..100).map(|_| large(60_000, 100)).collect(), "xdp", 1);
    assert!(bench.poll(64).is_empty());
    assert_eq!(bench.stats.rx.xdp.packets.get(), DROPS_MAX as u64);
}
