//! Reasons why a command fails, and their exit codes.

use mqnet_control_api::{ApiError, Code};

/// Why a command ended badly.
#[derive(Debug)]
pub enum Failure {
    /// What was asked for makes no sense: exit code 2, nothing was touched.
    BadInput(String),
    /// It could not be done: exit code 1.
    Broken(String),
    /// Everything has been said; this exit code.
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
