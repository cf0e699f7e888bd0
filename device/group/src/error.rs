//! Error of the construction of a group.

/// Reason why functions cannot form a group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GroupError(pub(crate) String);
