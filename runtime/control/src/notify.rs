//! Notifications to systemd (`Type=notify`). Without systemd, all functions do nothing.

use std::time::Duration;

use sd_notify::NotifyState;

fn notify(states: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(states) {
        // The service manager may be gone; the links continue.
        tracing::warn!("cannot notify the service manager: {e}");
    }
}

/// Reports that the links are set up and that the server accepts connections.
pub async fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Sets the status line of `systemctl status`.
pub async fn status(status: &str) {
    notify(&[NotifyState::Status(status)]);
}

/// Reports that the configuration is being reloaded; [`ready`] ends this state.
pub async fn reloading() {
    match NotifyState::monotonic_usec_now() {
        // systemd 253 and newer requires a timestamp with RELOADING.
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(e) => tracing::warn!("cannot notify the service manager: {e}"),
    }
}

/// Reports that the process is about to end.
pub async fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Sends watchdog notifications (`WatchdogSec=`) as long as `is_alive` returns true. Returns
/// immediately without a watchdog. Must run on the monitored thread.
pub async fn watchdog(mut is_alive: impl FnMut() -> bool) {
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    // systemd recommends half the watchdog interval.
    let mut turn = tokio::time::interval((limit / 2).max(Duration::from_millis(1)));
    loop {
        turn.tick().await;
        if is_alive() {
            notify(&[NotifyState::Watchdog]);
        }
    }
}
