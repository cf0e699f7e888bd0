//! Verification of arithmetic.

use super::range::Range;
use super::state::{META, Reg, State};
use super::{Verifier, read, write};
use crate::insn::{Insn, alu, class};

/// Maximum distance of a pointer from its base: more than any packet, and too little for an address
/// to wrap.
const AWAY_MAX: i64 = 1 << 20;

impl Verifier<'_> {
    pub(super) fn alu(&mut self, s: &mut State, insn: Insn) -> Result<(), String> {
        let d = usize::from(insn.dst);
        let wide = insn.class() == class::ALU64;
        if insn.off != 0 || insn.op() > alu::END || insn.op() == alu::END && wide {
            return Err("is not known: compile with -mcpu=v3 or lower".to_owned());
        }
        if insn.op() == alu::END {
            return byte_order(s, insn);
        }
        let right = if insn.op() == alu::NEG {
            Reg::constant(0)
        } else if insn.is_reg() {
            read(s, insn.src.into())?
        } else {
            Reg::constant(i64::from(insn.imm) as u64)
        };
        check_constant(insn, wide)?;
        if insn.op() == alu::MOV {
            let what = self.moved(s, insn, right, wide)?;
            return write(s, d, what);
        }
        let left = read(s, d)?;
        let result = match (left, right) {
            (Reg::Scalar { range: a, .. }, Reg::Scalar { range: b, .. }) => {
                // Ignore equal ids: the result is a number, also if both operands are the same
                // register.
                Reg::scalar(a.op(insn.op(), b, wide))
            }
            _ if !wide => {
                return Err(format!("32-bit arithmetic with {}", pointer_of(left, right)));
            }
            (pointer, Reg::Scalar { range, .. }) if insn.op() == alu::ADD => {
                add(s, pointer, range)?
            }
            (Reg::Scalar { range, .. }, pointer) if insn.op() == alu::ADD => {
                add(s, pointer, range)?
            }
            (pointer, Reg::Scalar { range, .. }) if insn.op() == alu::SUB => {
                let Some(n) = range.constant() else {
                    return Err(format!("an unknown number is subtracted from {}", pointer.name()));
                };
                add(s, pointer, Range::exactly(n.wrapping_neg()))?
            }
            (a, b) if insn.op() == alu::SUB && is_packet(a) && is_packet(b) => Reg::ANY,
            (a, b) => {
                return Err(format!("arithmetic with {} is not allowed", pointer_of(a, b)));
            }
        };
        write(s, d, result)
    }

    fn moved(&self, s: &mut State, insn: Insn, right: Reg, wide: bool) -> Result<Reg, String> {
        match right {
            Reg::Scalar { range, id } if wide || range.max <= u32::MAX.into() => {
                if !insn.is_reg() || range.constant().is_some() {
                    let range = if wide { range } else { range.low32() };
                    return Ok(Reg::scalar(range));
                }
                // Share an id between the copies, so that later bounds apply to both.
                let id = if id == 0 { s.new_id() } else { id };
                s.regs[usize::from(insn.src)] = Reg::Scalar { range, id };
                Ok(Reg::Scalar { range, id })
            }
            Reg::Scalar { range, .. } => Ok(Reg::scalar(range.low32())),
            pointer if wide => Ok(pointer),
            pointer => Err(format!("half of {} is copied", pointer.name())),
        }
    }
}

fn is_packet(reg: Reg) -> bool {
    matches!(reg, Reg::Packet { .. } | Reg::End)
}

fn pointer_of(a: Reg, b: Reg) -> &'static str {
    if matches!(a, Reg::Scalar { .. }) { b.name() } else { a.name() }
}

fn check_constant(insn: Insn, wide: bool) -> Result<(), String> {
    if insn.is_reg() {
        return Ok(());
    }
    let bits = if wide { 64 } else { 32 };
    match insn.op() {
        alu::DIV | alu::MOD if insn.imm == 0 => Err("divides by 0".to_owned()),
        alu::LSH | alu::RSH | alu::ARSH if !(0..bits).contains(&insn.imm) => {
            Err(format!("shifts by {}, a register has {bits} bits", insn.imm))
        }
        _ => Ok(()),
    }
}

fn byte_order(s: &mut State, insn: Insn) -> Result<(), String> {
    let Reg::Scalar { range, .. } = read(s, insn.dst.into())? else {
        return Err("the bytes of a pointer are swapped".to_owned());
    };
    let size = match insn.imm {
        16 => 2,
        32 => 4,
        64 => 8,
        other => return Err(format!("swaps {other} bits")),
    };
    let whole = Range::of_size(size);
    let kept = !insn.is_reg() && whole.contains(range);
    write(s, insn.dst.into(), Reg::scalar(if kept { range } else { whole }))
}

/// Result of `pointer + range`. Fails if the result may be too far from its base, or if the kind of
/// pointer does not allow the number.
fn add(s: &mut State, pointer: Reg, range: Range) -> Result<Reg, String> {
    let too_far = || format!("{} is moved too far", pointer.name());
    let constant = range.constant().map(|n| n as i64);
    if constant.is_some_and(|n| !(-AWAY_MAX..=AWAY_MAX).contains(&n)) {
        return Err(too_far());
    }
    let (least, most) = match constant {
        Some(n) => (n, n),
        None if range.max > 0xffff => {
            return Err(format!(
                "a number up to {:#x} is added to {}: it must be proven to be at most 0xffff",
                range.max,
                pointer.name()
            ));
        }
        None => (range.min as i64, range.max as i64),
    };
    match pointer {
        Reg::Packet { id, off, least: l, most: m } => {
            let near = |n: i64| (-AWAY_MAX..=AWAY_MAX).contains(&n);
            if let Some(n) = constant {
                let off = i64::from(off) + n;
                if !near(off) || !near(off + i64::from(m)) || !near(off + i64::from(l)) {
                    return Err(too_far());
                }
                return Ok(Reg::Packet { id, off: off as i32, least: l, most: m });
            }
            let (l, m) = (i64::from(l + off) + least, i64::from(m + off) + most);
            if !near(l) || !near(m) {
                return Err(too_far());
            }
            if id == META {
                return Err("an unknown number is added to data_meta".to_owned());
            }
            let id = s.new_id();
            Ok(Reg::Packet { id, off: 0, least: l as i32, most: m as i32 })
        }
        Reg::Stack { off } => {
            let Some(n) = constant else {
                return Err("an unknown number is added to a stack pointer".to_owned());
            };
            let off = i64::from(off) + n;
            if !(-512..=0).contains(&off) {
                return Err(format!("stack offset {off} is outside its 512 bytes"));
            }
            Ok(Reg::Stack { off: off as i32 })
        }
        Reg::Value { map, least: l, most: m } => {
            let (l, m) = (l + least, m + most);
            if l < -AWAY_MAX || m > 4 * AWAY_MAX {
                return Err(too_far());
            }
            Ok(Reg::Value { map, least: l, most: m })
        }
        other => Err(format!("a number is added to {}", other.name())),
    }
}
