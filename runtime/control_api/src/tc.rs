//! Objects that tc shows and sets, with the structure and names of `tc -j`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// Counters of every discipline and class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct TcCounters {
    /// Bytes sent.
    #[serde(default)]
    pub bytes: u64,
    /// Packets sent.
    #[serde(default)]
    pub packets: u64,
    /// Packets dropped.
    #[serde(default)]
    pub drops: u64,
    /// Number of times that a limit or a rate was exceeded.
    #[serde(default)]
    pub overlimits: u64,
    /// Packets put back because the sink was full.
    #[serde(default)]
    pub requeues: u64,
    /// Bytes in the queue.
    #[serde(default)]
    pub backlog: u64,
    /// Packets in the queue.
    #[serde(default)]
    pub qlen: u64,
}

/// Queueing discipline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema), schema(as = Qdisc))]
pub struct QdiscEntry {
    /// Kind of the discipline, such as `fq_codel`.
    pub kind: String,
    /// Handle of the discipline, such as `8001:`; `0:` for a default discipline.
    pub handle: String,
    /// Name of the netdev; present only in lists of several netdevs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dev: Option<String>,
    /// True for the root discipline.
    #[serde(default, skip_serializing_if = "is_false")]
    pub root: bool,
    /// Parent class; absent for the root discipline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Reference count of a root discipline that all channels share; absent for others, and if 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refcnt: Option<u32>,
    /// Options by tc's names: times in microseconds, rates in bytes per second, sizes in bytes.
    #[serde(default)]
    pub options: BTreeMap<String, Value>,
    /// Counters of the discipline.
    #[serde(flatten)]
    pub counters: TcCounters,
    /// Counters specific to the kind, such as `ecn_mark`.
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

/// Traffic class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Class {
    /// Kind of the discipline with this class.
    pub class: String,
    /// Class id, such as `1:2`.
    pub handle: String,
    /// True for a class without a parent.
    #[serde(default, skip_serializing_if = "is_false")]
    pub root: bool,
    /// Parent of the class; absent if `root` is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Discipline of the class; absent for a default discipline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaf: Option<String>,
    /// Options by tc's names and units, as in [`QdiscEntry::options`].
    #[serde(default)]
    pub options: BTreeMap<String, Value>,
    /// Counters of the class.
    #[serde(flatten)]
    pub counters: TcCounters,
    /// Counters specific to the kind, such as `deficit`.
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

/// Filter. An entry without `options` shows only a priority, as `tc -j` does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Filter {
    /// Discipline that contains the filter; absent for the root and for the egress hook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// True for a filter of the egress hook.
    #[serde(default, skip_serializing_if = "is_false")]
    pub egress: bool,
    /// Protocol of the packets, such as `ip`, `ipv6` or `all`.
    pub protocol: String,
    /// Priority; filters with smaller numbers are tried first.
    pub pref: u32,
    /// Kind of the filter: `flower`, `matchall` or `fw`.
    pub kind: String,
    /// Chain number; always 0.
    #[serde(default)]
    pub chain: u32,
    /// Keys, target class and actions of the filter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<FilterOptions>,
}

/// Keys, target class and actions of a filter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct FilterOptions {
    /// Handle of the filter.
    #[serde(default)]
    pub handle: u32,
    /// Target class of matching packets (flower, fw).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classid: Option<String>,
    /// Target class of matching packets (matchall).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flowid: Option<String>,
    /// Keys that must match, such as `ip_proto`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub keys: BTreeMap<String, Value>,
    /// True for filters that tc marks `not_in_hw`: all kinds but `fw`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub not_in_hw: bool,
    /// Number of packets that matched.
    #[serde(default)]
    pub rule_hit: u64,
    /// Actions on matching packets, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<Action>,
}

/// Action of a filter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Action {
    /// Position of the action, from 1.
    pub order: u32,
    /// Kind of the action: `skbedit`, `police` or `gact`.
    pub kind: String,
    /// Control action: what happens to the packet next.
    #[serde(default)]
    pub control_action: ControlAction,
    /// Index of the action within the netdev.
    pub index: u32,
    /// Options by tc's names.
    #[serde(flatten)]
    pub options: BTreeMap<String, Value>,
    /// Counters of the action.
    #[serde(default)]
    pub stats: TcCounters,
}

/// Control action: what happens to a packet after an action.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ControlAction {
    /// Name of the control action, such as `pipe`, `pass`, `drop` or `continue`.
    #[serde(rename = "type")]
    pub kind: String,
}

/// Kind of object in a tc request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum TcObject {
    /// Queueing discipline.
    Qdisc,
    /// Traffic class.
    Class,
    /// Packet filter.
    Filter,
}

/// Command of a tc request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum TcVerb {
    /// Creates an object; fails if it exists.
    Add,
    /// Changes an existing object.
    Change,
    /// Changes or replaces an existing object, or creates it.
    Replace,
    /// Deletes an object.
    Delete,
}

/// `tc qdisc|class|filter add|change|replace|delete`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TcRequest {
    /// Kind of the object.
    pub object: TcObject,
    /// Command to execute.
    pub command: TcVerb,
    /// Parent: `root`, `egress` (filters, and clsact itself) or a class `1:2`. Absent: the parent
    /// of the discipline or class with this `handle`; the root for a filter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Handle: `1:` for a discipline, `1:2` for a class, a number such as `0x1` for a filter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle: Option<String>,
    /// Kind, such as `fq_codel` or `flower`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Priority of a filter; absent or 0: the next free priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prio: Option<u16>,
    /// Protocol of a filter: `ip`, `ipv6`, `arp`, `802.1Q`, `802.1ad`, `all` or a number; absent:
    /// `all`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Arguments after the kind, as in tc, such as `limit`, `1000`, `target`, `5ms`.
    #[serde(default)]
    pub options: Vec<String>,
}

// serde requires a function with a reference argument.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(yes: &bool) -> bool {
    !yes
}
