//! Reference machine that tracks every byte. The machine reports an access outside of the program's
//! frame, stack and map values, and false claims of the verifier.

use std::collections::VecDeque;

use crate::insn::{Insn, PSEUDO_MAP, PSEUDO_VALUE, X, alu, atomic, class, jmp};
use crate::map::{MapDef, MapKind};
use crate::verify::State;
use crate::verify::claims::MachineState;

// Regions are far apart, so that no permitted pointer arithmetic leads from one to another.
const PAGE: u64 = 0x1_0000_0000;
const STACK: u64 = 0x2_0000_0000;
const MAPS: u64 = 0x3_0000_0000;
const MAP_BITS: u32 = 28;
const CONTEXT: u64 = 0x8_0000_0000;

pub(super) struct Values {
    pub(super) def: MapDef,
    pub(super) bytes: Vec<u8>,
    stride: usize,
    copies: usize,
    /// Key of each entry of a hash; `None` if the entry is free.
    keys: Vec<Option<Vec<u8>>>,
    free: VecDeque<usize>,
}

impl Values {
    pub(super) fn new(def: &MapDef, channels: u16) -> Self {
        let copies = if def.kind.is_per_channel() { usize::from(channels) } else { 1 };
        let (stride, n) = (def.value_size.div_ceil(8) as usize * 8, def.max_entries as usize);
        let mut bytes = vec![0; stride * n * copies];
        bytes[..def.init.len()].copy_from_slice(&def.init);
        let (keys, free) = (vec![None; n], (0..n).collect());
        Self { def: def.clone(), bytes, stride, copies, keys, free }
    }

    fn slot(&self, key: &[u8]) -> Option<usize> {
        if self.def.kind == MapKind::Hash {
            return self.keys.iter().position(|k| k.as_deref() == Some(key));
        }
        let number = u32::from_le_bytes(key.try_into().ok()?) as usize;
        (number < self.keys.len()).then_some(number)
    }

    fn offset(&self, slot: usize, channel: usize) -> usize {
        (slot * self.copies + channel.min(self.copies - 1)) * self.stride
    }

    fn update(&mut self, key: &[u8], value: &[u8], flags: u64, channel: usize) -> i64 {
        if flags > 2 {
            return -22;
        }
        let is_hash = self.def.kind == MapKind::Hash;
        let slot = match self.slot(key) {
            Some(_) if flags == 1 => return -17,
            Some(slot) => slot,
            None if !is_hash => return -7,
            None if flags == 2 => return -2,
            None => {
                let Some(slot) = self.free.pop_front() else { return -7 };
                let first = slot * self.copies * self.stride;
                self.bytes[first..first + self.copies * self.stride].fill(0);
                self.keys[slot] = Some(key.to_vec());
                slot
            }
        };
        let at = self.offset(slot, channel);
        self.bytes[at..at + value.len()].copy_from_slice(value);
        0
    }

    fn delete(&mut self, key: &[u8]) -> i64 {
        if self.def.kind != MapKind::Hash {
            return -22;
        }
        let Some(slot) = self.slot(key) else { return -2 };
        self.keys[slot] = None;
        self.free.push_back(slot);
        0
    }

    /// Returns all keys and values in the format of [`Map::dump`](crate::Map::dump).
    pub(super) fn dump(&self) -> Vec<(Vec<u8>, Vec<Vec<u8>>)> {
        let size = self.def.value_size as usize;
        let values = |slot: usize| -> Vec<Vec<u8>> {
            let one = |copy| self.bytes[self.offset(slot, copy)..][..size].to_vec();
            (0..self.copies).map(one).collect()
        };
        let mut all: Vec<_> = if self.def.kind == MapKind::Hash {
            let used = self.keys.iter().enumerate();
            used.filter_map(|(slot, key)| Some((key.clone()?, values(slot)))).collect()
        } else {
            let key = |slot: usize| (slot as u32).to_le_bytes().to_vec();
            (0..self.keys.len()).map(|slot| (key(slot), values(slot))).collect()
        };
        all.sort();
        all
    }
}

