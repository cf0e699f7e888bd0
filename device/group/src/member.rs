//! One member of a group, and its state.

use mqnet_netdev::{Caps, Function, LinkStatus};

/// Function that belongs to a group, or is to join it.
pub(crate) struct Member {
    pub(crate) function: Box<dyn Function>,
    pub(crate) identity: String,
    /// Capabilities at the time when the member was last up.
    pub(crate) caps: Caps,
    pub(crate) status: LinkStatus,
    /// Session in which the member joined; `None` if the member does not belong to the group now.
    pub(crate) joined: Option<u64>,
    /// True if the member has open channels.
    pub(crate) open: bool,
    /// Reason why the member could not fail back, or why its last cleanup failed; otherwise `None`.
    pub(crate) trouble: Option<String>,
}

impl Member {
    /// True if the member belongs to the group now.
    pub(crate) fn is_here(&self) -> bool {
        self.joined.is_some()
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.status, LinkStatus::Up { .. })
    }
}
