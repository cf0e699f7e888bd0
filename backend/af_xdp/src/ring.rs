//! Rings shared with the kernel. Each index runs freely and wraps at 2^32.

use std::sync::atomic::{AtomicU32, Ordering, fence};

use mqnet_shmem::AtomicTable;
use mqnet_sysio::xdp::RingOffsets;

/// Flag `XDP_RING_NEED_WAKEUP`: the kernel requires a wakeup call.
const NEED_WAKEUP: u32 = 1;

/// Location of the indices of a ring.
#[derive(Debug)]
struct Shared {
    table: AtomicTable,
    at: RingOffsets,
    size: u32,
}

impl Shared {
    #[inline]
    fn producer(&self) -> &AtomicU32 {
        self.table.word(self.at.producer)
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        self.table.word(self.at.consumer)
    }

    /// Slot of the entry with index `number`.
    #[inline]
    fn slot(&self, number: u32) -> u16 {
        (number & (self.size - 1)) as u16
    }
}

/// Ring that this process fills (TX, fill).
#[derive(Debug)]
pub(crate) struct Producing {
    shared: Shared,
    /// Index of the next entry to write.
    next: u32,
    /// Index up to which entries are published.
    published: u32,
    /// Consumer index of the kernel, when last read.
    taken: u32,
}

impl Producing {
    /// State of an unused ring of `size` entries, a power of two.
    pub(crate) fn new(table: AtomicTable, at: RingOffsets, size: u32) -> Self {
        Self { shared: Shared { table, at, size }, next: 0, published: 0, taken: 0 }
    }

    /// Number of entries that can be written. Reads the kernel's index only if fewer than
    /// `enough` entries are known to be free.
    #[inline]
    pub(crate) fn free(&mut self, enough: u32) -> u32 {
        let free = self.known_free();
        if free >= enough {
            return free;
        }
        self.read_consumer();
        self.known_free()
    }

    #[inline]
    fn known_free(&self) -> u32 {
        // With an invalid index the ring counts as full, so no entry is overwritten.
        self.shared.size.saturating_sub(self.next.wrapping_sub(self.taken))
    }

    #[inline]
    fn read_consumer(&mut self) {
        // Pairs with the kernel's release of its consumer index: the kernel has read the entries
        // before the index, so they may be overwritten.
        self.taken = self.shared.consumer().load(Ordering::Acquire);
    }

    /// Reserves the next entry and returns its slot. At least one entry must be free.
    #[inline]
    pub(crate) fn push(&mut self) -> u16 {
        let slot = self.shared.slot(self.next);
        self.next = self.next.wrapping_add(1);
        slot
    }

    /// Publishes the written entries; false if there is no new one.
    #[inline]
    pub(crate) fn publish(&mut self) -> bool {
        if self.published == self.next {
            return false;
        }
        self.published = self.next;
        // Pairs with the kernel's acquire of this index: the entries are visible before the
        // index.
        self.shared.producer().store(self.next, Ordering::Release);
        true
    }

    /// Number of published entries that the kernel has not consumed.
    #[inline]
    pub(crate) fn waiting(&mut self) -> u32 {
        self.read_consumer();
        self.published.wrapping_sub(self.taken)
    }

    /// Slot of unconsumed entry `number`, counted from the consumer index that was last read.
    pub(crate) fn waiting_at(&self, number: u32) -> u16 {
        self.shared.slot(self.taken.wrapping_add(number))
    }

    /// True if the kernel requires a wakeup call for published entries.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        // Pairs with the kernel, which sets the flag and reads the index again before it sleeps.
        // Orders this process's store of the index before the load of the flag.
        fence(Ordering::SeqCst);
        self.shared.table.word(self.shared.at.flags).load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }
}

/// Ring that this process empties (RX, completion).
#[derive(Debug)]
pub(crate) struct Consuming {
    shared: Shared,
    /// Index of the next entry to consume.
    next: u32,
    /// Producer index of the kernel, when last read.
    filled: u32,
}

impl Consuming {
    /// State of an unused ring of `size` entries, a power of two.
    pub(crate) fn new(table: AtomicTable, at: RingOffsets, size: u32) -> Self {
        Self { shared: Shared { table, at, size }, next: 0, filled: 0 }
    }

