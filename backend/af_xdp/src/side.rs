//! RX and TX side of a socket, with their rings and their parts of the UMEM.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mqnet_shmem::{AtomicTable, Column, ReadView, Region, RegionPart, Span, Window};
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::xdp::{RingKind, XdpSocket};

use crate::pages::{CHUNK, Closing, Pages};
use crate::ring::{Consuming, Producing};

/// Option `XDP_PKT_CONTD`: the frame continues in the next entry.
const CONTINUES: u32 = 1;

/// Socket, shared by its two sides.
#[derive(Debug)]
pub(crate) struct Xsk {
    pub(crate) socket: XdpSocket,
    /// True if the kernel has not consumed all TX entries, and no further wakeup is due.
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

    /// Records whether the kernel has left TX entries, and wakes the RX queue if it newly has.
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
    fn read(entry: &[AtomicU64; 2]) -> Self {
        let [a, b, c, d, e, f, g, h] = entry[1].load(Ordering::Relaxed).to_ne_bytes();
        Self {
            address: entry[0].load(Ordering::Relaxed),
            len: u32::from_ne_bytes([a, b, c, d]),
            continues: u32::from_ne_bytes([e, f, g, h]) & CONTINUES != 0,
        }
    }

    fn write(self, entry: &[AtomicU64; 2]) {
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
    fn of(part: &RegionPart) -> Self {
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
fn map(socket: &XdpSocket, kind: RingKind, size: u16, entry: u32) -> io::Result<Mapped> {
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

struct Mapped {
    indices: AtomicTable,
    entries: AtomicTable,
    at: mqnet_sysio::xdp::RingOffsets,
}

fn no_entries() -> io::Error {
    io::Error::other("the kernel's rings are not aligned")
}

/// RX side of a socket: RX ring and fill ring.
#[derive(Debug)]
pub(crate) struct RxSide {
    pub(crate) xsk: Arc<Xsk>,
    pub(crate) rx: Consuming,
    descs: Column<[AtomicU64; 2]>,
    fill: Producing,
    addresses: Column<AtomicU64>,
    pub(crate) chunks: Chunks,
    /// View of all chunks, including detached ones.
    sight: ReadView,
    /// Chunks as pages. Used only when a frame is detached with its memory, and when that memory
    /// returns.
    pub(crate) pages: Pages,
}

impl RxSide {
    /// Maps the rings of `size` entries, and adds all chunks to the fill ring; there must be as
    /// many. When the side is dropped, its detached pages pass to `closing`.
    pub(crate) fn new(
        xsk: Arc<Xsk>,
        size: u16,
        memory: RegionPart,
        closing: &Arc<Closing>,
    ) -> io::Result<Self> {
        let rx = map(&xsk.socket, RingKind::Rx, size, 16)?;
        let fill = map(&xsk.socket, RingKind::Fill, size, 8)?;
        let descs = Column::new(&rx.entries, rx.at.entries, size).ok_or_else(no_entries)?;
        let addresses = Column::new(&fill.entries, fill.at.entries, size);
        let mut side = Self {
            xsk,
            rx: Consuming::new(rx.indices, rx.at, size.into()),
            descs,
            fill: Producing::new(fill.indices, fill.at, size.into()),
            addresses: addresses.ok_or_else(no_entries)?,
            chunks: Chunks::of(&memory),
            sight: memory.sight(),
            pages: Pages::over(memory, closing.clone()).map_err(io::Error::other)?,
        };
        (0..side.chunks.count).for_each(|number| side.give_back(number));
        side.fill.publish();
        Ok(side)
    }

    /// Entry of the RX ring that is `ahead` entries after the next one.
    #[inline]
    pub(crate) fn desc(&self, ahead: u32) -> Desc {
        Desc::read(self.descs.at(self.rx.slot(ahead)))
    }

    /// Span of `len` bytes in a chunk, from `offset` on; `None` if it exceeds the chunk.
    #[inline]
    pub(crate) fn piece(&self, number: u16, offset: u32, len: u32) -> Option<Span<'_>> {
        if offset.checked_add(len)? > CHUNK {
            return None;
        }
        self.sight.piece(u32::from(number) * CHUNK + offset, len)
    }

    /// Adds a chunk to the fill ring; the next [`refill`](Self::refill) publishes it.
    #[inline]
    pub(crate) fn give_back(&mut self, number: u16) {
        // The fill ring has space for every chunk.
        let address = self.chunks.address(number);
        self.addresses.at(self.fill.push()).store(address, Ordering::Relaxed);
    }

    /// Publishes the fill ring; true if there are new entries and the kernel requires a wakeup.
    #[inline]
    pub(crate) fn refill(&mut self) -> bool {
        self.fill.publish() && self.fill.needs_wakeup()
    }

    /// Adds returned pages of detached frames to the fill ring; the next [`refill`](Self::refill)
    /// publishes them.
    #[cold]
    pub(crate) fn restock(&mut self) {
        while let Some(number) = self.pages.next_returned() {
            self.give_back(number);
        }
    }

    /// True if the driver waits, or has waited, for chunks and requires a wakeup.
    pub(crate) fn fill_needs_wakeup(&self) -> bool {
        self.fill.needs_wakeup()
    }

    /// Discards all entries of the RX ring; returns the number of complete frames.
    pub(crate) fn discard(&mut self) -> u64 {
        let mut frames = 0;
        let waiting = self.rx.available(u32::MAX);
        for ahead in 0..waiting {
            let desc = self.desc(ahead);
            frames += u64::from(!desc.continues);
            if let Some((number, _)) = self.chunks.find(desc.address) {
                self.give_back(number);
            }
        }
        self.rx.take(waiting);
        if self.refill() {
            // An error is ignored: the wakeup is repeated with the next frames.
            let _ = self.xsk.socket.wake_rx();
        }
        frames
    }
}

impl AsFd for RxSide {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.xsk.socket.as_fd()
    }
}

/// TX side of a socket: TX ring and completion ring.
#[derive(Debug)]
pub(crate) struct TxSide {
    pub(crate) xsk: Arc<Xsk>,
    pub(crate) tx: Producing,
    descs: Column<[AtomicU64; 2]>,
    done: Consuming,
    addresses: Column<AtomicU64>,
    pub(crate) chunks: Chunks,
    /// Memory of the chunks, for writing.
    pub(crate) window: Window,
    /// Numbers of the free chunks.
    pub(crate) free: Vec<u16>,
    /// Number of bytes in each chunk that was sent and is not completed; 0 for other chunks.
    lens: Box<[u16]>,
    /// Sum of `lens`.
    pub(crate) bytes: u32,
}

/// Error for a completed chunk that was not sent, with its address.
#[derive(Debug)]
pub(crate) struct ForeignChunk(pub(crate) u64);

impl TxSide {
    /// Maps the rings of `size` entries; there must be as many chunks.
    pub(crate) fn new(xsk: Arc<Xsk>, size: u16, memory: RegionPart) -> io::Result<Self> {
        let tx = map(&xsk.socket, RingKind::Tx, size, 16)?;
        let done = map(&xsk.socket, RingKind::Completion, size, 8)?;
        let addresses = Column::new(&done.entries, done.at.entries, size);
        let chunks = Chunks::of(&memory);
        Ok(Self {
            xsk,
            tx: Producing::new(tx.indices, tx.at, size.into()),
            descs: Column::new(&tx.entries, tx.at.entries, size).ok_or_else(no_entries)?,
            done: Consuming::new(done.indices, done.at, size.into()),
            addresses: addresses.ok_or_else(no_entries)?,
            free: (0..chunks.count).rev().collect(),
            lens: vec![0; chunks.count.into()].into(),
            bytes: 0,
            chunks,
            window: memory.into_window(),
        })
    }

    /// Frees the chunks of completed entries.
    pub(crate) fn reclaim(&mut self) -> Result<(), ForeignChunk> {
        let done = self.done.available(u32::MAX);
        for ahead in 0..done {
            let address = self.addresses.at(self.done.slot(ahead)).load(Ordering::Relaxed);
            let found = self.chunks.find(address).map(|(number, _)| number);
            let number =
                found.filter(|&n| self.lens[usize::from(n)] > 0).ok_or(ForeignChunk(address));
            let number = number?;
            self.bytes -= u32::from(std::mem::take(&mut self.lens[usize::from(number)]));
            self.free.push(number);
        }
        if done > 0 {
            self.done.take(done);
        }
        Ok(())
    }

    /// True if a frame of `chunks` chunks can be sent.
    #[inline]
    pub(crate) fn has_room(&mut self, chunks: usize) -> Result<bool, ForeignChunk> {
        if self.free.len() < chunks {
            self.reclaim()?;
        }
        Ok(self.free.len() >= chunks && self.tx.free(chunks as u32) as usize >= chunks)
    }

    /// Adds a chunk with `len` bytes to the TX ring.
    #[inline]
    pub(crate) fn push(&mut self, number: u16, len: u32, continues: bool) {
        self.lens[usize::from(number)] = len as u16;
        self.bytes += len;
        let address = self.chunks.address(number);
        Desc { address, len, continues }.write(self.descs.at(self.tx.push()));
    }

    /// Number of sent frames that the kernel has not consumed.
    pub(crate) fn waiting_frames(&mut self) -> u64 {
        let waiting = 0..self.tx.waiting();
        let last = |n: &u32| !Desc::read(self.descs.at(self.tx.waiting_at(*n))).continues;
        waiting.filter(last).count() as u64
    }
}

impl AsFd for TxSide {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.xsk.socket.as_fd()
    }
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
