//! Failures of a command, with their exit codes.

use mqnet_control_api::{ApiError, Code};

/// Failure of a command.
#[derive(Debug)]
pub enum Failure {
    /// Invalid input: exit code 2, no change was made.
    BadInput(String),
    /// Failed operation: exit code 1.
    Broken(String),
    /// Exit code of a failure that is already reported.
    Exit(u8),
}

impl<E: std::error::Error + 'static> From<E> for Failure {
    fn from(e: E) -> Self {
        let e: &(dyn std::error::Error + 'static) = &e;
        match e.downcast_ref::<ApiError>().map(|refused| refused.code) {
            Some(Code::Invalid | Code::Range) => Self::BadInput(e.to_string()),
            _ => Self::Broken(e.to_string()),
        }
    }
}
