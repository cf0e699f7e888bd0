//! Parts common to the RX and TX sides of a socket: descriptor, form of the rings, chunks.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mqnet_shmem::{AtomicTable, Region, RegionPart};
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::xdp::{RingKind, RingOffsets, XdpSocket};

use crate::pages::CHUNK;

/// Option `XDP_PKT_CONTD`: the frame continues in the next entry.
const CONTINUES: u32 = 1;

/// Socket, shared by its two sides.
#[derive(Debug)]
pub(crate) struct Xsk {
    pub(crate) socket: XdpSocket,
    /// True if the kernel has left TX entries after repeated wakeup calls. The next kick of the TX
    /// queue, or the RX queue, calls again.
    pub(crate) is_stuck: AtomicBool,
    /// Wakes the RX queue, which repeats the wakeup for TX while the lane of the TX queue sleeps.
    pub(crate) wakeup: Arc<EventFd>,
    /// True in zero-copy mode: the driver reads and writes the UMEM.
    pub(crate) zero_copy: AtomicBool,
}

impl Xsk {
    pub(crate) fn new(socket: XdpSocket) -> io::Result<Self> {
        let (is_stuck, zero_copy) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { socket, is_stuck, wakeup: Arc::new(EventFd::new()?), zero_copy })
    }

    /// Sets `is_stuck`; wakes the RX queue if the value changes to true.
    pub(crate) fn note_stuck(&self, is_stuck: bool) {
        if !self.is_stuck.swap(is_stuck, Ordering::Relaxed) && is_stuck {
            // An error is ignored: writing to this process's own eventfd does not fail.
            let _ = self.wakeup.ring();
        }
    }
}

/// Entry of an RX or TX ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Desc {
    pub(crate) address: u64,
    pub(crate) len: u32,
    pub(crate) continues: bool,
}

impl Desc {
    pub(crate) fn read(entry: &[AtomicU64; 2]) -> Self {
        let [a, b, c, d, e, f, g, h] = entry[1].load(Ordering::Relaxed).to_ne_bytes();
        Self {
            address: entry[0].load(Ordering::Relaxed),
            len: u32::from_ne_bytes([a, b, c, d]),
            continues: u32::from_ne_bytes([e, f, g, h]) & CONTINUES != 0,
        }
    }

    pub(crate) fn write(self, entry: &[AtomicU64; 2]) {
        let [a, b, c, d] = self.len.to_ne_bytes();
        let [e, f, g, h] = u32::from(self.continues).to_ne_bytes();
        entry[0].store(self.address, Ordering::Relaxed);
        entry[1].store(u64::from_ne_bytes([a, b, c, d, e, f, g, h]), Ordering::Relaxed);
    }
}

/// Range of chunks of the UMEM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunks {
    base: u64,
    count: u16,
}

impl Chunks {
    pub(crate) fn of(part: &RegionPart) -> Self {
        Self { base: part.offset() as u64, count: (part.len() / CHUNK as usize) as u16 }
    }

    /// Number of chunks.
    pub(crate) fn count(&self) -> u16 {
        self.count
    }

    /// UMEM address of a chunk.
    pub(crate) fn address(&self, number: u16) -> u64 {
        self.base + u64::from(number) * u64::from(CHUNK)
    }

    /// Number of the chunk that contains this address, and the offset in it; `None` outside of
    /// the range.
    #[inline]
    pub(crate) fn find(&self, address: u64) -> Option<(u16, u32)> {
        let offset = address.wrapping_sub(self.base);
        let number = offset / u64::from(CHUNK);
        let inside = number < u64::from(self.count);
        inside.then_some((number as u16, (offset % u64::from(CHUNK)) as u32))
    }
}

/// Maps a ring with its indices and entries; `Err` if the kernel's layout is unknown.
pub(crate) fn map(socket: &XdpSocket, kind: RingKind, size: u16, entry: u32) -> io::Result<Mapped> {
    let at = socket.offsets(kind)?;
    let len = at.entries + u32::from(size) * entry;
    let region = Region::of_socket(socket.as_fd(), kind.offset(), len as usize);
    let region = Arc::new(region.map_err(io::Error::other)?);
    let bad = || io::Error::other("the kernel's rings have an unknown layout");
    let table = || AtomicTable::new(region.clone(), 0, len).ok_or_else(bad);
    let fits = [at.producer, at.consumer, at.flags].iter().all(|&word| word + 4 <= at.entries);
    if !fits {
        return Err(bad());
    }
    Ok(Mapped { indices: table()?, entries: table()?, at })
}

/// A mapped ring.
pub(crate) struct Mapped {
    pub(crate) indices: AtomicTable,
    pub(crate) entries: AtomicTable,
    pub(crate) at: RingOffsets,
}

pub(crate) fn no_entries() -> io::Error {
    io::Error::other("the kernel's rings are not aligned")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chunks() -> Chunks {
        let mut all = RegionPart::whole(Region::private(16 * 4096, false, None).unwrap());
        all.take(3 * 4096).unwrap();
        Chunks::of(&all.take(4 * 4096).unwrap())
    }

    proptest! {
        // Goal: each address in the range is found in the chunk that contains it, and other
        // addresses in none.
        #[test]
        fn addresses_are_found(address in 0u64..16 * 4096) {
            let chunks = chunks();
            let inside = (3 * 4096..7 * 4096).contains(&address);
            match chunks.find(address) {
                None => prop_assert!(!inside),
                Some((number, offset)) => {
                    prop_assert!(inside);
                    prop_assert_eq!(chunks.address(number) + u64::from(offset), address);
                    prop_assert!(offset < CHUNK);
                }
            }
        }

        // Goal: entries are read as written.
        #[test]
        fn entries_are_read_as_written(address: u64, len: u32, continues: bool) {
            let (desc, entry) = (Desc { address, len, continues }, Default::default());
            desc.write(&entry);
            prop_assert_eq!(Desc::read(&entry), desc);
        }
    }

    // Goal: an invalid address maps to no chunk.
    #[test]
    fn invalid_addresses_map_to_no_chunk() {
        assert!([u64::MAX, 0, 7 * 4096].iter().all(|&at| chunks().find(at).is_none()));
    }
}
