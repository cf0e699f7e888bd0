//! What ethtool shows and sets, under the kernel's attribute names.

use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// `ethtool -l`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct Channels {
    /// Most channels possible here, 1..=64.
    pub combined_max: u16,
    /// Channels in use; 0 never.
    pub combined: u16,
    /// What this end's user asked for; absent: as many as the peer wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<u16>,
    /// What the peer's user asked for, as far as the peer says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_wanted: Option<u16>,
    /// Why `combined` differs from `wanted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// `ethtool -L`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SetChannels {
    /// Channels wanted, 1..=64.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 64))]
    pub combined: u16,
}

/// `ethtool -g`: absent means that the device has no such ring.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct Rings {
    /// Largest RX ring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_max: Option<u32>,
    /// RX ring of each channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx: Option<u32>,
    /// Largest TX ring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_max: Option<u32>,
    /// TX ring of each channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx: Option<u32>,
    /// Unit: `KiB` (a bridge), `slots` (a bridge to an `ntb_transport`) or `frames` (a TAP with
    /// rings of its kernel).
    pub unit: String,
}

/// `ethtool -G`; absent: as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SetRings {
    /// RX ring of each channel.
    pub rx: Option<u32>,
    /// TX ring of each channel.
    pub tx: Option<u32>,
}

/// Sets the MTU of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SetMtu {
    /// 68..=65521.
    #[cfg_attr(feature = "openapi", schema(minimum = 68, maximum = 65521))]
    pub mtu: u32,
}

/// `ethtool -c`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct Coalesce {
    /// Poll window: how long a lane is polled after its last frame before it sleeps.
    pub rx_usecs: u32,
    /// Wake batching: a stopped TX queue is woken when this many of the largest frames fit, and
    /// never before half its ring is free. 0: half its ring.
    pub tx_frames: u32,
}

/// `ethtool -C`; absent: as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SetCoalesce {
    /// 0..=1000000.
    #[cfg_attr(feature = "openapi", schema(maximum = 1_000_000))]
    pub rx_usecs: Option<u32>,
    /// 0..=65536.
    #[cfg_attr(feature = "openapi", schema(maximum = 65536))]
    pub tx_frames: Option<u32>,
}

/// `ethtool -x`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct Rss {
    /// RX rings in use.
    pub rings: u16,
    /// Queue of each hash bucket.
    pub indirection_table: Vec<u16>,
    /// Name of the hash function: `xor` is on, `toeplitz` and `crc32` are known and off.
    pub hash_function: String,
    /// True when a user set the table; then fewer channels than it names are refused.
    pub user_set: bool,
}

/// `ethtool -X`: exactly one field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SetRss {
    /// The whole table.
    pub indirection_table: Option<Vec<u16>>,
    /// Spread evenly over the first N queues.
    pub equal: Option<u16>,
    /// A weight for each queue.
    pub weights: Option<Vec<u32>>,
    /// Back to the default, which follows the number of channels.
    pub default: Option<bool>,
}

/// A field that a rule looks at; which there are depends on the kind of frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FieldMatch {
    /// As ethtool calls it: `src-ip`, `dst-ip`, `tos`, `tclass`, `l4proto`, `src-port`, `dst-port`,
    /// or `src`, `dst`, `proto` of `ether`.
    pub field: String,
    /// What it has to be: its bytes in hexadecimal.
    pub value: String,
    /// Which of its bits count, the same way.
    pub mask: String,
}

/// One rule of `ethtool -n`: of several that match a frame, that with the lowest location counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FlowRule {
    /// Its place.
    pub location: u32,
    /// Kind of frame: `tcp4`, `udp4`, `sctp4`, `tcp6`, `udp6`, `sctp6`, `ip4`, `ip6`, `ether`.
    pub flow: String,
    /// All of them must match.
    #[serde(default)]
    pub matches: Vec<FieldMatch>,
    /// Where such frames go.
    pub queue: u16,
}

/// `ethtool -n`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct FlowRules {
    /// RX rings in use.
    pub rings: u16,
    /// Most rules, and one more than the largest location.
    pub size: u32,
    /// Those that there are, by location.
    pub rules: Vec<FlowRule>,
}

/// `ethtool -N`: exactly one field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SetFlowRules {
    /// A rule to add, or to put in the place of the one at its location.
    pub add: Option<FlowRule>,
    /// Location of a rule to delete.
    pub delete: Option<u32>,
}

/// One line of `ethtool -k`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct Feature {
    /// The kernel's name of it, such as `tx-tcp-segmentation`.
    pub name: String,
    /// In force.
    pub active: bool,
    /// Cannot be changed.
    pub fixed: bool,
    /// What the user asked for.
    pub requested: bool,
}

/// `ethtool -K`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SetFeatures {
    /// Feature name and what it is to be.
    pub features: std::collections::BTreeMap<String, bool>,
}

/// `ethtool -i`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct DriverInfo {
    /// `mqnet-tap`, `mqnet-ntb`, ...
    pub driver: String,
    /// Version of the program.
    pub version: String,
    /// Version of what lies beneath (kernel, protocol).
    pub firmware_version: String,
    /// The endpoint address.
    pub bus_info: String,
}

/// A private flag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct PrivFlag {
    /// Its name.
    pub name: String,
    /// On or off.
    pub on: bool,
    /// What there is to know beside it: where it has no say, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// `ethtool --set-priv-flags`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SetPrivFlags {
    /// Flag name and what it is to be.
    pub flags: std::collections::BTreeMap<String, bool>,
}

/// One line of `ethtool -S`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct NamedCounter {
    /// Such as `rx_queue_0_packets`.
    pub name: String,
    /// Its value.
    pub value: u64,
}
