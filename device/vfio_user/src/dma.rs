//! DMA map: guest address ranges, and the mappings of their files.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use mqnet_shmem::Region;

use crate::MessageError;

/// Maximum number of ranges of one client.
pub const RANGES_MAX: usize = 1024;
/// Maximum number of bytes in all ranges of one client.
pub const BYTES_MAX: u64 = 1 << 40;

/// One mapped range of guest addresses.
#[derive(Debug)]
struct Mapped {
    len: u64,
    /// Mapping of the file, and the offset of the range in the mapping. `None` for a range without
    /// a descriptor, which only the client can access.
    memory: Option<(Arc<Region>, usize)>,
}

/// A segment of guest memory that is contiguous in a mapping of this process.
#[derive(Clone, Debug)]
pub struct DmaSegment {
    /// Mapping with the segment.
    pub region: Arc<Region>,
    /// Offset of the segment in the mapping.
    pub offset: usize,
    /// Length of the segment in bytes.
    pub len: usize,
}

/// DMA map of one client.
///
/// Ranges never overlap. A file must be long enough when it is mapped. If it is truncated later,
/// the missing bytes read as zeros ([`DmaMap::is_lost`]).
#[derive(Debug, Default)]
pub struct DmaMap {
    ranges: BTreeMap<u64, Mapped>,
    bytes: u64,
}

impl DmaMap {
    /// Maps `len` bytes at guest address `iova`; `file` is a descriptor and the offset of the first
    /// byte. Without a file, the range is only recorded. Fails, without effect, for an empty or
    /// overlapping range, above the limits, or if the file cannot be mapped.
    pub fn map(
        &mut self,
        iova: u64,
        len: u64,
        file: Option<(OwnedFd, u64)>,
    ) -> Result<(), MessageError> {
        let end = iova.checked_add(len).filter(|_| len > 0);
        let end = end.ok_or(MessageError::DmaEmpty { iova, len })?;
        if let Some((&with, _)) = self.range_before(end).filter(|(at, it)| *at + it.len > iova) {
            return Err(MessageError::DmaOverlap { iova, len, with });
        }
        let (ranges, bytes) = (self.ranges.len() + 1, self.bytes.saturating_add(len));
        if ranges > RANGES_MAX || bytes > BYTES_MAX {
            let (most_ranges, most_bytes) = (RANGES_MAX, BYTES_MAX);
            return Err(MessageError::DmaLimit { ranges, bytes, most_ranges, most_bytes });
        }
        let map = |(file, offset)| {
            let mapped = Region::of_guest(file, offset, len);
            let failed =
                |e: mqnet_shmem::Error| MessageError::DmaMemory { iova, reason: e.to_string() };
            mapped.map(|(region, skip)| (Arc::new(region), skip)).map_err(failed)
        };
        let memory = file.map(map).transpose()?;
        self.ranges.insert(iova, Mapped { len, memory });
        self.bytes = bytes;
        Ok(())
    }

    /// Last range that begins before `end`.
    fn range_before(&self, end: u64) -> Option<(&u64, &Mapped)> {
        self.ranges.range(..end).next_back()
    }

    /// Checks that [`unmap`](Self::unmap) would succeed for the same range.
    pub fn check_unmap(&self, iova: u64, len: u64) -> Result<(), MessageError> {
        self.to_unmap(iova, len).map(drop)
    }

    /// Unmaps all ranges in `iova..iova + len`. Fails, without effect, if no range is inside or a
    /// range is only partly inside.
    pub fn unmap(&mut self, iova: u64, len: u64) -> Result<(), MessageError> {
        for at in self.to_unmap(iova, len)? {
            let removed = self.ranges.remove(&at);
            self.bytes -= removed.map_or(0, |it| it.len);
        }
        Ok(())
    }

    /// First addresses of the ranges in `iova..iova + len`; fails if there is none or one is only
    /// partly inside.
    fn to_unmap(&self, iova: u64, len: u64) -> Result<Vec<u64>, MessageError> {
        let end = iova.checked_add(len).filter(|_| len > 0);
        let end = end.ok_or(MessageError::DmaEmpty { iova, len })?;
        let before = self.range_before(iova).filter(|(at, it)| *at + it.len > iova);
        let last = self.range_before(end).filter(|(at, it)| *at + it.len > end);
        if let Some((&with, _)) = before.or(last) {
            return Err(MessageError::DmaDivides { iova, len, with });
        }
        let inside: Vec<u64> = self.ranges.range(iova..end).map(|(at, _)| *at).collect();
        if inside.is_empty() {
            return Err(MessageError::DmaNotMapped { iova, len });
        }
        Ok(inside)
    }

    /// Unmaps all ranges.
    pub fn clear(&mut self) {
        self.ranges.clear();
        self.bytes = 0;
    }

    /// Number of ranges.
    pub fn ranges(&self) -> usize {
        self.ranges.len()
    }

    /// Bytes of all ranges.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Memory segments of the `len` bytes from guest address `iova` on, in order. Adjacent ranges
    /// may be in different mappings. The error is the first address without memory, or `u64::MAX`
    /// if the addresses wrap.
    pub fn segments(&self, iova: u64, len: u64) -> Result<Vec<DmaSegment>, u64> {
        let end = iova.checked_add(len).ok_or(u64::MAX)?;
        let mut segments: Vec<DmaSegment> = Vec::new();
        let mut at = iova;
        while at < end {
            let (&start, range) = self.range_before(at.saturating_add(1)).ok_or(at)?;
            let rest = (start + range.len).checked_sub(at).filter(|&rest| rest > 0).ok_or(at)?;
            let (region, offset) = range.memory.as_ref().ok_or(at)?;
            let len = rest.min(end - at) as usize;
            let segment =
                DmaSegment { region: region.clone(), offset: offset + (at - start) as usize, len };
            segments.push(segment);
            at += len as u64;
        }
        Ok(segments)
    }

