//! Calls of helpers with suitable arguments.

use super::{ADD, Generator, Likely, MOV, ST, op};
use crate::helper;
use crate::insn::{Insn, LDDW, PSEUDO_MAP, X, alu, class, jmp};

impl Generator<'_> {
    /// Sets r1 to a map and r2 to a key on the stack.
    pub(super) fn key(&mut self) {
        let map = [0, 1, 1, 3, 1, 3, 0, 2][usize::from(self.below(8))];
        let key = i32::from(self.below(4));
        if !self.rarely() {
            self.push(op(ST, 10, 0, -8, key));
        }
        self.push(op(LDDW, 1, PSEUDO_MAP, 0, map));
        self.push(Insn::default());
        self.push(op(MOV | X, 2, 10, 0, 0));
        let by = if self.rarely() { -4 } else { -8 };
        self.push(op(ADD, 2, 0, 0, by));
        if self.rarely() {
            self.jump(op(class::JMP | jmp::JEQ, 1, 0, 0, 0));
        }
    }

    pub(super) fn call(&mut self, number: i32) {
        self.push(op(class::JMP | jmp::CALL, 0, 0, 0, number));
        for reg in 0..6 {
            self.set(reg, Likely::Nothing);
        }
        self.set(0, Likely::Number);
    }

    pub(super) fn lookup(&mut self) {
        self.key();
        self.call(helper::MAP_LOOKUP);
        self.set(0, Likely::Found);
        if self.below(3) == 0 {
            let to = 7 + self.below(3);
            self.push(op(MOV | X, to, 0, 0, 0));
            self.set(to, Likely::Found);
        }
        if self.byte() < 200 {
            self.found();
        }
    }

    pub(super) fn found(&mut self) {
        let Some(r) = self.find(Likely::Found) else { return self.lookup() };
        self.out(op(class::JMP | jmp::JEQ, r, 0, 0, 0));
        for reg in 0..10 {
            if self.regs[reg] == Likely::Found {
                self.regs[reg] = Likely::Value;
            }
        }
    }

    pub(super) fn adjust(&mut self) {
        let which = [helper::ADJUST_HEAD, helper::ADJUST_META, helper::ADJUST_TAIL];
        let number = which[usize::from(self.below(3))];
        self.push(op(MOV | X, 1, 6, 0, 0));
        let by = i32::from(self.below(33)) - 16;
        let by = if number == helper::ADJUST_META { by & !3 } else { by };
        self.push(op(MOV, 2, 0, 0, by));
        self.call(number);
        for reg in 0..10 {
            if matches!(self.regs[reg], Likely::Packet | Likely::End) && !self.rarely() {
                self.regs[reg] = Likely::Nothing;
            }
        }
        if self.byte() < 200 {
            self.reload();
        }
    }

    /// Sets `reg` to a memory pointer, and the next register to a size.
    pub(super) fn memory(&mut self, reg: u8) {
        let kinds = [Likely::Value, Likely::Packet];
        let size = match self.find(Likely::Number) {
            Some(n) if self.below(4) == 0 => {
                self.push(op(class::ALU64 | alu::AND, n, 0, 0, 15));
                self.push(op(MOV | X, reg + 1, n, 0, 0));
                15
            }
            _ => {
                let n = i32::from(self.below(28)) & if self.below(2) == 0 { !3 } else { !0 };
                self.push(op(MOV, reg + 1, 0, 0, n));
                n
            }
        };
        match self.any_of(&kinds).filter(|p| *p > 5 || *p > reg + 1) {
            Some(p) if self.below(3) == 0 => self.push(op(MOV | X, reg, p, 0, 0)),
            _ => {
                self.push(op(MOV | X, reg, 10, 0, 0));
                let room = (size + 7) & !7;
                let more = 8 * i32::from(self.below(2));
                self.push(op(ADD, reg, 0, 0, -room - more));
            }
        }
    }

    pub(super) fn bytes_helper(&mut self) {
        let to_frame = self.below(2) == 0;
        self.memory(3);
        self.push(op(MOV | X, 1, 6, 0, 0));
        let offset = self.below(40).into();
        self.push(op(MOV, 2, 0, 0, offset));
        self.call(if to_frame { helper::STORE_BYTES } else { helper::LOAD_BYTES });
    }

    pub(super) fn other_helper(&mut self) {
        match self.below(6) {
            0 => self.call(helper::KTIME),
            1 => self.call(helper::PROCESSOR),
            2 => {
                self.push(op(MOV | X, 1, 6, 0, 0));
                self.call(helper::BUFF_LEN);
            }
            3 => {
                self.key();
                self.call(helper::MAP_DELETE);
            }
            4 => {
                self.push(op(MOV, 5, 0, 0, 77));
                self.memory(3);
                self.memory(1);
                self.call(helper::CSUM_DIFF);
            }
            _ => {
                self.push(op(ST | 0x18, 10, 0, -24, 99));
                self.push(op(ST | 0x18, 10, 0, -16, 98));
                self.key();
                self.push(op(MOV | X, 3, 10, 0, 0));
                let by = if self.rarely() { -8 } else { -24 };
                self.push(op(ADD, 3, 0, 0, by));
                let flags = self.below(4).into();
                self.push(op(MOV, 4, 0, 0, flags));
                self.call(helper::MAP_UPDATE);
            }
        }
    }
}
