use proptest::prelude::*;

use super::*;
use crate::insn::{Insn, LDDW, PSEUDO_MAP, PSEUDO_VALUE, X, alu, atomic, class, jmp};
use crate::map::{MapDef, MapKind};

const VALUE: u32 = 64;
const CANARY: usize = 64;

/// A part of a generated program that uses a number in r7.
#[derive(Clone, Debug)]
enum Piece {
    /// Loads bytes of the frame into r7.
    Frame { size: u8, off: i16 },
    /// Applies an operation to r7, with a constant or r0.
    Number { op: u8, wide: bool, reg: bool, imm: i32 },
    /// Copies r7 to r0; the program continues with r7.
    Copy { wide: bool },
    /// Exits if the comparison holds.
    Leave { op: u8, wide: bool, imm: i32 },
    /// Skips the next part if the comparison holds.
    Skip { op: u8, wide: bool, imm: i32 },
    /// Accesses the map value at offset r7.
    Value { size: u8, off: i16, write: bool },
    /// Accesses the frame at offset r7, after a comparison with the end.
    Moved { size: u8, off: i16, checked: i16 },
    /// Accesses the stack.
    Stack { size: u8, off: i16, write: bool },
    /// Executes `lock *(value + off) += r7`.
    Add { wide: bool, off: i16 },
}

fn code(size: u8) -> u8 {
    [0x10, 0x08, 0x00, 0x18][usize::from(size & 3)]
}

fn op(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
    Insn { code, dst, src, off, imm }
}

const MOV: u8 = class::ALU64 | alu::MOV;
const ADD: u8 = class::ALU64 | alu::ADD;
const LDX: u8 = 0x61;
const STX: u8 = 0x63;

fn load(size: u8, dst: u8, src: u8, off: i16) -> Insn {
    op(LDX & !0x18 | code(size), dst, src, off, 0)
}

fn store(size: u8, dst: u8, src: u8, off: i16) -> Insn {
    op(STX & !0x18 | code(size), dst, src, off, 0)
}

impl Piece {
    fn insns(&self) -> Vec<Insn> {
        let arith = |wide: bool| if wide { class::ALU64 } else { class::ALU };
        let jump = |wide: bool| if wide { class::JMP } else { class::JMP32 };
        match *self {
            Self::Frame { size, off } => vec![load(size, 7, 2, off)],
            Self::Number { op: o, wide, reg, imm } => {
                let x = if reg { X } else { 0 };
                vec![op(arith(wide) | o | x, 7, 0, 0, if reg { 0 } else { imm })]
            }
            Self::Copy { wide } => vec![op(arith(wide) | alu::MOV | X, 0, 7, 0, 0)],
            Self::Leave { op: o, wide, imm } => vec![
                op(jump(wide) | o, 7, 0, 1, imm),
                op(class::JMP | jmp::JA, 0, 0, 2, 0),
                op(MOV, 0, 0, 0, 2),
                op(class::JMP | jmp::EXIT, 0, 0, 0, 0),
            ],
            // Leave the offset open until the next part is known.
            Self::Skip { op: o, wide, imm } => vec![op(jump(wide) | o, 7, 0, 0, imm)],
            Self::Value { size, off, write } => {
                let access = if write { store(size, 8, 7, off) } else { load(size, 7, 8, off) };
                vec![op(MOV | X, 8, 9, 0, 0), op(ADD | X, 8, 7, 0, 0), access]
            }
            Self::Moved { size, off, checked } => vec![
                op(MOV | X, 8, 2, 0, 0),
                op(ADD | X, 8, 7, 0, 0),
                op(MOV | X, 4, 8, 0, 0),
                op(ADD, 4, 0, 0, checked.into()),
                op(class::JMP | jmp::JGT | X, 4, 3, 1, 0),
                store(size, 8, 7, off),
            ],
            Self::Stack { size, off, write } => {
                vec![if write { store(size, 10, 7, off) } else { load(size, 7, 10, off) }]
            }
            Self::Add { wide, off } => {
                vec![op(if wide { 0xdb } else { 0xc3 }, 9, 7, off, 0)]
            }
        }
    }
}

fn program(pieces: &[Piece]) -> Vec<Insn> {
    let mut all = vec![
        op(LDX, 2, 1, 0, 0),
        op(LDX, 3, 1, 4, 0),
        op(LDDW, 9, PSEUDO_VALUE, 0, 0),
        Insn::default(),
        op(MOV, 0, 0, 0, 2),
        op(MOV, 7, 0, 0, 1),
        op(MOV | X, 4, 2, 0, 0),
        op(ADD, 4, 0, 0, 32),
        op(class::JMP | jmp::JGT | X, 4, 3, 2, 0),
        // Initial values that all paths share.
        op(MOV, 5, 0, 0, 0),
        op(class::JMP | jmp::JA, 0, 0, 2, 0),
        op(MOV, 0, 0, 0, 1),
        op(class::JMP | jmp::EXIT, 0, 0, 0, 0),
    ];
    let mut skip = None;
    for piece in pieces {
        let insns = piece.insns();
        if let Some(at) = skip.take() {
            let at: usize = at;
            all[at].off = insns.len() as i16;
        }
        if matches!(piece, Piece::Skip { .. }) {
            skip = Some(all.len());
        }
        all.extend(insns);
    }
    all.push(op(MOV, 0, 0, 0, 2));
    all.push(op(class::JMP | jmp::EXIT, 0, 0, 0, 0));
    all
}

