//! Generator of programs from arbitrary bytes. Most code resembles that of a compiler, with
//! frequent small errors.

mod helpers;

use crate::insn::{Insn, LDDW, PSEUDO_VALUE, X, alu, atomic, class, jmp};

const MOV: u8 = class::ALU64 | alu::MOV;
const ADD: u8 = class::ALU64 | alu::ADD;
const LDX: u8 = 0x61;
const ST: u8 = 0x62;
const STX: u8 = 0x63;

const COMPARISONS: [u8; 11] = [
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
];
const OPERATIONS: [u8; 13] = [
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
];

const ATOMICS: [i32; 10] = [
    atomic::ADD,
    atomic::OR,
    atomic::AND,
    atomic::XOR,
    atomic::ADD | atomic::FETCH,
    atomic::OR | atomic::FETCH,
    atomic::AND | atomic::FETCH,
    atomic::XOR | atomic::FETCH,
    atomic::XCHG,
    atomic::CMPXCHG,
];

fn op(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
    Insn { code, dst, src, off, imm }
}

/// Probable content of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Likely {
    Nothing,
    Number,
    Context,
    Packet,
    End,
    Value,
    Found,
    Stack,
}

pub(super) struct Generator<'a> {
    bytes: std::slice::Iter<'a, u8>,
    insns: Vec<Insn>,
    regs: [Likely; 11],
    /// Positions of jumps to the end.
    outs: Vec<usize>,
    /// Positions of jumps over the next parts, and the number of parts that each still has to skip.
    skips: Vec<(usize, u8)>,
}

