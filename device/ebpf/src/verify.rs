//! Verifier: proves that a program stays inside its memory and terminates.
//!
//! The verifier walks every path with the known state of each register: a number with bounds, or a
//! pointer into one kind of memory with bounds of its offset. An access is allowed only if its
//! whole possible range is inside that memory. A path is pruned if a completely explored earlier
//! state at the same instruction covers the path's state.

mod access;
mod alu;
mod branch;
mod call;
pub(crate) mod claims;
mod live;
mod range;
mod state;

use std::collections::VecDeque;

use crate::insn::{INSNS_MAX, Insn, LDDW, MODE_MEM, PSEUDO_MAP, PSEUDO_VALUE, atomic, class, jmp};
use crate::map::MapDef;
pub(crate) use live::registers as live_registers;
use range::Range;
use state::Reg;
pub(crate) use state::State;

/// Maximum number of instructions that the verifier walks over all paths.
const WALK_MAX: u32 = 1_000_000;
/// Maximum number of remembered states per instruction, which bounds the memory.
const STATES_MAX: usize = 16;
/// Maximum number of remembered states in total.
const ALL_STATES_MAX: usize = 16384;
/// Maximum number of pending paths, which bounds the memory.
const PATHS_MAX: usize = 4096;

/// Reason why a program is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("insn {at}: {insn}: {why}")]
pub struct VerifyError {
    /// Index of the instruction.
    pub at: usize,
    /// Text of the instruction.
    pub insn: String,
    /// Violated rule.
    pub why: String,
}

/// Kind of memory that an instruction accesses, the same on every path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The instruction is unreachable or accesses no memory.
    Unknown,
    /// A field of the context. At run time, the context has another layout.
    Context,
    /// Any other memory.
    Memory,
}

/// Properties of a verified program.
#[derive(Clone, Debug)]
pub(crate) struct Proof {
    pub(crate) kinds: Vec<Kind>,
    /// True for each reachable instruction.
    pub(crate) reached: Vec<bool>,
    /// Lowest used stack offset, relative to the frame pointer.
    pub(crate) deepest: i32,
    /// Number of walked instructions.
    pub(crate) walked: u32,
}

struct Remembered {
    state: State,
    node: usize,
}

/// A branching point of a path, with the number of its open continuations.
struct Node {
    parent: usize,
    open: u32,
}

struct Path {
    at: usize,
    state: State,
    node: usize,
}

pub(crate) struct Verifier<'a> {
    insns: &'a [Insn],
    maps: &'a [MapDef],
    /// True for the second slot of each wide instruction.
    halves: Vec<bool>,
    kinds: Vec<Kind>,
    reached: Vec<bool>,
    deepest: i32,
}

/// Continuation of a path after an instruction.
enum Next {
    Step,
    Goto(usize),
    /// Two continuations: the next instruction, and the given one with the given state.
    Fork(usize, Box<State>),
    End,
}

/// Verifies a program. Returns its properties or the violated rule.
pub(crate) fn verify(insns: &[Insn], maps: &[MapDef]) -> Result<Proof, VerifyError> {
    verify_watched(insns, maps, WALK_MAX, &mut |_, _| {})
}

/// Verifies a program with at most `most` steps, and calls `watch` with the claimed state before
/// each instruction.
pub(crate) fn verify_watched(
    insns: &[Insn],
    maps: &[MapDef],
    most: u32,
    watch: &mut dyn FnMut(usize, &State),
) -> Result<Proof, VerifyError> {
    let refuse = |at: usize, why: String| {
        let insn = insns.get(at).map_or_else(|| "nothing".to_owned(), Insn::to_string);
        VerifyError { at, insn, why }
    };
    let mut verifier = Verifier {
        insns,
        maps,
        halves: vec![false; insns.len()],
        kinds: vec![Kind::Unknown; insns.len()],
        reached: vec![false; insns.len()],
        deepest: 0,
    };
    verifier.shape().map_err(|(at, why)| refuse(at, why))?;
    let walked = verifier.walk(most, watch).map_err(|(at, why)| refuse(at, why))?;
    let Verifier { kinds, reached, deepest, .. } = verifier;
    Ok(Proof { kinds, reached, deepest, walked })
}

