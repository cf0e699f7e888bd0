//! Notifications to systemd (`Type=notify`). Without systemd all functions do nothing.

use std::time::Duration;

use sd_notify::NotifyState;

fn notify(states: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(states) {
        // The service manager may be gone; the links continue.
        tracing::warn!("cannot notify the service manager: {e}");
    }
}

/// Reports that the links are set up and the control socket is served.
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
        // systemd 253 and newer rejects RELOADING without the time.
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(e) => tracing::warn!("cannot notify the service manager: {e}"),
    }
}

/// Reports that the process is about to end.
pub async fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Feeds the watchdog of the unit (`WatchdogSec=`) while `is_alive`; returns immediately without a
/// watchdog. Must run on the thread that is monitored.
pub async fn watchdog(mut is_alive: impl FnMut() -> bool) {
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    // At twice the required rate, as systemd recommends.
    let mut turn = tokio::time::interval((limit / 2).max(Duration::from_millis(1)));
    loop {
        turn.tick().await;
        if is_alive() {
            notify(&[NotifyState::Watchdog]);
        }
    }
}
