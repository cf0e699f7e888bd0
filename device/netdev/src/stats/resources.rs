//! Tables of the counters of RX buffers and of workers. The statistics structs, `ethtool -S`, JSON,
//! Prometheus metrics and the reference page are generated from them.

use mqnet_counters::Counter;

/// Calls the macro `$then` with `$args` and the counters of an RX queue's buffers. Each row is
/// `field, "name in ethtool -S", "unit", "help", "advice if it increases"`; `#` in the name is the
/// queue. A counter with an empty name is not in `ethtool -S`. An empty advice means that an
/// increase is normal; `not a counter` marks another value.
#[macro_export]
macro_rules! rx_buffer_table {
    ($then:ident $($args:tt)*) => {
        $then! { $($args)* {
            alloc_fail, "rx_queue_#_alloc_fail", "events",
                "Allocations that failed because no page was free.",
                "Receivers hold the pages: `mqnet why` names the full TX queue.";
            length_errors, "rx_queue_#_length_errors", "frames",
                "Frames shorter than their headers, or with missing buffers.",
                "The device behind the queue violates virtio: `mqnet capture DEV --drops`.";
            taken, "rx_queue_#_buffers", "buffers",
                "Buffers given to the device.",
                "";
            foreign, "rx_queue_#_buffers_foreign", "buffers",
                "Buffers that another thread returned.",
                "";
            size, "rx_queue_#_buffer_size", "bytes",
                "Size of a buffer in bytes.",
                "not a counter";
            per_page, "rx_queue_#_buffers_per_page", "buffers",
                "Number of buffers of this size that fit a page.",
                "not a counter";
            pages, "rx_queue_#_pages", "pages",
                "Pages in use.",
                "not a counter";
            pages_most, "", "pages",
                "Pages of the pool.",
                "not a counter";
            headroom, "", "bytes",
                "Bytes in front of the part that the device writes.",
                "not a counter";
            per_page_used, "", "1/100",
                "Average buffers per page since the last choice of layout, in hundredths.",
                "not a counter";
            refill_frag_ns, "", "ns",
                "Duration of a refill per buffer with parts of pages, in nanoseconds.",
                "not a counter";
            refill_full_ns, "", "ns",
                "Duration of a refill per buffer with whole pages, in nanoseconds.",
                "not a counter";
        } }
    };
}

/// Calls the macro `$then` with `$args` and the counters of a worker. Each row is `field,
/// "Prometheus metric", "unit", "help", "advice if it increases"`.
#[macro_export]
macro_rules! worker_table {
    ($then:ident $($args:tt)*) => {
        $then! { $($args)* {
            passes, "worker_passes_total", "events",
                "Iterations of a worker over its lanes.",
                "";
            sleeps, "worker_sleeps_total", "events",
                "Times that a worker slept.",
                "";
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
    /// Unit of the value.
    pub unit: &'static str,
    /// Meaning, in one sentence.
    pub help: &'static str,
    /// Advice for a counter that increases; empty: an increase is normal; `not a counter`: another
    /// value.
    pub action: &'static str,
}

macro_rules! define {
    ($Stats:ident, $stats_doc:literal, $Totals:ident, $totals_doc:literal,
        { $($field:ident, $pattern:literal, $unit:literal, $help:literal,
            $action:literal;)* }) => {
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
                unit: $unit,
                help: $help,
                action: $action,
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
