//! Links, netdevs and what happens to them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The process that answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LinkSpec {
    /// Endpoint address of one side.
    pub a: String,
    /// Endpoint address of the other side.
    pub b: String,
    /// Channels wanted, 1..=64; absent: as many as the peer wants, or 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 64)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
    /// Its workers.
    pub workers: Vec<WorkerInfo>,
}

/// One netdev: one side of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
}

/// One worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct WorkerInfo {
    /// Its number.
    pub id: u16,
    /// The CPU that it is pinned to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Node of that CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// Its thread number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tid: Option<u32>,
    /// Passes over its lanes.
    pub passes: u64,
    /// Times that it slept.
    pub sleeps: u64,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
