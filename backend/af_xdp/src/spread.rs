//! The interface's own table: which of its RX queues a flow comes to.

use std::io;

use mqnet_netdev::Indirection;
use mqnet_sysio::nic::Nics;

/// The table of an interface, put back as it was when this is dropped.
pub(crate) struct Spread {
    /// Of its network namespace.
    nics: Nics,
    interface: String,
    hash: &'static str,
    table: Vec<u32>,
    user_set: bool,
    /// What was there before the first change.
    before: Option<Vec<u32>>,
}

impl Spread {
    /// Reads it; `None` where the driver has no such table. Call it in the interface's namespace.
    pub(crate) fn read(interface: &str) -> Option<Self> {
        let nics = Nics::open().ok()?;
        let found = nics.spread(interface).ok().filter(|found| !found.table.is_empty())?;
        let (table, hash, interface) = (found.table, found.hash, interface.to_owned());
        Some(Self { nics, interface, hash, table, user_set: false, before: None })
    }

    /// The same in channels of the link, of which queues beyond their number are served in turn.
    pub(crate) fn shown(&self, channels: u16) -> Indirection {
        let channel = |queue: &u32| (queue % u32::from(channels.max(1))) as u16;
        let table = self.table.iter().map(channel).collect();
        Indirection { table, user_set: self.user_set, hash: self.hash }
    }

    /// Sets it.
    pub(crate) fn set(&mut self, table: &[u16], user_set: bool) -> io::Result<()> {
        let table: Vec<u32> = table.iter().map(|&queue| queue.into()).collect();
        if table != self.table {
            self.nics.set_spread(&self.interface, &table)?;
            let before = std::mem::replace(&mut self.table, table);
            self.before.get_or_insert(before);
        }
        self.user_set = user_set;
        Ok(())
    }
}

impl Drop for Spread {
    fn drop(&mut self) {
        let Some(before) = self.before.take() else { return };
        if let Err(e) = self.nics.set_spread(&self.interface, &before) {
            tracing::debug!("{}: its table stays as it is: {e}", self.interface);
        }
    }
}
