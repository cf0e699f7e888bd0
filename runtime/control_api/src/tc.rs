//! What tc shows and sets, shaped and named as `tc -j` prints it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// Counters that every discipline and class has.
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
    /// Times over the limit or the rate.
    #[serde(default)]
    pub overlimits: u64,
    /// Packets that came back because the sink was full.
    #[serde(default)]
    pub requeues: u64,
    /// Bytes that wait.
    #[serde(default)]
    pub backlog: u64,
    /// Packets that wait.
    #[serde(default)]
    pub qlen: u64,
}

/// One discipline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema), schema(as = Qdisc))]
pub struct QdiscEntry {
    /// Such as `fq_codel`.
    pub kind: String,
    /// `8001:`; `0:` for a default one.
    pub handle: String,
    /// Present in lists of several netdevs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dev: Option<String>,
    /// True for the root.
    #[serde(default, skip_serializing_if = "is_false")]
    pub root: bool,
    /// Its parent class, for any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// For a root with a scheduler of its own: 1 and one for every channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refcnt: Option<u32>,
    /// What is set, by tc's names: times in microseconds, rates in bytes a second, sizes in bytes.
    #[serde(default)]
    pub options: BTreeMap<String, Value>,
    /// Its counters.
    #[serde(flatten)]
    pub counters: TcCounters,
    /// Counters that only this kind has, such as `ecn_mark`.
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

/// One class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Class {
    /// Kind of its discipline.
    pub class: String,
    /// `1:2`.
    pub handle: String,
    /// True when nothing is above it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub root: bool,
    /// What is above it, otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The discipline in it, if it was attached by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaf: Option<String>,
    /// Values of the options, as in [`QdiscEntry::options`].
    #[serde(default)]
    pub options: BTreeMap<String, Value>,
    /// Its counters.
    #[serde(flatten)]
    pub counters: TcCounters,
    /// What is counted for this kind only, such as `deficit`.
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

/// One filter; without `options` it stands for its priority alone, as in tc.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Filter {
    /// The discipline whose classes it chooses among.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// True for a filter of the egress hook.
    #[serde(default, skip_serializing_if = "is_false")]
    pub egress: bool,
    /// `ip`, `ipv6`, `all`, ...
    pub protocol: String,
    /// Its priority: small ones come first.
    pub pref: u32,
    /// `flower`, `matchall`, `fw`.
    pub kind: String,
    /// Always 0.
    #[serde(default)]
    pub chain: u32,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<FilterOptions>,
}

/// What a filter does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct FilterOptions {
    /// Its number.
    #[serde(default)]
    pub handle: u32,
    /// The class for what matches (flower, fw).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classid: Option<String>,
    /// The same, as matchall calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flowid: Option<String>,
    /// What must match, such as `ip_proto`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub keys: BTreeMap<String, Value>,
    /// True where tc says so: no hardware does the work.
    #[serde(default, skip_serializing_if = "is_false")]
    pub not_in_hw: bool,
    /// Packets that matched.
    #[serde(default)]
    pub rule_hit: u64,
    /// What is done with them, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<Action>,
}

/// One action of a filter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Action {
    /// Its place, from 1.
    pub order: u32,
    /// `skbedit`, `police`, `gact`.
    pub kind: String,
    /// What comes after it.
    #[serde(default)]
    pub control_action: ControlAction,
    /// Its number within the netdev.
    pub index: u32,
    /// What is set, by tc's names.
    #[serde(flatten)]
    pub options: BTreeMap<String, Value>,
    /// Its counters.
    #[serde(default)]
    pub stats: TcCounters,
}

/// What comes after an action.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ControlAction {
    /// `pipe`, `pass`, `drop`, `continue`, ...
    #[serde(rename = "type")]
    pub kind: String,
}

/// To what something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum TcObject {
    /// A discipline.
    Qdisc,
    /// A class.
    Class,
    /// A filter.
    Filter,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum TcVerb {
    /// Make it; refused if it is there.
    Add,
    /// Change it where it is.
    Change,
    /// Change it, or make it.
    Replace,
    /// Take it off.
    Delete,
}

/// `tc qdisc|class|filter add|change|replace|delete`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TcRequest {
    /// To what.
    pub object: TcObject,
    /// What is done.
    pub command: TcVerb,
    /// Where: `root`, `egress` (filters; clsact itself) or a class `1:2`. Absent: wherever the
    /// discipline or class with this `handle` is; for a filter, the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// `1:` of a discipline, `1:2` of a class, a number (`0x1`) of a filter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle: Option<String>,
    /// Such as `fq_codel` or `flower`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Of a filter; absent: the next free one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prio: Option<u16>,
    /// Of a filter: `ip`, `ipv6`, `arp`, `802.1Q`, `all` or a number; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The words after the kind, as tc takes them, such as `limit`, `1000`, `target`, `5ms`.
    #[serde(default)]
    pub options: Vec<String>,
}

// serde wants a reference.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(yes: &bool) -> bool {
    !yes
}
