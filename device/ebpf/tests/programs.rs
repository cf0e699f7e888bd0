//! Programs of `tests/xdp`, compiled by clang and executed in both runtimes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use mqnet_ebpf::{
    ExecutionMode, HEADROOM, Origin, Program, ProgramError, Selector, Verdict, XdpAction,
};
use mqnet_testkit::{Need, has};

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/xdp")
}

/// Compiles a source file.
fn object(source: &Path, cpu: &str) -> Vec<u8> {
    let output = Command::new("clang")
        .args(["-O2", "-g", "-target", "bpf", "-w", "-o", "-", "-c"])
        .arg(format!("-mcpu={cpu}"))
        .arg(source)
        .output()
        .expect("clang runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", source.display());
    output.stdout
}

fn load(name: &str, cpu: &str, mode: ExecutionMode) -> Arc<Program> {
    let source = sources().join(name).with_extension("c");
    let loaded = Program::load(&object(&source, cpu), Selector::default(), mode, 4);
    loaded.unwrap_or_else(|e| panic!("{name} {cpu}: {e}"))
}

/// Calls `check` with a program in both runtimes, compiled for two instruction set versions.
fn with(name: &str, check: impl Fn(&Program)) {
    for cpu in ["v2", "v3"] {
        for mode in [ExecutionMode::Interpret, ExecutionMode::BEST] {
            check(&load(name, cpu, mode));
        }
    }
}

/// A page with a frame, between canaries.
struct Page(Vec<u8>);

const CANARY: usize = 64;
const ROOM: usize = 2048;

impl Page {
    fn of(frame: &[u8]) -> Self {
        let mut bytes = vec![0xa5; 2 * CANARY + HEADROOM + ROOM];
        bytes[CANARY + HEADROOM..][..frame.len()].copy_from_slice(frame);
        Self(bytes)
    }

    fn run(&mut self, program: &Program, len: usize, channel: u16) -> Verdict {
        let last = self.0.len() - CANARY;
        let from = Origin { ifindex: 3, channel, ..Origin::default() };
        let verdict = program.run(&mut self.0[CANARY..last], HEADROOM, len, from);
        assert!(self.0[..CANARY].iter().chain(&self.0[last..]).all(|&b| b == 0xa5), "canary");
        verdict
    }

    fn frame(&self, verdict: Verdict) -> &[u8] {
        &self.0[CANARY + verdict.start..][..verdict.len]
    }
}

fn run(program: &Program, frame: &[u8]) -> (XdpAction, Vec<u8>) {
    let mut page = Page::of(frame);
    let verdict = page.run(program, frame.len(), 0);
    (verdict.action, page.frame(verdict).to_vec())
}

fn udp(options: u8, port: u16) -> Vec<u8> {
    let mut frame = vec![0; 14 + 20 + usize::from(options) * 4 + 8 + 18];
    frame[12] = 8;
    frame[14] = 0x45 + options;
    frame[23] = 17;
    let at = 14 + 20 + usize::from(options) * 4;
    frame[at + 2..at + 4].copy_from_slice(&port.to_be_bytes());
    frame
}

// Goal: each action is returned as the program sets it, and an unknown action is an abort.
#[test]
fn actions() {
    if !has(&[Need::Program("clang")]) {
        return;
    }
    with("pass", |p| assert_eq!(run(p, &[1; 60]).0, XdpAction::Pass));
    with("aborted", |p| assert_eq!(run(p, &[1; 60]).0, XdpAction::Aborted));
    with("reflect", |p| {
        let frame: Vec<u8> = (0..60).collect();
        let (action, back) = run(p, &frame);
        assert_eq!(action, XdpAction::Tx);
        assert_eq!(back[..12], [6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5]);
        assert_eq!(back[12..], frame[12..]);
        assert_eq!(run(p, &frame[..13]).0, XdpAction::Drop);
    });
}

