//! Failure to create a lane.

/// Failure to create the page pool of a lane.
#[derive(Debug, thiserror::Error)]
#[error("page pool of a lane: {0}")]
pub struct LaneError(pub(crate) String);
