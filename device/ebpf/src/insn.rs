//! One eBPF instruction (RFC 9669), and its text.

use std::fmt;

/// Maximum number of instructions of a program.
pub(crate) const INSNS_MAX: usize = 16384;

/// Instruction classes: the low three bits of an opcode.
pub(crate) mod class {
    pub(crate) const LD: u8 = 0;
    pub(crate) const LDX: u8 = 1;
    pub(crate) const ST: u8 = 2;
    pub(crate) const STX: u8 = 3;
    pub(crate) const ALU: u8 = 4;
    pub(crate) const JMP: u8 = 5;
    pub(crate) const JMP32: u8 = 6;
    pub(crate) const ALU64: u8 = 7;
}

/// Operations of the arithmetic classes: the high four bits.
pub(crate) mod alu {
    pub(crate) const ADD: u8 = 0x00;
    pub(crate) const SUB: u8 = 0x10;
    pub(crate) const MUL: u8 = 0x20;
    pub(crate) const DIV: u8 = 0x30;
    pub(crate) const OR: u8 = 0x40;
    pub(crate) const AND: u8 = 0x50;
    pub(crate) const LSH: u8 = 0x60;
    pub(crate) const RSH: u8 = 0x70;
    pub(crate) const NEG: u8 = 0x80;
    pub(crate) const MOD: u8 = 0x90;
    pub(crate) const XOR: u8 = 0xa0;
    pub(crate) const MOV: u8 = 0xb0;
    pub(crate) const ARSH: u8 = 0xc0;
    pub(crate) const END: u8 = 0xd0;
}

/// Operations of the jump classes.
pub(crate) mod jmp {
    pub(crate) const JA: u8 = 0x00;
    pub(crate) const JEQ: u8 = 0x10;
    pub(crate) const JGT: u8 = 0x20;
    pub(crate) const JGE: u8 = 0x30;
    pub(crate) const JSET: u8 = 0x40;
    pub(crate) const JNE: u8 = 0x50;
    pub(crate) const JSGT: u8 = 0x60;
    pub(crate) const JSGE: u8 = 0x70;
    pub(crate) const CALL: u8 = 0x80;
    pub(crate) const EXIT: u8 = 0x90;
    pub(crate) const JLT: u8 = 0xa0;
    pub(crate) const JLE: u8 = 0xb0;
    pub(crate) const JSLT: u8 = 0xc0;
    pub(crate) const JSLE: u8 = 0xd0;
}

/// Opcode bit that selects a register as the second operand.
pub(crate) const X: u8 = 0x08;
/// Opcode of the wide instruction, which occupies two slots.
pub(crate) const LDDW: u8 = 0x18;
/// Modes of memory access.
pub(crate) const MODE_MEM: u8 = 0x60;
pub(crate) const MODE_ATOMIC: u8 = 0xc0;

/// Operations of an atomic access, encoded in the immediate.
pub(crate) mod atomic {
    pub(crate) const ADD: i32 = 0x00;
    pub(crate) const OR: i32 = 0x40;
    pub(crate) const AND: i32 = 0x50;
    pub(crate) const XOR: i32 = 0xa0;
    /// Modifier: the source register receives the previous memory value.
    pub(crate) const FETCH: i32 = 0x01;
    pub(crate) const XCHG: i32 = 0xe0 | FETCH;
    /// Compares with `r0`; `r0` receives the previous value.
    pub(crate) const CMPXCHG: i32 = 0xf0 | FETCH;
}
/// Source field of [`LDDW`] with the number of a map.
pub(crate) const PSEUDO_MAP: u8 = 1;
/// Source field of [`LDDW`] with an address in the first value of a map.
pub(crate) const PSEUDO_VALUE: u8 = 2;
/// Source field of a call to a function of the program.
pub(crate) const PSEUDO_CALL: u8 = 1;

/// One instruction in the encoding of an object file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Insn {
    /// Opcode: class, operation, operand.
    pub code: u8,
    /// Destination register.
    pub dst: u8,
    /// Source register.
    pub src: u8,
    /// Offset of a jump or a memory access.
    pub off: i16,
    /// Immediate.
    pub imm: i32,
}

impl Insn {
    /// Decodes eight little-endian bytes.
    pub fn from_bytes(b: &[u8; 8]) -> Self {
        Self {
            code: b[0],
            dst: b[1] & 15,
            src: b[1] >> 4,
            off: i16::from_le_bytes([b[2], b[3]]),
            imm: i32::from_le_bytes([b[4], b[5], b[6], b[7]]),
        }
    }

    /// Encodes the instruction in eight little-endian bytes.
    pub fn to_bytes(self) -> [u8; 8] {
        let [o0, o1] = self.off.to_le_bytes();
        let [i0, i1, i2, i3] = self.imm.to_le_bytes();
        [self.code, self.dst & 15 | self.src << 4, o0, o1, i0, i1, i2, i3]
    }

    pub(crate) fn class(self) -> u8 {
        self.code & 7
    }

    pub(crate) fn op(self) -> u8 {
        self.code & 0xf0
    }

    pub(crate) fn mode(self) -> u8 {
        self.code & 0xe0
    }

    pub(crate) fn is_reg(self) -> bool {
        self.code & X != 0
    }

