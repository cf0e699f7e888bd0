//! Rewriting of verified programs for the runtime (rbpf).
//!
//! Context fields become 64-bit loads, and references to maps become numbers and addresses.
//! Instructions that the runtime does not execute correctly are replaced:
//!
//! - The compiler copies 64 bits for a 32-bit move, ignores conversions to little endian, and
//!   panics at atomic operations.
//! - The interpreter treats negative immediates of comparisons as 32-bit values, and panics when it
//!   negates `i64::MIN`.
//! - Both the compiler and the interpreter keep the upper half of the register in a 32-bit modulo
//!   by zero.

use crate::insn::{Insn, LDDW, PSEUDO_MAP, PSEUDO_VALUE, X, alu, atomic, class, jmp};
use crate::map::Map;
use crate::mode::ExecutionMode;
use crate::verify::{Kind, Proof, live_registers};

/// Maximum program length of the interpreter, which counts instructions in 16-bit signed numbers.
const LENGTH_MAX: usize = i16::MAX as usize;
/// Number of a private helper that executes atomic operations.
pub(crate) const ATOMIC: i32 = 0x1_0000;
/// Flag in the third argument of [`ATOMIC`]: the operand has 8 bytes instead of 4.
pub(crate) const ATOMIC_WIDE: i32 = 0x100;

const MOV64: u8 = class::ALU64 | alu::MOV;
const ADD64: u8 = class::ALU64 | alu::ADD;
const AND64: u8 = class::ALU64 | alu::AND;
const XOR64: u8 = class::ALU64 | alu::XOR;
const OR32: u8 = class::ALU | alu::OR;
const LOAD64: u8 = 0x79;
const STORE64: u8 = 0x7b;

fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
    Insn { code, dst, src, off, imm }
}

const EXIT: Insn = Insn { code: class::JMP | jmp::EXIT, dst: 0, src: 0, off: 0, imm: 0 };

/// Rewrites a verified program for the runtime; fails if the program becomes too long or an
/// instruction cannot be replaced.
pub(crate) fn rewrite(
    old: &[Insn],
    proof: &Proof,
    maps: &[Map],
    mode: ExecutionMode,
) -> Result<Vec<Insn>, String> {
    let live = live_registers(old);
    let mut new: Vec<Insn> = Vec::with_capacity(old.len() + old.len() / 4);
    let (mut starts, mut jumps) = (vec![0; old.len() + 1], Vec::new());
    let mut at = 0;
    while at < old.len() {
        starts[at] = new.len();
        let one = old[at];
        let wide = one.code == LDDW;
        if !proof.reached[at] {
            new.push(EXIT);
        } else if wide {
            let low = address(one, old[at + 1], maps);
            new.push(insn(LDDW, one.dst, 0, 0, low as i32));
            new.push(insn(0, 0, 0, 0, (low >> 32) as i32));
        } else if proof.kinds[at] == Kind::Context {
            // Double the offset: fields of the context have 4 bytes in the ABI, 8 at run time.
            new.push(Insn { code: LOAD64, off: one.off * 2, ..one });
        } else if one.code == class::ALU | alu::MOV | X {
            new.extend([Insn { code: MOV64 | X, ..one }, insn(OR32, one.dst, 0, 0, 0)]);
        } else if one.code == class::ALU | alu::END {
            match one.imm {
                16 => new.push(insn(AND64, one.dst, 0, 0, 0xffff)),
                32 => new.push(insn(OR32, one.dst, 0, 0, 0)),
                _ => new.push(insn(MOV64 | X, one.dst, one.dst, 0, 0)),
            }
        } else if one.is_atomic() {
            let after = live.get(at + 1).copied().unwrap_or(0);
            atomic_call(&mut new, one, after, proof.deepest)?;
        } else if one.code == class::ALU | alu::MOD | X {
            new.extend([one, insn(OR32, one.dst, 0, 0, 0)]);
        } else if mode == ExecutionMode::Interpret && one.code == class::ALU64 | alu::NEG {
            new.push(insn(XOR64, one.dst, 0, 0, -1));
            new.push(insn(ADD64, one.dst, 0, 0, 1));
        } else {
            let mut one = one;
            if mode == ExecutionMode::Interpret && is_misread(one) {
                let Some(free) = (0..10u8).find(|r| live[at] >> r & 1 == 0) else {
                    return Err(format!(
                        "insn {at}: {one}: the interpreter compares with negative constants as if \
                         they had 32 bits: use --jit"
                    ));
                };
                new.push(insn(MOV64, free, 0, 0, one.imm));
                one = Insn { code: one.code | X, src: free, imm: 0, ..one };
            }
            if one.is_jump() {
                jumps.push((new.len(), (at as i64 + 1 + i64::from(one.off)) as usize));
            }
            new.push(one);
        }
        at += if wide { 2 } else { 1 };
    }
    starts[old.len()] = new.len();
    // The runtime requires an exit instruction at the end.
    new.push(EXIT);
    if new.len() > LENGTH_MAX {
        return Err(format!("the program is too long: {} instructions to run", new.len()));
    }
    for (at, target) in jumps {
        let off = starts[target] as i64 - at as i64 - 1;
        new[at].off = i16::try_from(off).map_err(|_| "the program is too long".to_owned())?;
    }
    Ok(new)
}

