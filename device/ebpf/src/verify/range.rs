//! Known bounds of an unsigned number.

use crate::insn::{alu, jmp};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) min: u64,
    pub(super) max: u64,
}

const LOW: u64 = u32::MAX as u64;
/// Greatest number that is not negative as a signed number.
const SIGNED: u64 = i64::MAX as u64;

impl Range {
    pub(super) const ANY: Self = Self { min: 0, max: u64::MAX };
    pub(super) const ANY32: Self = Self { min: 0, max: LOW };

    pub(super) fn exactly(n: u64) -> Self {
        Self { min: n, max: n }
    }

    pub(super) fn up_to(max: u64) -> Self {
        Self { min: 0, max }
    }

    /// Range of a number of `size` bytes.
    pub(super) fn of_size(size: u32) -> Self {
        Self::up_to(if size >= 8 { u64::MAX } else { (1 << (8 * size)) - 1 })
    }

    pub(super) fn constant(self) -> Option<u64> {
        (self.min == self.max).then_some(self.min)
    }

    pub(super) fn contains(self, other: Self) -> bool {
        self.min <= other.min && other.max <= self.max
    }

    /// Range of the low 32 bits.
    pub(super) fn low32(self) -> Self {
        match self.constant() {
            Some(n) => Self::exactly(n & LOW),
            None if self.max <= LOW => self,
            None => Self::ANY32,
        }
    }

    fn bits(max: u64) -> u64 {
        u64::MAX.checked_shr(max.leading_zeros()).unwrap_or(0)
    }

    /// Result of `self op other` in 64 bits.
    fn op64(self, op: u8, other: Self) -> Self {
        let (a, b) = (self, other);
        let between = |min: Option<u64>, max: Option<u64>| match (min, max) {
            (Some(min), Some(max)) => Self { min, max },
            _ => Self::ANY,
        };
        if let (Some(x), Some(y)) = (a.constant(), b.constant())
            && let Some(n) = constant64(op, x, y)
        {
            return Self::exactly(n);
        }
        match op {
            alu::ADD => between(a.min.checked_add(b.min), a.max.checked_add(b.max)),
            alu::SUB => between(a.min.checked_sub(b.max), a.max.checked_sub(b.min)),
            alu::MUL => between(a.min.checked_mul(b.min), a.max.checked_mul(b.max)),
            // Include 0 if the divisor may be 0: the result is then 0 (RFC 9669).
            alu::DIV if b.min > 0 => Self { min: a.min / b.max, max: a.max / b.min },
            alu::DIV => Self::up_to(a.max),
            alu::MOD if b.min > 0 => Self::up_to(a.max.min(b.max - 1)),
            // Include the dividend, which is the result of a modulo by 0.
            alu::MOD => Self::up_to(a.max),
            alu::AND => Self::up_to(a.max.min(b.max)),
            alu::OR => Self { min: a.min.max(b.min), max: Self::bits(a.max | b.max) },
            alu::XOR => Self::up_to(Self::bits(a.max | b.max)),
            alu::LSH => match b.constant() {
                Some(n) if n < 64 && a.max.leading_zeros() as u64 >= n => {
                    Self { min: a.min << n, max: a.max << n }
                }
                _ => Self::ANY,
            },
            alu::RSH => match b.constant() {
                Some(n) if n < 64 => Self { min: a.min >> n, max: a.max >> n },
                _ => Self::up_to(a.max),
            },
            alu::ARSH if a.max <= SIGNED => match b.constant() {
                Some(n) if n < 64 => Self { min: a.min >> n, max: a.max >> n },
                _ => Self::up_to(a.max),
            },
            alu::MOV => b,
            _ => Self::ANY,
        }
    }

    /// Result of `self op other`, in 32 or 64 bits.
    pub(super) fn op(self, op: u8, other: Self, wide: bool) -> Self {
        if wide {
            return self.op64(op, other);
        }
        let (a, b) = (self.low32(), other.low32());
        let shift = matches!(op, alu::LSH | alu::RSH | alu::ARSH);
        if shift && b.max > 31 {
            return Self::ANY32;
        }
        if op == alu::ARSH {
            return match (a.constant(), b.constant()) {
                (Some(x), Some(n)) => Self::exactly((x as i32 >> (n & 31)) as u32 as u64),
                _ if a.max <= SIGNED >> 32 => a.op64(alu::ARSH, b),
                _ => Self::ANY32,
            };
        }
        if matches!(op, alu::SUB | alu::MUL | alu::NEG)
            && let (Some(x), Some(y)) = (a.constant(), b.constant())
            && let Some(n) = constant64(op, x, y)
        {
            return Self::exactly(n & LOW);
        }
        let wide = a.op64(op, b);
        if wide.max <= LOW { wide } else { wide.low32() }
    }