// Goal: headers of any length are parsed, only matching frames are dropped, and the map counts the
// dropped frames.
#[test]
fn a_filter_drops_and_counts() {
    if !has(&[Need::Program("clang")]) {
        return;
    }
    with("drop", |p| {
        for options in 0..=10 {
            assert_eq!(run(p, &udp(options, 9)).0, XdpAction::Drop, "{options}");
            assert_eq!(run(p, &udp(options, 10)).0, XdpAction::Pass);
        }
        // Test a header with a length field beyond the frame.
        let mut lies = udp(0, 9);
        lies[14] = 0x4f;
        assert_eq!(run(p, &lies[..50]).0, XdpAction::Pass);
        let counts = p.maps()[0].get(&1u32.to_le_bytes()).unwrap();
        assert_eq!(counts, [11u64.to_le_bytes().to_vec()]);
    });
}

// Goal: head and tail move with the content of the frame, and the helpers reject excessive moves.
#[test]
fn frames_grow_and_shrink() {
    if !has(&[Need::Program("clang")]) {
        return;
    }
    with("push", |p| {
        let frame: Vec<u8> = (100..160).collect();
        let (action, back) = run(p, &frame);
        assert_eq!((action, back.len()), (XdpAction::Pass, 64));
        assert_eq!(back[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(back[8..], frame[..56]);
        assert_eq!(p.section(), "xdp.frags");
        let mut page = Page::of(&frame);
        let last = page.0.len() - CANARY;
        let no_room = p.run(&mut page.0[CANARY..last], 7, 60, Origin::default());
        assert_eq!(no_room.action, XdpAction::Aborted);
    });
}

// Goal: bounded loops are accepted, hashes fill up and can be emptied, each channel has a separate
// value, and variables keep their values.
#[test]
fn maps_are_shared() {
    if !has(&[Need::Program("clang")]) {
        return;
    }
    with("sum", |p| {
        let map = |name: &str| {
            let found = p.maps().iter().find(|map| map.def().name == name);
            found.unwrap_or_else(|| panic!("{name}"))
        };
        for channel in [0, 1, 1, 3] {
            let mut page = Page::of(&[2; 120]);
            assert_eq!(page.run(p, 120, channel).action, XdpAction::Pass);
        }
        let sums: Vec<u64> = map("sums").get(&[0; 4]).unwrap().iter().map(|v| le(v)).collect();
        assert_eq!(sums, [200, 400, 0, 200]);
        assert_eq!(le(&map("firsts").get(&[2]).unwrap()[0]), 4);
        // Expect space for one more key: the program adds key 255 and removes it again.
        assert_eq!(run(p, &[255; 60]).0, XdpAction::Drop);
        assert_eq!(run(p, &[9; 60]).0, XdpAction::Pass);
        assert_eq!(run(p, &[10; 60]).0, XdpAction::Aborted, "it has room for two");
        map("firsts").unset(&[9]).unwrap();
        assert_eq!(run(p, &[10; 60]).0, XdpAction::Pass);
        assert_eq!(map("firsts").dump(10).len(), 2);
        assert_eq!(le(&map(".bss").get(&[0; 4]).unwrap()[0]), 7);
    });
}

fn le(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b))
}

// Goal: the target of a redirect is a number in the program, or a map entry that the test sets.
#[test]
fn redirects() {
    if !has(&[Need::Program("clang")]) {
        return;
    }
    with("redirect", |p| {
        assert_eq!(run(p, &[7; 60]).0, XdpAction::Redirect(7));
        assert_eq!(run(p, &[8; 60]).0, XdpAction::Drop);
        p.maps()[0].set(&1u32.to_le_bytes(), &12u32.to_le_bytes()).unwrap();
        assert_eq!(run(p, &[8; 60]).0, XdpAction::Redirect(12));
    });
}

