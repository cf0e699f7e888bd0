//! Helper functions of the reference machine.

use super::machine::{Machine, Trap};
use crate::helper;

const INVALID: u64 = -22i64 as u64;
/// Value of the clock.
pub(super) const NOW: u64 = 0x1234_5678_9abc;

impl Machine<'_> {
    pub(super) fn call(&mut self, number: i32) -> Trap<()> {
        let [_, a, b, c, d, e, ..] = self.regs;
        self.regs[0] = match number {
            helper::MAP_LOOKUP => self.lookup(a, b)?,
            helper::MAP_UPDATE => self.update([a, b, c, d])? as u64,
            helper::MAP_DELETE => self.delete(a, b)? as u64,
            helper::TRACE => self.read(a, b).map(|_| 0)?,
            helper::KTIME | helper::KTIME_BOOT => NOW,
            helper::PROCESSOR => self.channel.into(),
            helper::REDIRECT if b != 0 => 0,
            helper::REDIRECT => {
                self.redirect = a as u32;
                4
            }
            helper::CSUM_DIFF => self.csum_diff([a, b, c, d, e])?,
            helper::BUFF_LEN => self.context(a).map(|()| self.end - self.data)?,
            helper::ADJUST_HEAD => self.context(a).map(|()| self.adjust_head(b))?,
            helper::ADJUST_META => self.context(a).map(|()| self.adjust_meta(b))?,
            helper::ADJUST_TAIL => self.context(a).map(|()| self.adjust_tail(b))?,
            helper::LOAD_BYTES => self.copy([a, b, c, d], false)?,
            helper::STORE_BYTES => self.copy([a, b, c, d], true)?,
            other => return Err(format!("no helper {other}")),
        };
        // Overwrite the registers that a call invalidates with a pattern that exposes later reads.
        self.regs[1..=5].fill(0x6666_6666_6666_6666);
        Ok(())
    }

    fn context(&self, value: u64) -> Trap<()> {
        if Self::is_context(value) { Ok(()) } else { Err("not the context".to_owned()) }
    }

    fn csum_diff(&mut self, [from, from_size, to, to_size, seed]: [u64; 5]) -> Trap<u64> {
        if (from_size | to_size) % 4 != 0 {
            return Ok(INVALID);
        }
        let mut sum = u128::from(seed as u32);
        for (at, size, is_from) in [(from, from_size, true), (to, to_size, false)] {
            let bytes = if size == 0 { Vec::new() } else { self.read(at, size)? };
            for word in bytes.as_chunks::<4>().0 {
                let word = u32::from_le_bytes(*word);
                sum += u128::from(if is_from { !word } else { word });
            }
        }
        while sum >> 32 != 0 {
            sum = (sum & 0xffff_ffff) + (sum >> 32);
        }
        Ok(sum as u64)
    }

    fn adjust_head(&mut self, by: u64) -> u64 {
        let meta = self.data - self.meta;
        let data = self.data.wrapping_add_signed(i64::from(by as i32));
        if data < self.room().0 + meta || data + 14 > self.end {
            return INVALID;
        }
        self.shift_meta(self.meta, data - meta, meta);
        (self.data, self.meta) = (data, data - meta);
        0
    }

    fn adjust_meta(&mut self, by: u64) -> u64 {
        let meta = self.meta.wrapping_add_signed(i64::from(by as i32));
        if meta < self.room().0 || meta > self.data || self.data - meta > 32 {
            return INVALID;
        }
        if !(self.data - meta).is_multiple_of(4) {
            return INVALID;
        }
        self.meta = meta;
        0
    }

    fn adjust_tail(&mut self, by: u64) -> u64 {
        let end = self.end.wrapping_add_signed(i64::from(by as i32));
        if end > self.room().1 || end < self.data + 14 {
            return INVALID;
        }
        if end > self.end {
            self.clear(self.end, end);
        }
        self.end = end;
        0
    }

    fn copy(&mut self, [at, offset, memory, len]: [u64; 4], to_frame: bool) -> Trap<u64> {
        self.context(at)?;
        let offset = u64::from(offset as u32);
        let outside = offset + len > self.end - self.data;
        if len == 0 {
            return Ok(if outside { INVALID } else { 0 });
        }
        let frame = self.data + offset;
        // Check the program's memory even if the frame range is invalid.
        let own = if to_frame { self.read(memory, len)? } else { vec![0; len as usize] };
        if outside && to_frame {
            return Ok(INVALID);
        }
        if to_frame {
            self.write(frame, &own)?;
            return Ok(0);
        }
        let bytes = if outside { own } else { self.read(frame, len)? };
        self.write(memory, &bytes)?;
        Ok(if outside { INVALID } else { 0 })
    }
}
