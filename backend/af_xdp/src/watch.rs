//! State of the interface, and notifications of its changes.

use std::io;
use std::os::fd::BorrowedFd;

use mqnet_sysio::link_monitor::LinkMonitor;
use mqnet_sysio::nic::{ChannelCounts, InterfaceState, Nics};

/// Observed state of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) look: InterfaceState,
    /// Queues of the interface; `None` if the driver does not report them.
    pub(crate) channels: Option<ChannelCounts>,
}

impl Seen {
    /// Number of RX queues, and of TX queues; `None` if the driver does not report them.
    pub(crate) fn queues(&self) -> Option<(u32, u32)> {
        self.channels.map(|channels| (channels.rx().max(1), channels.tx().max(1)))
    }
}

/// Sockets for reading and watching interfaces, bound to the network namespace in which they were
/// opened.
pub(crate) struct Watch {
    pub(crate) nics: Nics,
    monitor: LinkMonitor,
}

impl Watch {
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self { nics: Nics::open()?, monitor: LinkMonitor::open()? })
    }

    /// Descriptor that is readable after a change.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.monitor.event()
    }

    /// True if interface `index` has changed since the last call; with `None`, if any interface
    /// has.
    pub(crate) fn has_changed(&self, index: Option<u32>) -> bool {
        self.monitor.take(index)
    }

    pub(crate) fn read(&self, interface: &str) -> io::Result<Seen> {
        let look = self.nics.interface_state(interface)?;
        Ok(Seen { look, channels: self.nics.channels(interface).ok() })
    }
}