// Goal: legacy map definitions work, and copy helpers check the bounds that the program does not
// check.
#[test]
fn helpers_copy_within_the_frame() {
    if !has(&[Need::Program("clang")]) {
        return;
    }
    with("legacy", |p| {
        let frame: Vec<u8> = (0..60).collect();
        let (action, back) = run(p, &frame);
        assert_eq!((action, &back[..4]), (XdpAction::Pass, &frame[56..]));
        assert_eq!(le(&p.maps()[0].get(&[0; 4]).unwrap()[0]), 60);
        assert_eq!(run(p, &[1, 2]).0, XdpAction::Drop);
    });
}

// Goal: functions that clang does not inline have separate stack frames, which their callees can
// access, and callers' registers are preserved.
#[test]
fn functions_are_called() {
    if !has(&[Need::Program("clang")]) {
        return;
    }
    with("calls", |p| {
        let frame: Vec<u8> = (0..60).map(|i| if i < 8 { 40 } else { i }).collect();
        let (action, back) = run(p, &frame);
        let (first, second) = (8 * 40, (8..16).sum::<u32>());
        assert_eq!(action, XdpAction::Pass);
        assert_eq!(back[..4], (1 + first + second).to_le_bytes());
        assert_eq!(back[4..], frame);
        let counts = &p.maps()[0];
        assert_eq!(le(&counts.get(&[1, 0, 0, 0]).unwrap()[0]), u64::from(first * 3 + second));
    });
}

// Goal: a lookup in a prefix map finds the longest matching prefix.
#[test]
fn prefixes_match() {
    if !has(&[Need::Program("clang")]) {
        return;
    }
    with("prefixes", |p| {
        let map = &p.maps()[0];
        let key = |bits: u32, address: [u8; 4]| [bits.to_le_bytes(), address].concat();
        map.set(&key(8, [10, 1, 2, 3]), &1u32.to_le_bytes()).unwrap();
        map.set(&key(25, [10, 0, 0, 200]), &2u32.to_le_bytes()).unwrap();
        assert!(map.set(&key(33, [0; 4]), &[0; 4]).is_err());
        let from = |address: [u8; 4]| {
            let mut frame = udp(0, 1);
            frame[26..30].copy_from_slice(&address);
            run(p, &frame).0
        };
        assert_eq!(from([10, 0, 0, 1]), XdpAction::Drop);
        assert_eq!(from([10, 0, 0, 129]), XdpAction::Pass);
        assert_eq!(from([11, 0, 0, 129]), XdpAction::Pass);
        map.unset(&key(8, [10, 0, 0, 0])).unwrap();
        assert_eq!(from([10, 0, 0, 1]), XdpAction::Pass);
    });
}

