//! The interface's own table: which of its RX queues a flow comes to.

use std::io;

use mqnet_netdev::Indirection;
use mqnet_sysio::nic::Nics;
use mqnet_undo::{Place, Setting, Undo, Value};

/// The table of an interface, put back as it was when this is dropped.
pub(crate) struct Spread {
    place: Place,
    interface: String,
    hash: &'static str,
    table: Vec<u32>,
    user_set: bool,
    /// Once it was changed: what was there before.
    undo: Option<Undo>,
}

impl Spread {
    /// Reads it; `None` where the driver has no such table. Call it in the interface's namespace.
    pub(crate) fn read(interface: &str, place: &Place) -> Option<Self> {
        let found =
            Nics::open().ok()?.spread(interface).ok().filter(|found| !found.table.is_empty())?;
        let (table, hash, interface) = (found.table, found.hash, interface.to_owned());
        Some(Self { place: place.clone(), interface, hash, table, user_set: false, undo: None })
    }

    /// The same in channels of the link, of which queues beyond their number are served in turn.
    pub(crate) fn shown(&self, channels: u16) -> Indirection {
        let channel = |queue: &u32| (queue % u32::from(channels.max(1))) as u16;
        let table = self.table.iter().map(channel).collect();
        Indirection { table, user_set: self.user_set, hash: self.hash }
    }

    /// Sets it, in channels of the link. What a user wants is set as it stands, for however many
    /// channels there will be. Of our own accord flows move only between channels: a bucket that
    /// stays with its channel stays on its queue, since the channel would not keep it in order.
    pub(crate) fn set(&mut self, table: &[u16], channels: u16, user_set: bool) -> io::Result<()> {
        let mut table: Vec<u32> = table.iter().map(|&queue| queue.into()).collect();
        if !user_set {
            self.take_notice()?;
            let now = self.shown(channels).table;
            for ((to, now), queue) in table.iter_mut().zip(now).zip(&self.table) {
                if *to == u32::from(now) {
                    *to = *queue;
                }
            }
        }
        if table != self.table {
            let value = Value::Numbers(table.clone());
            match &mut self.undo {
                Some(undo) => undo.change(&value)?,
                None => {
                    let setting = Setting::Table(self.interface.clone());
                    let before = Value::Numbers(self.table.clone());
                    let place = &self.place;
                    let set = || Undo::set(place, setting.clone(), before, &value);
                    self.undo = Some(place.run(&setting, set)??);
                }
            }
            self.table = table;
        }
        self.user_set = user_set;
        Ok(())
    }

    /// What somebody else has set meanwhile is a user's, and stays.
    fn take_notice(&mut self) -> io::Result<()> {
        let interface = &self.interface;
        let found = self.place.enter(false, || Nics::open()?.spread(interface))??;
        if found.table != self.table {
            (self.table, self.user_set) = (found.table, true);
            return Err(io::Error::other("somebody else has set it"));
        }
        Ok(())
    }
}
