//! Liveness analysis of registers.

use crate::insn::{Insn, LDDW, alu, atomic, class, jmp};

/// Registers that an instruction reads, and registers that it writes, as bit masks.
fn uses(insn: Insn) -> (u16, u16) {
    let bit = |r: u8| 1u16 << (r & 15);
    let (d, s) = (bit(insn.dst), bit(insn.src));
    match insn.class() {
        class::LD => (0, d),
        class::LDX => (s, d),
        class::ST => (d, 0),
        class::STX if insn.is_atomic() => {
            let compared = if insn.imm == atomic::CMPXCHG { bit(0) } else { 0 };
            (d | s | compared, insn.fetches().map_or(0, bit))
        }
        class::STX => (d | s, 0),
        class::ALU | class::ALU64 => {
            let src = if insn.is_reg() && insn.op() != alu::END { s } else { 0 };
            (if insn.op() == alu::MOV { src } else { src | d }, d)
        }
        _ => match insn.op() {
            jmp::JA => (0, 0),
            // Count r1 to r5 as read and written: a call invalidates them, also those that the
            // helper does not use.
            jmp::CALL => (0b11_1110, 0b11_1111),
            jmp::EXIT => (1, 0),
            _ => (if insn.is_reg() { d | s } else { d }, 0),
        },
    }
}

/// Mask of the live registers before each instruction.
pub(crate) fn registers(insns: &[Insn]) -> Vec<u16> {
    let mut live = vec![0u16; insns.len() + 1];
    let mut changed = true;
    while changed {
        changed = false;
        for at in (0..insns.len()).rev() {
            let insn = insns[at];
            let next = if insn.code == LDDW { at + 2 } else { at + 1 };
            let is_jump = matches!(insn.class(), class::JMP | class::JMP32);
            let target = usize::try_from(at as i64 + 1 + i64::from(insn.off)).unwrap_or(usize::MAX);
            let after = |to: usize| live.get(to).copied().unwrap_or(0);
            let out = match insn.op() {
                jmp::EXIT if is_jump => 0,
                jmp::JA if is_jump => after(target),
                jmp::CALL if is_jump => after(next),
                _ if is_jump => after(next) | after(target),
                _ => after(next),
            };
            let (reads, writes) = uses(insn);
            let now = reads | (out & !writes);
            changed |= live[at] != now;
            live[at] = now;
        }
    }
    live.truncate(insns.len());
    live
}
