//! Tests of lanes with XDP programs.

use mqnet_ebpf::{ExecutionMode, Insn, ObjectProgram, Origin, Program};
use mqnet_netdev::Offloads;
use mqnet_netdev::wrap::capture::{self, CaptureConfig, CaptureDirection, CaptureReader};
use mqnet_sysio::eventfd::EventFd;
use mqnet_xdp::wrap::{self, HookConfig, Hooked, Pages, ReinjectConfig, ReinjectRx, ReinjectTx};

use super::*;
use crate::lane::Merges;

pub(super) const DROP: i32 = 1;
pub(super) const PASS: i32 = 2;
const TX: i32 = 3;

/// Creates a program with the same verdict for all frames, which accepts multi-buffer frames.
fn program(verdict: i32) -> Arc<Program> {
    let answer = Insn { code: 0xb7, imm: verdict, ..Insn::default() };
    let exit = Insn { code: 0x95, ..Insn::default() };
    let (name, section) = ("all".to_owned(), "xdp.frags".to_owned());
    let object = ObjectProgram { name, section, insns: vec![answer, exit], maps: Vec::new() };
    Program::new(object, ExecutionMode::Interpret, 1).unwrap()
}

struct Silent;

impl wrap::ReinjectWaker for Silent {
    fn ring(&self) {}
}

fn way(bench: &Bench) -> (ReinjectTx, ReinjectRx, Hooked) {
    let joined = Hooked::default();
    let (stats, frame_max) = (bench.stats.clone(), 1518);
    let own = joined.clone();
    let config = ReinjectConfig { stats, frame_max, tx_offloads: Offloads::NONE, joined: own };
    let (outlet, inlet) = wrap::way(config, Box::new(Silent));
    (outlet, inlet, joined)
}

/// Attaches a program.
pub(super) fn hook(bench: &mut Bench, verdict: i32) {
    let outlet = way(bench).0;
    hook_with(bench, verdict, outlet);
}

/// Attaches a program that reinjects through `outlet`.
fn hook_with(bench: &mut Bench, verdict: i32, outlet: ReinjectTx) {
    let config = HookConfig {
        program: program(verdict),
        origin: Origin::default(),
        other: 0,
        stats: bench.stats.clone(),
        pages: Pages::new(65_554),
        frame_max: 65_554,
        offloads: Offloads::ALL,
        tx_offloads: Offloads::ALL,
        outlet,
        hooked: Hooked::default(),
    };
    bench.lane.hook(config);
}

/// Reinjects frames by a program of another lane, and then removes that program.
fn send_back(outlet: ReinjectTx, frames: impl IntoIterator<Item = Vec<u8>>) {
    let mut other = Bench::new();
    other.hands.world().source.extend(frames);
    hook_with(&mut other, TX, outlet);
    other.poll();
}

// Goal: a lane watches the eventfd of a reinjection path exactly as long as that path exists.
#[test]
fn reinjection_wakers_follow_their_path() {
    let mut bench = Bench::new();
    let (outlet, inlet, joined) = way(&bench);
    bench.lane.join(inlet, joined, Arc::new(EventFd::new().unwrap()));
    assert_eq!(bench.lane.wakers().count(), 1);
    bench.lane.unjoin();
    assert_eq!(bench.lane.wakers().count(), 1, "the program is still there");
    drop(outlet);
    bench.lane.unjoin();
    assert_eq!(bench.lane.wakers().count(), 0);
}

// Goal: a new program does not process a partly sent frame. The rest of the frame is sent although
// the program drops all other frames, and the lane settles.
#[test]
fn new_programs_do_not_see_partial_frames() {
    let mut bench = finishing::bench(true);
    bench.hands.world().source.extend([0, 1].map(finishing::large));
    bench.hands.world().room = 1;
    bench.poll();
    assert!(!bench.lane.is_settled());
    hook(&mut bench, DROP);
    bench.hands.world().room = 9;
    while bench.poll().moved() > 0 {}
    assert_eq!(bench.sink(), finishing::segments(1));
    assert_eq!(bench.stats.rx.xdp.drops.get(), 1, "the second");
    assert!(bench.lane.is_settled());
}

