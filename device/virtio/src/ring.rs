//! What a device does with a ring, split or packed.
//!
//! A device uses chains in the order in which they were made available. So there is one position,
//! up to which everything is used; what lies beyond it can be looked at any number of times, and
//! is the driver's again without having been touched when the device stops or dies.

use mqnet_shmem::{MemoryMap, Table};

use crate::chain::{Chain, Head, Piece};
use crate::{Broken, packed, split};

/// A chain that is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// By which the driver knows it.
    pub id: u16,
    /// Descriptors of the ring that it takes up.
    pub slots: u16,
    /// Bytes that were written into it.
    pub len: u32,
}

/// The device's side of a ring.
pub trait DeviceRing {
    /// A position in it.
    type Place: Copy;

    /// Which virtqueue it is.
    fn queue(&self) -> u16;

    /// Its descriptors.
    fn size(&self) -> u16;

    /// Where the next chain to be used is.
    fn place(&self) -> Self::Place;

    /// True when there is a chain to be used.
    fn has_chain(&mut self) -> Result<bool, Broken>;

    /// Reads the first descriptor of the chain at `place` and moves on behind it; `None` when there
    /// is none.
    fn head_at(&mut self, place: &mut Self::Place) -> Result<Option<Head>, Broken>;

    /// The same for the next chain to be used, without moving on.
    #[inline(always)]
    fn next_head(&mut self) -> Result<Option<Head>, Broken> {
        self.head_at(&mut self.place())
    }

    /// Reads the first descriptors of up to `most` chains of one descriptor, from `place` on, and
    /// moves on behind those that `take` wants. False when no chain follows them.
    #[inline(always)]
    fn heads(
        &mut self,
        place: &mut Self::Place,
        most: usize,
        mut take: impl FnMut(Head) -> bool,
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

    /// Reads the rest of a chain that is not simple, for which `place` moves on. The pieces after
    /// the first are appended to `list`.
    fn whole_chain(
        &self,
        head: &Head,
        place: &mut Self::Place,
        memory: &MemoryMap,
        list: &mut Vec<Piece>,
    ) -> Result<Chain, Broken>;

    /// Reads the chain at `place`, whatever it is, and moves on behind it; `None` when there is
    /// none. The pieces after the chain's first are appended to `list`.
    #[inline]
    fn chain_at(
        &mut self,
        place: &mut Self::Place,
        memory: &MemoryMap,
        list: &mut Vec<Piece>,
    ) -> Result<Option<Chain>, Broken> {
        let Some(head) = self.head_at(place)? else { return Ok(None) };
        if head.is_simple() {
            return Ok(Some(Chain::single(&head)));
        }
        self.whole_chain(&head, place, memory, list).map(Some)
    }

    /// Gives the next chain back to the driver, with `len` bytes written into it. `id` and `slots`
    /// are those of the chain. The driver sees it after [`publish`](Self::publish).
    fn give_back(&mut self, id: u16, slots: u16, len: u32);

    /// The same with the next ones, in this order.
    #[inline(always)]
    fn give_back_all(&mut self, chains: impl Iterator<Item = Used>) {
        for Used { id, slots, len } in chains {
            self.give_back(id, slots, len);
        }
    }

    /// Gives the next `chains` chains back, into none of which anything was written, with one mark
    /// for all of them, as drivers allow that rely on the order (`IN_ORDER`). They take up `slots`
    /// descriptors; `id` is the last one's. False, and nothing is done, where each needs its own.
    fn give_back_many(&mut self, id: u16, slots: u16, chains: u16) -> bool;

    /// Shows the driver what was given back; true when it wants to be told.
    fn publish(&mut self) -> bool;

    /// Asks the driver to tell when there is a chain at `place`; true when there is one already.
    fn arm(&mut self, place: Self::Place) -> Result<bool, Broken>;

    /// The driver need not tell any more.
    fn disarm(&mut self);

    /// The position as a frontend keeps it (`VRING_BASE`), to go on from there later.
    fn base(&self) -> u32;
}

/// A ring of either layout. What is done with many chains is matched once.
#[derive(Debug)]
pub enum Ring {
    /// Virtio 1.3, 2.7.
    Split(split::Device),
    /// Virtio 1.3, 2.8.
    Packed(packed::Device),
}

/// The same expression for either layout.
#[macro_export]
macro_rules! on_ring {
    ($ring:expr, $name:ident => $what:expr) => {
        match $ring {
            $crate::Ring::Split($name) => $what,
            $crate::Ring::Packed($name) => $what,
        }
    };
}

/// A chain at `piece`, which is not memory of the driver.
#[cold]
pub fn not_memory(queue: u16, piece: Piece) -> Broken {
    let Piece { addr, len } = piece;
    Broken { queue, what: format!("a buffer of {len} bytes at {addr:#x}, which is no memory") }
}

/// True when the areas of a ring are as long, and as aligned, as they must be: so that nothing that
/// is read of them later can be out of place.
pub(crate) fn areas_fit(tables: [&Table; 3], lens: [u32; 3], aligns: [usize; 3]) -> bool {
    let needs = lens.into_iter().zip(aligns);
    tables.iter().zip(needs).all(|(table, (len, to))| table.len() >= len && table.is_aligned(to))
}

pub(crate) fn no_ring(queue: u16, layout: &str, size: u16, tables: [&Table; 3]) -> Broken {
    let lens = tables.map(Table::len);
    let aligned = tables.map(|table| [16, 4, 2].into_iter().find(|to| table.is_aligned(*to)));
    let aligned = aligned.map(|to| to.unwrap_or(1));
    let what = format!(
        "a {layout} ring of {size} descriptors in areas of {lens:?} bytes at multiples of \
         {aligned:?}"
    );
    Broken { queue, what }
}
