//! Tables of the counters of RX buffers and of workers. The statistics structs, `ethtool -S`, JSON,
//! Prometheus metrics and the reference page are generated from them.

use mqnet_counters::Counter;

/// Calls the macro `$then` with `$args` and the counters of an RX queue's buffers. Each row is
/// `field, "name in ethtool -S", "help"`; `#` in the name is the queue. A counter with an empty
/// name is not in `ethtool -S`.
#[macro_export]
macro_rules! rx_buffer_table {
    ($then:ident $($args:tt)*) => {
        $then! { $($args)* {
            alloc_fail, "rx_queue_#_alloc_fail",
                "Allocations that failed because no page was free.";
            length_errors, "rx_queue_#_length_errors",
                "Frames shorter than their headers, or with missing buffers.";
            taken, "rx_queue_#_buffers", "Buffers given to the device.";
            foreign, "rx_queue_#_buffers_foreign", "Buffers that another thread returned.";
            size, "rx_queue_#_buffer_size", "Size of a buffer in bytes.";
            per_page, "rx_queue_#_buffers_per_page",
                "Number of buffers of this size that fit a page.";
            pages, "rx_queue_#_pages", "Pages in use.";
            pages_most, "", "Pages of the pool.";
            headroom, "", "Bytes in front of the part that the device writes.";
            per_page_used, "",
                "Average buffers per page since the last choice of layout, in hundredths.";
            refill_frag_ns, "",
                "Duration of a refill per buffer with parts of pages, in nanoseconds.";
            refill_full_ns, "", "Duration of a refill per buffer with whole pages, in nanoseconds.";
        } }
    };
}

/// Calls the macro `$then` with `$args` and the counters of a worker. Each row is `field,
/// "Prometheus metric", "help"`.
#[macro_export]
macro_rules! worker_table {
    ($then:ident $($args:tt)*) => {
        $then! { $($args)* {
            passes, "worker_passes_total", "Iterations of a worker over its lanes.";
            sleeps, "worker_sleeps_total", "Times that a worker slept.";
        } }
    };
}

/// Row of a counter table.
#[derive(Debug, PartialEq, Eq)]
pub struct ResourceCounter {
    /// Name of the field; JSON has `-` for `_`.
    pub name: &'static str,
    /// Name in `ethtool -S` with `#` for the queue, or name of the metric without `mqnet_`; empty
    /// if there is none.
    pub pattern: &'static str,
    /// Meaning, in one sentence.
    pub help: &'static str,
}

macro_rules! define {
    ($Stats:ident, $stats_doc:literal, $Totals:ident, $totals_doc:literal,
        { $($field:ident, $pattern:literal, $help:literal;)* }) => {
        #[doc = $stats_doc]
        #[derive(Debug, Default)]
        pub struct $Stats {
            $(#[doc = $help] pub $field: Counter,)*
        }

        impl $Stats {
            /// Reads every counter.
            pub fn totals(&self) -> $Totals {
                $Totals { $($field: self.$field.get(),)* }
            }
        }

        #[doc = $totals_doc]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $Totals {
            $(#[doc = $help] pub $field: u64,)*
        }

        impl $Totals {
            /// Rows of the table.
            pub const TABLE: &[ResourceCounter] = &[$(ResourceCounter {
                name: stringify!($field),
                pattern: $pattern,
                help: $help,
            },)*];

            /// Every counter with its value.
            pub fn iter(&self) -> impl Iterator<Item = (&'static ResourceCounter, u64)> {
                Self::TABLE.iter().zip([$(self.$field),*])
            }
        }
    };
}

rx_buffer_table!(define RxBufferCounters,
    "Counters of the buffers of an RX queue, written by the worker that owns it.",
    RxBufferTotals, "Counters of the buffers of an RX queue, read at one moment.",);

worker_table!(define WorkerStats,
    "Counters of a worker, written by its thread; they change with every iteration.",
    WorkerTotals, "Counters of a worker, read at one moment.",);
