//! XDP programs and their maps.

use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// Map of an XDP program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct XdpMap {
    /// Name of the map.
    pub name: String,
    /// Kind of the map, such as `hash`, `array` or `percpu_array`.
    pub kind: String,
    /// Size of a key in bytes.
    pub key_size: u32,
    /// Size of a value in bytes.
    pub value_size: u32,
    /// Largest possible number of entries.
    pub max_entries: u32,
}

/// XDP program of a netdev.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct XdpProgram {
    /// Name of the program's function.
    pub name: String,
    /// Section of the object file.
    pub section: String,
    /// Execution mode: `jit` or `interpreter`.
    pub mode: String,
    /// Number of instructions.
    pub insns: u64,
    /// Number of instructions that the verifier processed.
    pub verified_insns: u64,
    /// Frames processed on all channels.
    pub packets: u64,
    /// Frames dropped by the program's verdict or after an error of the program.
    pub drops: u64,
    /// Frames sent back (`XDP_TX`).
    pub tx: u64,
    /// Frames redirected to a netdev.
    pub redirects: u64,
    /// Maps of the program.
    pub maps: Vec<XdpMap>,
}

/// Reply to `xdp show`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct XdpInfo {
    /// Attached program; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<XdpProgram>,
}

/// Execution mode of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum XdpMode {
    /// Machine code if the architecture has a compiler; interpreter otherwise.
    #[default]
    Auto,
    /// Machine code.
    Jit,
    /// Interpreter, which checks every memory access.
    Interpret,
}

/// Request to attach or detach an XDP program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SetXdp {
    /// Object file in hexadecimal; absent: the program is detached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Section with the program; absent: any section whose name begins with `xdp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section: Option<String>,
    /// Name of the program; may be absent if the object file has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Execution mode.
    #[serde(default)]
    pub mode: XdpMode,
}

/// Operation on a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum XdpMapVerb {
    /// Reads all entries.
    #[default]
    Dump,
    /// Reads one entry.
    Get,
    /// Writes one entry.
    Set,
    /// Deletes one entry.
    Delete,
}

/// Request to read or write a map.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct XdpMapRequest {
    /// Name of the map.
    pub map: String,
    /// Operation to execute.
    #[serde(default)]
    pub verb: XdpMapVerb,
    /// Key in hexadecimal; required except for a dump.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Value in hexadecimal; required to write an entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// Entry of a map.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct XdpEntry {
    /// Key in hexadecimal.
    pub key: String,
    /// Values in hexadecimal: one per channel for per-CPU maps, one otherwise.
    pub values: Vec<String>,
}
