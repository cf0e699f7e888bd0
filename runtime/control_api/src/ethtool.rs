//! Settings that ethtool reads and writes, under the kernel's attribute names.

use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// `ethtool -l`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct Channels {
    /// Largest possible number of channels of the link, 1..=64.
    pub combined_max: u16,
    /// Channels in use; while the link is down, the channels requested, or 1.
    pub combined: u16,
    /// Channels that the user of this end requested; absent: as many as the peer wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<u16>,
    /// Channels that the user of the peer requested; absent: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_wanted: Option<u16>,
    /// Reason why `combined` differs from `wanted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// `ethtool -L`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SetChannels {
    /// Number of channels requested, 1..=64.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 64))]
    pub combined: u16,
}

/// `ethtool -g`. A field is absent if the device has no such ring.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct Rings {
    /// Largest possible size of an RX ring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_max: Option<u32>,
    /// Size of the RX ring of each channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx: Option<u32>,
    /// Largest possible size of a TX ring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_max: Option<u32>,
    /// Size of the TX ring of each channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx: Option<u32>,
    /// Unit of the sizes: `KiB` (a bridge), `slots` (a bridge to an `ntb_transport`) or `frames`
    /// (the rings of a TAP device in the kernel).
    pub unit: String,
}

/// `ethtool -G`. An absent field is not changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SetRings {
    /// Size of the RX ring of each channel, in KiB.
    pub rx: Option<u32>,
    /// Size of the TX ring of each channel, in KiB.
    pub tx: Option<u32>,
}

/// Sets the MTU of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SetMtu {
    /// MTU in bytes, 68..=65521.
    #[cfg_attr(feature = "openapi", schema(minimum = 68, maximum = 65521))]
    pub mtu: u32,
}

/// `ethtool -c`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct Coalesce {
    /// Poll window in microseconds: time for which an idle lane is polled before its worker sleeps.
    pub rx_usecs: u32,
    /// Wake threshold of a stopped TX queue, in frames of the largest size. The queue is woken when
    /// that many fit and at least half its ring is free. 0: half the ring.
    pub tx_frames: u32,
}

/// `ethtool -C`. An absent field is not changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SetCoalesce {
    /// Poll window in microseconds, 0..=1000000.
    #[cfg_attr(feature = "openapi", schema(maximum = 1_000_000))]
    pub rx_usecs: Option<u32>,
    /// Wake threshold in frames, 0..=65536.
    #[cfg_attr(feature = "openapi", schema(maximum = 65536))]
    pub tx_frames: Option<u32>,
}

/// `ethtool -x`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct Rss {
    /// Number of RX rings in use.
    pub rings: u16,
    /// Queue number of each hash bucket.
    pub indirection_table: Vec<u16>,
    /// Name of the active hash function: `xor`, `toeplitz` or `crc32`.
    pub hash_function: String,
    /// True if a user set the table. A channel count that is too small for the table is then
    /// rejected.
    pub user_set: bool,
}

/// `ethtool -X`. Exactly one field must be present.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SetRss {
    /// Queue number of each hash bucket.
    pub indirection_table: Option<Vec<u16>>,
    /// Number of queues, from the first, over which the buckets are spread evenly.
    pub equal: Option<u16>,
    /// Weight of each queue.
    pub weights: Option<Vec<u32>>,
    /// True to return to the default table, which follows the number of channels.
    pub default: Option<bool>,
}

/// Header field that a flow rule compares. The allowed fields depend on the kind of frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FieldMatch {
    /// ethtool's name of the field: `src-ip`, `dst-ip`, `tos`, `tclass`, `l4proto`, `src-port`,
    /// `dst-port`; for `ether`: `src`, `dst`, `proto`.
    pub field: String,
    /// Required value: the bytes of the field in hexadecimal.
    pub value: String,
    /// Mask of the bits that are compared, in hexadecimal.
    pub mask: String,
}

/// Rule of `ethtool -n`. If several rules match a frame, the one with the lowest location applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FlowRule {
    /// Location of the rule.
    pub location: u32,
    /// Kind of frame: `tcp4`, `udp4`, `sctp4`, `tcp6`, `udp6`, `sctp6`, `ip4`, `ip6`, `ether`.
    pub flow: String,
    /// Fields that must all match.
    #[serde(default)]
    pub matches: Vec<FieldMatch>,
    /// RX queue of frames that match.
    pub queue: u16,
}

/// `ethtool -n`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct FlowRules {
    /// Number of RX rings in use.
    pub rings: u16,
    /// Largest possible number of rules. Locations are smaller than this number.
    pub size: u32,
    /// Existing rules, sorted by location.
    pub rules: Vec<FlowRule>,
}

/// `ethtool -N`. Exactly one field must be present.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SetFlowRules {
    /// Rule to insert. A rule at the same location is replaced.
    pub add: Option<FlowRule>,
    /// Location of the rule to delete.
    pub delete: Option<u32>,
}

/// One line of `ethtool -k`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct Feature {
    /// Kernel name of the feature, such as `tx-tcp-segmentation`.
    pub name: String,
    /// True if the feature is in force.
    pub active: bool,
    /// True if the feature cannot be enabled or disabled.
    pub fixed: bool,
    /// True if the device has the feature and the user has not disabled it.
    pub requested: bool,
}

/// `ethtool -K`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SetFeatures {
    /// State to set for each feature name: true enables the feature.
    pub features: std::collections::BTreeMap<String, bool>,
}

/// `ethtool -i`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct DriverInfo {
    /// Driver name, such as `mqnet-tap` or `mqnet-ntb`.
    pub driver: String,
    /// Version of mqnet.
    pub version: String,
    /// Version of the kernel or of the peer's protocol, depending on the kind of endpoint.
    pub firmware_version: String,
    /// Endpoint address of the netdev.
    pub bus_info: String,
}

/// Private flag of a netdev.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct PrivFlag {
    /// Name of the flag.
    pub name: String,
    /// True if the flag is set.
    pub on: bool,
    /// Notes about the flag, such as queues on which the flag has no effect, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// `ethtool --set-priv-flags`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SetPrivFlags {
    /// State to set for each flag name: true sets the flag.
    pub flags: std::collections::BTreeMap<String, bool>,
}

/// One line of `ethtool -S`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct NamedCounter {
    /// Name of the counter, such as `rx_queue_0_packets`.
    pub name: String,
    /// Value of the counter.
    pub value: u64,
}