    /// Number of entries that can be consumed. Reads the kernel's index only if fewer than
    /// `enough` entries are known.
    #[inline]
    pub(crate) fn available(&mut self, enough: u32) -> u32 {
        let known = self.known();
        if known >= enough {
            return known;
        }
        // Pairs with the kernel's release of this index: the entries before the index are
        // visible.
        self.filled = self.shared.producer().load(Ordering::Acquire);
        self.known()
    }

    #[inline]
    fn known(&self) -> u32 {
        // With an invalid index, at most one full ring is consumed.
        self.filled.wrapping_sub(self.next).min(self.shared.size)
    }

    /// Slot of the entry that is `ahead` entries after the next one.
    #[inline]
    pub(crate) fn slot(&self, ahead: u32) -> u16 {
        self.shared.slot(self.next.wrapping_add(ahead))
    }

    /// Consumes entries, which the kernel may overwrite afterwards.
    #[inline]
    pub(crate) fn take(&mut self, entries: u32) {
        self.next = self.next.wrapping_add(entries);
        // Pairs with the kernel's acquire of this index: this process has read the entries
        // before.
        self.shared.consumer().store(self.next, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mqnet_shmem::Region;
    use proptest::prelude::*;

    use super::*;

    const AT: RingOffsets = RingOffsets { producer: 0, consumer: 64, flags: 128, entries: 192 };

    fn tables() -> [AtomicTable; 2] {
        let region = Arc::new(Region::private(4096, false, None).unwrap());
        [(); 2].map(|()| AtomicTable::new(region.clone(), 0, 4096).unwrap())
    }

    /// Producer and consumer of one ring with indices that begin at `start`.
    fn ring(size: u32, start: u32) -> (Producing, Consuming) {
        let [one, two] = tables();
        one.word(AT.producer).store(start, Ordering::Relaxed);
        one.word(AT.consumer).store(start, Ordering::Relaxed);
        let (mut put, mut take) = (Producing::new(one, AT, size), Consuming::new(two, AT, size));
        (put.next, put.published, put.taken) = (start, start, start);
        (take.next, take.filled) = (start, start);
        (put, take)
    }

    proptest! {
        // Goal: for any sequence of steps and any wrap of the indices, entries are consumed as
        // published and in order. No unconsumed entry is overwritten.
        #[test]
        fn entries_are_consumed_as_published(
            shift in 0u32..6,
            start in prop_oneof![Just(0u32), Just(u32::MAX - 3), any::<u32>()],
            steps in proptest::collection::vec((0u8..3, 1u32..9), 1..200),
        ) {
            let size = 1 << shift;
            let (mut put, mut take) = ring(size, start);
            let mut slots = vec![0u32; size as usize];
            let (mut written, mut published, mut read) = (0u32, 0u32, 0u32);
            for (step, n) in steps {
                match step {
                    0 => {
                        let free = put.free(n);
                        prop_assert!(free <= size - (written - read));
                        prop_assert!(free >= n || free == size - (written - read));
                        for _ in 0..n.min(free) {
                            slots[usize::from(put.push())] = written;
                            written += 1;
                        }
                    }
                    1 => {
                        prop_assert_eq!(put.publish(), published != written);
                        published = written;
                        prop_assert_eq!(put.waiting(), published - read);
                    }
                    _ => {
                        let there = take.available(n);
                        prop_assert!(there <= published - read);
                        prop_assert!(there >= n || there == published - read);
                        let n = n.min(there);
                        for ahead in 0..n {
                            prop_assert_eq!(slots[usize::from(take.slot(ahead))], read + ahead);
                        }
                        take.take(n);
                        read += n;
                    }
                }
            }
        }

        // Goal: with any index of the kernel, the number of entries never exceeds the ring.
        #[test]
        fn invalid_indices_stay_in_ring(producer in any::<u32>(), consumer in any::<u32>()) {
            let (mut put, mut take) = ring(8, 5);
            put.shared.consumer().store(consumer, Ordering::Relaxed);
            prop_assert!(put.free(9) <= 8);
            take.shared.producer().store(producer, Ordering::Relaxed);
            prop_assert!(take.available(9) <= 8);
        }
    }

    // Goal: a wakeup is required exactly when the kernel sets the flag.
    #[test]
    fn wakeup_follows_the_kernels_flag() {
        let (put, _) = ring(8, 0);
        assert!(!put.needs_wakeup());
        put.shared.table.word(AT.flags).store(NEED_WAKEUP, Ordering::Relaxed);
        assert!(put.needs_wakeup());
    }
}
