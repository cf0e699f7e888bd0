//! Errors after which a link cannot continue.

use std::io;

use mqnet_qdisc::TcError;

use crate::worker::REPLY_TIMEOUT;

/// Error after which a link cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// A system resource cannot be created.
    #[error("workers: {0}")]
    System(#[from] io::Error),
    /// The configured arguments of a discipline are invalid.
    #[error("qdisc: {0}")]
    Qdisc(TcError),
    /// Flow learning is configured, but the named function has no indirection table.
    #[error(
        "rx-locality=learn: {0} has no indirection table; allowed: a TAP, a TUN or an interface \
         (xdp:)"
    )]
    Learning(String),
    /// A worker does not reply in time.
    #[error(
        "a worker did not answer within {} s (stuck in a system call?)",
        REPLY_TIMEOUT.as_secs()
    )]
    Stuck,
}
