//! Words at any byte of a window, and the peer's memory in several mappings.
//!
//! Parts of a window may begin at odd bytes. An aligned word is one atomic access. An unaligned
//! word is read through the aligned words around it, and written in parts if it spans two
//! mappings.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use mqnet_shmem::{AtomicTable, GuestMemoryView, MemoryMap, Span, SpanMut};

use super::covers;
use crate::hw::Outbound;

/// Word of 32 bits in this end's memory that the peer writes.
#[derive(Debug)]
pub(crate) struct InboundWord {
    words: AtomicTable,
    at: u32,
}

impl InboundWord {
    /// Word at byte `at` of `words`, a table with a length that is a multiple of 16. `None` if the
    /// word is not inside, or the table does not begin at a multiple of 8.
    pub(crate) fn new(words: AtomicTable, at: u32) -> Option<Self> {
        let inside = at.checked_add(4).is_some_and(|end| end <= words.len());
        (inside && words.is_aligned(8)).then_some(Self { words, at })
    }

    #[inline]
    pub(crate) fn read(&self) -> u32 {
        if self.at.is_multiple_of(4) {
            // Pairs with the peer's write barrier before the word.
            return u32::from_le(self.words.word(self.at).load(Ordering::Acquire));
        }
        self.read_unaligned()
    }

    #[cold]
    fn read_unaligned(&self) -> u32 {
        let (low, shift) = (self.at & !7, self.at % 8 * 8);
        let load = |at| u64::from_le(self.words.double(at).load(Ordering::Acquire));
        let mut first = load(low);
        if shift <= 32 {
            return (first >> shift) as u32;
        }
        // The value spans two words of 8 bytes. It is consistent if two reads of the first word are
        // equal; after four attempts, the last value is used.
        let mut value = 0;
        for _ in 0..4 {
            value = (u128::from(load(low + 8)) << 64 | u128::from(first)) >> shift;
            let again = load(low);
            if again == first {
                break;
            }
            first = again;
        }
        value as u32
    }

    /// Writes the word; the peer must not write it at the same time.
    pub(super) fn write(&self, value: u32) {
        for (byte, at) in value.to_le_bytes().into_iter().zip(self.at..) {
            self.words.byte(at).store(byte, Ordering::Release);
        }
    }
}

/// Peer's memory behind a window, for one ring.
#[derive(Debug)]
pub(super) struct OutMemory {
    map: Arc<MemoryMap>,
    memory: GuestMemoryView,
    len: u32,
}

impl OutMemory {
    pub(super) fn new(out: &Outbound) -> Result<Self, String> {
        if !covers(&out.map, out.len) {
            return Err(format!("peer's window: no memory for all of its {} bytes", out.len));
        }
        let map = Arc::clone(&out.map);
        Ok(Self { memory: GuestMemoryView::new(map.clone()), map, len: out.len })
    }

    /// Returns `Err` for a range that exceeds the window.
    pub(super) fn check(&self, at: u32, len: u32) -> Result<(), String> {
        match at.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(format!("peer's window: {} bytes, too short", self.len)),
        }
    }

    /// Range for writing, if it is in one mapping; `None` otherwise.
    #[inline]
    pub(super) fn room(&mut self, at: u32, len: u32) -> Option<SpanMut<'_>> {
        self.memory.room(at.into(), len)
    }

    /// True if a range is in one mapping.
    #[inline]
    pub(super) fn is_one_piece(&self, at: u32, len: u32) -> bool {
        self.memory.span(at.into(), len).is_some()
    }

    /// Segments of a range, one per mapping, for writing.
    pub(super) fn rooms(&mut self, at: u32, len: u32) -> impl Iterator<Item = SpanMut<'_>> {
        self.memory.rooms(pieces(&self.map, at, len))
    }

    /// Writes a few bytes, in one or more mappings.
    #[inline]
    pub(super) fn write<const N: usize>(&mut self, at: u32, bytes: [u8; N]) {
        match self.memory.room(at.into(), N as u32) {
            Some(mut room) => {
                room.write_header(&bytes);
            }
            None => self.write_pieces(at, &bytes),
        }
    }

    #[cold]
    fn write_pieces(&mut self, at: u32, bytes: &[u8]) {
        let mut rest = Span::of(bytes);
        let mut buffer = [0; 16];
        for mut room in self.rooms(at, bytes.len() as u32) {
            let n = rest.first(room.len()).read_header(&mut buffer);
            room.write_header(&buffer[..n]);
            rest = rest.skip(n);
        }
    }
}