// Goal: a lane with a program that drops everything ends its poll before the source is empty, so
// that other lanes are polled. The source does not count as empty before the program has processed
// all frames. Dropped frames count as taken from the source.
#[test]
fn dropping_programs_do_not_empty_the_source() {
    let mut bench = Bench::new();
    (0..3000).for_each(|n| bench.hands.push(n));
    hook(&mut bench, DROP);
    let (mut taken, mut polls) = (0, 0);
    loop {
        let polled = bench.poll();
        assert_eq!((polled.moved(), polled.rest), (0, PollEnd::Empty));
        (taken, polls) = (taken + bench.lane.taken_of_source(polled.frames), polls + 1);
        let left = bench.hands.world().source.len();
        assert_eq!(taken as usize + left, 3000);
        assert_eq!(bench.lane.source_has_more(), left > 0);
        if left == 0 {
            break;
        }
    }
    assert!(polls > 1, "{polls}");
}

// Goal: a new program neither discards nor processes the frames that a previous program has passed.
// The lane settles when these frames are sent.
#[test]
fn frames_passed_by_an_earlier_program_are_kept() {
    let mut bench = Bench::new();
    (0..40).for_each(|n| bench.hands.push(n));
    hook(&mut bench, PASS);
    bench.poll();
    bench.lane.unhook();
    hook(&mut bench, DROP);
    bench.lane.close_intake(true);
    (40..50).for_each(|n| bench.hands.push(n));
    assert!(!bench.lane.is_settled());
    bench.hands.world().room = usize::MAX;
    (0..5).for_each(|_| _ = bench.poll());
    assert!(bench.lane.is_settled());
    assert_eq!(bench.sink(), (0..40).collect::<Vec<_>>());
    assert_eq!((bench.hands.world().source.len(), bench.stats.rx.xdp.drops.get()), (10, 0));
}

/// Starts a capture of frames that the sink drops.
fn watch_drops(bench: &mut Bench) -> CaptureReader {
    let direction = CaptureDirection::Outbound;
    let (snaplen, ring_bytes) = (64, 1 << 16);
    let config =
        CaptureConfig { channel: 0, direction, drops_only: true, snaplen, ring_bytes, clock: || 0 };
    let (tap, reader) = capture::tap(config);
    bench.lane.edit_tx(|tx, stats| capture::wrap_tx(tx, tap, stats));
    reader
}

// Goal: a large frame that was received for a sink with too little space is completed when the sink
// has space. The source may have a program by then, and no other frame need arrive. The rule holds
// with and without disciplines, and with and without a capture. With `full=drop` the rest of the
// frame is dropped and counted. In all cases the lane settles.
#[test]
fn received_frames_complete_without_source() {
    let cases = [(false, Full::Stop), (true, Full::Stop), (false, Full::Drop)];
    let sinks = [(false, false), (true, false), (true, true)];
    let all = cases.into_iter().flat_map(|case| sinks.map(|sink| (case, sink)));
    for ((queued, full), (brings, is_watched)) in all {
        let mut bench = finishing::bench_of(false, brings);
        let _reader = is_watched.then(|| watch_drops(&mut bench));
        if queued {
            bench.lane = bench.lane.with_qdisc("pfifo", Layer::Ethernet).unwrap();
        }
        bench.hands.world().source.push_back(finishing::large(0));
        bench.hands.world().room = 1;
        bench.poll();
        assert!(!bench.lane.is_settled());
        bench.lane.set_full(full).unwrap();
        if full == Full::Drop {
            bench.poll();
        }
        hook(&mut bench, PASS);
        bench.poll();
        bench.hands.world().room = 9;
        (0..5).for_each(|_| _ = bench.poll());
        assert!(bench.lane.is_settled(), "{queued} {full:?} {brings} {is_watched}");
        let (left, dropped) = if full == Full::Stop { (3, 0) } else { (1, 1) };
        assert_eq!(bench.sink(), finishing::segments(1)[..left]);
        assert_eq!(bench.dropped(DropReason::SinkFull), dropped);
    }
}

