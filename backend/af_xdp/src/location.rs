//! Location of the interface. Other programs may rename or move the interface, or delete its
//! network namespace.

use std::path::Path;
use std::time::Duration;

use mqnet_sysio::namespace::{self, NetNs};
use mqnet_sysio::nic::Nics;

use crate::AfXdpConfig;
use crate::watch::Watch;

/// Interval of checks that the network namespace exists, because the kernel sends no
/// notification.
const NETNS_INTERVAL: Duration = Duration::from_millis(500);

/// Location of the interface.
pub(crate) struct Location {
    /// Name of the interface in the configuration.
    pub(crate) configured: String,
    /// Index of the interface of the last session, which identifies a renamed interface.
    pub(crate) index: Option<u32>,
    /// Network namespace of the configuration; `None` if the configuration names none, or the
    /// namespace does not exist.
    netns: Option<NetNs>,
    checked: Option<Duration>,
    is_deleted: bool,
}

impl Location {
    pub(crate) fn new(config: &AfXdpConfig) -> Self {
        let configured = config.interface.clone();
        Self { configured, index: None, netns: None, checked: None, is_deleted: false }
    }

    /// Enters the namespace of `path`: opens the sockets that watch the interface there.
    pub(crate) fn enter(&mut self, path: &Path) -> Result<Watch, String> {
        let failed = |e: std::io::Error| namespace::failure(path, &e);
        let netns = NetNs::open(path).map_err(failed)?;
        let watch = netns.run(Watch::open).map_err(failed)?;
        let watch = watch.map_err(|e| format!("watching interfaces: {e}"))?;
        (self.netns, self.checked) = (Some(netns), None);
        Ok(watch)
    }

    /// Forgets the namespace and the index, after the namespace was deleted.
    pub(crate) fn clear(&mut self) {
        (self.netns, self.index) = (None, None);
    }

    pub(crate) fn inode(&self) -> Option<u64> {
        self.netns.as_ref().map(NetNs::inode)
    }

    pub(crate) fn has_no_netns(&self) -> bool {
        self.netns.is_none()
    }

    /// True if the network namespace was deleted.
    pub(crate) fn is_gone(&mut self, now: Duration) -> bool {
        let Some(netns) = &mut self.netns else { return false };
        if self.checked.is_none_or(|then| now.saturating_sub(then) >= NETNS_INTERVAL) {
            (self.checked, self.is_deleted) = (Some(now), netns.is_gone());
        }
        self.is_deleted
    }

    /// Sets `interface` to the present name of the last session's interface. True if that
    /// interface has left its namespace; the configured name applies again.
    pub(crate) fn follow(&mut self, interface: &mut String, nics: &Nics, function: &str) -> bool {
        let Some(index) = self.index else { return false };
        match nics.name_of(index) {
            Ok(name) => {
                if name != *interface {
                    tracing::info!("{function}: the interface was renamed to {name}");
                    *interface = name;
                }
                false
            }
            Err(_) => {
                self.index = None;
                interface.clone_from(&self.configured);
                true
            }
        }
    }
}
