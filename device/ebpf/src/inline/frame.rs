//! Stack frame of an inlined function.

use crate::insn::{Insn, LDDW, X, alu, class};

const MOV64: u8 = class::ALU64 | alu::MOV;
const ADD64: u8 = class::ALU64 | alu::ADD;
const FRAME: u8 = 10;

fn is_memory(insn: Insn) -> bool {
    matches!(insn.class(), class::LDX | class::ST | class::STX)
}

/// Number of stack bytes that a function uses through r10 and copies of r10, in multiples of 8.
/// Accesses through other registers may reach the caller's frame; the verifier checks these
/// accesses too.
pub(super) fn bytes(insns: &[Insn]) -> i32 {
    let mut lowest = 0i64;
    // Offset of each register from the end of the frame, if known.
    let mut known = [None; 16];
    known[usize::from(FRAME)] = Some(0i64);
    let mut at = 0;
    while let Some(&insn) = insns.get(at) {
        let (d, s) = (usize::from(insn.dst), usize::from(insn.src));
        let base = if insn.class() == class::LDX { known[s] } else { known[d] };
        if is_memory(insn)
            && let Some(from) = base
        {
            lowest = lowest.min(from + i64::from(insn.off));
        }
        let moved = match insn.code {
            code if code == MOV64 | X => known[s],
            ADD64 => known[d].map(|from: i64| from + i64::from(insn.imm)),
            _ => None,
        };
        let writes = matches!(insn.class(), class::LD | class::LDX | class::ALU | class::ALU64);
        if writes && insn.dst != FRAME {
            known[d] = moved;
            lowest = lowest.min(moved.unwrap_or(0));
        }
        at += if insn.code == LDDW { 2 } else { 1 };
    }
    // Limit the result: the caller rejects any value that exceeds the stack.
    ((-lowest).clamp(0, 1 << 20) as u32).next_multiple_of(8) as i32
}

/// Rewrites an instruction for a frame that ends `above` bytes lower. Fails for uses of the frame
/// pointer that cannot be rewritten.
pub(super) fn lowered(insn: Insn, above: i32) -> Result<Vec<Insn>, &'static str> {
    let reads = insn.is_reg() && insn.src == FRAME && insn.class() >= class::ALU;
    let stores = insn.class() == class::STX && insn.src == FRAME;
    let base = if insn.class() == class::LDX { insn.src } else { insn.dst };
    if above == 0 {
        return Ok(vec![insn]);
    }
    if insn.code == MOV64 | X && insn.src == FRAME {
        let add = Insn { code: ADD64, dst: insn.dst, src: 0, off: 0, imm: -above };
        return Ok(vec![insn, add]);
    }
    if reads || stores {
        return Err("uses the frame pointer of a function in a way that is not supported");
    }
    if is_memory(insn) && base == FRAME {
        let off = i16::try_from(i32::from(insn.off) - above);
        let off = off.map_err(|_| "reaches below the stack")?;
        return Ok(vec![Insn { off, ..insn }]);
    }
    Ok(vec![insn])
}