// Goal: reinjected frames do not overtake a frame that was partly sent before the reinjection path
// existed. Frames of an earlier reinjection path are not lost.
#[test]
fn reinjected_frames_overtake_none() {
    let mut bench = finishing::bench(true);
    bench.hands.world().source.push_back(finishing::large(0));
    bench.hands.world().room = 1;
    bench.poll();
    for number in [1, 2] {
        let (outlet, inlet, joined) = way(&bench);
        send_back(outlet, [finishing::large(number)[..1054].to_vec()]);
        bench.lane.join(inlet, joined, Arc::new(EventFd::new().unwrap()));
    }
    bench.hands.world().room = 9;
    (0..5).for_each(|_| _ = bench.poll());
    assert_eq!(bench.sink(), [finishing::segments(1), vec![1 << 16, 2 << 16]].concat());
    assert!(bench.lane.is_settled());
}

// Goal: reinjected frames do not count as frames of the source of a lane that leaves after a number
// of frames.
#[test]
fn reinjected_frames_do_not_count_as_source_frames() {
    let mut bench = Bench::new();
    let (outlet, inlet, joined) = way(&bench);
    bench.lane.join(inlet, joined, Arc::new(EventFd::new().unwrap()));
    send_back(outlet, vec![vec![0; 60]; 5]);
    (0..7).for_each(|n| bench.hands.push(n));
    bench.hands.world().room = usize::MAX;
    let polled = bench.poll();
    assert_eq!((polled.frames, bench.lane.taken_of_source(polled.frames)), (12, 7));
}

// Goal: with `full=drop` and a system-call source, a partly sent frame and a reinjected frame are
// dropped and counted after the program was detached. The lane settles.
#[test]
fn partial_reinjected_frames_may_be_dropped() {
    let mut bench = finishing::bench(false);
    hook(&mut bench, PASS);
    let (outlet, inlet, joined) = way(&bench);
    bench.lane.join(inlet, joined, Arc::new(EventFd::new().unwrap()));
    bench.hands.world().source.push_back(finishing::large(0));
    bench.hands.world().room = 1;
    bench.poll();
    assert!(!bench.lane.is_settled());
    bench.lane.unhook();
    bench.lane.set_full(Full::Drop).unwrap();
    send_back(outlet, [finishing::large(1)[..1054].to_vec()]);
    (0..5).for_each(|_| _ = bench.poll());
    assert!(bench.lane.is_settled());
    assert_eq!((bench.sink(), bench.dropped(DropReason::SinkFull)), (vec![0], 2));
}

// Goal: a lane that is being detached and receives into its own memory sends the reinjected frames
// and takes no further frame from its source. The lane settles even if its source is never empty
// and its sink is slow.
#[test]
fn reinjected_frames_leave_with_their_lane() {
    for merges in [merging::merges(), None] {
        check_reinjected_frames_leave(merges);
    }
}

fn check_reinjected_frames_leave(merges: Option<Merges>) {
    let mut bench = merging::bench(false, false);
    bench.lane.set_merging(merges);
    let (outlet, inlet, joined) = way(&bench);
    bench.lane.join(inlet, joined, Arc::new(EventFd::new().unwrap()));
    bench.hands.world().source.extend((0..2000).map(merging::segment));
    send_back(outlet, vec![merging::segment(7000); 40]);
    bench.hands.world().room = 1;
    bench.poll();
    let mut polls = 0;
    while !bench.lane.is_settled() {
        bench.lane.close_intake(true);
        bench.hands.world().room = 1;
        bench.poll();
        polls += 1;
        assert!(polls < 300, "it never settles");
    }
    assert_eq!(bench.sink().iter().filter(|number| **number == 7000).count(), 40);
    assert!(!bench.hands.world().source.is_empty());
}
