//! Every counter of a link.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Frames dropped for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct DropCount {
    /// Such as `too-long`.
    pub reason: String,
    /// How many.
    pub frames: u64,
}

/// One half of a channel of one netdev.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct HalfStats {
    /// Frames taken (RX) or handed to the peer (TX).
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Doorbells rung.
    pub kicks: u64,
    /// Times that the queue asked to be woken.
    pub arms: u64,
    /// Drops by reason; reasons without drops are left out.
    pub drops: Vec<DropCount>,
}

/// Whether a lane's sink takes frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StopState {
    /// It does.
    Running,
    /// It is full.
    Stopped,
    /// The channel is not in use.
    Unused,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// What keeps a queue full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StopCause {
    /// The device takes no frames.
    #[default]
    Device,
    /// The other end of a bridge takes no frames.
    Peer,
    /// The kernel has no memory for a frame.
    Memory,
}

/// Why and since when a lane does not move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Stopped {
    /// Who is in the way, such as `the peer's ring is full: the peer does not take frames`.
    pub by: String,
    /// The same for programs.
    #[serde(default)]
    pub cause: StopCause,
    /// Nanoseconds since it stopped.
    pub for_ns: u64,
}

/// One direction of one channel: from an RX queue to a TX queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct LaneStats {
    /// Its NAPI id.
    pub napi_id: u32,
    /// Netdev that it takes from.
    pub from: String,
    /// Netdev that it gives to.
    pub to: String,
    /// Frames taken.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Frames given.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Drops on the way, by reason.
    pub drops: Vec<DropCount>,
    /// Of the frames given, those that a lost peer had not taken.
    pub tx_lost: u64,
    /// Frames beyond the first that were made of one large frame, for a netdev that takes none:
    /// so many more left than came.
    #[serde(default)]
    pub segments: u64,
    /// Frames that left as a part of the one before them, for a netdev that takes large ones: so
    /// many fewer left than came.
    #[serde(default)]
    pub merged: u64,
    /// Of the frames taken, those that an XDP program sent elsewhere.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub xdp_out: u64,
    /// Frames that did not come from there: an XDP program of the other side sent them back.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub xdp_in: u64,
    /// rx + segments + xdp-in - tx - merged - drops - xdp-out: 0 at rest.
    pub in_flight: i64,
    /// Times that the sink stopped it.
    pub tx_stop: u64,
    /// Times that it went on.
    pub tx_wake: u64,
    /// Nanoseconds stopped, in all.
    pub stopped_ns: u64,
    /// Doorbells rung.
    pub kicks: u64,
    /// Frames whose payload was copied.
    pub copies: u64,
    /// System calls that moved frames, or found none, at both ends.
    #[serde(default)]
    pub syscalls: u64,
    /// Whether it is stopped now.
    pub state: StopState,
    /// By whom and since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
}

/// One channel: both lanes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ChannelStats {
    /// Its number.
    pub id: u16,
    /// In use now; the counters of an unused channel are history.
    pub active: bool,
    /// Number of the worker that serves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u16>,
    /// From a to b.
    pub a_to_b: LaneStats,
    /// From b to a.
    pub b_to_a: LaneStats,
}

/// A lane's page pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PoolUse {
    /// The lane.
    pub napi_id: u32,
    /// Pages in use.
    pub inflight: u64,
}

/// Everything that is counted about a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct LinkStats {
    /// Name of the link.
    pub link: String,
    /// Name of its first netdev.
    pub a: String,
    /// Name of its second netdev.
    pub b: String,
    /// Monotonic time of the reading in nanoseconds, for rates.
    pub time_ns: u64,
    /// Channels that are or were in use.
    pub channels: Vec<ChannelStats>,
    /// Sum over all channels, a to b.
    pub a_to_b: LaneStats,
    /// Sum over all channels, b to a.
    pub b_to_a: LaneStats,
    /// Frames that the system dropped before our RX queues saw them; absent: not counted there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_outside_a: Option<u64>,
    /// As for `a`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_outside_b: Option<u64>,
    /// Page pools of lanes that have one.
    pub pools: Vec<PoolUse>,
    /// What crossed between NUMA nodes, for each function whose node is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locality: Vec<Locality>,
}

/// Where the bytes of a function were handled. A byte is local when the worker of its channel runs
/// on the function's node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Locality {
    /// The netdev.
    pub netdev: String,
    /// Number of the function there.
    pub function: u16,
    /// The kernel's interface that stands for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Its NUMA node.
    pub node: u32,
    /// Bytes received and sent by workers of its node.
    pub local_bytes: u64,
    /// Bytes received and sent by workers of other nodes.
    pub cross_bytes: u64,
}
