//! Verification of jumps, and the bounds that follow from them.

use super::range::{Range, mirrored, opposite};
use super::state::{DATA, META, Reg, State};
use super::{Next, Verifier, read};
use crate::insn::{Insn, class, jmp};

impl Verifier<'_> {
    pub(super) fn jump(&mut self, s: &mut State, at: usize, insn: Insn) -> Result<Next, String> {
        match insn.op() {
            jmp::JA => return Ok(Next::Goto(self.target(at)?)),
            jmp::CALL => return self.call(s, insn).map(|()| Next::Step),
            jmp::EXIT => {
                return match read(s, 0)? {
                    Reg::Scalar { .. } => Ok(Next::End),
                    other => Err(format!("r0 is {}, not an action", other.name())),
                };
            }
            _ => {}
        }
        let to = self.target(at)?;
        let wide = insn.class() == class::JMP;
        let left = read(s, insn.dst.into())?;
        let right = if insn.is_reg() {
            read(s, insn.src.into())?
        } else if wide {
            Reg::constant(i64::from(insn.imm) as u64)
        } else {
            Reg::constant(u64::from(insn.imm as u32))
        };
        match (left, right) {
            (Reg::Scalar { range: a, .. }, Reg::Scalar { range: b, .. }) => {
                Ok(compare_numbers(s, insn, (a, b), wide, to))
            }
            _ if !wide => Err("32 bits of a pointer are compared".to_owned()),
            (Reg::MaybeValue { id, .. }, Reg::Scalar { range, .. })
                if range.constant() == Some(0) && matches!(insn.op(), jmp::JEQ | jmp::JNE) =>
            {
                let mut null = s.clone();
                resolve(&mut null, id, true);
                resolve(s, id, false);
                if insn.op() == jmp::JNE {
                    std::mem::swap(&mut null, s);
                }
                Ok(Next::Fork(to, Box::new(null)))
            }
            (a, b) if is_packet(a) && is_packet(b) => {
                let mut taken = s.clone();
                learn_bounds(&mut taken, insn.op(), a, b);
                if let Some(op) = opposite(insn.op()) {
                    learn_bounds(s, op, a, b);
                }
                Ok(Next::Fork(to, Box::new(taken)))
            }
            // Decide the comparison: a valid pointer is never 0.
            (pointer, Reg::Scalar { range, .. })
                if range.constant() == Some(0)
                    && !matches!(pointer, Reg::MaybeValue { .. })
                    && matches!(insn.op(), jmp::JEQ | jmp::JNE) =>
            {
                Ok(if insn.op() == jmp::JEQ { Next::Step } else { Next::Goto(to) })
            }
            (a, b) => Err(format!("{} is compared with {}", a.name(), b.name())),
        }
    }
}

fn is_packet(reg: Reg) -> bool {
    matches!(reg, Reg::Packet { .. } | Reg::End)
}

fn compare_numbers(
    s: &mut State,
    insn: Insn,
    (a, b): (Range, Range),
    wide: bool,
    to: usize,
) -> Next {
    let op = insn.op();
    let (x, y) = if wide { (a, b) } else { (a.low32(), b.low32()) };
    let is_signed = matches!(op, jmp::JSGT | jmp::JSGE | jmp::JSLT | jmp::JSLE);
    // Decide a signed 32-bit comparison only if bit 31 of both numbers is clear: `decide` uses the
    // sign bit of 64 bits.
    let half = u64::from(i32::MAX as u32);
    let clear = wide || !is_signed || x.max <= half && y.max <= half;
    if clear {
        match x.decide(op, y) {
            Some(true) => return Next::Goto(to),
            Some(false) => return Next::Step,
            None => {}
        }
    }
    let whole = wide || a.max <= u32::MAX.into() && b.max <= u32::MAX.into();
    let mut taken = s.clone();
    if clear && whole {
        learn(&mut taken, insn, op, (x, y));
        if let Some(op) = opposite(op) {
            learn(s, insn, op, (x, y));
        }
    }
    Next::Fork(to, Box::new(taken))
}

/// Narrows both numbers to the values for which `op` holds.
fn learn(s: &mut State, insn: Insn, op: u8, (a, b): (Range, Range)) {
    if let Some(range) = a.where_holds(op, b) {
        s.narrow(insn.dst.into(), range);
    }
    if insn.is_reg()
        && let Some(range) = b.where_holds(mirrored(op), a)
    {
        s.narrow(insn.src.into(), range);
    }
}

/// Records the bounds that follow from `a op b` for two packet pointers.
fn learn_bounds(s: &mut State, op: u8, a: Reg, b: Reg) {
    let (pointer, limit, op) = match (a, b) {
        (_, Reg::End) => (a, b, op),
        (Reg::End, _) => (b, a, mirrored(op)),
        (Reg::Packet { id: DATA, off: 0, .. }, Reg::Packet { id: META, .. }) => {
            (b, a, mirrored(op))
        }
        _ => (a, b, op),
    };
    let Reg::Packet { id, off, .. } = pointer else { return };
    let fits = match limit {
        Reg::End => id != META,
        Reg::Packet { id: DATA, off: 0, .. } => id == META,
        _ => false,
    };
    match op {
        jmp::JLE | jmp::JEQ if fits => s.prove(id, off),
        jmp::JLT if fits => s.prove(id, off + 1),
        _ => {}
    }
}

/// Replaces each lookup result `id` by 0 if `null`, otherwise by a valid pointer, after the
/// comparison with null.
fn resolve(s: &mut State, id: u32, null: bool) {
    s.each(|reg| {
        if let Reg::MaybeValue { map, id: i } = *reg
            && i == id
        {
            *reg = if null { Reg::constant(0) } else { Reg::Value { map, least: 0, most: 0 } };
        }
    });
}
