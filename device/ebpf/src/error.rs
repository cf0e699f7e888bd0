//! Errors of the loader.

/// Reason why a file cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LoadError(pub(crate) String);
