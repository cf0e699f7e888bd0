//! Inlining of the functions of a program.
//!
//! The verifier checks the output, so that this code need not be trusted. As in the kernel, calls
//! nest at most eight deep, and all frames share 512 bytes of stack.

mod frame;

use crate::error::LoadError;
use crate::insn::{INSNS_MAX, Insn, LDDW, MODE_MEM, PSEUDO_CALL, class, jmp};
use crate::verify::live_registers;
use frame::{bytes, lowered};

/// Maximum call depth.
const DEPTH_MAX: usize = 8;
const STACK: i32 = 512;
const JA: u8 = class::JMP | jmp::JA;
const EXIT: u8 = class::JMP | jmp::EXIT;
const LOAD64: u8 = class::LDX | MODE_MEM | 0x18;
const STORE64: u8 = class::STX | MODE_MEM | 0x18;

fn is_call(insn: Insn) -> bool {
    insn.code == class::JMP | jmp::CALL && insn.src == PSEUDO_CALL
}

struct Inliner<'a> {
    old: &'a [Insn],
    live: Vec<u16>,
    new: Vec<Insn>,
    /// First instruction of each active function.
    active: Vec<usize>,
}

/// Inlines all calls into the function that begins at instruction 0. Fails for recursion, calls
/// that are too deep, frames that are too large, or jumps out of a function.
pub(crate) fn inline(insns: Vec<Insn>) -> Result<Vec<Insn>, LoadError> {
    if !insns.iter().any(|insn| is_call(*insn)) {
        return Ok(insns);
    }
    let live = live_registers(&insns);
    let mut inliner = Inliner { old: &insns, live, new: Vec::new(), active: Vec::new() };
    inliner.function(0, 0)?;
    Ok(inliner.new)
}

impl Inliner<'_> {
    fn bad<T>(&self, at: usize, why: &str) -> Result<T, LoadError> {
        let insn = self.old.get(at).map_or_else(|| "nothing".to_owned(), Insn::to_string);
        Err(LoadError(format!("insn {at}: {insn}: {why}")))
    }

    /// Target of the jump at `at`; `None` if the target is before the program.
    fn target(&self, at: usize) -> Option<usize> {
        usize::try_from(at as i64 + 1 + i64::from(self.old[at].off)).ok()
    }

    fn called(&self, at: usize) -> Result<usize, LoadError> {
        let to = usize::try_from(at as i64 + 1 + i64::from(self.old[at].imm)).ok();
        match to.filter(|to| *to < self.old.len()) {
            Some(to) => Ok(to),
            None => self.bad(at, "calls code outside the program"),
        }
    }

    /// Last reachable instruction of the function at `first`. Fails if the function has no end, or
    /// jumps to before `first`.
    fn last(&self, first: usize) -> Result<usize, LoadError> {
        let (mut last, mut seen) = (first, vec![false; self.old.len()]);
        let mut pending = vec![first];
        while let Some(at) = pending.pop() {
            let Some(&insn) = self.old.get(at) else {
                return self.bad(first, "this function has no end");
            };
            if at < first {
                return self.bad(at, "jumps to before its function");
            }
            if std::mem::replace(&mut seen[at], true) {
                continue;
            }
            let wide = insn.code == LDDW;
            last = last.max(at + usize::from(wide));
            if insn.is_jump() {
                let Some(to) = self.target(at) else {
                    return self.bad(at, "jumps out of the program");
                };
                pending.push(to);
            }
            if insn.code != EXIT && insn.code != JA {
                pending.push(at + if wide { 2 } else { 1 });
            }
        }
        if last >= self.old.len() {
            return self.bad(last, "this function has no end");
        }
        Ok(last)
    }

    /// Emits the function at `first`; its callers use `above` bytes of the stack.
    fn function(&mut self, first: usize, above: i32) -> Result<(), LoadError> {
        let last = self.last(first)?;
        let own = bytes(&self.old[first..=last]);
        self.active.push(first);
        let start = self.new.len();
        let (mut places, mut jumps, mut ends) = (vec![None; last + 1 - first], vec![], vec![]);
        let mut at = first;
        while at <= last {
            let insn = self.old[at];
            places[at - first] = Some(self.new.len());
            if insn.code == LDDW {
                self.new.extend([insn, self.old[at + 1]]);
                at += 1;
            } else if is_call(insn) {
                self.call(at, above + own)?;
            } else if insn.code == EXIT && self.active.len() > 1 {
                ends.push(self.new.len());
                self.new.push(Insn { code: JA, ..Insn::default() });
            } else {
                if insn.is_jump() {
                    jumps.push((at, self.new.len()));
                }
                match lowered(insn, above) {
                    Ok(insns) => self.new.extend(insns),
                    Err(why) => return self.bad(at, why),
                }
            }
            if self.new.len() > INSNS_MAX {
                let most =
                    format!("more than {INSNS_MAX} instructions with all functions in place");
                return self.bad(first, &most);
            }
            at += 1;
        }
        let end = self.new.len();
        ends.into_iter().for_each(|at| self.new[at].off = (end - at - 1) as i16);
        for (at, new) in jumps {
            let to = self.target(at).and_then(|to| *places.get(to.checked_sub(first)?)?);
            let Some(to) = to else { return self.bad(at, "jumps out of its function") };
            self.new[new].off = (to as i64 - new as i64 - 1) as i16;
        }
        debug_assert!(start <= end);
        self.active.pop();
        Ok(())
    }

    /// Emits the callee of the call at `at`, between instructions that save and restore the
    /// caller's live registers r6 to r9.
    fn call(&mut self, at: usize, used: i32) -> Result<(), LoadError> {
        let to = self.called(at)?;
        if self.active.contains(&to) {
            return self.bad(at, "a function calls itself, directly or through others");
        }
        if self.active.len() >= DEPTH_MAX {
            return self.bad(at, "calls are nested deeper than 8 functions");
        }
        let live = self.live.get(at + 1).copied().unwrap_or(0);
        let kept: Vec<u8> = (6..10u8).filter(|r| live >> r & 1 == 1).collect();
        let used_then = used + 8 * kept.len() as i32;
        if used_then > STACK {
            return self.bad(at, "the functions use more than 512 bytes of stack together");
        }
        let place = |i: usize| (-used - 8 * (i as i32 + 1)) as i16;
        for (i, reg) in kept.iter().enumerate() {
            let off = place(i);
            self.new.push(Insn { code: STORE64, dst: 10, src: *reg, off, imm: 0 });
        }
        self.function(to, used_then)?;
        for (i, reg) in kept.iter().enumerate() {
            let off = place(i);
            self.new.push(Insn { code: LOAD64, dst: *reg, src: 10, off, imm: 0 });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