    /// Result of the comparison `self op other`; `None` if it is not known.
    pub(super) fn decide(self, op: u8, other: Self) -> Option<bool> {
        let (a, b) = (self, other);
        let signed = |r: Range| {
            let (min, max) = (r.min as i64, r.max as i64);
            if (r.min > SIGNED) == (r.max > SIGNED) { (min, max) } else { (i64::MIN, i64::MAX) }
        };
        let order = |less: bool, not_less: bool| match (less, not_less) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        };
        let ((sa, la), (sb, lb)) = (signed(a), signed(b));
        match op {
            jmp::JEQ | jmp::JNE => {
                let same = order(
                    a.constant().is_some() && a.constant() == b.constant(),
                    a.max < b.min || b.max < a.min,
                )?;
                Some(same == (op == jmp::JEQ))
            }
            jmp::JLT => order(a.max < b.min, a.min >= b.max),
            jmp::JLE => order(a.max <= b.min, a.min > b.max),
            jmp::JGT => order(a.min > b.max, a.max <= b.min),
            jmp::JGE => order(a.min >= b.max, a.max < b.min),
            jmp::JSLT => order(la < sb, sa >= lb),
            jmp::JSLE => order(la <= sb, sa > lb),
            jmp::JSGT => order(sa > lb, la <= sb),
            jmp::JSGE => order(sa >= lb, la < sb),
            jmp::JSET => match (a.constant(), b.constant()) {
                (Some(a), Some(b)) => Some(a & b != 0),
                _ => None,
            },
            _ => None,
        }
    }

    /// Part of `self` for which `self op other` can hold; `None` if it is empty.
    pub(super) fn where_holds(self, op: u8, other: Self) -> Option<Self> {
        let (a, b) = (self, other);
        let mut r = a;
        match op {
            jmp::JEQ => r = Self { min: a.min.max(b.min), max: a.max.min(b.max) },
            jmp::JNE => {
                if let Some(n) = b.constant() {
                    if a.min == n {
                        r.min = n.checked_add(1)?;
                    }
                    if a.max == n {
                        r.max = n.checked_sub(1)?;
                    }
                }
            }
            jmp::JLT => r.max = a.max.min(b.max.checked_sub(1)?),
            jmp::JLE => r.max = a.max.min(b.max),
            jmp::JGT => r.min = a.min.max(b.min.checked_add(1)?),
            jmp::JGE => r.min = a.min.max(b.min),
            _ => return Some(self.where_signed(op, other)),
        }
        (r.min <= r.max).then_some(r)
    }

    /// Part of `self` for which a signed comparison holds, as far as one unsigned range can express
    /// it.
    fn where_signed(self, op: u8, other: Self) -> Self {
        let (a, b) = (self, other);
        let clamp = |min: u64, max: u64| {
            let r = Self { min: a.min.max(min), max: a.max.min(max) };
            if r.min <= r.max { r } else { a }
        };
        match op {
            jmp::JSGT if b.max < SIGNED => clamp(b.min + 1, SIGNED),
            jmp::JSGE if b.max <= SIGNED => clamp(b.min, SIGNED),
            // Exclude negative numbers, which are not greater than -1.
            jmp::JSGT if b.min == u64::MAX => clamp(0, SIGNED),
            jmp::JSLT if b.max <= SIGNED && b.max > 0 && a.max <= SIGNED => clamp(0, b.max - 1),
            jmp::JSLE if b.max <= SIGNED && a.max <= SIGNED => clamp(0, b.max),
            _ => a,
        }
    }
}

fn constant64(op: u8, x: u64, y: u64) -> Option<u64> {
    Some(match op {
        alu::ADD => x.wrapping_add(y),
        alu::SUB => x.wrapping_sub(y),
        alu::MUL => x.wrapping_mul(y),
        alu::DIV => x.checked_div(y).unwrap_or(0),
        alu::MOD => x.checked_rem(y).unwrap_or(x),
        alu::AND => x & y,
        alu::OR => x | y,
        alu::XOR => x ^ y,
        alu::LSH => x.checked_shl(u32::try_from(y).ok()?)?,
        alu::RSH => x.checked_shr(u32::try_from(y).ok()?)?,
        alu::ARSH => (x as i64).checked_shr(u32::try_from(y).ok()?)? as u64,
        alu::NEG => x.wrapping_neg(),
        alu::MOV => y,
        _ => return None,
    })
}

/// Comparison that holds if and only if `op` does not; `None` for `JSET`.
pub(super) fn opposite(op: u8) -> Option<u8> {
    Some(match op {
        jmp::JEQ => jmp::JNE,
        jmp::JNE => jmp::JEQ,
        jmp::JGT => jmp::JLE,
        jmp::JLE => jmp::JGT,
        jmp::JGE => jmp::JLT,
        jmp::JLT => jmp::JGE,
        jmp::JSGT => jmp::JSLE,
        jmp::JSLE => jmp::JSGT,
        jmp::JSGE => jmp::JSLT,
        jmp::JSLT => jmp::JSGE,
        _ => return None,
    })
}

/// Comparison `b op' a` that is equivalent to `a op b`.
pub(super) fn mirrored(op: u8) -> u8 {
    match op {
        jmp::JGT => jmp::JLT,
        jmp::JLT => jmp::JGT,
        jmp::JGE => jmp::JLE,
        jmp::JLE => jmp::JGE,
        jmp::JSGT => jmp::JSLT,
        jmp::JSLT => jmp::JSGT,
        jmp::JSGE => jmp::JSLE,
        jmp::JSLE => jmp::JSGE,
        same => same,
    }
}
