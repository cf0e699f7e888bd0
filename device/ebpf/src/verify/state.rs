//! Known state of a program at one instruction, on one path.

use super::range::Range;

/// Content of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reg {
    /// Not initialized, or unknown and not usable.
    Uninit,
    /// A number. Numbers with the same nonzero `id` are equal.
    Scalar { range: Range, id: u32 },
    /// The context: the argument of the program.
    Ctx,
    /// Address `off` bytes after the base `id`, which is `least` to `most` bytes after the start of
    /// the packet.
    Packet { id: u32, off: i32, least: i32, most: i32 },
    /// Address of the packet's end.
    End,
    /// Stack address; `off` is its offset from the end of the stack, zero or negative.
    Stack { off: i32 },
    /// A map.
    Map { number: u32 },
    /// Address `least` to `most` bytes after the start of a map value.
    Value { map: u32, least: i64, most: i64 },
    /// Address of a map value, or null. Results with the same `id` are equal.
    MaybeValue { map: u32, id: u32 },
}

/// Id of the base `data` of packet pointers.
pub(super) const DATA: u32 = 0;
/// Id of the base `data_meta` of packet pointers.
pub(super) const META: u32 = 1;
const FIRST_ID: u32 = 2;
/// Number of slots of 8 bytes in the stack.
pub(super) const SLOTS: usize = 64;

impl Reg {
    pub(super) const ANY: Self = Self::Scalar { range: Range::ANY, id: 0 };

    pub(super) fn scalar(range: Range) -> Self {
        Self::Scalar { range, id: 0 }
    }

    pub(super) fn constant(n: u64) -> Self {
        Self::scalar(Range::exactly(n))
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Uninit => "nothing",
            Self::Scalar { .. } => "a number",
            Self::Ctx => "the context",
            Self::Packet { .. } => "a packet pointer",
            Self::End => "data_end",
            Self::Stack { .. } => "a stack pointer",
            Self::Map { .. } => "a map",
            Self::Value { .. } => "a map value",
            Self::MaybeValue { .. } => "a map value that may be null",
        }
    }
}

/// Eight bytes of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// Bit mask of the initialized bytes.
    pub(super) written: u8,
    /// Register that was saved to all eight bytes; `Uninit` if none.
    pub(super) saved: Reg,
}

impl Slot {
    pub(super) fn holds_pointer(self) -> bool {
        !matches!(self.saved, Reg::Scalar { .. } | Reg::Uninit)
    }

    /// Records that a part of the slot is overwritten by a number. The other bytes of a pointer
    /// become uninitialized.
    pub(super) fn touch(&mut self) {
        if self.holds_pointer() {
            self.written = 0;
        }
        self.saved = Reg::Uninit;
    }

    /// True if every verified use of this slot is valid for `other` too.
    fn covers(self, other: Self, same: &mut Same) -> bool {
        // Accept any `other` if no byte is initialized here: the verified program reads none of
        // these bytes.
        self.written == 0
            || other.written & self.written == self.written
                && if self.saved == Reg::Uninit {
                    !other.holds_pointer()
                } else {
                    same.covers(self.saved, other.saved)
                }
    }
}

const EMPTY: Slot = Slot { written: 0, saved: Reg::Uninit };

#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(super) regs: [Reg; 11],
    pub(super) stack: [Slot; SLOTS],
    /// Number of bytes after each base that are proven to be inside the packet.
    proven: Vec<(u32, i32)>,
    next_id: u32,
}

impl State {
    /// Contents of the registers, for diagnostics.
    pub(crate) fn registers(&self) -> String {
        format!("{:x?}", self.regs)
    }

    pub(super) fn start() -> Self {
        let mut regs = [Reg::Uninit; 11];
        regs[1] = Reg::Ctx;
        regs[10] = Reg::Stack { off: 0 };
        Self { regs, stack: [EMPTY; SLOTS], proven: Vec::new(), next_id: FIRST_ID }
    }

    pub(super) fn new_id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    /// Number of bytes after base `id` that are proven to be inside the packet.
    pub(super) fn proven(&self, id: u32) -> i32 {
        self.proven.iter().find(|(i, _)| *i == id).map_or(0, |(_, n)| *n)
    }