fn load_it(insns: &[Insn], mode: ExecutionMode) -> Result<Arc<Program>, ProgramError> {
    let map = MapDef {
        name: "value".into(),
        kind: MapKind::Array,
        key_size: 4,
        value_size: VALUE,
        max_entries: 1,
        init: (0..VALUE as u8).collect(),
        readonly: false,
    };
    let (name, section) = ("test".to_owned(), "xdp".to_owned());
    Program::new(ObjectProgram { name, section, insns: insns.to_vec(), maps: vec![map] }, mode, 1)
}

fn number() -> impl Strategy<Value = i32> {
    prop_oneof![0..70i32, Just(-1), Just(i32::MAX), Just(i32::MIN), any::<i32>()]
}

fn comparison() -> impl Strategy<Value = u8> {
    prop::sample::select(vec![
        jmp::JEQ,
        jmp::JNE,
        jmp::JGT,
        jmp::JGE,
        jmp::JLT,
        jmp::JLE,
        jmp::JSGT,
        jmp::JSGE,
        jmp::JSLT,
        jmp::JSLE,
        jmp::JSET,
    ])
}

fn operation() -> impl Strategy<Value = u8> {
    prop::sample::select(vec![
        alu::ADD,
        alu::SUB,
        alu::MUL,
        alu::DIV,
        alu::OR,
        alu::AND,
        alu::LSH,
        alu::RSH,
        alu::MOD,
        alu::XOR,
        alu::MOV,
        alu::ARSH,
        alu::NEG,
    ])
}

fn piece() -> impl Strategy<Value = Piece> {
    let size = 0..4u8;
    prop_oneof![
        2 => (size.clone(), -1..33i16).prop_map(|(size, off)| Piece::Frame { size, off }),
        6 => (operation(), any::<bool>(), any::<bool>(), number())
            .prop_map(|(op, wide, reg, imm)| Piece::Number { op, wide, reg, imm }),
        2 => any::<bool>().prop_map(|wide| Piece::Copy { wide }),
        2 => (0..64i32).prop_map(|imm| Piece::Number {
            op: alu::AND, wide: true, reg: false, imm }),
        2 => (comparison(), any::<bool>(), number())
            .prop_map(|(op, wide, imm)| Piece::Leave { op, wide, imm }),
        1 => (comparison(), any::<bool>(), number())
            .prop_map(|(op, wide, imm)| Piece::Skip { op, wide, imm }),
        3 => (size.clone(), -8..66i16, any::<bool>())
            .prop_map(|(size, off, write)| Piece::Value { size, off, write }),
        1 => (size.clone(), -2..12i16, 0..14i16)
            .prop_map(|(size, off, checked)| Piece::Moved { size, off, checked }),
        1 => (size, -513..2i16, any::<bool>())
            .prop_map(|(size, off, write)| Piece::Stack { size, off, write }),
        1 => (any::<bool>(), 0..16i16).prop_map(|(wide, off)| Piece::Add { wide, off: off * 4 }),
    ]
}

/// Runs a program on a page between canaries. Returns the page, the action, and the value of the
/// map.
fn run(program: &Program, frame: &[u8]) -> (Vec<u8>, XdpAction, Vec<u8>) {
    let mut page = vec![0xa5; 2 * CANARY + HEADROOM + 128];
    page[CANARY + HEADROOM..][..frame.len()].copy_from_slice(frame);
    let last = page.len() - CANARY;
    let verdict = program.run(&mut page[CANARY..last], HEADROOM, frame.len(), Origin::default());
    let value = program.maps()[0].get(&[0; 4]).unwrap_or_default().concat();
    (page, verdict.action, value)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    // Goal: an accepted program never leaves its memory. The checking runtime finds no violation,
    // and compiled code has exactly the same effects on frame and map.
    #[test]
    fn what_is_accepted_is_harmless(
        pieces in prop::collection::vec(piece(), 1..9),
        frame in prop::collection::vec(any::<u8>(), 32..100),
    ) {
        let insns = program(&pieces);
        let Ok(checked) = load_it(&insns, ExecutionMode::Interpret) else { return Ok(()) };
        let (page, action, value) = run(&checked, &frame);
        prop_assert_eq!(action, XdpAction::Pass, "the runtime has stopped it");
        let around = |page: &[u8]| {
            let (head, rest) = page.split_at(CANARY + HEADROOM);
            head.iter().chain(&rest[frame.len()..]).all(|&b| b == 0xa5)
        };
        prop_assert!(around(&page));
        if ExecutionMode::BEST == ExecutionMode::Jit {
            let failed = |e: ProgramError| TestCaseError::fail(e.to_string());
            let compiled = load_it(&insns, ExecutionMode::Jit).map_err(failed)?;
            prop_assert_eq!(run(&compiled, &frame), (page, action, value));
        }
    }
}