/// True for 64-bit comparisons with a negative immediate, except signed ones and bit tests
/// (`JSET`). The interpreter evaluates these jumps incorrectly, which would invalidate the proof.
fn is_misread(one: Insn) -> bool {
    let signs = !matches!(one.op(), jmp::JSGT | jmp::JSGE | jmp::JSLT | jmp::JSLE | jmp::JSET);
    one.class() == class::JMP && one.is_jump() && !one.is_reg() && one.imm < 0 && signs
}

/// Value of a 64-bit constant: a map, an address in a map, or a number.
fn address(one: Insn, half: Insn, maps: &[Map]) -> u64 {
    match one.src {
        // Add one, so that a map is never null.
        PSEUDO_MAP => one.imm as u32 as u64 + 1,
        PSEUDO_VALUE => {
            let start = maps.get(one.imm as usize).map_or(0, |map| map.memory().start);
            start + half.imm as u32 as u64
        }
        _ => u64::from(half.imm as u32) << 32 | u64::from(one.imm as u32),
    }
}

/// Emits a helper call for an atomic operation. The call preserves every live register except the
/// one that receives the previous value. Fails if the stack has too little space.
fn atomic_call(new: &mut Vec<Insn>, one: Insn, live: u16, deepest: i32) -> Result<(), String> {
    // Reserve stack for six registers and both operands.
    const BYTES: i32 = 64;
    let free = deepest & !7;
    let place = |n: u8| (free - 8 * (i32::from(n) + 1)) as i16;
    if free - BYTES < -512 {
        return Err(format!(
            "an atomic operation needs {BYTES} bytes of the stack, and the program uses {} of 512",
            -deepest
        ));
    }
    let result = one.fetches();
    let kept = || (0..=5u8).filter(|r| live >> r & 1 == 1 && Some(*r) != result);
    new.extend(kept().map(|r| insn(STORE64, 10, r, place(r), 0)));
    new.push(insn(STORE64, 10, one.src, place(6), 0));
    let compares = one.imm == atomic::CMPXCHG;
    if compares {
        new.push(insn(STORE64, 10, 0, place(7), 0));
    }
    new.push(insn(MOV64 | X, 1, one.dst, 0, 0));
    new.push(insn(ADD64, 1, 0, 0, one.off.into()));
    new.push(insn(LOAD64, 2, 10, place(6), 0));
    let wide = if one.size() == 8 { ATOMIC_WIDE } else { 0 };
    new.push(insn(MOV64, 3, 0, 0, one.imm | wide));
    if compares {
        new.push(insn(LOAD64, 4, 10, place(7), 0));
    }
    new.push(insn(class::JMP | jmp::CALL, 0, 0, 0, ATOMIC));
    if let Some(reg) = result
        && reg != 0
    {
        new.push(insn(MOV64 | X, reg, 0, 0, 0));
    }
    new.extend(kept().map(|r| insn(LOAD64, r, 10, place(r), 0)));
    Ok(())
}
