//! The kernel's `netdev` netlink family, attribute by attribute
//! (Documentation/netlink/specs/netdev.yaml).

use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// Which half of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum QueueType {
    /// Receives.
    Rx,
    /// Transmits.
    Tx,
}

/// `queue-get`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema), schema(as = Queue))]
#[serde(rename_all = "kebab-case")]
pub struct QueueInfo {
    /// Number of the queue.
    pub id: u32,
    /// Its netdev.
    pub ifindex: u32,
    /// Which half.
    #[serde(rename = "type")]
    pub kind: QueueType,
    /// The lane that serves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub napi_id: Option<u32>,
    /// Ours: which function serves it.
    pub function: String,
}

/// `napi-get`: one lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct Napi {
    /// Stable as long as the link lives, through every resize.
    pub id: u32,
    /// The netdev whose RX queue it polls.
    pub ifindex: u32,
    /// Thread of the worker that polls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Always 0: there is no interrupt to defer.
    pub defer_hard_irqs: u32,
    /// Always 0.
    pub gro_flush_timeout: u64,
    /// Always 0.
    pub irq_suspend_timeout: u64,
    /// `enabled`: every lane is polled by a thread.
    pub threaded: String,
    /// Ours: which function serves its RX queue.
    pub function: String,
}

/// `qstats-get`: counters that do not exist are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct QStats {
    /// The netdev.
    pub ifindex: u32,
    /// Present with scope `queue`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_type: Option<QueueType>,
    /// Present with scope `queue`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_id: Option<u32>,
    /// Frames received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_packets: Option<u64>,
    /// Their bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_bytes: Option<u64>,
    /// Frames sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_packets: Option<u64>,
    /// Their bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_bytes: Option<u64>,
    /// Frames that arrived and were dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_hw_drops: Option<u64>,
    /// Frames to be sent that were dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_hw_drops: Option<u64>,
    /// Times that the queue stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_stop: Option<u64>,
    /// Times that it went on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_wake: Option<u64>,
}

/// `page-pool-get`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema), schema(as = PagePool))]
#[serde(rename_all = "kebab-case")]
pub struct PagePoolInfo {
    /// Its number.
    pub id: u32,
    /// The netdev that it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ifindex: Option<u32>,
    /// The lane that it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub napi_id: Option<u32>,
    /// Pages that are in use.
    pub inflight: u64,
    /// Their bytes.
    pub inflight_mem: u64,
    /// Ours: `device` when the pages are mapped for a device as long as the pool lives,
    /// `allocation` when they are not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mapping: String,
    /// Ours: `own` when the pages are the engine's, `provided` when the consumer of the frames
    /// provides the memory.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub memory: String,
}