    pub(crate) fn is_jump(self) -> bool {
        matches!(self.class(), class::JMP | class::JMP32)
            && !matches!(self.op(), jmp::CALL | jmp::EXIT)
    }

    /// True for an atomic access.
    pub(crate) fn is_atomic(self) -> bool {
        self.class() == class::STX && self.mode() == MODE_ATOMIC
    }

    /// True for an atomic access with an operation and size that are supported.
    pub(crate) fn is_known_atomic(self) -> bool {
        use atomic::{ADD, AND, CMPXCHG, FETCH, OR, XCHG, XOR};
        let plain = matches!(self.imm & !FETCH, ADD | OR | AND | XOR);
        self.is_atomic() && self.size() >= 4 && (plain || matches!(self.imm, XCHG | CMPXCHG))
    }

    /// Register that receives the previous value of an atomic operation; `None` if none does.
    pub(crate) fn fetches(self) -> Option<u8> {
        match self.imm {
            atomic::CMPXCHG => Some(0),
            imm => (imm & atomic::FETCH != 0).then_some(self.src),
        }
    }

    /// Size of a memory access in bytes.
    pub(crate) fn size(self) -> u32 {
        match self.code & 0x18 {
            0x00 => 4,
            0x08 => 2,
            0x10 => 1,
            _ => 8,
        }
    }

    fn type_name(self) -> &'static str {
        ["u32", "u16", "u8", "u64"][usize::from(self.code >> 3 & 3)]
    }

    fn write_alu(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let r = if self.class() == class::ALU { 'w' } else { 'r' };
        let d = self.dst;
        match self.op() {
            alu::NEG => return write!(f, "{r}{d} = -{r}{d}"),
            alu::END => {
                let order = if self.is_reg() { "be" } else { "le" };
                return write!(f, "r{d} = {order}{} r{d}", self.imm);
            }
            _ => {}
        }
        let names =
            ["+=", "-=", "*=", "/=", "|=", "&=", "<<=", ">>=", "", "%=", "^=", "=", "s>>=", ""];
        let name = names.get(usize::from(self.code >> 4)).copied().unwrap_or("?=");
        if self.is_reg() {
            write!(f, "{r}{d} {name} {r}{}", self.src)
        } else {
            write!(f, "{r}{d} {name} {}", self.imm)
        }
    }

    fn write_atomic(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dst, src, off, .. } = self;
        let (t, fetch) =
            (self.type_name(), if self.imm & atomic::FETCH != 0 { " fetch" } else { "" });
        let name = match self.imm & !atomic::FETCH {
            atomic::ADD => "+=",
            atomic::OR => "|=",
            atomic::AND => "&=",
            atomic::XOR => "^=",
            _ => match self.imm {
                atomic::XCHG => return write!(f, "r{src} = xchg(({t} *)(r{dst} {off:+}), r{src})"),
                atomic::CMPXCHG => {
                    return write!(f, "r0 = cmpxchg(({t} *)(r{dst} {off:+}), r0, r{src})");
                }
                other => return write!(f, "atomic operation {other:#x}"),
            },
        };
        write!(f, "lock{fetch} *({t} *)(r{dst} {off:+}) {name} r{src}")
    }

    fn write_jump(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.op() {
            jmp::JA => return write!(f, "goto {:+}", self.off),
            jmp::CALL if self.src != 0 => return write!(f, "call pc{:+}", self.imm),
            jmp::CALL => return write!(f, "call {}", self.imm),
            jmp::EXIT => return f.write_str("exit"),
            _ => {}
        }
        let names =
            ["", "==", ">", ">=", "&", "!=", "s>", "s>=", "", "", "<", "<=", "s<", "s<=", "?", "?"];
        let name = names[usize::from(self.code >> 4)];
        let r = if self.class() == class::JMP32 { 'w' } else { 'r' };
        if self.is_reg() {
            write!(f, "if {r}{} {name} {r}{} goto {:+}", self.dst, self.src, self.off)
        } else {
            write!(f, "if {r}{} {name} {} goto {:+}", self.dst, self.imm, self.off)
        }
    }
}

impl fmt::Display for Insn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dst, src, off, imm, .. } = *self;
        let t = self.type_name();
        match self.class() {
            class::ALU | class::ALU64 => self.write_alu(f),
            class::JMP | class::JMP32 => self.write_jump(f),
            class::LDX if self.mode() == MODE_MEM => write!(f, "r{dst} = *({t} *)(r{src} {off:+})"),
            class::STX if self.mode() == MODE_MEM => write!(f, "*({t} *)(r{dst} {off:+}) = r{src}"),
            class::STX if self.mode() == MODE_ATOMIC => self.write_atomic(f),
            class::ST if self.mode() == MODE_MEM => write!(f, "*({t} *)(r{dst} {off:+}) = {imm}"),
            _ if self.code == LDDW && src == PSEUDO_MAP => write!(f, "r{dst} = map {imm}"),
            _ if self.code == LDDW && src == PSEUDO_VALUE => write!(f, "r{dst} = data {imm}"),
            _ if self.code == LDDW => write!(f, "r{dst} = {imm:#x} ll"),
            _ => write!(f, "opcode {:#04x}", self.code),
        }
    }
}
