//! Statistics under the names of the kernel's netlink family `netdev`.

/// Calls `$then` with `$args` and the table of counters. A row has a field, its name in the netlink
/// family `netdev`, its name in `ethtool -S`, its unit, its meaning, and the advice for a counter
/// that increases (empty: an increase is normal).
#[macro_export]
macro_rules! pool_counter_table {
    ($then:ident $($args:tt)*) => {
        $then! { $($args)* {
            alloc_fast "alloc-fast" "pp_alloc_fast" "pages"
                "Pages handed out from the array (fragments that reused a page in place included)."
                "";
            alloc_slow "alloc-slow" "pp_alloc_slow" "events"
                "Allocations that took a bulk of pages of at most 4 KiB from the arena."
                "";
            alloc_slow_high_order "alloc-slow-high-order" "pp_alloc_slow_ho" "events"
                "Allocations that took a bulk of larger pages from the arena."
                "";
            alloc_empty "alloc-empty" "pp_alloc_empty" "events"
                "Allocations that found no page in the array and none returned."
                "With `alloc-fail`: the pool is too small, or a receiver holds the pages.";
            alloc_refill "alloc-refill" "pp_alloc_refill" "events"
                "Allocations that refilled the array with returned pages."
                "";
            alloc_waive "alloc-waive" "pp_alloc_waive" "pages"
                "Pages returned from another node than the pool's, and released."
                "The worker moved to another NUMA node; `mqnet show -j` has the nodes.";
            recycle_cached "recycle-cached" "pp_recycle_cached" "pages"
                "Pages that the owner returned to the array."
                "";
            recycle_cache_full "recycle-cache-full" "pp_recycle_cache_full" "pages"
                "Pages that the owner returned to a full array; the oldest ones moved out of it."
                "";
            recycle_ring "recycle-ring" "pp_recycle_ring" "pages"
                "Pages returned by other threads."
                "";
            recycle_ring_full "recycle-ring-full" "pp_recycle_ring_full" "events"
                "Hand-overs of other threads that found the return ring full."
                "The worker of the RX queue is overloaded: `mqnet top`.";
            recycle_released_refcnt "recycle-released-refcnt" "pp_recycle_released_ref" "pages"
                "Pages released, because another holder has a reference to them."
                "";
        } }
    };
}

/// Row of the table of counters.
#[derive(Debug, PartialEq, Eq)]
pub struct PoolCounter {
    /// Name in the netlink family `netdev`.
    pub name: &'static str,
    /// Name in `ethtool -S`, after the prefix of the queue.
    pub ethtool: &'static str,
    /// Unit of the value.
    pub unit: &'static str,
    /// Meaning, in one sentence.
    pub help: &'static str,
    /// Advice for a counter that increases; empty: an increase is normal.
    pub action: &'static str,
}

macro_rules! statistics {
    ({ $($field:ident $name:literal $ethtool:literal $unit:literal $doc:literal
        $action:literal;)* }) => {
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
            /// Rows of the table, in the kernel's order.
            pub const TABLE: &[PoolCounter] =
                &[$(PoolCounter {
                    name: $name,
                    ethtool: $ethtool,
                    unit: $unit,
                    help: $doc,
                    action: $action,
                },)*];

            /// Number of counters.
            pub const COUNTERS: usize = Self::TABLE.len();

            /// Creates the statistics from counters in the order of the table.
            pub fn of(
                counters: [u64; Self::COUNTERS],
                [hold, release, page_size]: [u32; 3],
            ) -> Self {
                let [$($field),*] = counters;
                Self { $($field,)* hold, release, page_size }
            }

            /// Name and value of every counter.
            pub fn counters(&self) -> impl Iterator<Item = (&'static PoolCounter, u64)> {
                Self::TABLE.iter().zip([$(self.$field),*])
            }
        }
    };
}

pool_counter_table!(statistics);

impl PoolStats {
    /// Number of pages that are not in the arena. These are handed out, waiting in a return ring or
    /// magazine, or cached.
    pub fn inflight(&self) -> u32 {
        self.hold.wrapping_sub(self.release)
    }

    /// Bytes of the pages in flight.
    pub fn inflight_bytes(&self) -> u64 {
        u64::from(self.inflight()) * u64::from(self.page_size)
    }
}
