//! Errors of a request.

use std::fmt;

use mqnet_control_api::{ApiError, Code};

use super::pprint;
use crate::ethtool::errno;

/// Error of a request.
#[derive(Debug)]
pub(super) enum Fault {
    /// Invalid request, which was not sent.
    Usage(String),
    /// Error without a netlink response: no process could be reached, or an ifindex is ambiguous.
    Local(String),
    /// Error in the netlink response.
    Netlink(NlError),
}

/// Error in the form of netlink.
#[derive(Debug)]
pub(super) struct NlError {
    code: Code,
    message: String,
    /// Attributes of the extended ACK in Python's notation; may be empty.
    details: String,
}

impl NlError {
    fn fault(code: Code, message: &str, details: String) -> Fault {
        Fault::Netlink(Self { code, message: message.to_owned(), details })
    }

    /// Error with an errno only.
    pub(super) fn bare(code: Code) -> Fault {
        Self::fault(code, "", String::new())
    }

    /// Invalid attribute; `message` is the reason and may be empty.
    pub(super) fn attribute(code: Code, message: &str, path: &str) -> Fault {
        Self::fault(code, message, format!("{{'bad-attr': {}}}", pprint::quote(path)))
    }

    /// Missing attribute.
    pub(super) fn missing(name: &str) -> Fault {
        Self::fault(Code::Invalid, "", format!("{{'miss-type': {}}}", pprint::quote(name)))
    }

    /// Missing pool id in the nest `info`. The kernel's tool prints the numbers of `id` and `info`,
    /// not the names.
    pub(super) fn missing_in_info() -> Fault {
        Self::fault(Code::Invalid, "", "{'miss-type': 1, 'miss-nest': 20}".to_owned())
    }

    /// Number outside its range.
    pub(super) fn range(path: &str, min: u32, max: u32, kind: &str) -> Fault {
        let policy = format!("{{'min-value': {min}, 'max-value': {max}, 'type': '{kind}'}}");
        let path = pprint::quote(path);
        let details = format!("{{'policy': {policy}, 'bad-attr': {path}}}");
        Self::fault(Code::Range, "integer out of range", details)
    }
}

impl From<ApiError> for Fault {
    fn from(e: ApiError) -> Self {
        NlError::fault(e.code, &e.message, String::new())
    }
}

impl fmt::Display for NlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Netlink error: ")?;
        if !self.message.is_empty() {
            write!(f, "{}: ", self.message)?;
        }
        f.write_str(errno::text(self.code))?;
        if !self.details.is_empty() {
            write!(f, " {}", self.details)?;
        }
        Ok(())
    }
}
