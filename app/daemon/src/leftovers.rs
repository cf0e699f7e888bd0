//! What processes that were killed have left of this system's settings.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mqnet_control::socket::Places;
use mqnet_undo::Left;

/// How long queues that a killed process had may still be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

static WAITED: AtomicBool = AtomicBool::new(false);

/// Puts back what killed processes have left, and writes down from now on what this one changes.
pub(crate) fn take_care() {
    // Links that are up wait only once.
    let patience = if WAITED.swap(true, Ordering::Relaxed) { Duration::ZERO } else { PATIENCE };
    for what in put_back(patience) {
        tracing::warn!("{what}");
    }
    mqnet_undo::keep_in(|| Places::from_env().writable().map_err(std::io::Error::other));
}

/// Puts it back; what was done, in words.
pub(crate) fn put_back(patience: Duration) -> Vec<String> {
    let folders = Places::from_env().existing();
    folders.iter().flat_map(|folder| mqnet_undo::recover(folder, patience)).collect()
}

/// What there is.
pub(crate) fn all() -> Vec<Left> {
    let folders = Places::from_env().existing();
    folders.iter().flat_map(|folder| mqnet_undo::left_behind(folder)).collect()
}