    pub(super) fn prove(&mut self, id: u32, bytes: i32) {
        match self.proven.iter_mut().find(|(i, _)| *i == id) {
            Some((_, n)) => *n = bytes.max(*n),
            None if bytes > 0 => self.proven.push((id, bytes)),
            None => {}
        }
    }

    pub(super) fn each(&mut self, mut change: impl FnMut(&mut Reg)) {
        self.regs.iter_mut().for_each(&mut change);
        self.stack.iter_mut().for_each(|slot| change(&mut slot.saved));
    }

    /// Invalidates all packet pointers.
    pub(super) fn forget_packet(&mut self) {
        self.proven.clear();
        self.regs.iter_mut().for_each(|reg| {
            if matches!(reg, Reg::Packet { .. } | Reg::End) {
                *reg = Reg::Uninit;
            }
        });
        for slot in &mut self.stack {
            if matches!(slot.saved, Reg::Packet { .. } | Reg::End) {
                *slot = EMPTY;
            }
        }
    }

    /// Sets the range of a number, and of all numbers equal to it.
    pub(super) fn narrow(&mut self, reg: usize, range: Range) {
        let Reg::Scalar { id, .. } = self.regs[reg] else { return };
        self.regs[reg] = Reg::Scalar { range, id };
        if id != 0 {
            self.each(|other| {
                if matches!(other, Reg::Scalar { id: i, .. } if *i == id) {
                    *other = Reg::Scalar { range, id };
                }
            });
        }
    }

    /// Removes irrelevant knowledge: dead registers, and ids that only one number has.
    pub(super) fn simplify(&mut self, live: u16) {
        for (i, reg) in self.regs.iter_mut().enumerate().take(10) {
            if live >> i & 1 == 0 {
                *reg = Reg::Uninit;
            }
        }
        let mut seen: Vec<(u32, u32)> = Vec::new();
        self.each(|reg| {
            if let Reg::Scalar { id, .. } = reg
                && *id != 0
            {
                match seen.iter_mut().find(|(i, _)| i == id) {
                    Some((_, n)) => *n += 1,
                    None => seen.push((*id, 1)),
                }
            }
        });
        self.each(|reg| {
            if let Reg::Scalar { id, .. } = reg
                && seen.contains(&(*id, 1))
            {
                *id = 0;
            }
        });
    }

    /// True if every concrete state of `other` is also a concrete state of `self`. The proof for
    /// `self` then holds for `other` too.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let mut same = Same { pairs: vec![(DATA, DATA), (META, META)] };
        let regs = self.regs.iter().zip(&other.regs);
        let slots = self.stack.iter().zip(&other.stack);
        regs.into_iter().all(|(a, b)| same.covers(*a, *b))
            && slots.into_iter().all(|(a, b)| a.covers(*b, &mut same))
            && same.pairs.iter().all(|&(a, b)| self.proven(a) <= other.proven(b))
    }
}

/// Correspondence of ids in two states.
struct Same {
    pairs: Vec<(u32, u32)>,
}

impl Same {
    fn ids(&mut self, a: u32, b: u32) -> bool {
        match self.pairs.iter().find(|(x, y)| *x == a || *y == b) {
            Some(&(x, y)) => x == a && y == b,
            None => {
                self.pairs.push((a, b));
                true
            }
        }
    }

    fn covers(&mut self, a: Reg, b: Reg) -> bool {
        match (a, b) {
            (Reg::Uninit, _) => true,
            (Reg::Scalar { range: x, id: i }, Reg::Scalar { range: y, id: j }) => {
                x.contains(y) && (i == 0 || j != 0 && self.ids(i, j))
            }
            (
                Reg::Packet { id: i, off: x, least: l, most: m },
                Reg::Packet { id: j, off: y, least: n, most: o },
            ) => x == y && l <= n && o <= m && self.ids(i, j),
            (
                Reg::Value { map: x, least: l, most: m },
                Reg::Value { map: y, least: n, most: o },
            ) => x == y && l <= n && o <= m,
            (Reg::MaybeValue { map: x, id: i }, Reg::MaybeValue { map: y, id: j }) => {
                x == y && self.ids(i, j)
            }
            (a, b) => a == b,
        }
    }
}
