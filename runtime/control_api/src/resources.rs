//! Counters of RX buffers, page pools and workers. Their fields come from the tables of
//! `mqnet-netdev` and `mqnet-pktbuf`.

use mqnet_netdev::stats::{RxBufferTotals, WorkerTotals, pool_counter_table};
use mqnet_netdev::{rx_buffer_table, worker_table};
use mqnet_pktbuf::PoolStats;
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

macro_rules! rx_buffers {
    ({ $($field:ident, $pattern:literal, $unit:literal, $help:literal,
        $action:literal;)* }) => {
        /// Layout of the buffers of an RX queue in pages, and its reason.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(ToSchema))]
        #[serde(rename_all = "kebab-case")]
        pub struct RxBufferInfo {
            /// Name of the netdev.
            pub netdev: String,
            /// Number of the queue.
            pub queue: u16,
            /// `small`, `mergeable` or `big`.
            pub mode: String,
            /// Requested layout: `auto`, `frag` or `full`.
            pub asked: String,
            /// Layout in force: `frag` or `full`.
            pub layout: String,
            /// Reason for the layout.
            pub reason: String,
            /// True if the layout does not depend on the requested one.
            pub forced: bool,
            $(
                #[doc = $help]
                #[serde(default)]
                #[cfg_attr(feature = "openapi", schema(required = true))]
                pub $field: u64,
            )*
        }

        impl RxBufferInfo {
            /// Creates a record with the counters; netdev and layout are left empty.
            pub fn of(totals: &RxBufferTotals) -> Self {
                Self { $($field: totals.$field,)* ..Self::default() }
            }
        }
    };
}

rx_buffer_table!(rx_buffers);

macro_rules! workers {
    ({ $($field:ident, $pattern:literal, $unit:literal, $help:literal,
        $action:literal;)* }) => {
        /// Worker of a link.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(ToSchema))]
        #[serde(rename_all = "kebab-case")]
        pub struct WorkerInfo {
            /// Number of the worker.
            pub id: u16,
            /// CPU to which the worker is pinned; absent: not pinned.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub cpu: Option<u32>,
            /// NUMA node of that CPU; absent: unknown.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub node: Option<u32>,
            /// Thread id of the worker.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub tid: Option<u32>,
            $(
                #[doc = $help]
                #[serde(default)]
                #[cfg_attr(feature = "openapi", schema(required = true))]
                pub $field: u64,
            )*
        }

        impl WorkerInfo {
            /// Creates a record with the counters; number, CPU, node and thread are left empty.
            pub fn of(totals: &WorkerTotals) -> Self {
                Self { $($field: totals.$field,)* ..Self::default() }
            }

            /// Returns the counters of the table.
            pub fn totals(&self) -> WorkerTotals {
                WorkerTotals { $($field: self.$field,)* }
            }
        }
    };
}

worker_table!(workers);

macro_rules! pools {
    ({ $($field:ident $name:literal $ethtool:literal $unit:literal $help:literal
        $action:literal;)* }) => {
        /// `page-pool-stats-get`.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(ToSchema))]
        #[serde(rename_all = "kebab-case")]
        pub struct PagePoolStats {
            /// Number of the pool.
            pub id: u32,
            /// Netdev that the pool serves.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub ifindex: Option<u32>,
            $(#[doc = $help] pub $field: u64,)*
        }

        impl PagePoolStats {
            /// Creates a record with the counters of a pool.
            pub fn of(id: u32, ifindex: Option<u32>, stats: &PoolStats) -> Self {
                Self { id, ifindex, $($field: stats.$field,)* }
            }
        }
    };
}

pool_counter_table!(pools);
