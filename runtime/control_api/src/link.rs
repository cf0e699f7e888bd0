//! Links, netdevs and their events.

use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

use crate::{RxBufferInfo, WorkerInfo};

/// Process that answers the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct Instance {
    /// Version of mqnet.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Mode of the process: `link` (one link, in the foreground or detached) or `daemon`.
    pub mode: String,
    /// Milliseconds since the start of the process.
    pub uptime_ms: u64,
}

/// Specification of a link on the command line, in a configuration file or in a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LinkSpec {
    /// Endpoint address of one side.
    pub a: String,
    /// Endpoint address of the other side.
    pub b: String,
    /// Number of channels, 1..=64; absent: as many as the peer wants, or 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 64))]
    pub channels: Option<u16>,
    /// Number of worker threads, 1..=1024; absent: one per channel, at most one per CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<u16>,
    /// CPUs of the workers: `auto`, `float` or a CPU list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// Poll window in microseconds, 0..=1000000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_window: Option<u32>,
}

/// State of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum LinkState {
    /// The link forwards frames.
    Up,
    /// The link forwards no frames; [`LinkInfo::reason`] has the cause.
    Down,
    /// The link is up, and a change is under way.
    Changing,
}

/// One link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct LinkInfo {
    /// Name of the link: the configured name, otherwise the name of its first netdev.
    pub name: String,
    /// Specification of the link, as written.
    pub spec: LinkSpec,
    /// State of the link.
    pub state: LinkState,
    /// Reason why the link is down, the note of a change under way, or a note on the settled
    /// channels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time of the next attempt to open a missing end, in milliseconds since the epoch; absent:
    /// both ends are open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_ms: Option<u64>,
    /// Notes on devices that do not work as configured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Both netdevs of the link.
    pub netdevs: Vec<NetdevInfo>,
    /// Number of channels in use; 0 while the link is down.
    pub channels: u16,
    /// MTU in bytes; absent while the link is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Size of the largest frame in bytes; absent while the link is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame_max: Option<u32>,
    /// Offloads of each direction; empty while the link is down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offloads: Vec<WayOffloads>,
    /// Buffer layout of RX queues that provide buffers to a device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rx_buffers: Vec<RxBufferInfo>,
    /// Frames dropped within about ten seconds; reasons without drops are omitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recent_drops: Vec<RecentDrops>,
    /// Workers of the link.
    pub workers: Vec<WorkerInfo>,
    /// Worker and devices of each channel; empty while the link is down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placement: Vec<ChannelPlace>,
}

/// Frames that a netdev dropped recently, for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct RecentDrops {
    /// Name of the netdev that counted the frames.
    pub netdev: String,
    /// True for frames that the netdev was to send; false for frames that it received.
    pub sends: bool,
    /// Name of the drop reason, such as `too-long`.
    pub reason: String,
    /// Number of dropped frames.
    pub frames: u64,
}

/// Placement of a channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct ChannelPlace {
    /// Channel number.
    pub channel: u16,
    /// Number of the worker that polls the channel.
    pub worker: u16,
    /// CPU to which the worker is pinned; absent: not pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// NUMA node of that CPU; absent: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// Hardware devices of the channel, at most one per end of the link.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<FunctionPlace>,
}

/// Hardware device of a channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct FunctionPlace {
    /// Netdev of the device.
    pub netdev: String,
    /// Number of the device within the netdev.
    pub function: u16,
    /// Kernel interface of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Network namespace file of the interface; absent: the namespace of mqnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// NUMA node of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// Device queue of the channel.
    pub queue: u16,
    /// Interrupt numbers of the device queue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub irqs: Vec<u32>,
}