    /// True if the file of a mapped range was truncated below the end of the range.
    pub fn is_lost(&self) -> bool {
        self.ranges.values().any(|range| range.memory.as_ref().is_some_and(|m| m.0.is_lost()))
    }
}

#[cfg(test)]
mod tests {
    use mqnet_sysio::memory::memory_file;

    use super::*;

    fn file(pages: usize, offset: u64) -> Option<(OwnedFd, u64)> {
        Some((memory_file("test", pages * 4096, false).unwrap(), offset))
    }

    // Goal: segments are found across adjacent mappings, and only if all of their addresses are
    // mapped.
    #[test]
    fn segments_cover_adjacent_ranges() {
        let mut dma = DmaMap::default();
        dma.map(0x1000, 0x2000, file(4, 4096)).unwrap();
        dma.map(0x3000, 0x1000, file(1, 0)).unwrap();
        dma.map(0x5000, 0x1000, None).unwrap();
        let found = dma.segments(0x2ff0, 0x20).unwrap();
        let shape: Vec<_> = found.iter().map(|s| (s.offset, s.len)).collect();
        assert_eq!(shape, [(0x1ff0, 0x10), (0, 0x10)]);
        assert_eq!(dma.segments(0x3ff0, 0x20).unwrap_err(), 0x4000);
        assert_eq!(dma.segments(0xfff, 1).unwrap_err(), 0xfff);
        assert_eq!(dma.segments(0x5000, 1).unwrap_err(), 0x5000, "memory without a descriptor");
        assert_eq!(dma.segments(u64::MAX, 2).unwrap_err(), u64::MAX);
        assert!(dma.segments(u64::MAX, 0).unwrap().is_empty());
    }

    // Goal: ranges that overlap, are empty, wrap, or exceed their file or the limits are rejected
    // without effect.
    #[test]
    fn impossible_ranges_are_refused() {
        let mut dma = DmaMap::default();
        dma.map(0x2000, 0x2000, file(2, 0)).unwrap();
        for (iova, len) in [(0x2000, 0x2000), (0x1000, 0x1001), (0x3fff, 1), (0, u64::MAX)] {
            let refused = dma.map(iova, len, file(2, 0)).unwrap_err();
            assert!(matches!(refused, MessageError::DmaOverlap { with: 0x2000, .. }), "{refused}");
        }
        for (iova, len) in [(0, 0), (u64::MAX, 2)] {
            let refused = dma.map(iova, len, None).unwrap_err();
            assert_eq!(refused, MessageError::DmaEmpty { iova, len });
        }
        for (len, offset) in [(0x2001, 0), (0x2000, 1), (0x1000, u64::MAX)] {
            let refused = dma.map(0x8000, len, file(2, offset)).unwrap_err();
            assert!(matches!(refused, MessageError::DmaMemory { .. }), "{refused}");
        }
        let refused = dma.map(1 << 32, BYTES_MAX, None).unwrap_err();
        assert!(matches!(refused, MessageError::DmaLimit { .. }));
        assert_eq!((dma.ranges(), dma.bytes()), (1, 0x2000));
        for n in 1..RANGES_MAX as u64 {
            dma.map(n << 20, 1, None).unwrap();
        }
        assert!(matches!(dma.map(1 << 40, 1, None), Err(MessageError::DmaLimit { .. })));
    }

    // Goal: a range is unmapped as a whole, alone or with others. A request for only a part of a
    // range is rejected.
    #[test]
    fn ranges_are_unmapped_as_a_whole() {
        let mut dma = DmaMap::default();
        for n in 1..=3 {
            dma.map(n * 0x1000, 0x1000, file(1, 0)).unwrap();
        }
        for (iova, len) in [(0x1000, 0xfff), (0x1001, 0xfff), (0x1800, 0x800), (0, 0x3001)] {
            let refused = dma.unmap(iova, len).unwrap_err();
            assert!(
                matches!(refused, MessageError::DmaDivides { .. }),
                "{iova:#x} {len:#x}: {refused}"
            );
        }
        assert_eq!(dma.ranges(), 3);
        dma.unmap(0x2000, 0x2000).unwrap();
        assert_eq!((dma.ranges(), dma.bytes()), (1, 0x1000));
        assert_eq!(dma.unmap(0x2000, 0x2000).unwrap_err().errno(), 2);
        dma.unmap(0, u64::MAX).unwrap();
        assert_eq!((dma.ranges(), dma.bytes()), (0, 0));
    }

    // Goal: `is_lost` returns true after a mapped file is truncated.
    #[test]
    fn truncated_memory_is_noticed() {
        let mut dma = DmaMap::default();
        let fd = memory_file("test", 8192, false).unwrap();
        let theirs = std::fs::File::from(fd.try_clone().unwrap());
        dma.map(0, 8192, Some((fd, 0))).unwrap();
        assert!(!dma.is_lost());
        theirs.set_len(4096).unwrap();
        assert!(dma.is_lost());
    }
}