/// Word of 32 bits in the peer's memory that this end writes.
#[derive(Debug)]
pub(super) struct OutboundWord {
    /// Word for atomic access, if it is aligned and in one mapping; `None` otherwise.
    aligned: Option<AtomicTable>,
    memory: OutMemory,
    at: u32,
}

impl OutboundWord {
    /// Word at byte `at` of the peer's window; `Err` if the word is not inside.
    pub(super) fn new(out: &Outbound, at: u32) -> Result<Self, String> {
        let memory = OutMemory::new(out)?;
        memory.check(at, 4)?;
        let aligned = out.map.table(at.into(), 4, 4);
        Ok(Self { aligned, memory, at })
    }

    /// Writes the word, after all earlier reads and writes.
    #[inline]
    pub(super) fn write(&mut self, value: u32) {
        match &self.aligned {
            // Pairs with the peer's read of the word.
            Some(table) => table.word(0).store(value.to_le(), Ordering::Release),
            None => {
                // Pairs with the peer's read of the word. The write is a single store of the CPU,
                // unless the word spans two mappings.
                fence(Ordering::Release);
                self.memory.write(self.at, value.to_le_bytes());
            }
        }
    }
}

/// Start and length of the parts of a range in each mapping, by address.
fn pieces(map: &MemoryMap, at: u32, len: u32) -> impl Iterator<Item = (u64, u32)> {
    let (begin, end) = (u64::from(at), u64::from(at) + u64::from(len));
    map.areas().iter().filter_map(move |area| {
        let (from, to) = (begin.max(area.start), end.min(area.start + area.len));
        (from < to).then(|| (from, (to - from) as u32))
    })
}

#[cfg(test)]
mod tests {
    use mqnet_shmem::{Area, Region};

    use super::*;

    // Rule: a word consists of the four bytes at its offset, at every offset in a table. A word
    // beyond the table is refused.
    #[test]
    fn words_are_at_any_byte() {
        let region = Arc::new(Region::private(4096, false, None).unwrap());
        let table = || AtomicTable::new(region.clone(), 0, 32).unwrap();
        let bytes = table();
        for (at, value) in (0..=28).zip((0x0101_0101u32..).step_by(0x0203_0507)) {
            for (byte, at) in value.to_le_bytes().into_iter().zip(at..) {
                bytes.byte(at).store(byte, Ordering::Relaxed);
            }
            let word = InboundWord::new(table(), at).unwrap();
            assert_eq!(word.read(), value, "{at}");
            word.write(!value);
            assert_eq!(word.read(), !value, "{at}");
        }
        assert!(
            InboundWord::new(table(), 29).is_none()
                && InboundWord::new(table(), u32::MAX).is_none()
        );
    }

    // Rule: a write changes the four bytes at the word's offset and no others, in one or two
    // mappings. Memory with a gap, and a word beyond the window, are refused.
    #[test]
    fn words_are_written_across_mappings() {
        let regions: Vec<_> =
            (0..2).map(|_| Arc::new(Region::private(4096, false, None).unwrap())).collect();
        let area = |start, region: &Arc<Region>| Area {
            start,
            len: 4096,
            region: region.clone(),
            offset: 0,
        };
        let out = |second| {
            let areas = vec![area(0, &regions[0]), area(second, &regions[1])];
            Outbound { map: Arc::new(MemoryMap::new(areas).unwrap()), len: 8192 }
        };
        let read = |at: u32| {
            let region = &regions[at as usize / 4096];
            AtomicTable::new(region.clone(), at as usize % 4096, 1).unwrap()
        };
        for at in 4088..4104u32 {
            OutboundWord::new(&out(4096), at).unwrap().write(0xa4a3_a2a1);
            for (n, expected) in [0, 0xa1, 0xa2, 0xa3, 0xa4, 0].into_iter().enumerate() {
                let byte = read(at + n as u32 - 1);
                assert_eq!(byte.byte(0).swap(0, Ordering::Relaxed), expected, "{at}: {n}");
            }
        }
        assert!(OutboundWord::new(&out(4096), 8188).is_ok());
        assert!(OutboundWord::new(&out(4096), 8189).is_err());
        assert!(OutboundWord::new(&out(8192), 0).is_err(), "a gap");
    }
}
