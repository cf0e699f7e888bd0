//! XDP programs and their maps.

use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// One map of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct XdpMap {
    /// Its name.
    pub name: String,
    /// `hash`, `array`, `percpu_array`, ...
    pub kind: String,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Most entries.
    pub max_entries: u32,
}

/// The program of a netdev.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct XdpProgram {
    /// Name of its function.
    pub name: String,
    /// Section of its file.
    pub section: String,
    /// `jit` or `interpreter`.
    pub mode: String,
    /// Instructions.
    pub insns: u64,
    /// Instructions that were walked to prove that it is harmless.
    pub verified_insns: u64,
    /// Frames that it has seen, on all channels.
    pub packets: u64,
    /// Dropped, whether it said so or failed.
    pub drops: u64,
    /// Sent back.
    pub tx: u64,
    /// Sent to a netdev.
    pub redirects: u64,
    /// Its maps.
    pub maps: Vec<XdpMap>,
}

/// What `xdp show` is told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct XdpInfo {
    /// The program; absent: none is attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<XdpProgram>,
}

/// How a program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum XdpMode {
    /// As machine code where there is a compiler.
    #[default]
    Auto,
    /// As machine code.
    Jit,
    /// Instruction by instruction, with every access checked.
    Interpret,
}

/// Attaches a program, or takes it off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SetXdp {
    /// The object file in hexadecimal; absent: the program is taken off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The section with the program; absent: any that begins with `xdp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section: Option<String>,
    /// The name of the program, where there are several; absent: the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// How it runs.
    #[serde(default)]
    pub mode: XdpMode,
}

/// What is done with a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum XdpMapVerb {
    /// All entries.
    #[default]
    Dump,
    /// One entry.
    Get,
    /// Sets an entry.
    Set,
    /// Takes an entry out.
    Delete,
}

/// A question or an order to a map.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct XdpMapRequest {
    /// Name of the map.
    pub map: String,
    /// What is to be done.
    #[serde(default)]
    pub verb: XdpMapVerb,
    /// The key in hexadecimal, for all but a dump.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The value in hexadecimal, to set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// One entry of a map.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct XdpEntry {
    /// The key in hexadecimal.
    pub key: String,
    /// The value in hexadecimal; one for each channel where the map has that.
    pub values: Vec<String>,
}