impl Verifier<'_> {
    /// Checks the properties that need no walk.
    fn shape(&mut self) -> Result<(), (usize, String)> {
        let n = self.insns.len();
        if n == 0 || n > INSNS_MAX {
            return Err((0, format!("{n} instructions: must be 1 to {INSNS_MAX}")));
        }
        let mut at = 0;
        while at < n {
            let insn = self.insns[at];
            self.shape_of(insn).map_err(|why| (at, why))?;
            if insn.code == LDDW {
                let half = self.insns.get(at + 1).copied();
                let blank = Insn { imm: 0, ..half.unwrap_or(insn) } == Insn::default();
                if !blank {
                    return Err((at, "lacks its second half".to_owned()));
                }
                self.halves[at + 1] = true;
                at += 1;
            }
            at += 1;
        }
        for at in 0..n {
            if self.insns[at].is_jump() && !self.halves[at] {
                self.target(at).map_err(|why| (at, why))?;
            }
        }
        Ok(())
    }

    fn shape_of(&self, insn: Insn) -> Result<(), String> {
        if insn.dst > 10 || insn.src > 10 {
            return Err("uses a register that does not exist".to_owned());
        }
        let is_memory = matches!(insn.class(), class::LDX | class::ST | class::STX);
        if is_memory && insn.mode() != MODE_MEM && !insn.is_known_atomic() {
            return Err("is not known: compile with -mcpu=v3 or lower".to_owned());
        }
        if insn.class() == class::LD && insn.code != LDDW {
            return Err("reads the packet as classic BPF does, which XDP cannot".to_owned());
        }
        if insn.class() == class::LD && ![0, PSEUDO_MAP, PSEUDO_VALUE].contains(&insn.src) {
            return Err(format!("a 64-bit constant of kind {} is not supported", insn.src));
        }
        if insn.class() == class::JMP32 && matches!(insn.op(), jmp::JA | jmp::CALL | jmp::EXIT) {
            return Err("is not known: compile with -mcpu=v3 or lower".to_owned());
        }
        if insn.is_jump() && insn.op() > jmp::JSLE {
            return Err("is not known".to_owned());
        }
        Ok(())
    }

    fn target(&self, at: usize) -> Result<usize, String> {
        let to = at as i64 + 1 + i64::from(self.insns[at].off);
        let to = usize::try_from(to).ok().filter(|&to| to < self.insns.len());
        let to = to.ok_or_else(|| "jumps out of the program".to_owned())?;
        if self.halves[to] {
            return Err("jumps into the middle of an instruction".to_owned());
        }
        Ok(to)
    }

    /// Records the kind of memory that an instruction accesses; fails if another path recorded
    /// another kind.
    fn always(&mut self, at: usize, kind: Kind) -> Result<(), String> {
        if self.kinds[at] != Kind::Unknown && self.kinds[at] != kind {
            return Err("accesses the context on one path, and other memory on another".to_owned());
        }
        self.kinds[at] = kind;
        Ok(())
    }

    /// Walks every path. Returns the number of steps.
    fn walk(
        &mut self,
        most: u32,
        watch: &mut dyn FnMut(usize, &State),
    ) -> Result<u32, (usize, String)> {
        let live = live_registers(self.insns);
        let joins = self.joins();
        let mut known: Vec<VecDeque<Remembered>> = Vec::new();
        known.resize_with(self.insns.len(), VecDeque::new);
        // Make the root its own parent.
        let mut nodes = vec![Node { parent: 0, open: 1 }];
        let mut paths = vec![Path { at: 0, state: State::start(), node: 0 }];
        let (mut steps, mut remembered) = (0, 0);
        while let Some(mut path) = paths.pop() {
            loop {
                if path.at >= self.insns.len() {
                    let last = self.insns.len() - 1;
                    return Err((last, "the program runs past its end".to_owned()));
                }
                steps += 1;
                if steps > most {
                    let why = format!(
                        "not proven to end: {most} instructions walked (an endless loop, or too \
                         many paths)"
                    );
                    return Err((path.at, why));
                }
                if joins[path.at] {
                    path.state.simplify(live[path.at]);
                    let list = &mut known[path.at];
                    if list.iter().any(|r| nodes[r.node].open == 0 && r.state.covers(&path.state)) {
                        break;
                    }
                    nodes.push(Node { parent: path.node, open: 1 });
                    path.node = nodes.len() - 1;
                    if list.len() >= STATES_MAX {
                        list.pop_front();
                    } else {
                        remembered += 1;
                    }
                    if remembered <= ALL_STATES_MAX {
                        list.push_back(Remembered { state: path.state.clone(), node: path.node });
                    }
                }
                let at = path.at;
                self.reached[at] = true;
                watch(at, &path.state);
                let wide = self.insns[at].code == LDDW;
                match self.step(at, &mut path.state).map_err(|why| (at, why))? {
                    Next::Step => path.at += if wide { 2 } else { 1 },
                    Next::Goto(to) => path.at = to,
                    Next::Fork(to, state) => {
                        if paths.len() >= PATHS_MAX {
                            let why = format!("too many paths: more than {PATHS_MAX} are pending");
                            return Err((at, why));
                        }
                        nodes[path.node].open += 1;
                        paths.push(Path { at: to, state: *state, node: path.node });
                        path.at += 1;
                    }
                    Next::End => break,
                }
            }
            close(&mut nodes, path.node);
        }
        Ok(steps)
    }

    /// True for each instruction that is the target of a jump.
    fn joins(&self) -> Vec<bool> {
        let mut joins = vec![false; self.insns.len()];
        for at in 0..self.insns.len() {
            if self.insns[at].is_jump()
                && !self.halves[at]
                && let Ok(to) = self.target(at)
            {
                joins[to] = true;
            }
        }
        joins
    }

    fn step(&mut self, at: usize, s: &mut State) -> Result<Next, String> {
        let insn = self.insns[at];
        let (d, r) = (usize::from(insn.dst), usize::from(insn.src));
        match insn.class() {
            class::ALU | class::ALU64 => self.alu(s, insn)?,
            class::JMP | class::JMP32 => return self.jump(s, at, insn),
            class::LDX => {
                let base = read(s, r)?;
                let got = self.load(s, at, base, insn.off, insn.size())?;
                write(s, d, got)?;
            }
            class::STX if insn.is_atomic() => self.atomic(s, at, insn)?,
            class::STX => {
                let (base, what) = (read(s, d)?, read(s, r)?);
                self.store(s, at, base, insn.off, insn.size(), what)?;
            }
            class::ST => {
                let base = read(s, d)?;
                let what = Reg::constant(i64::from(insn.imm) as u64);
                self.store(s, at, base, insn.off, insn.size(), what)?;
            }
            _ => {
                let what = self.wide_constant(at, insn)?;
                write(s, d, what)?;
            }
        }
        Ok(Next::Step)
    }

    fn atomic(&mut self, s: &mut State, at: usize, insn: Insn) -> Result<(), String> {
        let base = read(s, insn.dst.into())?;
        let compares = insn.imm == atomic::CMPXCHG;
        for reg in [Some(insn.src), compares.then_some(0)].into_iter().flatten() {
            let Reg::Scalar { .. } = read(s, reg.into())? else {
                return Err("a pointer is an operand of an atomic operation".to_owned());
            };
        }
        if !matches!(base, Reg::Value { .. } | Reg::Stack { .. }) {
            return Err("atomic operations are allowed on map values and the stack only".to_owned());
        }
        let old = self.load(s, at, base, insn.off, insn.size())?;
        debug_assert!(old != Reg::Uninit);
        if !matches!(old, Reg::Scalar { .. }) {
            return Err("an atomic operation changes a pointer on the stack".to_owned());
        }
        let any = Reg::scalar(Range::of_size(insn.size()));
        self.store(s, at, base, insn.off, insn.size(), any)?;
        match insn.fetches() {
            Some(reg) => write(s, reg.into(), any),
            None => Ok(()),
        }
    }

    fn wide_constant(&self, at: usize, insn: Insn) -> Result<Reg, String> {
        let high = self.insns[at + 1].imm;
        let map = |number: i32| {
            let number = u32::try_from(number).ok().filter(|&n| (n as usize) < self.maps.len());
            number.ok_or_else(|| "refers to a map that does not exist".to_owned())
        };
        Ok(match insn.src {
            PSEUDO_MAP => Reg::Map { number: map(insn.imm)? },
            PSEUDO_VALUE => {
                let map = map(insn.imm)?;
                let (off, size) = (i64::from(high), i64::from(self.maps[map as usize].value_size));
                if !(0..=size).contains(&off) {
                    return Err("refers to a variable outside its section".to_owned());
                }
                Reg::Value { map, least: off, most: off }
            }
            _ => Reg::constant(u64::from(high as u32) << 32 | u64::from(insn.imm as u32)),
        })
    }
}

/// Closes one continuation of the node `at`. A node without an open continuation also closes one of
/// its parent.
fn close(nodes: &mut [Node], mut at: usize) {
    loop {
        nodes[at].open -= 1;
        if at == 0 || nodes[at].open > 0 {
            return;
        }
        at = nodes[at].parent;
    }
}

fn read(s: &State, reg: usize) -> Result<Reg, String> {
    match s.regs[reg] {
        Reg::Uninit => Err(format!("r{reg} is read before it is written")),
        known => Ok(known),
    }
}

fn write(s: &mut State, reg: usize, what: Reg) -> Result<(), String> {
    if reg == 10 {
        return Err("r10, the frame pointer, cannot be written".to_owned());
    }
    s.regs[reg] = what;
    Ok(())
}

#[cfg(test)]
mod tests;
