//! Comparison of the verifier's claims with the state of a concrete machine.

use super::state::{DATA, META, Reg, State};

/// State of a machine before an instruction.
pub(crate) struct MachineState<'a> {
    pub(crate) regs: &'a [u64; 11],
    pub(crate) stack: &'a [u8; 512],
    /// True for each initialized byte of the stack.
    pub(crate) written: &'a [bool; 512],
    pub(crate) context: u64,
    pub(crate) data: u64,
    pub(crate) end: u64,
    pub(crate) meta: u64,
    /// Addresses of the values of each map.
    pub(crate) values: &'a [Vec<u64>],
}

/// Ids of a state with their concrete value: a state claims that numbers with one id are equal.
type Same = Vec<(u32, u64)>;

fn same(known: &mut Same, id: u32, value: u64) -> bool {
    match known.iter().find(|(i, _)| *i == id) {
        Some((_, v)) => *v == value,
        None => {
            known.push((id, value));
            true
        }
    }
}

impl MachineState<'_> {
    fn is(&self, state: &State, reg: Reg, value: u64, known: &mut Same) -> bool {
        match reg {
            Reg::Uninit => true,
            Reg::Scalar { range, id } => {
                (range.min..=range.max).contains(&value) && (id == 0 || same(known, id, value))
            }
            Reg::Ctx => value == self.context,
            Reg::End => value == self.end,
            Reg::Packet { id, off, least, most } => {
                let base = value.wrapping_sub(i64::from(off) as u64);
                let (start, limit) =
                    if id == META { (self.meta, self.data) } else { (self.data, self.end) };
                let away = base.wrapping_sub(start) as i64;
                let proven = i64::from(state.proven(id));
                (i64::from(least)..=i64::from(most)).contains(&away)
                    && (proven == 0 || start as i64 + away + proven <= limit as i64)
                    && (id == DATA || id == META || same(known, id, base))
            }
            Reg::Stack { off } => value == self.regs[10].wrapping_add(i64::from(off) as u64),
            Reg::Map { number } => value == u64::from(number) + 1,
            Reg::Value { map, least, most } => self.values[map as usize]
                .iter()
                .any(|start| (least..=most).contains(&(value.wrapping_sub(*start) as i64))),
            Reg::MaybeValue { map, id } => {
                let is_one = value == 0 || self.values[map as usize].contains(&value);
                is_one && same(known, id, value)
            }
        }
    }

    /// True if every claim of `state` holds.
    pub(crate) fn fits(&self, state: &State) -> bool {
        let mut known = Same::new();
        let regs = state.regs.iter().zip(self.regs);
        regs.into_iter().all(|(reg, value)| self.is(state, *reg, *value, &mut known))
            && state.stack.iter().enumerate().all(|(i, slot)| {
                let bytes = &self.stack[8 * i..8 * i + 8];
                let value = bytes.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b));
                let claimed = (0..8).filter(|bit| slot.written >> bit & 1 == 1);
                claimed.into_iter().all(|bit| self.written[8 * i + bit])
                    && self.is(state, slot.saved, value, &mut known)
            })
    }
}
