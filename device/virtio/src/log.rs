//! Dirty log of a live migration: one bit for each written page of the guest.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;

use mqnet_shmem::AtomicTable;

/// Binary logarithm of the page size in the log.
const PAGE_SHIFT: u32 = 12;

/// Bitmap of written pages in shared memory. The frontend reads and clears bits while the device
/// sets them.
#[derive(Debug)]
pub struct Log {
    bits: AtomicTable,
}

impl Log {
    /// Creates a log in the memory `bits`, with eight pages per byte.
    pub fn new(bits: AtomicTable) -> Self {
        Self { bits }
    }

    /// Marks `len` bytes at guest-physical address `at` as written. Call the function after the
    /// write: if the frontend copied the page before the write, the mark makes it copy the page
    /// again. Pages beyond the log are ignored, because the frontend sizes the log by the guest's
    /// memory.
    pub fn mark(&self, at: u64, len: u32) {
        if len == 0 {
            return;
        }
        // Pairs with the frontend's exchange of the word: the write is visible before its bit.
        fence(SeqCst);
        let last = at.saturating_add(u64::from(len) - 1) >> PAGE_SHIFT;
        for page in at >> PAGE_SHIFT..=last {
            let byte = page / 8;
            if byte >= u64::from(self.bits.len()) {
                return;
            }
            let bit = 1u8 << (page % 8);
            let byte = self.bits.byte(byte as u32);
            // Read first: the cache line stays shared if the bit is set already.
            if byte.load(Relaxed) & bit == 0 {
                byte.fetch_or(bit, Relaxed);
            }
        }
    }
}

/// Log and guest addresses of a ring, for the device's writes to the ring.
#[derive(Clone, Debug)]
pub struct RingLog {
    /// Dirty log.
    pub log: Arc<Log>,
    /// Guest-physical address of the descriptors, which the device writes in packed rings.
    pub desc: u64,
    /// Guest-physical address of the device area.
    pub device: u64,
}

impl RingLog {
    pub(crate) fn device(&self, at: u32, len: u32) {
        self.log.mark(self.device.saturating_add(at.into()), len);
    }

    pub(crate) fn descriptors(&self, at: u32, len: u32) {
        self.log.mark(self.desc.saturating_add(at.into()), len);
    }
}

#[cfg(test)]
mod tests {
    use mqnet_shmem::Region;
    use proptest::prelude::*;

    use super::*;

    fn log(len: u32) -> Log {
        let region = Arc::new(Region::private(4096, false, None).unwrap());
        Log::new(AtomicTable::new(region, 0, len).unwrap())
    }

    proptest! {
        // Goal: exactly the written pages are marked (the oracle checks each page), and a write
        // beyond the log is harmless.
        #[test]
        fn exactly_the_written_pages_are_marked(at in 0u64..600 << 12, len in 0u32..100_000) {
            let log = log(64);
            log.mark(at, len);
            for page in 0..512u64 {
                let (from, to) = (page << 12, (page + 1) << 12);
                let touched = len > 0 && at < to && at + u64::from(len) > from;
                let word = u64::from_le(log.bits.double((page / 64 * 8) as u32).load(Relaxed));
                prop_assert_eq!(word >> (page % 64) & 1 == 1, touched, "page {}", page);
            }
        }
    }

    // Goal: addresses at the end of the address space cause no panic.
    #[test]
    fn out_of_range_addresses_are_ignored() {
        log(64).mark(u64::MAX, u32::MAX);
        log(0).mark(0, 1);
    }
}
