//! Links, netdevs and what happens to them.

use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

use crate::{RxBufferInfo, WorkerInfo};

/// The process that answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct Instance {
    /// Version of the program.
    pub version: String,
    /// Its process number.
    pub pid: u32,
    /// `link` (foreground or detached, one link) or `daemon`.
    pub mode: String,
    /// Milliseconds since its start.
    pub uptime_ms: u64,
}

/// How a link is written: on the command line, in a file, over the interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LinkSpec {
    /// Endpoint address of one side.
    pub a: String,
    /// Endpoint address of the other side.
    pub b: String,
    /// Channels wanted, 1..=64; absent: as many as the peer wants, or 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 64))]
    pub channels: Option<u16>,
    /// Worker threads, 1..=1024; absent: one a channel, at most one a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<u16>,
    /// `auto`, `float` or a CPU list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// Poll window in microseconds, 0..=1000000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_window: Option<u32>,
}

/// How a link stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum LinkState {
    /// Traffic flows.
    Up,
    /// It does not; the reason stands beside.
    Down,
    /// Traffic flows, and a change is under way.
    Changing,
}

/// One link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct LinkInfo {
    /// Its name: that of its first netdev unless the configuration gives another.
    pub name: String,
    /// How it was asked for.
    pub spec: LinkSpec,
    /// How it stands.
    pub state: LinkState,
    /// Why it is down, or what is being changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Milliseconds since the epoch: when an end that cannot be opened yet is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_ms: Option<u64>,
    /// Facts about its devices that keep them from working as configured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Its two netdevs.
    pub netdevs: Vec<NetdevInfo>,
    /// Channels in use, 0 while down.
    pub channels: u16,
    /// MTU, absent while down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Largest frame, absent while down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame_max: Option<u32>,
    /// How frames may be unfinished, for each direction; empty while down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offloads: Vec<WayOffloads>,
    /// How the buffers of RX queues lie that are given to a device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rx_buffers: Vec<RxBufferInfo>,
    /// Frames dropped in the last ten seconds; reasons without drops are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recent_drops: Vec<RecentDrops>,
    /// Its workers.
    pub workers: Vec<WorkerInfo>,
    /// Where its channels are served; empty while down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placement: Vec<ChannelPlace>,
}

/// Frames that a netdev dropped in the last seconds, for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct RecentDrops {
    /// The netdev that counted them.
    pub netdev: String,
    /// It should have sent them; else it received them.
    pub sends: bool,
    /// Such as `too-long`.
    pub reason: String,
    /// How many.
    pub frames: u64,
}

/// Where a channel is served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct ChannelPlace {
    /// Its number.
    pub channel: u16,
    /// Number of the worker.
    pub worker: u16,
    /// The CPU that the worker is pinned to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Node of that CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// The devices of the machine behind it, of those ends that have some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<FunctionPlace>,
}

/// A device of the machine behind a channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct FunctionPlace {
    /// The netdev that it is a part of.
    pub netdev: String,
    /// Its number there.
    pub function: u16,
    /// The kernel's interface that stands for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// File of the network namespace that the interface is in, if that is not mqnet's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// Its NUMA node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// The channel's queue there.
    pub queue: u16,
    /// Interrupts of that queue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub irqs: Vec<u32>,
}

/// How frames of one direction may be unfinished: `csum`, `tso4`, `tso6`, `tso-ecn`, `uso4`,
/// `uso6`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct WayOffloads {
    /// Netdev at which they arrive.
    pub from: String,
    /// Netdev through which they leave.
    pub to: String,
    /// What `from` can send, before anything was agreed or switched off.
    #[serde(default)]
    pub sends: Vec<String>,
    /// What `to` can take.
    #[serde(default)]
    pub takes: Vec<String>,
    /// What of it the user has switched off.
    #[serde(default)]
    pub unwanted: Vec<String>,
    /// As they arrive.
    pub arriving: Vec<String>,
    /// As they leave.
    pub leaving: Vec<String>,
    /// What the engine finishes in between, because `from` cannot be told and `to` does not take
    /// it.
    pub emulated: Vec<String>,
    /// Large frames are cut that are longer than the link's largest.
    pub cuts: bool,
    /// Large frames that are made of small ones for `to`.
    #[serde(default)]
    pub merged: Vec<String>,
}

/// One netdev: one side of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct NetdevInfo {
    /// Its name: the kernel's for a TAP, else from the address.
    pub name: String,
    /// The kernel's index for a kernel device, else one of ours (from 1,000,000 on).
    pub ifindex: u32,
    /// Inode of the network namespace in which the name is valid; absent for names of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<u64>,
    /// Endpoint address of the function behind it.
    pub function: String,
    /// Name of the link that it belongs to.
    pub link: String,
    /// Name of the netdev at the other side of the link.
    pub partner: String,
    /// True while traffic flows.
    pub carrier: bool,
    /// Protocol with the far end of a bridge, `mqnet` or `ntb_transport v4`; absent elsewhere, and
    /// while the far end is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Windows, slots and queue pairs of a bridge to a kernel's `ntb_transport`;
    /// absent elsewhere, and until the far end has set up its windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot_rings: Option<SlotRingsInfo>,
    /// The functions that it is made of, if it is a group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberInfo>,
}

/// Rings of slots in the memory windows of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct SlotRingsInfo {
    /// Bytes of a slot.
    pub slot_bytes: u32,
    /// Memory windows.
    pub windows: Vec<WindowInfo>,
    /// Interrupt vectors of the far end.
    pub vectors: u16,
    /// Queue pairs, in order.
    pub queue_pairs: Vec<QueuePairInfo>,
}

/// One memory window of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct WindowInfo {
    /// Bytes of the window of this end, which the far end writes.
    pub bytes: u32,
    /// Bytes of the far end's window of the same number, which this end writes.
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
    /// Slots that the far end writes.
    pub rx_slots: u32,
    /// Slots of these with frames that were not received yet.
    pub rx_waiting: u32,
    /// Slots that this end writes; one of them is always free.
    pub tx_slots: u32,
    /// Slots of these with frames for which the far end has not returned credit.
    pub tx_in_use: u32,
    /// Frames received since the far end set up its windows.
    pub received: u64,
    /// Slots that the far end has returned since then.
    pub credits: u64,
}

/// One of the functions of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct MemberInfo {
    /// Its endpoint address.
    pub function: String,
    /// What it is told by for ever: its address on a bus, or its endpoint address.
    pub id: String,
    /// Table, flags and id of the group are its.
    pub primary: bool,
    /// Why it is the primary.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// It carries traffic, or could.
    pub up: bool,
    /// Why it does not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Channels that are on it, and come back to it when it was lost.
    pub channels: Vec<u16>,
    /// Channels of lost members for which it stands in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub standing_in: Vec<u16>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct Event {
    /// Milliseconds since the epoch.
    pub time_ms: u64,
    /// `link-up`, `link-down`, `link-add`, `link-del`, `channels-changed`, `change-failed`, ...
    pub event: String,
    /// Name of the link.
    pub link: String,
    /// One line for people.
    pub text: String,
}