// Goal: simple programs as generated by `what_is_accepted_is_harmless` are accepted, so that this
// test is not vacuous.
#[test]
fn simple_programs_are_accepted() {
    let masked = Piece::Number { op: alu::AND, wide: true, reg: false, imm: 31 };
    let reach = |off| Piece::Value { size: 0, off, write: true };
    let with = |off| program(&[Piece::Frame { size: 0, off: 3 }, masked.clone(), reach(off)]);
    assert!(load_it(&with(32), ExecutionMode::BEST).is_ok());
    let refused = load_it(&with(33), ExecutionMode::BEST).unwrap_err().to_string();
    assert!(refused.contains("offset 33..65 may be outside the value"), "{refused}");
}

// Goal: division by 0 results in 0 and modulo by 0 in the dividend in both runtimes (RFC 9669).
// 32-bit arithmetic truncates the dividend to its low half.
#[test]
fn division_by_zero() {
    let number = 0x1234_5678_9abc_def0u64;
    let cases = [
        (class::ALU64 | alu::DIV, 0),
        (class::ALU | alu::DIV, 0),
        (class::ALU64 | alu::MOD, number),
        (class::ALU | alu::MOD, number & 0xffff_ffff),
    ];
    for mode in [ExecutionMode::Interpret, ExecutionMode::BEST] {
        for (code, want) in cases {
            for (dst, src) in [(7, 8), (0, 3), (3, 0), (2, 7), (4, 5)] {
                let insns = [
                    op(LDDW, 9, PSEUDO_VALUE, 0, 0),
                    Insn::default(),
                    op(LDDW, dst, 0, 0, number as i32),
                    op(0, 0, 0, 0, (number >> 32) as i32),
                    // Set the high half to 1, which 32-bit arithmetic ignores.
                    op(MOV, src, 0, 0, i32::from(code & 7 == class::ALU)),
                    op(class::ALU64 | alu::LSH, src, 0, 0, 32),
                    op(code | X, dst, src, 0, 0),
                    store(3, 9, dst, 0),
                    op(MOV, 0, 0, 0, 2),
                    op(class::JMP | jmp::EXIT, 0, 0, 0, 0),
                ];
                let program = load_it(&insns, mode).unwrap();
                let (_, action, value) = run(&program, &[0; 32]);
                let got = u64::from_le_bytes(value[..8].try_into().unwrap());
                assert_eq!((action, got), (XdpAction::Pass, want), "{mode:?} {}", insns[6]);
            }
        }
    }
}

/// A program with an atomic operation on the map value at `off`. The program then stores r0, r7
/// (the operand) and r1 at offsets 32, 40 and 48 of the value.
fn atomically(code: u8, imm: i32, off: i16, operand: i32, compared: i32) -> Vec<Insn> {
    vec![
        op(LDDW, 9, PSEUDO_VALUE, 0, 0),
        Insn::default(),
        op(MOV, 0, 0, 0, compared),
        op(MOV, 7, 0, 0, operand),
        op(MOV, 1, 0, 0, 11),
        op(code, 9, 7, off, imm),
        store(3, 9, 0, 32),
        store(3, 9, 7, 40),
        store(3, 9, 1, 48),
        op(MOV, 0, 0, 0, 2),
        op(class::JMP | jmp::EXIT, 0, 0, 0, 0),
    ]
}

