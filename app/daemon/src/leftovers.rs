//! Settings of this system that killed processes have left changed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mqnet_control::socket::Places;
use mqnet_undo::Left;

/// Time limit of the wait for a killed process's queues that are still busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

static WAITED: AtomicBool = AtomicBool::new(false);

/// Restores the settings that killed processes have left, and starts the restore journal of this
/// process.
pub(crate) fn take_care() {
    // Only the first call waits: later links must not be delayed.
    let patience = if WAITED.swap(true, Ordering::Relaxed) { Duration::ZERO } else { PATIENCE };
    for what in put_back(patience) {
        tracing::warn!("{what}");
    }
    mqnet_undo::keep_in(|| Places::from_env().writable().map_err(std::io::Error::other));
}

/// Restores the settings that killed processes have left; returns one message for each setting.
pub(crate) fn put_back(patience: Duration) -> Vec<String> {
    let folders = Places::from_env().existing();
    folders.iter().flat_map(|folder| mqnet_undo::recover(folder, patience)).collect()
}

/// Lists the settings left by killed processes.
pub(crate) fn all() -> Vec<Left> {
    let folders = Places::from_env().existing();
    folders.iter().flat_map(|folder| mqnet_undo::left_behind(folder)).collect()
}
