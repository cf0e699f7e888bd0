//! Functions that wait for sockets, devices and files of a started program.

use std::path::Path;
use std::time::Duration;

use mqnet_sysio::poll;

use super::Result;
use super::child::Child;
use super::hosts::Host;

/// Time limit of operations that take milliseconds on an idle machine.
pub(super) const SOON: Duration = Duration::from_secs(15);

pub(super) fn wait_for_device(host: &Host, device: &str, maker: &Child) -> Result<()> {
    wait_for(maker, device, || host.ip(&["link", "show", "dev", device]).is_ok())
}

pub(super) fn wait_for_path(path: &Path, maker: &Child) -> Result<()> {
    wait_for(maker, "its socket", || path.exists())
}

/// Polls a condition for at most 10 s. An error contains the last output of `maker`.
fn wait_for(maker: &Child, what: &str, mut is_there: impl FnMut() -> bool) -> Result<()> {
    for _ in 0..200 {
        if is_there() {
            return Ok(());
        }
        poll::pause(Duration::from_millis(50));
    }
    Err(format!("{what} does not appear: {}", maker.tail()).into())
}
