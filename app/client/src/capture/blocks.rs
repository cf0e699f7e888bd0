//! Splits a pcapng stream into blocks.

use std::io;

const SECTION: u32 = 0x0a0d_0d0a;
const MAGIC: u32 = 0x1a2b_3c4d;
const ENHANCED_PACKET: u32 = 6;
const SIMPLE_PACKET: u32 = 3;
const INTERFACE_STATISTICS: u32 = 5;
/// `isb_ifdrop`: number of frames that were not captured.
const DROPPED: u16 = 5;

/// Bytes of a block's framing: type and total length at the start, total length again at the end.
const FRAMING: usize = 12;

/// Largest accepted block: far above a frame with its comment.
const BLOCK_MAX: usize = 16 << 20;

/// One whole block.
pub(super) struct Block {
    pub(super) bytes: Vec<u8>,
    pub(super) is_frame: bool,
    /// Value of `isb_ifdrop`: frames missed since the start. `None` without that option, and for
    /// blocks other than interface statistics.
    pub(super) missed: Option<u64>,
}

/// Value of `isb_ifdrop` in an interface statistics block; `None` without that option, or if an
/// option is truncated or has a wrong length.
fn missed(block: &[u8], big_endian: bool) -> Option<u64> {
    let half = |at: usize| {
        let bytes = block.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    };
    // Options follow type, length, interface and time.
    let mut at = 20;
    loop {
        let (code, len) = (half(at)?, usize::from(half(at + 2)?));
        let value = block.get(at + 4..at + 4 + len)?;
        match code {
            DROPPED => {
                let bytes = value.try_into().ok()?;
                let order = if big_endian { u64::from_be_bytes } else { u64::from_le_bytes };
                return Some(order(bytes));
            }
            0 => return None,
            _ => at += 4 + len.next_multiple_of(4),
        }
    }
}

/// Received bytes that do not form a whole block yet.
#[derive(Default)]
pub(super) struct Blocks {
    waiting: Vec<u8>,
    /// Byte order of the section; none before the first section header.
    big_endian: Option<bool>,
}

impl Blocks {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
    }

    fn word(&self, at: usize, big_endian: bool) -> Option<u32> {
        let bytes = self.waiting.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    /// Returns the next block, or `None` until all bytes of the block have arrived. Bytes outside a
    /// section and invalid lengths are errors.
    pub(super) fn next(&mut self) -> io::Result<Option<Block>> {
        if self.waiting.len() < FRAMING {
            return Ok(None);
        }
        // A new section may change the byte order. The type of a section header reads the same in
        // both byte orders.
        if self.word(0, false) == Some(SECTION) {
            let orders = [false, true];
            self.big_endian = orders.into_iter().find(|&big| self.word(8, big) == Some(MAGIC));
        }
        let Some(big) = self.big_endian else {
            return Err(odd("it does not start with a section header"));
        };
        let (Some(kind), Some(len)) = (self.word(0, big), self.word(4, big)) else {
            return Ok(None);
        };
        let len = len as usize;
        if !(FRAMING..=BLOCK_MAX).contains(&len) || !len.is_multiple_of(4) {
            return Err(odd(&format!("a block of {len} bytes")));
        }
        if self.waiting.len() < len {
            return Ok(None);
        }
        if self.word(len - 4, big) != Some(len as u32) {
            return Err(odd("the two lengths of a block differ"));
        }
        let rest = self.waiting.split_off(len);
        let bytes = std::mem::replace(&mut self.waiting, rest);
        let is_frame = [ENHANCED_PACKET, SIMPLE_PACKET].contains(&kind);
        let missed = (kind == INTERFACE_STATISTICS).then(|| missed(&bytes, big)).flatten();
        Ok(Some(Block { bytes, is_frame, missed }))
    }
}

fn odd(what: &str) -> io::Error {
    io::Error::other(format!("the capture that mqnet sent is not a pcapng file: {what}"))
}
