//! Error of a request.

use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// Kind of an error, as an errno name. Clients map the code to ethtool's texts and exit codes; the
/// server maps it to an HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub enum Code {
    /// No netdev or link has this name (404).
    #[serde(rename = "ENODEV")]
    NoDevice,
    /// The queue, NAPI instance, capture, map entry, discipline, class or filter does not exist
    /// (404).
    #[serde(rename = "ENOENT")]
    NoEntry,
    /// The object exists already (409).
    #[serde(rename = "EEXIST")]
    Exists,
    /// The value is not allowed (400).
    #[serde(rename = "EINVAL")]
    Invalid,
    /// The number is out of range (400).
    #[serde(rename = "ERANGE")]
    Range,
    /// The device or this process does not support the request (422).
    #[serde(rename = "EOPNOTSUPP")]
    NotSupported,
    /// The name is taken or ambiguous, the object is in use, or a limit is reached (409).
    #[serde(rename = "EBUSY")]
    Busy,
    /// Another change is under way; retry when that change is complete (409).
    #[serde(rename = "EAGAIN")]
    Changing,
    /// The link, its peer or the process is down (409).
    #[serde(rename = "ENETDOWN")]
    Down,
    /// The peer or the process did not answer in time (504).
    #[serde(rename = "ETIMEDOUT")]
    TimedOut,
    /// The kernel or the configuration forbids the request (403).
    #[serde(rename = "EPERM")]
    Permission,
    /// Any other failure (500).
    #[serde(rename = "EIO")]
    Failed,
}

/// Error of a request: kind, message and field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[error("{message}")]
#[serde(rename_all = "kebab-case")]
pub struct ApiError {
    /// Kind of failure.
    pub code: Code,
    /// One line for people: what failed, and which values or settings are possible.
    pub message: String,
    /// Field of the request with the wrong value; absent: the error concerns no single field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

impl ApiError {
    /// Creates an error without a field.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), field: None }
    }

    /// Creates an error for a value of `field` that is not allowed.
    pub fn field(field: &str, message: impl Into<String>) -> Self {
        Self { code: Code::Invalid, message: message.into(), field: Some(field.to_owned()) }
    }
}
