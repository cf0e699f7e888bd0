//! Origin of a device.

use std::path::Path;

use crate::TapConfig;

/// Origin of the device.
pub(crate) enum Origin {
    /// Opened by name.
    Named(Box<TapConfig>),
    /// Opened by another program.
    Inherited,
}

impl Origin {
    /// File of the configured network namespace; `None` if none was configured.
    pub(crate) fn netns_path(&self) -> Option<&Path> {
        match self {
            Self::Named(config) => config.netns.as_deref(),
            Self::Inherited => None,
        }
    }
}