impl<'a> Generator<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let mut regs = [Likely::Nothing; 11];
        (regs[1], regs[10]) = (Likely::Context, Likely::Stack);
        let bytes = bytes.iter();
        Self { bytes, insns: Vec::new(), regs, outs: Vec::new(), skips: Vec::new() }
    }

    fn byte(&mut self) -> u8 {
        self.bytes.next().copied().unwrap_or(0)
    }

    fn below(&mut self, n: u8) -> u8 {
        self.byte() % n
    }

    fn rarely(&mut self) -> bool {
        self.byte() >= 248
    }

    fn number(&mut self) -> i32 {
        match self.below(8) {
            0..=4 => self.below(70).into(),
            5 => -i32::from(self.below(20)),
            6 => [i32::MAX, i32::MIN, -1, 0xffff, 0x10000, 512][usize::from(self.below(6))],
            _ => i32::from_le_bytes([0; 4].map(|_: u8| self.byte())),
        }
    }

    fn push(&mut self, insn: Insn) {
        self.insns.push(insn);
    }

    /// Finds a register that probably holds `what`.
    fn find(&mut self, what: Likely) -> Option<u8> {
        let from = self.below(11);
        (0..11).map(|i| (from + i) % 11).find(|r| self.regs[usize::from(*r)] == what)
    }

    fn any_of(&mut self, what: &[Likely]) -> Option<u8> {
        let from = usize::from(self.byte());
        (0..what.len()).find_map(|i| self.find(what[(from + i) % what.len()]))
    }

    fn set(&mut self, reg: u8, what: Likely) {
        if let Some(r) = self.regs.get_mut(usize::from(reg))
            && reg < 10
        {
            *r = what;
        }
    }

    /// Selects a destination register; rarely r6, which holds the context.
    fn target(&mut self) -> u8 {
        let reg = self.below(10);
        if reg == 6 && !self.rarely() { 7 } else { reg }
    }

    fn sized(&mut self, code: u8) -> (u8, i16) {
        let n = self.below(4);
        (code & !0x18 | [0x10, 0x08, 0x00, 0x18][usize::from(n)], [1, 2, 4, 8][usize::from(n)])
    }

    fn reload(&mut self) {
        let (data, end) = (2 + self.below(2), 4 + self.below(2));
        let field = if self.rarely() { 8 } else { 0 };
        self.push(op(LDX, data, 6, field, 0));
        self.push(op(LDX, end, 6, 4, 0));
        self.set(data, Likely::Packet);
        self.set(end, Likely::End);
    }

    /// Generates the program, which ends with `exit`.
    pub(super) fn program(mut self) -> Vec<Insn> {
        self.push(op(MOV | X, 6, 1, 0, 0));
        self.set(6, Likely::Context);
        self.reload();
        self.push(op(MOV, 7, 0, 0, 5));
        self.set(7, Likely::Number);
        self.push(op(MOV, 0, 0, 0, 2));
        self.set(0, Likely::Number);
        self.opening();
        let pieces = 3 + self.below(22);
        for _ in 0..pieces {
            self.piece();
            let here = self.insns.len();
            for i in (0..self.skips.len()).rev() {
                self.skips[i].1 -= 1;
                if self.skips[i].1 == 0 {
                    let (at, _) = self.skips.swap_remove(i);
                    self.insns[at].off = (here - at - 1) as i16;
                }
            }
        }
        let last = self.insns.len();
        if !self.rarely() {
            let action = i32::from(self.below(6));
            self.push(op(MOV, 0, 0, 0, action));
        }
        self.push(op(class::JMP | jmp::EXIT, 0, 0, 0, 0));
        for at in self.outs.iter().copied().chain(self.skips.iter().map(|s| s.0)) {
            self.insns[at].off = (last - at - 1) as i16;
        }
        self.corrupt();
        self.insns
    }

    /// Emits a prologue that later parts need: a minimum frame length, and numbers on the stack.
    fn opening(&mut self) {
        if self.byte() < 210
            && let (Some(p), Some(end)) = (self.find(Likely::Packet), self.find(Likely::End))
        {
            let n = 16 + self.below(24);
            self.push(op(MOV | X, 8, p, 0, 0));
            self.push(op(ADD, 8, 0, 0, n.into()));
            self.out(op(class::JMP | jmp::JGT | X, 8, end, 0, 0));
            self.set(8, Likely::Packet);
            self.push(op(LDX, 8, p, 4, 0));
            self.set(8, Likely::Number);
        }
        if self.byte() < 210 {
            for slot in 1..=6 {
                let n = self.number();
                self.push(op(ST | 0x18, 10, 0, -8 * slot, n));
            }
        }
        self.value();
    }

    /// Selects a source register that is probably initialized.
    fn source(&mut self) -> u8 {
        let r = self.below(11);
        let from = self.below(10);
        if self.regs[usize::from(r)] != Likely::Nothing || self.rarely() {
            return r;
        }
        let full = |r: &u8| self.regs[usize::from(*r)] != Likely::Nothing;
        (0..11).map(|i| (from + i) % 11).find(full).unwrap_or(r)
    }

    /// Emits a loop of one to three parts.
    fn repeat(&mut self) {
        let count = [7, 9][usize::from(self.below(2))];
        self.push(op(MOV, count, 0, 0, 0));
        self.set(count, Likely::Nothing);
        let at = self.insns.len();
        for _ in 0..1 + self.below(3) {
            match self.below(5) {
                0 => self.arithmetic(),
                1 => self.access(Likely::Value, 40),
                2 => self.move_pointer(),
                3 => self.stack(),
                _ => self.access(Likely::Packet, 20),
            }
        }
        let n = 1 + i32::from(self.below(6));
        self.push(op(ADD, count, 0, 0, 1));
        let off = at as i16 - self.insns.len() as i16 - 1;
        self.push(op(class::JMP | jmp::JLT, count, 0, off, n));
        self.set(count, Likely::Number);
    }

    /// Modifies one instruction in few programs.
    fn corrupt(&mut self) {
        if self.byte() < 235 {
            return;
        }
        let at = usize::from(self.byte()) % self.insns.len();
        let (what, by) = (self.below(5), self.byte());
        let insn = &mut self.insns[at];
        match what {
            0 => insn.code ^= 1 << (by % 8),
            1 => insn.dst = by % 11,
            2 => insn.src = by % 11,
            3 => insn.off = insn.off.wrapping_add(i16::from(by as i8)),
            _ => insn.imm = insn.imm.wrapping_add(i32::from(by as i8)),
        }
    }

    fn piece(&mut self) {
        match self.below(25) {
            0..=2 => self.arithmetic(),
            3 => self.mask(),
            4 | 5 => self.bounds(),
            6 | 7 => self.access(Likely::Packet, 40),
            8 | 9 => self.access(Likely::Value, 66),
            10 | 11 => self.stack(),
            12 => self.value(),
            13 => self.lookup(),
            14 => self.found(),
            15 | 16 => self.compare(),
            17 => self.copy_register(),
            18 | 19 => self.move_pointer(),
            20 => self.adjust(),
            21 => self.bytes_helper(),
            22 => self.other_helper(),
            23 => self.repeat(),
            _ => self.rare(),
        }
    }

    fn arithmetic(&mut self) {
        let Some(d) = self.find(Likely::Number) else { return };
        let wide = self.below(2) == 0;
        let class = if wide { class::ALU64 } else { class::ALU };
        if self.below(12) == 0 {
            let x = if self.below(2) == 0 { X } else { 0 };
            let bits = [16, 32, 64][usize::from(self.below(3))];
            return self.push(op(class::ALU | alu::END | x, d, 0, 0, bits));
        }
        let o = OPERATIONS[usize::from(self.below(13))];
        match self.find(Likely::Number) {
            Some(s) if o != alu::NEG && self.below(2) == 0 => {
                self.push(op(class | o | X, d, s, 0, 0));
            }
            _ => {
                let imm = self.number();
                let shift = matches!(o, alu::LSH | alu::RSH | alu::ARSH);
                let imm = if shift { imm & if wide { 63 } else { 31 } } else { imm };
                let divides = matches!(o, alu::DIV | alu::MOD);
                self.push(op(class | o, d, 0, 0, if divides && imm == 0 { 7 } else { imm }));
            }
        }
    }

    /// Limits a number before its use as an offset.
    fn mask(&mut self) {
        let Some(d) = self.find(Likely::Number) else { return };
        let class = if self.below(2) == 0 { class::ALU64 } else { class::ALU };
        let imm = [7, 15, 31, 63, 24, 48][usize::from(self.below(6))];
        self.push(op(class | alu::AND, d, 0, 0, imm));
    }

    fn compare(&mut self) {
        let Some(d) = self.find(Likely::Number) else { return };
        let class = if self.below(3) == 0 { class::JMP32 } else { class::JMP };
        let o = COMPARISONS[usize::from(self.below(11))];
        let insn = match self.find(Likely::Number) {
            Some(s) if self.below(3) == 0 => op(class | o | X, d, s, 0, 0),
            _ => op(class | o, d, 0, 0, self.number()),
        };
        self.jump(insn);
    }

    /// Emits a jump to the end, over the next parts, or backwards.
    fn jump(&mut self, insn: Insn) {
        let at = self.insns.len();
        match self.below(6) {
            0..=3 => self.outs.push(at),
            4 => {
                let n = 1 + self.below(3);
                // Count the current part as well.
                self.skips.push((at, n + 1));
            }
            _ => {
                let back = i16::from(self.below(12)).min(at as i16);
                return self.push(Insn { off: -1 - back, ..insn });
            }
        }
        self.push(insn);
    }

    fn bounds(&mut self) {
        let (Some(p), Some(end)) = (self.find(Likely::Packet), self.find(Likely::End)) else {
            return self.reload();
        };
        let to = self.target();
        if to == end {
            return;
        }
        self.push(op(MOV | X, to, p, 0, 0));
        self.set(to, Likely::Packet);
        let n = if self.rarely() { self.number() } else { self.below(48).into() };
        self.push(op(ADD, to, 0, 0, n));
        let right = [jmp::JGT, jmp::JGE, jmp::JGT, jmp::JEQ, jmp::JNE, jmp::JSGT];
        let o = if self.rarely() { self.below(14) << 4 } else { right[usize::from(self.below(6))] };
        let insn = if self.below(3) == 0 {
            let mirrored = if o == jmp::JGT { jmp::JLT } else { o };
            op(class::JMP | mirrored | X, end, to, 0, 0)
        } else {
            op(class::JMP | o | X, to, end, 0, 0)
        };
        if self.below(4) == 0 { self.jump(insn) } else { self.out(insn) }
    }

    fn out(&mut self, insn: Insn) {
        self.outs.push(self.insns.len());
        self.push(insn);
    }

    fn access(&mut self, what: Likely, most: u8) {
        let Some(p) = self.find(what) else {
            return if what == Likely::Value { self.value() } else { self.bounds() };
        };
        let near = if self.below(8) == 0 { self.below(most) } else { self.below(12) };
        let off = i16::from(near) - i16::from(self.rarely()) * 16;
        match self.below(8) {
            0..=3 => {
                let (code, _) = self.sized(LDX);
                let d = self.target();
                self.push(op(code, d, p, off, 0));
                self.set(d, Likely::Number);
            }
            4..=6 => {
                let (code, _) = self.sized(STX);
                let kinds = [Likely::Number, Likely::Number, Likely::Number, Likely::Value];
                let kind = if self.rarely() { kinds[3] } else { kinds[0] };
                let Some(s) = self.find(kind) else { return };
                self.push(op(code, p, s, off, 0));
            }
            _ if what == Likely::Value => self.atomic(p, off),
            _ => {
                let (code, _) = self.sized(ST);
                let imm = self.number();
                self.push(op(code, p, 0, off, imm));
            }
        }
    }

    fn atomic(&mut self, p: u8, off: i16) {
        let Some(s) = self.find(Likely::Number) else { return };
        let code = if self.below(2) == 0 { 0xdb } else { 0xc3 };
        let off = if self.rarely() { off } else { off & !7 };
        let imm = ATOMICS[usize::from(self.below(10))];
        self.push(op(code, p, s, off, imm));
    }

    fn stack(&mut self) {
        let slot = if self.below(6) == 0 { self.below(64) } else { self.below(5) };
        let mut off = -8 * (i16::from(slot) + 1);
        let (mut code, mut n) = self.sized(STX);
        if self.below(2) == 0 {
            (code, n) = (STX | 0x18, 8);
        }
        if n < 8 || self.rarely() {
            off += i16::from(self.below(9));
        }
        match self.below(7) {
            0 | 1 => {
                let d = self.target();
                let what =
                    if n == 8 { self.regs[usize::from(self.below(11))] } else { Likely::Number };
                self.push(op(LDX & !0x18 | code & 0x18, d, 10, off, 0));
                self.set(d, if what == Likely::Nothing { Likely::Number } else { what });
            }
            2 => {
                let imm = self.number();
                self.push(op(ST & !0x18 | code & 0x18, 10, 0, off, imm));
            }
            3 => self.atomic(10, off),
            _ => {
                let s = if n == 8 { Some(self.source()) } else { self.find(Likely::Number) };
                self.push(op(code, 10, s.unwrap_or(10), off, 0));
            }
        }
    }

    /// Emits the address of a map value.
    fn value(&mut self) {
        let d = self.target();
        let map = if self.below(8) == 0 { 2 } else { 0 };
        let off = i32::from(self.below(24)) & !(if self.rarely() { 0 } else { 7 });
        self.push(op(LDDW, d, PSEUDO_VALUE, 0, map));
        self.push(Insn { imm: off, ..Insn::default() });
        self.set(d, Likely::Value);
    }

    fn copy_register(&mut self) {
        let (d, s) = (self.target(), self.source());
        let what = self.regs[usize::from(s)];
        let narrow = what == Likely::Number && self.below(3) == 0;
        let code = if narrow { class::ALU | alu::MOV | X } else { MOV | X };
        self.push(op(code, d, s, 0, 0));
        self.set(d, what);
    }

    fn move_pointer(&mut self) {
        let Some(p) = self.any_of(&[Likely::Packet, Likely::Value]) else { return };
        let d = self.target();
        let what = self.regs[usize::from(p)];
        let n = self.find(Likely::Number).filter(|n| *n != d);
        self.push(op(MOV | X, d, p, 0, 0));
        self.set(d, what);
        let o = if self.below(6) == 0 { alu::SUB } else { alu::ADD };
        match n {
            Some(n) if self.below(3) > 0 => {
                if self.below(3) > 0 {
                    self.push(op(class::ALU64 | alu::AND, n, 0, 0, 31));
                }
                self.push(op(class::ALU64 | o | X, d, n, 0, 0));
            }
            _ => {
                let by = self.below(24).into();
                self.push(op(class::ALU64 | o, d, 0, 0, by));
            }
        }
    }

    fn rare(&mut self) {
        let (d, s) = (self.below(11), self.below(11));
        match self.below(6) {
            0 => {
                let field = 4 * i16::from(self.below(7));
                let to = self.target();
                self.push(op(LDX, to, 6, field, 0));
                self.set(to, Likely::Number);
            }
            1 => self.out(op(class::JMP | jmp::JGT | X, d, s, 0, 0)),
            2 => self.jump(op(class::JMP | jmp::JEQ, d, 0, 0, 0)),
            3 => {
                self.push(op(class::ALU64 | alu::SUB | X, d, s, 0, 0));
                self.set(d, Likely::Number);
            }
            4 => {
                let (low, high) = (self.number(), self.number());
                let to = self.target();
                self.push(op(LDDW, to, 0, 0, low));
                self.push(Insn { imm: high, ..Insn::default() });
                self.set(to, Likely::Number);
            }
            _ => self.jump(op(class::JMP | jmp::JA, 0, 0, 0, 0)),
        }
    }
}
