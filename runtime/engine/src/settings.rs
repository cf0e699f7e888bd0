//! Settings that the user requests of a link, and the errors of a request.

use mqnet_netdev::{Offloads, RequestedRings};

/// Settings of a link that the user requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkSettings {
    /// Number of channels; `None`: the number that a function or its peer requests, otherwise 1.
    pub channels: Option<u16>,
    /// MTU; `None`: the MTU of the functions.
    pub mtu: Option<u32>,
    /// Ring sizes of the function with a peer.
    pub rings: RequestedRings,
    /// Offloads that frames from the first function must not use.
    pub without_forth: Offloads,
    /// Offloads that frames from the second function must not use.
    pub without_back: Offloads,
}

/// Reason why a request was rejected immediately.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RejectedRequest {
    /// Another request is under way.
    #[error("another change is under way")]
    Busy,
    /// The request cannot be fulfilled; the string is the reason.
    #[error("{0}")]
    Impossible(String),
}

/// Reason why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The time limit has passed; the string describes the missing step.
    #[error("{0}")]
    TimedOut(String),
    /// The change was undone; the string is the reason.
    #[error("{0}")]
    Undone(String),
}