/// Offloads of frames in one direction. Each list contains some of `csum`, `tso4`, `tso6`,
/// `tso-ecn`, `uso4`, `uso6`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct WayOffloads {
    /// Netdev that receives the frames.
    pub from: String,
    /// Netdev that sends the frames.
    pub to: String,
    /// Offloads that `from` can receive, before negotiation.
    #[serde(default)]
    pub sends: Vec<String>,
    /// Offloads that `to` can send, before negotiation.
    #[serde(default)]
    pub takes: Vec<String>,
    /// Offloads that the user has disabled.
    #[serde(default)]
    pub unwanted: Vec<String>,
    /// Offloads in force where frames arrive.
    pub arriving: Vec<String>,
    /// Offloads in force where frames leave.
    pub leaving: Vec<String>,
    /// Offloads that the engine emulates: `from` may deliver such frames, and `to` cannot send
    /// them.
    pub emulated: Vec<String>,
    /// True if the engine segments large frames that exceed the link's largest frame.
    pub cuts: bool,
    /// Kinds of large frames that the engine coalesces for `to`.
    #[serde(default)]
    pub merged: Vec<String>,
}

/// One netdev: one side of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct NetdevInfo {
    /// Name of the netdev: the kernel's name of the interface, otherwise the name from the address.
    pub name: String,
    /// Kernel index of the interface. Netdevs without an interface have numbers from 1,000,000.
    pub ifindex: u32,
    /// Inode of the network namespace in which the name is valid; absent if the netdev is no kernel
    /// interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<u64>,
    /// Endpoint address of the netdev.
    pub function: String,
    /// Name of the link that contains the netdev.
    pub link: String,
    /// Name of the netdev at the other side of the link.
    pub partner: String,
    /// True if the link is up and the netdev's interface, if any, is running.
    pub carrier: bool,
    /// Protocol with the far end of a bridge: `mqnet` or `ntb_transport v4`. Absent for other
    /// endpoints, and while the far end is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Windows, slots and queue pairs of a bridge to a kernel's `ntb_transport`. Absent for other
    /// endpoints, and until the far end has set up its windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot_rings: Option<SlotRingsInfo>,
    /// Functions of a group; empty for other netdevs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberInfo>,
}

/// Rings of slots in the memory windows of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct SlotRingsInfo {
    /// Size of a slot in bytes.
    pub slot_bytes: u32,
    /// Memory windows.
    pub windows: Vec<WindowInfo>,
    /// Number of interrupt vectors of the far end.
    pub vectors: u16,
    /// Queue pairs, sorted by number.
    pub queue_pairs: Vec<QueuePairInfo>,
}

/// One memory window of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct WindowInfo {
    /// Size in bytes of the window of this end, which the far end writes.
    pub bytes: u32,
    /// Size in bytes of the corresponding window of the far end, which this end writes.
    pub far_bytes: u32,
}

/// One queue pair of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct QueuePairInfo {
    /// Number of the queue pair.
    pub id: u16,
    /// True while the far end has the queue pair open.
    pub open: bool,
    /// Number of slots that the far end writes.
    pub rx_slots: u32,
    /// Number of RX slots with frames that were not yet received.
    pub rx_waiting: u32,
    /// Number of slots that this end writes; one slot always stays free.
    pub tx_slots: u32,
    /// Number of TX slots with frames for which the far end has not returned credit.
    pub tx_in_use: u32,
    /// Frames received since the far end set up its windows.
    pub received: u64,
    /// Slots that the far end has returned since it set up its windows.
    pub credits: u64,
}

/// Function of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct MemberInfo {
    /// Endpoint address of the function.
    pub function: String,
    /// Permanent identity of the function: its bus address or its endpoint address.
    pub id: String,
    /// True for the primary, which provides the indirection table, the flags and the id of the
    /// group.
    pub primary: bool,
    /// Reason why the function is the primary.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// True if the function can carry traffic.
    pub up: bool,
    /// Reason why the function cannot carry traffic.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Channels that belong to the function; a lost function gets its channels back when it
    /// recovers.
    pub channels: Vec<u16>,
    /// Channels of lost functions that this function serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub standing_in: Vec<u16>,
}

/// Event of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct Event {
    /// Milliseconds since the epoch.
    pub time_ms: u64,
    /// Kind of the event: `link-up`, `link-down`, `link-add`, `link-del`, `link-lost`,
    /// `link-changed`, `change-failed`, `tc-changed` or `xdp-changed`.
    pub event: String,
    /// Name of the link.
    pub link: String,
    /// One line for people.
    pub text: String,
}
