//! State of the interface, and notifications that something about it changed.

use std::io;
use std::os::fd::BorrowedFd;

use mqnet_sysio::link_monitor::LinkMonitor;
use mqnet_sysio::nic::{Channels, Look, Nics};

/// What is known of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) look: Look,
    /// Its queues, where the driver tells.
    pub(crate) channels: Option<Channels>,
}

impl Seen {
    /// RX queues, and TX queues.
    pub(crate) fn queues(&self) -> Option<(u32, u32)> {
        self.channels.map(|channels| (channels.rx().max(1), channels.tx().max(1)))
    }
}

/// Both sockets stay in the network namespace in which they were opened.
pub(crate) struct Watch {
    pub(crate) nics: Nics,
    monitor: LinkMonitor,
}

impl Watch {
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self { nics: Nics::open()?, monitor: LinkMonitor::open()? })
    }

    /// Readable when something changed.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.monitor.event()
    }

    /// True when something about the interface `index` (any, without one) changed since the last
    /// call.
    pub(crate) fn has_news(&self, index: Option<u32>) -> bool {
        self.monitor.take(index)
    }

    pub(crate) fn look(&self, interface: &str) -> io::Result<Seen> {
        let look = self.nics.look(interface)?;
        Ok(Seen { look, channels: self.nics.channels(interface).ok() })
    }
}
