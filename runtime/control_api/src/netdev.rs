//! The kernel's `netdev` netlink family, attribute by attribute
//! (Documentation/netlink/specs/netdev.yaml).

use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// Direction of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum QueueType {
    /// Receive queue.
    Rx,
    /// Transmit queue.
    Tx,
}

/// `queue-get`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema), schema(as = Queue))]
#[serde(rename_all = "kebab-case")]
pub struct QueueInfo {
    /// Queue number.
    pub id: u32,
    /// Interface index of the netdev.
    pub ifindex: u32,
    /// Direction of the queue.
    #[serde(rename = "type")]
    pub kind: QueueType,
    /// NAPI id of the lane that serves the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub napi_id: Option<u32>,
    /// Endpoint address of the function with the queue (not in the kernel's family).
    pub function: String,
}

/// `napi-get`: one lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct Napi {
    /// NAPI id of the lane: constant during the lifetime of the link, also across changes of
    /// channels.
    pub id: u32,
    /// Interface index of the netdev with the lane's RX queue.
    pub ifindex: u32,
    /// Thread id of the worker that polls the lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Always 0: no interrupt is deferred.
    pub defer_hard_irqs: u32,
    /// Always 0: no GRO timer exists.
    pub gro_flush_timeout: u64,
    /// Always 0: no interrupt is suspended.
    pub irq_suspend_timeout: u64,
    /// Always `enabled`: a thread polls the lane.
    pub threaded: String,
    /// Endpoint address of the function with the lane's RX queue (not in the kernel's family).
    pub function: String,
}

/// `qstats-get`. Absent counters do not apply to the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct QStats {
    /// Interface index of the netdev.
    pub ifindex: u32,
    /// Direction of the queue; present only with scope `queue`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_type: Option<QueueType>,
    /// Queue number; present only with scope `queue`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_id: Option<u32>,
    /// Frames received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_packets: Option<u64>,
    /// Bytes received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_bytes: Option<u64>,
    /// Frames sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_packets: Option<u64>,
    /// Bytes sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_bytes: Option<u64>,
    /// Received frames that were dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_hw_drops: Option<u64>,
    /// Frames to send that were dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_hw_drops: Option<u64>,
    /// Number of stops of the TX queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_stop: Option<u64>,
    /// Number of wakes of the TX queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_wake: Option<u64>,
}

/// `page-pool-get`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema), schema(as = PagePool))]
#[serde(rename_all = "kebab-case")]
pub struct PagePoolInfo {
    /// Number of the pool.
    pub id: u32,
    /// Interface index of the netdev that the pool serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ifindex: Option<u32>,
    /// NAPI id of the lane that the pool serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub napi_id: Option<u32>,
    /// Number of pages in use.
    pub inflight: u64,
    /// Bytes of the pages in use.
    pub inflight_mem: u64,
    /// DMA mapping (not in the kernel's family): `device` if pages stay mapped for the lifetime of
    /// the pool, `allocation` otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mapping: String,
    /// Memory (not in the kernel's family): `own` if the engine allocates the pages, `provided` if
    /// the consumer of the frames provides them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub memory: String,
}
