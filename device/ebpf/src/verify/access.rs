//! Verification of memory accesses.

use super::range::Range;
use super::state::{DATA, META, Reg, Slot, State};
use super::{Kind, Verifier};

/// Number of context fields, each of four bytes.
const FIELDS: i32 = 6;

impl Verifier<'_> {
    /// Rejects an access through a packet pointer that is not proven to be inside the packet.
    pub(super) fn check_packet(
        &self,
        s: &State,
        reg: Reg,
        off: i64,
        size: i64,
    ) -> Result<(), String> {
        let Reg::Packet { id, off: base, least, .. } = reg else { return Ok(()) };
        let from = i64::from(base) + off;
        let (end, proven) = (from + size, i64::from(s.proven(id)));
        if i64::from(least) + from < 0 {
            return Err(format!("packet offset {from} may be before its start"));
        }
        if end > proven {
            let limit = if id == META { "data" } else { "data_end" };
            return Err(format!(
                "packet offset {from}..{end} is not proven to be below {limit} ({proven} bytes are)"
            ));
        }
        Ok(())
    }

    fn check_value(&self, reg: Reg, off: i64, size: i64, write: bool) -> Result<(), String> {
        let Reg::Value { map, least, most } = reg else { return Ok(()) };
        let def = &self.maps[map as usize];
        let (from, to) = (least + off, most + off + size);
        if from < 0 || to > i64::from(def.value_size) {
            return Err(format!(
                "offset {from}..{to} may be outside the value of map '{}' ({} bytes)",
                def.name, def.value_size
            ));
        }
        if write && def.readonly {
            return Err(format!("map '{}' is read-only", def.name));
        }
        Ok(())
    }

    /// Range of `off..off + size` from `base` in the stack, counted from the stack's lowest byte.
    /// Fails if the range is outside the stack.
    fn stack_range(&mut self, base: i32, off: i64, size: i64) -> Result<(usize, usize), String> {
        let from = i64::from(base) + off;
        if from < -512 || from + size > 0 {
            return Err(format!("stack offset {from}..{} is outside its 512 bytes", from + size));
        }
        self.deepest = self.deepest.min(from as i32);
        Ok(((from + 512) as usize, (from + size + 512) as usize))
    }

    fn read_stack(&mut self, s: &State, base: i32, off: i64, size: u32) -> Result<Reg, String> {
        let (from, to) = self.stack_range(base, off, size.into())?;
        let mut exact = None;
        for byte in from..to {
            let slot = &s.stack[byte / 8];
            if slot.written >> (byte % 8) & 1 == 0 {
                let at = byte as i64 - 512;
                return Err(format!("byte {at} of the stack is read and was never written"));
            }
            match slot.saved {
                saved if size == 8 && from.is_multiple_of(8) => exact = Some(saved),
                Reg::Scalar { .. } | Reg::Uninit => {}
                _ => return Err("part of a pointer is read from the stack".to_owned()),
            }
        }
        Ok(match exact {
            Some(Reg::Uninit) | None => Reg::scalar(Range::of_size(size)),
            Some(saved) => saved,
        })
    }

    fn write_stack(
        &mut self,
        s: &mut State,
        base: i32,
        off: i64,
        size: u32,
        what: Reg,
    ) -> Result<(), String> {
        let (from, to) = self.stack_range(base, off, size.into())?;
        let whole = size == 8 && from.is_multiple_of(8);
        if !whole && !matches!(what, Reg::Scalar { .. }) {
            return Err("a pointer is saved at an offset without room for 8 bytes".to_owned());
        }
        for byte in from..to {
            let slot = &mut s.stack[byte / 8];
            if whole {
                *slot = Slot { written: 0xff, saved: what };
            } else {
                slot.touch();
                slot.written |= 1 << (byte % 8);
            }
        }
        Ok(())
    }

    fn ctx_field(&mut self, off: i16, size: u32) -> Result<Reg, String> {
        let off = i32::from(off);
        if size != 4 || off % 4 != 0 || !(0..4 * FIELDS).contains(&off) {
            return Err(format!("offset {off} of {size} bytes is not a field of struct xdp_md"));
        }
        let packet = |id| Reg::Packet { id, off: 0, least: 0, most: 0 };
        Ok(match off / 4 {
            0 => packet(DATA),
            1 => Reg::End,
            2 => packet(META),
            _ => Reg::scalar(Range::ANY32),
        })
    }

    /// Verifies a read of `size` bytes at `base + off`. Returns the content.
    pub(super) fn load(
        &mut self,
        s: &State,
        at: usize,
        base: Reg,
        off: i16,
        size: u32,
    ) -> Result<Reg, String> {
        let is_ctx = base == Reg::Ctx;
        self.always(at, if is_ctx { Kind::Context } else { Kind::Memory })?;
        let (wide, n) = (i64::from(off), i64::from(size));
        match base {
            Reg::Ctx => self.ctx_field(off, size),
            Reg::Packet { .. } => {
                self.check_packet(s, base, wide, n)?;
                Ok(Reg::scalar(Range::of_size(size)))
            }
            Reg::Value { .. } => {
                self.check_value(base, wide, n, false)?;
                Ok(Reg::scalar(Range::of_size(size)))
            }
            Reg::Stack { off: base } => self.read_stack(s, base, wide, size),
            other => Err(format!("reads memory through {}", other.name())),
        }
    }

    /// Verifies a write of `what` at `base + off`.
    pub(super) fn store(
        &mut self,
        s: &mut State,
        at: usize,
        base: Reg,
        off: i16,
        size: u32,
        what: Reg,
    ) -> Result<(), String> {
        self.always(at, Kind::Memory)?;
        if !matches!(base, Reg::Stack { .. }) && !matches!(what, Reg::Scalar { .. }) {
            return Err(format!("writes {} to memory that others can read", what.name()));
        }
        let (wide, n) = (i64::from(off), i64::from(size));
        match base {
            Reg::Packet { .. } => self.check_packet(s, base, wide, n),
            Reg::Value { .. } => self.check_value(base, wide, n, true),
            Reg::Stack { off: base } => self.write_stack(s, base, wide, size, what),
            Reg::Ctx => Err("struct xdp_md cannot be written".to_owned()),
            other => Err(format!("writes memory through {}", other.name())),
        }
    }

    /// Verifies an access of a helper to between `least` and `most` bytes.
    pub(super) fn helper_memory(
        &mut self,
        s: &mut State,
        base: Reg,
        (least, most): (u32, u32),
        write: bool,
    ) -> Result<(), String> {
        match base {
            Reg::Packet { .. } => self.check_packet(s, base, 0, most.into()),
            Reg::Value { .. } => self.check_value(base, 0, most.into(), write),
            Reg::Stack { off } if write => {
                let (from, to) = self.stack_range(off, 0, most.into())?;
                for byte in from..to {
                    let slot = &mut s.stack[byte / 8];
                    slot.touch();
                    // Treat bytes beyond `least` as uninitialized, and as no pointer: the helper
                    // may or may not write them.
                    if byte < from + least as usize {
                        slot.written |= 1 << (byte % 8);
                    }
                }
                Ok(())
            }
            Reg::Stack { off } => {
                let (from, to) = self.stack_range(off, 0, most.into())?;
                for byte in from..to {
                    let slot = &s.stack[byte / 8];
                    if slot.written >> (byte % 8) & 1 == 0 {
                        let at = byte as i64 - 512;
                        return Err(format!(
                            "the helper reads byte {at} of the stack, which was never written"
                        ));
                    }
                    if slot.holds_pointer() {
                        let what = slot.saved.name();
                        return Err(format!("the helper reads {what} that was saved there"));
                    }
                }
                Ok(())
            }
            other => Err(format!("the helper needs memory, not {}", other.name())),
        }
    }
}
