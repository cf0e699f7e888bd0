//! Why a request was not carried out.

use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// What kind of failure, as an errno name; a client maps it to ethtool's texts and exit codes, the
/// server to an HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub enum Code {
    /// No netdev or link of that name (404).
    #[serde(rename = "ENODEV")]
    NoDevice,
    /// No such queue, NAPI, pool, capture, discipline, class or filter (404).
    #[serde(rename = "ENOENT")]
    NoEntry,
    /// It is there already (409).
    #[serde(rename = "EEXIST")]
    Exists,
    /// A value that is not allowed (400).
    #[serde(rename = "EINVAL")]
    Invalid,
    /// A number out of its range (400).
    #[serde(rename = "ERANGE")]
    Range,
    /// This device cannot do it (422).
    #[serde(rename = "EOPNOTSUPP")]
    NotSupported,
    /// The name is taken, or it stands for several (409).
    #[serde(rename = "EBUSY")]
    Busy,
    /// Another change is under way; the same request is possible when it is done (409).
    #[serde(rename = "EAGAIN")]
    Changing,
    /// The link or its peer is down (409).
    #[serde(rename = "ENETDOWN")]
    Down,
    /// The peer did not answer in time (504).
    #[serde(rename = "ETIMEDOUT")]
    TimedOut,
    /// The kernel refused (403).
    #[serde(rename = "EPERM")]
    Permission,
    /// Anything else that went wrong here (500).
    #[serde(rename = "EIO")]
    Failed,
}

/// A refusal: what failed, which field, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[error("{message}")]
#[serde(rename_all = "kebab-case")]
pub struct ApiError {
    /// Kind of failure.
    pub code: Code,
    /// One line for people; names the knob to turn.
    pub message: String,
    /// The field of the request that is wrong, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

impl ApiError {
    /// An error without a field.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), field: None }
    }

    /// A value of `field` that is not allowed.
    pub fn field(field: &str, message: impl Into<String>) -> Self {
        Self { code: Code::Invalid, message: message.into(), field: Some(field.to_owned()) }
    }
}
