//! Operations of a device on a ring, for every layout.
//!
//! A device uses chains in the order in which they were made available. A single position therefore
//! separates used chains from available ones. Chains beyond this position can be read any number of
//! times. If the device stops or ends, they are still available, unchanged.

use mqnet_shmem::{AtomicTable, MemoryMap};

use crate::Broken;
use crate::chain::{BufferElement, Chain, ChainHead};

/// True if an index that moves from `old` to `new` passes `event` (virtio 1.3, 2.7.7.1).
#[inline]
pub(crate) fn passes(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

/// A chain to return as used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedChain {
    /// Buffer id.
    pub id: u16,
    /// Number of descriptors in the ring.
    pub slots: u16,
    /// Number of bytes written into the chain.
    pub len: u32,
}

/// Device side of a ring.
pub trait DeviceRing {
    /// Position in the ring.
    type Place: Copy;

    /// Number of the virtqueue.
    fn queue(&self) -> u16;

    /// Number of descriptors.
    fn size(&self) -> u16;

    /// Position of the next chain to use.
    fn place(&self) -> Self::Place;

    /// True if a chain is available.
    fn has_chain(&mut self) -> Result<bool, Broken>;

    /// Reads the first descriptor of the chain at `place` and advances `place` by one descriptor;
    /// `None` if no chain is available.
    fn head_at(&mut self, place: &mut Self::Place) -> Result<Option<ChainHead>, Broken>;

    /// Reads the first descriptor of the next chain without advancing.
    #[inline(always)]
    fn next_head(&mut self) -> Result<Option<ChainHead>, Broken> {
        self.head_at(&mut self.place())
    }

    /// Reads the first descriptors of up to `most` chains of one descriptor from `place` on, and
    /// advances past those that `take` accepts. Returns false if no further chain is available
    /// before `most` chains are accepted and before `take` rejects a chain.
    #[inline(always)]
    fn heads(
        &mut self,
        place: &mut Self::Place,
        most: usize,
        mut take: impl FnMut(ChainHead) -> bool,
    ) -> Result<bool, Broken> {
        for _ in 0..most {
            let mut next = *place;
            let Some(head) = self.head_at(&mut next)? else { return Ok(false) };
            if !take(head) {
                break;
            }
            *place = next;
        }
        Ok(true)
    }

    /// Reads the descriptors after `head` of a chain that is not simple, and advances `place`.
    /// Elements after the first are appended to `list`.
    fn whole_chain(
        &self,
        head: &ChainHead,
        place: &mut Self::Place,
        memory: &MemoryMap,
        list: &mut Vec<BufferElement>,
    ) -> Result<Chain, Broken>;

    /// Reads the chain at `place` and advances `place`; `None` if no chain is available. Elements
    /// after the first are appended to `list`.
    #[inline]
    fn chain_at(
        &mut self,
        place: &mut Self::Place,
        memory: &MemoryMap,
        list: &mut Vec<BufferElement>,
    ) -> Result<Option<Chain>, Broken> {
        let Some(head) = self.head_at(place)? else { return Ok(None) };
        if head.is_simple() {
            return Ok(Some(Chain::single(&head)));
        }
        self.whole_chain(&head, place, memory, list).map(Some)
    }

    /// Returns the next chain as used, with `len` bytes written; `id` and `slots` are those of the
    /// chain. The chain becomes visible to the driver with [`publish`](Self::publish).
    fn give_back(&mut self, id: u16, slots: u16, len: u32);

    /// Returns the next chains as used, in the order of `chains`.
    #[inline(always)]
    fn give_back_all(&mut self, chains: impl Iterator<Item = UsedChain>) {
        for UsedChain { id, slots, len } in chains {
            self.give_back(id, slots, len);
        }
    }

    /// Returns the next `chains` chains, without written bytes, by a single used entry
    /// (`IN_ORDER`). The chains have `slots` descriptors; `id` is that of the last chain. Returns
    /// false, without effect, if each chain needs a used entry.
    fn give_back_many(&mut self, id: u16, slots: u16, chains: u16) -> bool;

    /// Publishes the used chains. Returns true if the driver requests an interrupt.
    fn publish(&mut self) -> bool;

    /// Requests a notification when a chain at `place` becomes available. Returns true if that
    /// chain is available already.
    fn arm(&mut self, place: Self::Place) -> Result<bool, Broken>;

    /// Suppresses notifications.
    fn disarm(&mut self);

    /// Position after the published chains in the format of `VRING_BASE`, for a later resume.
    fn base(&self) -> u32;
}

/// Error for a chain whose element `piece` is outside the driver's memory.
#[cold]
pub fn not_memory(queue: u16, piece: BufferElement) -> Broken {
    let BufferElement { addr, len } = piece;
    Broken { queue, what: format!("a buffer of {len} bytes at {addr:#x}: not in guest memory") }
}

/// True if the areas of a ring have at least the required lengths and alignments, so that every
/// later access is in bounds and aligned.
pub(crate) fn areas_fit(tables: [&AtomicTable; 3], lens: [u32; 3], aligns: [usize; 3]) -> bool {
    let needs = lens.into_iter().zip(aligns);
    tables.iter().zip(needs).all(|(table, (len, to))| table.len() >= len && table.is_aligned(to))
}

pub(crate) fn no_ring(queue: u16, layout: &str, size: u16, tables: [&AtomicTable; 3]) -> Broken {
    let lens = tables.map(AtomicTable::len);
    let aligned = tables.map(|table| [16, 4, 2].into_iter().find(|to| table.is_aligned(*to)));
    let aligned = aligned.map(|to| to.unwrap_or(1));
    let what = format!(
        "a {layout} ring of {size} descriptors in areas of {lens:?} bytes at multiples of \
         {aligned:?}"
    );
    Broken { queue, what }
}