pub(super) struct Machine<'a> {
    insns: &'a [Insn],
    claims: &'a [Vec<State>],
    pub(super) regs: [u64; 11],
    stack: [u8; 512],
    written: [bool; 512],
    pub(super) page: Vec<u8>,
    pub(super) data: u64,
    pub(super) end: u64,
    pub(super) meta: u64,
    pub(super) maps: &'a mut [Values],
    starts: Vec<Vec<u64>>,
    pub(super) channel: u16,
    pub(super) redirect: u32,
    pub(super) steps: u32,
}

pub(super) type Trap<T> = Result<T, String>;

impl<'a> Machine<'a> {
    pub(super) fn new(
        insns: &'a [Insn],
        claims: &'a [Vec<State>],
        maps: &'a mut [Values],
        page: Vec<u8>,
        (start, len): (usize, usize),
        channel: u16,
    ) -> Self {
        let starts = |(i, m): (usize, &Values)| {
            let first = MAPS + ((i as u64) << MAP_BITS);
            (0..m.bytes.len() / m.stride).map(|n| first + (n * m.stride) as u64).collect()
        };
        let starts = maps.iter().enumerate().map(starts).collect();
        let data = PAGE + start as u64;
        let mut regs = [0x5555_5555_5555_5555; 11];
        (regs[1], regs[10]) = (CONTEXT, STACK + 512);
        Self {
            insns,
            claims,
            regs,
            stack: [0xcc; 512],
            written: [false; 512],
            page,
            data,
            end: data + len as u64,
            meta: data,
            maps,
            starts,
            channel,
            redirect: 0,
            steps: 0,
        }
    }

    pub(super) fn start(&self) -> usize {
        (self.data - PAGE) as usize
    }

    /// Returns the bytes at an address; fails if the program may not access all of them.
    pub(super) fn memory(&mut self, at: u64, len: u64, write: bool) -> Trap<&mut [u8]> {
        let range = |first: u64| (at - first) as usize..(at - first + len) as usize;
        let Some(last) = at.checked_add(len) else { return Err(format!("{at:#x} wraps")) };
        if at >= self.meta && last <= self.end {
            return Ok(&mut self.page[range(PAGE)]);
        }
        if at >= STACK && last <= STACK + 512 {
            let range = range(STACK);
            if write {
                self.written[range.clone()].fill(true);
            } else if !self.written[range.clone()].iter().all(|w| *w) {
                return Err(format!("{at:#x} was never written"));
            }
            return Ok(&mut self.stack[range]);
        }
        let number = (at.wrapping_sub(MAPS) >> MAP_BITS) as usize;
        if at >= MAPS
            && let Some(map) = self.maps.get_mut(number)
        {
            let range = range(MAPS + ((number as u64) << MAP_BITS));
            let inside = range.start % map.stride + len as usize <= map.def.value_size as usize;
            if inside && range.end <= map.bytes.len() && !(write && map.def.readonly) {
                return Ok(&mut map.bytes[range]);
            }
        }
        Err(format!("{at:#x}, {len} bytes, is not its own"))
    }

    pub(super) fn read(&mut self, at: u64, len: u64) -> Trap<Vec<u8>> {
        self.memory(at, len, false).map(|bytes| bytes.to_vec())
    }

