//! RX and TX side of a socket, with their rings and their parts of the UMEM.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mqnet_shmem::{Column, ReadView, RegionPart, Span, Window};
use mqnet_sysio::xdp::RingKind;

use crate::pages::{CHUNK, Closing, Pages};
use crate::ring::{Consuming, Producing};
use crate::shared::{Chunks, Desc, Xsk, map, no_entries};

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
    /// Maps the rings of `size` entries, and adds all chunks to the fill ring; `memory` must have
    /// `size` chunks. When the side is dropped, its detached pages pass to `closing`.
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
        (0..side.chunks.count()).for_each(|number| side.give_back(number));
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
    /// Maps the rings of `size` entries; `memory` must have `size` chunks.
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
            free: (0..chunks.count()).rev().collect(),
            lens: vec![0; chunks.count().into()].into(),
            bytes: 0,
            chunks,
            window: memory.into_window(),
        })
    }

    /// Frees the chunks of completed entries; `Err` for a chunk that was not sent.
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
