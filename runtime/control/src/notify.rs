//! What systemd is told (`Type=notify`). Without systemd all of this does nothing.

use std::time::Duration;

use sd_notify::NotifyState;

fn tell(states: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(states) {
        // The service manager may be gone; the links need not be.
        tracing::warn!("cannot notify the service manager: {e}");
    }
}

/// The links are set up and the control socket answers.
pub async fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// One line for `systemctl status`.
pub async fn status(status: &str) {
    tell(&[NotifyState::Status(status)]);
}

/// The configuration is read again; [`ready`] ends this.
pub async fn reloading() {
    match NotifyState::monotonic_usec_now() {
        // systemd refuses RELOADING without the time, from version 253 on.
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(e) => tracing::warn!("cannot notify the service manager: {e}"),
    }
}

/// The process is about to end.
pub async fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Feeds the watchdog of the unit (`WatchdogSec=`) as long as `is_alive`; ends at once when there
/// is none. Run it on the thread whose hanging is to be noticed.
pub async fn watchdog(mut is_alive: impl FnMut() -> bool) {
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    // Twice as often as needed, as systemd advises.
    let mut turn = tokio::time::interval((limit / 2).max(Duration::from_millis(1)));
    loop {
        turn.tick().await;
        if is_alive() {
            tell(&[NotifyState::Watchdog]);
        }
    }
}