    fn number(&mut self, at: u64, len: u64) -> Trap<u64> {
        let bytes = self.memory(at, len, false)?;
        Ok(bytes.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)))
    }

    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) -> Trap<()> {
        self.memory(at, bytes.len() as u64, true)?.copy_from_slice(bytes);
        Ok(())
    }

    pub(super) fn lookup(&mut self, map: u64, key: u64) -> Trap<u64> {
        let i = self.map(map)?;
        let key = self.read(key, self.maps[i].def.key_size.into())?;
        let map = &self.maps[i];
        let found = map.slot(&key).map(|slot| map.offset(slot, self.channel.into()) as u64);
        Ok(found.map_or(0, |offset| MAPS + ((i as u64) << MAP_BITS) + offset))
    }

    pub(super) fn update(&mut self, [map, key, value, flags]: [u64; 4]) -> Trap<i64> {
        let i = self.map(map)?;
        let (key_size, size) = (self.maps[i].def.key_size, self.maps[i].def.value_size);
        let (key, value) = (self.read(key, key_size.into())?, self.read(value, size.into())?);
        Ok(self.maps[i].update(&key, &value, flags, self.channel.into()))
    }

    pub(super) fn delete(&mut self, map: u64, key: u64) -> Trap<i64> {
        let i = self.map(map)?;
        let key = self.read(key, self.maps[i].def.key_size.into())?;
        Ok(self.maps[i].delete(&key))
    }

    fn map(&self, value: u64) -> Trap<usize> {
        let i = value.wrapping_sub(1) as usize;
        if i < self.maps.len() { Ok(i) } else { Err(format!("{value:#x} is no map")) }
    }

    fn check_claims(&self, at: usize) -> Trap<()> {
        let seen = MachineState {
            regs: &self.regs,
            stack: &self.stack,
            written: &self.written,
            context: CONTEXT,
            data: self.data,
            end: self.end,
            meta: self.meta,
            values: &self.starts,
        };
        if self.claims[at].iter().any(|state| seen.fits(state)) {
            return Ok(());
        }
        let claims = &self.claims[at];
        let claims: Vec<_> = claims.iter().map(State::registers).collect();
        Err(format!("insn {at}: not as claimed: {:x?}\nclaims {claims:x?}", self.regs))
    }

    /// Runs the program. Returns r0, or an error for a violation or more than `most` steps.
    pub(super) fn run(&mut self, most: u32) -> Trap<u64> {
        let mut at = 0;
        loop {
            self.steps += 1;
            if self.steps > most {
                return Err(format!("more than the {most} steps that were walked"));
            }
            self.check_claims(at)?;
            let insn = self.insns[at];
            if insn.code == class::JMP | jmp::EXIT {
                return Ok(self.regs[0]);
            }
            at = self.step(at, insn).map_err(|why| format!("insn {at}: {insn}: {why}"))?;
        }
    }

    fn step(&mut self, at: usize, insn: Insn) -> Trap<usize> {
        let (d, s) = (usize::from(insn.dst), usize::from(insn.src));
        let place = |base: u64| base.wrapping_add(i64::from(insn.off) as u64);
        let size = u64::from(insn.size());
        match insn.class() {
            class::LD => {
                let high = self.insns[at + 1].imm;
                self.regs[d] = match insn.src {
                    PSEUDO_MAP => insn.imm as u64 + 1,
                    PSEUDO_VALUE => MAPS + ((insn.imm as u64) << MAP_BITS) + high as u64,
                    _ => u64::from(high as u32) << 32 | u64::from(insn.imm as u32),
                };
                return Ok(at + 2);
            }
            class::LDX if self.regs[s] == CONTEXT => self.regs[d] = self.field(insn)?,
            class::LDX => self.regs[d] = self.number(place(self.regs[s]), size)?,
            class::STX if insn.is_atomic() => {
                let mask = if size == 8 { u64::MAX } else { u64::from(u32::MAX) };
                let (at, by) = (place(self.regs[d]), self.regs[s]);
                let old = self.number(at, size)?;
                let new = match insn.imm & !atomic::FETCH {
                    atomic::ADD => old.wrapping_add(by),
                    atomic::OR => old | by,
                    atomic::AND => old & by,
                    atomic::XOR => old ^ by,
                    _ if insn.imm == atomic::CMPXCHG && old != self.regs[0] & mask => old,
                    _ => by,
                };
                self.write(at, &new.to_le_bytes()[..size as usize])?;
                if let Some(reg) = insn.fetches() {
                    self.regs[usize::from(reg)] = old;
                }
            }
            class::ST | class::STX => {
                let is_reg = insn.class() == class::STX;
                let value = if is_reg { self.regs[s] } else { i64::from(insn.imm) as u64 };
                self.write(place(self.regs[d]), &value.to_le_bytes()[..size as usize])?;
            }
            class::ALU | class::ALU64 => self.regs[d] = self.arithmetic(insn)?,
            _ if insn.op() == jmp::CALL => self.call(insn.imm)?,
            _ => {
                let jumps = insn.op() == jmp::JA || self.compares(insn)?;
                let to = if jumps { i64::from(insn.off) } else { 0 };
                return Ok((at as i64 + 1 + to) as usize);
            }
        }
        Ok(at + 1)
    }

    fn field(&self, insn: Insn) -> Trap<u64> {
        Ok(match (insn.off, insn.size()) {
            (0, 4) => self.data,
            (4, 4) => self.end,
            (8, 4) => self.meta,
            (12, 4) => 3,
            (16, 4) => self.channel.into(),
            (20, 4) => 0,
            _ => return Err("no field".to_owned()),
        })
    }

    fn operand(&self, insn: Insn) -> u64 {
        if insn.code & X != 0 { self.regs[usize::from(insn.src)] } else { insn.imm as i64 as u64 }
    }

    fn arithmetic(&self, insn: Insn) -> Trap<u64> {
        let (a, b) = (self.regs[usize::from(insn.dst)], self.operand(insn));
        if insn.op() == alu::END {
            let be = insn.code & X != 0;
            return Ok(match insn.imm {
                16 if be => (a as u16).swap_bytes().into(),
                32 if be => (a as u32).swap_bytes().into(),
                64 if be => a.swap_bytes(),
                16 => a & 0xffff,
                32 => a & 0xffff_ffff,
                _ => a,
            });
        }
        if insn.class() == class::ALU64 {
            return Ok(match insn.op() {
                alu::ADD => a.wrapping_add(b),
                alu::SUB => a.wrapping_sub(b),
                alu::MUL => a.wrapping_mul(b),
                alu::DIV => a.checked_div(b).unwrap_or(0),
                alu::MOD => a.checked_rem(b).unwrap_or(a),
                alu::OR => a | b,
                alu::AND => a & b,
                alu::XOR => a ^ b,
                alu::LSH => a << (b & 63),
                alu::RSH => a >> (b & 63),
                alu::ARSH => (a as i64 >> (b & 63)) as u64,
                alu::NEG => a.wrapping_neg(),
                alu::MOV => b,
                _ => return Err("no operation".to_owned()),
            });
        }
        let (x, y) = (a as u32, b as u32);
        Ok(u64::from(match insn.op() {
            alu::ADD => x.wrapping_add(y),
            alu::SUB => x.wrapping_sub(y),
            alu::MUL => x.wrapping_mul(y),
            alu::DIV => x.checked_div(y).unwrap_or(0),
            alu::MOD => x.checked_rem(y).unwrap_or(x),
            alu::OR => x | y,
            alu::AND => x & y,
            alu::XOR => x ^ y,
            alu::LSH => x << (y & 31),
            alu::RSH => x >> (y & 31),
            alu::ARSH => (x as i32 >> (y & 31)) as u32,
            alu::NEG => x.wrapping_neg(),
            alu::MOV => y,
            _ => return Err("no operation".to_owned()),
        }))
    }

    fn compares(&self, insn: Insn) -> Trap<bool> {
        let (mut a, mut b) = (self.regs[usize::from(insn.dst)], self.operand(insn));
        let (mut sa, mut sb) = (a as i64, b as i64);
        if insn.class() == class::JMP32 {
            (a, b) = (a & 0xffff_ffff, b & 0xffff_ffff);
            (sa, sb) = (i64::from(sa as i32), i64::from(sb as i32));
        }
        Ok(match insn.op() {
            jmp::JEQ => a == b,
            jmp::JNE => a != b,
            jmp::JGT => a > b,
            jmp::JGE => a >= b,
            jmp::JLT => a < b,
            jmp::JLE => a <= b,
            jmp::JSET => a & b != 0,
            jmp::JSGT => sa > sb,
            jmp::JSGE => sa >= sb,
            jmp::JSLT => sa < sb,
            jmp::JSLE => sa <= sb,
            _ => return Err("no comparison".to_owned()),
        })
    }

    pub(super) fn room(&self) -> (u64, u64) {
        (PAGE, PAGE + self.page.len() as u64)
    }

    pub(super) fn shift_meta(&mut self, from: u64, to: u64, len: u64) {
        let at = (from - PAGE) as usize;
        self.page.copy_within(at..at + len as usize, (to - PAGE) as usize);
    }

    pub(super) fn clear(&mut self, from: u64, to: u64) {
        self.page[(from - PAGE) as usize..(to - PAGE) as usize].fill(0);
    }

    pub(super) fn is_context(value: u64) -> bool {
        value == CONTEXT
    }
}
