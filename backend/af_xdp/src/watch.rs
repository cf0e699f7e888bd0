//! Looks at the interface: how it stands, and that something about it changed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use mqnet_sysio::descriptors::explained;
use mqnet_sysio::nic::{Channels, Look, Nics};
use mqnet_sysio::poll;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// The group of rtnetlink(7) that tells of interfaces.
const LINKS: u32 = 1;

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
    news: Socket,
}

impl Watch {
    pub(crate) fn open() -> io::Result<Self> {
        let mut news = Socket::new(NETLINK_ROUTE).map_err(explained)?;
        news.bind(&SocketAddr::new(0, LINKS))?;
        Ok(Self { nics: Nics::open()?, news })
    }

    /// Readable when something changed.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// True when something changed since the last call: what, is not asked.
    pub(crate) fn has_news(&self) -> bool {
        let mut any = false;
        while poll::is_readable(self.event()).unwrap_or(false) {
            any = true;
            // When there was more than the socket holds, the error says so, once.
            let _ = self.news.recv_from_full();
        }
        any
    }

    pub(crate) fn look(&self, interface: &str) -> io::Result<Seen> {
        let look = self.nics.look(interface)?;
        Ok(Seen { look, channels: self.nics.channels(interface).ok() })
    }
}
