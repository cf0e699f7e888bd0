//! State of the device as it was last observed.

use std::time::Duration;

use mqnet_sysio::link_monitor::LinkMonitor;
use mqnet_sysio::namespace::NetNs;

use crate::netlink::LinkInfo;

/// Interval of checks for the deletion of the network namespace, which sends no notification.
const NETNS_INTERVAL: Duration = Duration::from_millis(500);

pub(crate) struct View {
    pub(crate) monitor: LinkMonitor,
    /// Network namespace of the device; `None` if it is that of the process.
    pub(crate) netns: Option<NetNs>,
    /// True if the configured namespace was deleted. The device is then created in the next
    /// namespace of that name.
    pub(crate) is_netns_lost: bool,
    /// Name of the device when it was opened.
    pub(crate) first_name: String,
    /// True if this process has switched the carrier on.
    pub(crate) carrier: bool,
    /// MTU that another program has set, until the engine reads it; `None` otherwise.
    pub(crate) changed_mtu: Option<u32>,
    pub(crate) seen: LinkInfo,
    /// True if the device has changed since its state was read.
    pub(crate) is_stale: bool,
    /// True if the device is in a namespace that this process may not enter.
    pub(crate) is_out_of_reach: bool,
    /// Number of times that an option was set again.
    pub(crate) resets: u8,
    /// Time of the first poll after the device was opened; `None` before.
    pub(crate) since: Option<Duration>,
    pub(crate) netns_seen: Option<Duration>,
    pub(crate) is_netns_gone: bool,
}

impl View {
    pub(crate) fn new(monitor: LinkMonitor, netns: Option<NetNs>, info: LinkInfo) -> Self {
        Self {
            monitor,
            netns,
            is_netns_lost: false,
            first_name: info.name.clone(),
            carrier: false,
            changed_mtu: None,
            seen: info,
            // Read the state once before any notification.
            is_stale: true,
            is_out_of_reach: false,
            resets: 0,
            since: None,
            netns_seen: None,
            is_netns_gone: false,
        }
    }

    /// Duplicates the handle of the network namespace; `None` for that of the process.
    pub(crate) fn reopen(&self) -> Result<Option<NetNs>, String> {
        let again = self.netns.as_ref().map(NetNs::try_clone).transpose();
        again.map_err(|e| format!("network namespace: {e}"))
    }

    /// Resets the state for a new device of the same name.
    pub(crate) fn renew(&mut self, info: LinkInfo) {
        (self.seen, self.since, self.changed_mtu) = (info, None, None);
        (self.is_stale, self.is_out_of_reach, self.resets) = (true, false, 0);
    }

    pub(crate) fn enter(&mut self, monitor: LinkMonitor, netns: Option<NetNs>) {
        (self.monitor, self.netns, self.netns_seen) = (monitor, netns, None);
        (self.is_stale, self.is_out_of_reach) = (true, false);
    }

    pub(crate) fn take_notifications(&mut self, index: u32) {
        self.is_stale |= self.monitor.take(Some(index));
    }

    /// True if the network namespace of the device was deleted.
    pub(crate) fn netns_is_gone(&mut self, now: Duration) -> bool {
        let Some(netns) = &mut self.netns else { return false };
        let is_due = |seen: Duration| now.saturating_sub(seen) >= NETNS_INTERVAL;
        if self.netns_seen.is_none_or(is_due) {
            (self.netns_seen, self.is_netns_gone) = (Some(now), netns.is_gone());
        }
        self.is_netns_gone
    }
}
