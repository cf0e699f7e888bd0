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

/// Every code, in the order of the reference page.
const ALL: [Code; 12] = [
    Code::NoDevice,
    Code::NoEntry,
    Code::Exists,
    Code::Invalid,
    Code::Range,
    Code::NotSupported,
    Code::Busy,
    Code::Changing,
    Code::Down,
    Code::TimedOut,
    Code::Permission,
    Code::Failed,
];

impl Code {
    /// HTTP status, meaning, and action of a client.
    fn row(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::NoDevice => {
                (404, "no netdev or link of that name", "`mqnet show` lists the names")
            }
            Self::NoEntry => (
                404,
                "no such queue, NAPI, pool, capture, qdisc, class, filter or path",
                "list the objects that exist, for example with `mqnet tc qdisc show`",
            ),
            Self::Exists => (409, "the object exists", "use `change` or `replace`, or delete it"),
            Self::Invalid => (400, "value that is not allowed", "the message has the allowed ones"),
            Self::Range => (400, "number outside its range", "the message has the range"),
            Self::NotSupported => {
                (422, "not supported by the device", "the message has the reason")
            }
            Self::Busy => {
                (409, "the name is in use, or has several meanings", "use a name from the message")
            }
            Self::Changing => {
                (409, "another change of the link is not finished", "repeat the request")
            }
            Self::Down => (409, "the link or its peer is down", "`mqnet show` has the reason"),
            Self::TimedOut => (
                504,
                "the peer did not answer in time",
                "`mqnet show` has the state of the link; repeat the request",
            ),
            Self::Permission => (
                403,
                "refused by the kernel or by `[policy]`",
                "`mqnet doctor` lists missing permissions",
            ),
            Self::Failed => (500, "another failure", "the message and the log have the reason"),
        }
    }

    /// Status of an HTTP response with this code.
    pub fn http_status(self) -> u16 {
        self.row().0
    }
}

/// Contents of `book/src/reference/errors.md`.
pub fn errors_page() -> String {
    let mut out = "\
# Errors and exit codes

<!-- Generated from runtime/control_api/src/error.rs by `cargo xtask generate`. -->

A refused request changes nothing. Commands print its message. An HTTP response has it as JSON, with
`code`, `message` and, if a field of the request is wrong, `field`.

## Error codes

| code | HTTP status | meaning | what to do |
|---|---|---|---|
"
    .to_owned();
    for code in ALL {
        let (status, meaning, action) = code.row();
        let name = serde_json::to_string(&code).unwrap_or_default();
        out += &format!("| `{}` | {status} | {meaning} | {action} |\n", name.trim_matches('"'));
    }
    out + EXIT_CODES
}

const EXIT_CODES: &str = "
Statuses without a code of their own: 405 (method), 408 (the body did not arrive in time), 413 (it
is too large) and 415 (it is not JSON).

## Exit codes

| code | meaning |
|---|---|
| 0 | success; also if the reader of the output closed its pipe |
| 1 | failed operation; standard error has the reason |
| 2 | invalid input (arguments, configuration, `EINVAL`, `ERANGE`); nothing was changed |

`mqnet ethtool` and `mqnet tc` have the exit codes and messages of ethtool 6.1 and tc 6.1.
`mqnet ynl` has the exit codes above, and prints errors of the kernel's protocol as the kernel's
tool does.
";

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

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: each code has one row, with its status.
    #[test]
    fn every_code_is_documented() {
        let page = errors_page();
        for code in ALL {
            let name = serde_json::to_string(&code).unwrap();
            let row = format!("| `{}` | {} |", name.trim_matches('"'), code.http_status());
            assert_eq!(page.matches(&row).count(), 1, "{row}");
        }
    }
}