// Goal: atomic operations of 32 and 64 bits change memory and return the previous value, also on
// unaligned memory, and preserve every other register.
#[test]
fn atomic_operations() {
    let before: Vec<u8> = (0..VALUE as u8).collect();
    for mode in [ExecutionMode::Interpret, ExecutionMode::BEST] {
        for (code, size) in [(0xdb, 8), (0xc3, 4)] {
            for off in [0i16, 8, 3] {
                let at = off as usize;
                let mut room = [0; 8];
                room[..size].copy_from_slice(&before[at..at + size]);
                let old = u64::from_le_bytes(room);
                let mask = u64::MAX >> (64 - 8 * size);
                let by = -5i64 as u64;
                let equal = old as u32 as i32;
                for (imm, compared, new, fetched) in [
                    (atomic::ADD, 3, old.wrapping_add(by), None),
                    (atomic::ADD | atomic::FETCH, 3, old.wrapping_add(by), Some(7)),
                    (atomic::OR | atomic::FETCH, 3, old | by, Some(7)),
                    (atomic::AND | atomic::FETCH, 3, old & by, Some(7)),
                    (atomic::XOR | atomic::FETCH, 3, old ^ by, Some(7)),
                    (atomic::XCHG, 3, by, Some(7)),
                    (atomic::CMPXCHG, 3, old, Some(0)),
                    (atomic::CMPXCHG, equal, if size == 4 { by } else { old }, Some(0)),
                ] {
                    let insns = atomically(code, imm, off, by as i32, compared);
                    let program = load_it(&insns, mode).unwrap();
                    let value = run(&program, &[0; 32]).2;
                    let word =
                        |at: usize| u64::from_le_bytes(value[at..at + 8].try_into().unwrap());
                    let what = format!("{mode:?} {}", insns[5]);
                    assert_eq!(value[at..at + size], new.to_le_bytes()[..size], "{what}");
                    let r0 = if fetched == Some(0) { old } else { compared as i64 as u64 };
                    let r7 = if fetched == Some(7) { old & mask } else { by };
                    assert_eq!([word(32), word(40), word(48)], [r0, r7, 11], "{what}");
                }
            }
        }
    }
}

// Goal: a pointer to a map is never 0, as the verifier assumes of every pointer. Otherwise the
// program would dereference a number on a path that the verifier does not walk.
#[test]
fn no_map_is_null() {
    let insns = [
        op(LDX, 6, 1, 12, 0),
        op(LDX, 2, 1, 0, 0),
        op(LDX, 3, 1, 4, 0),
        op(MOV | X, 4, 2, 0, 0),
        op(ADD, 4, 0, 0, 8),
        op(class::JMP | jmp::JGT | X, 4, 3, 7, 0),
        // A frame that begins with 1 takes the path with the map, and reaches the load with a
        // number in r2.
        op(LDX, 5, 2, 0, 0),
        op(class::JMP | jmp::JNE, 5, 0, 4, 1),
        op(MOV, 2, 0, 0, 16),
        op(LDDW, 1, PSEUDO_MAP, 0, 0),
        Insn::default(),
        op(class::JMP | jmp::JNE, 1, 0, 1, 0),
        op(LDX, 0, 2, 0, 0),
        op(MOV, 0, 0, 0, 2),
        op(class::JMP | jmp::EXIT, 0, 0, 0, 0),
    ];
    let mut frame = vec![0; 32];
    frame[0] = 1;
    for mode in [ExecutionMode::Interpret, ExecutionMode::BEST] {
        let program = load_it(&insns, mode).unwrap();
        assert_eq!(run(&program, &frame).1, XdpAction::Pass, "{mode:?}");
    }
}

/// Accumulates in r7 with division, modulo and addition, `n` times each.
fn long(n: usize) -> Vec<Insn> {
    let mut insns = vec![op(MOV, 7, 0, 0, 0), op(MOV, 8, 0, 0, 3)];
    for _ in 0..n {
        insns.push(op(class::ALU64 | alu::DIV | X, 7, 8, 0, 0));
        insns.push(op(class::ALU | alu::MOD | X, 7, 8, 0, 0));
        insns.push(op(ADD, 7, 0, 0, 4));
    }
    insns.extend([op(MOV, 0, 0, 0, 2), op(class::JMP | jmp::EXIT, 0, 0, 0, 0)]);
    insns
}

// Goal: programs much longer than a page of machine code run, up to the limit; longer ones are
// rejected without a panic.
#[test]
fn long_programs_run() {
    let most = (crate::insn::INSNS_MAX - 4) / 3;
    for mode in [ExecutionMode::Interpret, ExecutionMode::BEST] {
        for n in [10, 1000, most] {
            let program = load_it(&long(n), mode).unwrap();
            assert_eq!(run(&program, &[0; 32]).1, XdpAction::Pass, "{mode:?} {n}");
        }
        let refused = load_it(&long(most + 1), mode).unwrap_err().to_string();
        assert!(refused.contains("must be 1 to"), "{refused}");
    }
}

// Goal: no page of this process is writable and executable while programs run, or afterwards.
#[test]
fn code_is_not_writable() {
    if ExecutionMode::BEST != ExecutionMode::Jit {
        return;
    }
    let pages = || std::fs::read_to_string("/proc/self/maps").unwrap();
    let program = load_it(&long(50), ExecutionMode::Jit).unwrap();
    let wrong = |maps: &str| maps.lines().any(|line| line.contains("wx"));
    assert!(!wrong(&pages()), "{}", pages());
    drop(program);
    assert!(!wrong(&pages()), "{}", pages());
}
