//! Indices of the rings that we share with the kernel: each runs freely and wraps at 2^32.

use std::sync::atomic::{AtomicU32, Ordering, fence};

use mqnet_shmem::Table;
use mqnet_sysio::xdp::RingOffsets;

/// The kernel wants to be told of news.
const NEED_WAKEUP: u32 = 1;

/// Where the indices of a ring are.
#[derive(Debug)]
struct Shared {
    table: Table,
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

    /// Where in the ring an entry lies.
    #[inline]
    fn place(&self, number: u32) -> u16 {
        (number & (self.size - 1)) as u16
    }
}

/// A ring into which we put entries (TX, fill).
#[derive(Debug)]
pub(crate) struct Producing {
    shared: Shared,
    /// The next entry to be written.
    next: u32,
    /// Of those written, the first that the kernel has not been shown.
    shown: u32,
    /// The first that the kernel had not taken when we looked last.
    taken: u32,
}

impl Producing {
    /// A ring of `size` entries, a power of two, that nobody has used.
    pub(crate) fn new(table: Table, at: RingOffsets, size: u32) -> Self {
        Self { shared: Shared { table, at, size }, next: 0, shown: 0, taken: 0 }
    }

    /// Entries that can be written. Looks at the kernel's index only when it knows of fewer than
    /// `enough`.
    #[inline]
    pub(crate) fn free(&mut self, enough: u32) -> u32 {
        let free = self.known_free();
        if free >= enough {
            return free;
        }
        self.look();
        self.known_free()
    }

    #[inline]
    fn known_free(&self) -> u32 {
        // An index that makes no sense means full: nothing is overwritten.
        self.shared.size.saturating_sub(self.next.wrapping_sub(self.taken))
    }

    #[inline]
    fn look(&mut self) {
        // Pairs with the kernel's release of what it has read: the entry may be written again.
        self.taken = self.shared.consumer().load(Ordering::Acquire);
    }

    /// Where the next entry is to be written. Call it only if there is a free one.
    #[inline]
    pub(crate) fn push(&mut self) -> u16 {
        let place = self.shared.place(self.next);
        self.next = self.next.wrapping_add(1);
        place
    }

    /// Shows the kernel what was written; false when there was nothing new.
    #[inline]
    pub(crate) fn show(&mut self) -> bool {
        if self.shown == self.next {
            return false;
        }
        self.shown = self.next;
        // Pairs with the kernel's acquire of this index: the entries before it.
        self.shared.producer().store(self.next, Ordering::Release);
        true
    }

    /// Entries that the kernel was shown and has not taken.
    #[inline]
    pub(crate) fn waiting(&mut self) -> u32 {
        self.look();
        self.shown.wrapping_sub(self.taken)
    }

    /// Where entry `number` of those waiting, as last looked at, lies.
    pub(crate) fn waiting_at(&self, number: u32) -> u16 {
        self.shared.place(self.taken.wrapping_add(number))
    }

    /// True when the kernel wants to be told that there are entries.
    #[inline]
    pub(crate) fn wants_wake(&self) -> bool {
        // Pairs with the kernel, which sets the flag and looks at the index once more before it
        // sleeps: our index before its flag.
        fence(Ordering::SeqCst);
        self.shared.table.word(self.shared.at.flags).load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }
}

/// A ring out of which we take entries (RX, completion).
#[derive(Debug)]
pub(crate) struct Consuming {
    shared: Shared,
    /// The next entry to be taken.
    next: u32,
    /// The first that had not been there when we looked last.
    filled: u32,
}

impl Consuming {
    /// A ring of `size` entries, a power of two, that nobody has used.
    pub(crate) fn new(table: Table, at: RingOffsets, size: u32) -> Self {
        Self { shared: Shared { table, at, size }, next: 0, filled: 0 }
    }

    /// Entries that can be taken. Looks at the kernel's index only when it knows of fewer than
    /// `enough`.
    #[inline]
    pub(crate) fn available(&mut self, enough: u32) -> u32 {
        let known = self.known();
        if known >= enough {
            return known;
        }
        // Pairs with the kernel's release of this index: the entries before it.
        self.filled = self.shared.producer().load(Ordering::Acquire);
        self.known()
    }

    #[inline]
    fn known(&self) -> u32 {
        // An index that makes no sense shows no entry twice.
        self.filled.wrapping_sub(self.next).min(self.shared.size)
    }

    /// Where the entry that is `ahead` of the next one lies.
    #[inline]
    pub(crate) fn place(&self, ahead: u32) -> u16 {
        self.shared.place(self.next.wrapping_add(ahead))
    }

    /// Takes entries, which the kernel may overwrite from now on.
    #[inline]
    pub(crate) fn take(&mut self, entries: u32) {
        self.next = self.next.wrapping_add(entries);
        // Pairs with the kernel's acquire of this index: what we read before.
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

    fn tables() -> [Table; 2] {
        let region = Arc::new(Region::private(4096, false, None).unwrap());
        [(); 2].map(|()| Table::new(region.clone(), 0, 4096).unwrap())
    }

    /// A producer and a consumer of one ring that has been used `start` times.
    fn ring(size: u32, start: u32) -> (Producing, Consuming) {
        let [one, two] = tables();
        one.word(AT.producer).store(start, Ordering::Relaxed);
        one.word(AT.consumer).store(start, Ordering::Relaxed);
        let (mut put, mut take) = (Producing::new(one, AT, size), Consuming::new(two, AT, size));
        (put.next, put.shown, put.taken) = (start, start, start);
        (take.next, take.filled) = (start, start);
        (put, take)
    }

    proptest! {
        // Goal: whatever is put, shown and taken, wherever the indices wrap: what is taken is what
        // was shown, in order, and nothing that was not taken is overwritten.
        #[test]
        fn a_ring_is_a_queue(
            shift in 0u32..6,
            start in prop_oneof![Just(0u32), Just(u32::MAX - 3), any::<u32>()],
            steps in proptest::collection::vec((0u8..3, 1u32..9), 1..200),
        ) {
            let size = 1 << shift;
            let (mut put, mut take) = ring(size, start);
            let mut slots = vec![0u32; size as usize];
            let (mut written, mut shown, mut read) = (0u32, 0u32, 0u32);
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
                        prop_assert_eq!(put.show(), shown != written);
                        shown = written;
                        prop_assert_eq!(put.waiting(), shown - read);
                    }
                    _ => {
                        let there = take.available(n);
                        prop_assert!(there <= shown - read);
                        prop_assert!(there >= n || there == shown - read);
                        let n = n.min(there);
                        for ahead in 0..n {
                            prop_assert_eq!(slots[usize::from(take.place(ahead))], read + ahead);
                        }
                        take.take(n);
                        read += n;
                    }
                }
            }
        }

        // Goal: an index that makes no sense lets us neither write nor read beyond a ring.
        #[test]
        fn nonsense_is_bounded(producer in any::<u32>(), consumer in any::<u32>()) {
            let (mut put, mut take) = ring(8, 5);
            put.shared.consumer().store(consumer, Ordering::Relaxed);
            prop_assert!(put.free(9) <= 8);
            take.shared.producer().store(producer, Ordering::Relaxed);
            prop_assert!(take.available(9) <= 8);
        }
    }

    // Goal: the kernel is told exactly when it asks.
    #[test]
    fn the_flag_is_read() {
        let (put, _) = ring(8, 0);
        assert!(!put.wants_wake());
        put.shared.table.word(AT.flags).store(NEED_WAKEUP, Ordering::Relaxed);
        assert!(put.wants_wake());
    }
}
