//! Statistics under the names of the kernel's netlink family `netdev`.

macro_rules! statistics {
    ($($field:ident $name:literal $doc:literal;)*) => {
        /// Statistics of a pool since its creation.
        ///
        /// Each allocated page counts once: in `alloc_fast`, `alloc_refill`, `alloc_slow` or
        /// `alloc_slow_high_order`. Each page freed by the owner counts once: in `recycle_cached`
        /// or `recycle_cache_full`. Each page freed by another thread counts once, in
        /// `recycle_ring`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct PoolStats {
            $(#[doc = $doc] pub $field: u64,)*
            /// Pages taken from the arena, modulo 2^32.
            pub hold: u32,
            /// Pages released to the arena or abandoned, modulo 2^32.
            pub release: u32,
            /// Page size in bytes.
            pub page_size: u32,
        }

        impl PoolStats {
            /// Number of counters.
            pub const COUNTERS: usize = [$($name),*].len();

            /// Creates the statistics from counters in the order of [`counters`](Self::counters).
            pub fn of(
                counters: [u64; Self::COUNTERS],
                [hold, release, page_size]: [u32; 3],
            ) -> Self {
                let [$($field),*] = counters;
                Self { $($field,)* hold, release, page_size }
            }

            /// Counters with their names, in the kernel's order.
            pub fn counters(&self) -> [(&'static str, u64); Self::COUNTERS] {
                [$(($name, self.$field)),*]
            }
        }
    };
}

statistics! {
    alloc_fast "alloc-fast"
        "Pages handed out from the array (fragments that reused a page in place included).";
    alloc_slow "alloc-slow"
        "Allocations that took a bulk of pages of at most 4 KiB from the arena.";
    alloc_slow_high_order "alloc-slow-high-order"
        "Allocations that took a bulk of larger pages from the arena.";
    alloc_empty "alloc-empty"
        "Allocations that found no page in the array and none returned.";
    alloc_refill "alloc-refill"
        "Allocations that refilled the array with returned pages.";
    alloc_waive "alloc-waive"
        "Pages that came back from another node than the pool's and were released.";
    recycle_cached "recycle-cached"
        "Pages that the owner gave back into the array.";
    recycle_cache_full "recycle-cache-full"
        "Pages that the owner gave back when the array was full; the oldest moved out of it.";
    recycle_ring "recycle-ring"
        "Pages that came back from other threads.";
    recycle_ring_full "recycle-ring-full"
        "Hand-overs of other threads that found the return ring full and kept or parked the rest.";
    recycle_released_refcnt "recycle-released-refcnt"
        "Pages given up, because somebody else still holds a reference to them.";
}

impl PoolStats {
    /// Pages that are not in the arena: handed out, waiting in a return ring or magazine, or
    /// cached.
    pub fn inflight(&self) -> u32 {
        self.hold.wrapping_sub(self.release)
    }

    /// Bytes of the pages in flight.
    pub fn inflight_bytes(&self) -> u64 {
        u64::from(self.inflight()) * u64::from(self.page_size)
    }
}