// Goal: every program that accesses other memory or does not terminate is rejected, with the reason
// in the first line.
#[test]
fn harmful_programs_are_refused() {
    if !has(&[Need::Program("clang")]) {
        return;
    }
    let mut seen = 0;
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(sources().join("evil")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let first = text.lines().next().unwrap();
        let want = first.strip_prefix("/* refused: ").and_then(|s| s.strip_suffix(" */")).unwrap();
        for cpu in ["v2", "v3"] {
            match Program::load(&object(&path, cpu), Selector::default(), ExecutionMode::BEST, 1) {
                Err(e) if e.to_string().contains(want) => seen += 1,
                Err(e) => wrong.push(format!("{} {cpu}: {e}, not {want}", path.display())),
                Ok(_) => wrong.push(format!("{} {cpu}: ACCEPTED", path.display())),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 50, "{seen}");
}

// Goal: a truncated or corrupted file is rejected or executed, without a panic.
#[test]
fn corrupted_files_cause_no_panic() {
    if !has(&[Need::Program("clang")]) {
        return;
    }
    let whole = object(&sources().join("sum.c"), "v2");
    for n in (0..whole.len()).step_by(41) {
        let _ = Program::load(&whole[..n], Selector::default(), ExecutionMode::Interpret, 1);
    }
    for at in (0..whole.len()).step_by(13) {
        for change in [1u8, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= change;
            let loaded = Program::load(&bytes, Selector::default(), ExecutionMode::Interpret, 1);
            if let Ok(program) = loaded {
                run(&program, &[3; 60]);
            }
        }
    }
    let other = Selector { section: Some("xdp/other"), ..Selector::default() };
    let none = Program::load(&whole, other, ExecutionMode::Interpret, 1).unwrap_err();
    assert!(matches!(none, ProgramError::Load(_)));
    assert_eq!(none.to_string(), "no section 'xdp/other' with code; allowed: xdp");
}

// Goal: a program is selected by name or section, unused maps are ignored, and the error of an
// ambiguous selection lists the programs.
#[test]
fn programs_are_chosen_by_name() {
    if !has(&[Need::Program("clang")]) {
        return;
    }
    let bytes = object(&sources().join("several.c"), "v3");
    let load = |section, program| {
        let which = Selector { section, program };
        Program::load(&bytes, which, ExecutionMode::BEST, 2).map_err(|e| e.to_string())
    };
    let all = "limit (section xdp_limit), exchange (section xdp_limit), \
               unsupported (section xdp/unsupported)";
    let none = load(None, None).unwrap_err();
    assert_eq!(none, format!("3 programs: {all}; choose one by its name (--program NAME)"));
    let wrong = load(None, Some("other")).unwrap_err();
    assert_eq!(wrong, format!("no program 'other'; allowed: {all}"));
    let two = load(Some("xdp_limit"), None).unwrap_err();
    assert!(two.starts_with("2 programs: limit (section xdp_limit), exchange"), "{two}");
    let ring = load(None, Some("unsupported")).unwrap_err();
    assert!(ring.starts_with("map 'ring': type 27 is not supported"), "{ring}");
    for (name, section, map) in
        [("limit", None, "flows"), ("exchange", Some("xdp_limit"), "counts")]
    {
        let program = load(section, Some(name)).expect(name);
        assert_eq!((program.name(), program.section()), (name, "xdp_limit"));
        let maps: Vec<_> = program.maps().iter().map(|map| &*map.def().name).collect();
        assert_eq!(maps, [map]);
    }
}

// Goal: an LRU map accepts every new key and keeps the keys in use, and atomic operations return
// the previous value, in both runtimes.
#[test]
fn lru_maps_and_atomic_results() {
    if !has(&[Need::Program("clang")]) {
        return;
    }
    let bytes = object(&sources().join("several.c"), "v3");
    for mode in [ExecutionMode::Interpret, ExecutionMode::BEST] {
        let load = |name| {
            let which = Selector { program: Some(name), ..Selector::default() };
            Program::load(&bytes, which, mode, 2).unwrap_or_else(|e| panic!("{name}: {e}"))
        };
        let limit = load("limit");
        let pass = |flow: u8| run(&limit, &[flow; 60]).0;
        assert_eq!(
            [1, 1, 1, 1].map(pass),
            [XdpAction::Pass, XdpAction::Pass, XdpAction::Drop, XdpAction::Drop]
        );
        for other in 2..200 {
            assert_eq!(
                (pass(other), pass(1)),
                (XdpAction::Pass, XdpAction::Drop),
                "{mode:?} {other}"
            );
        }
        // Check that the map has space for each new flow, which is counted.
        for other in 2..200 {
            assert_eq!(
                [other; 3].map(pass),
                [XdpAction::Pass, XdpAction::Pass, XdpAction::Drop],
                "{other}"
            );
        }
        assert_eq!(limit.maps()[0].dump(10).len(), 4);
        let exchange = load("exchange");
        let answers = [0; 3].map(|_| run(&exchange, &[1; 60]).0);
        assert_eq!(answers, [XdpAction::Pass, XdpAction::Tx, XdpAction::Tx]);
        let value = |key: u32| le(&exchange.maps()[0].get(&key.to_le_bytes()).unwrap()[0]);
        assert_eq!((value(0), value(1)), (5, 5));
    }
}
