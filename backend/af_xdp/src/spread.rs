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
    /// Its RX queues.
    queues: u32,
    /// As it was found.
    found: Vec<u32>,
    table: Vec<u32>,
    user_set: bool,
    /// Once it was changed: what was there before.
    undo: Option<Undo>,
}

impl Spread {
    /// Reads it; `None` where the driver has no such table. Call it in the interface's namespace.
    pub(crate) fn read(interface: &str, place: &Place) -> Option<Self> {
        let nics = Nics::open().ok()?;
        let spread = nics.spread(interface).ok().filter(|spread| !spread.table.is_empty())?;
        let channels = nics.channels(interface).ok();
        let named = spread.table.iter().max().map_or(1, |most| most + 1);
        let queues = channels.as_ref().map_or(named, |channels| channels.rx());
        // Some drivers name all the queues that there could be.
        let possible = channels.map(|channels| channels.max());
        let is_default =
            [Some(queues), possible].into_iter().flatten().any(|n| is_even(&spread.table, n));
        Some(Self {
            place: place.clone(),
            interface: interface.to_owned(),
            hash: spread.hash,
            queues: queues.max(named),
            found: spread.table.clone(),
            table: spread.table,
            user_set: !is_default,
            undo: None,
        })
    }

    /// The same in channels of the link, of which queues beyond their number are served in turn.
    pub(crate) fn shown(&self, channels: u16) -> Indirection {
        let channel = |queue: &u32| (queue % u32::from(channels.max(1))) as u16;
        let table = self.table.iter().map(channel).collect();
        Indirection { table, user_set: self.user_set, hash: self.hash }
    }

    /// Sets it, in channels of the link; true if a bucket moved. What a user wants is set as it
    /// stands, for however many channels there will be. Otherwise flows move only between channels,
    /// over all the queues that these have.
    pub(crate) fn set(&mut self, table: &[u16], channels: u16, user_set: bool) -> io::Result<bool> {
        let table: Vec<u32> = if user_set {
            table.iter().map(|&queue| queue.into()).collect()
        } else {
            over_queues(table, channels, self.queues, [&self.table, &self.found])
        };
        let moves = table != self.table;
        if moves {
            self.write(table)?;
        }
        self.user_set = user_set;
        Ok(moves)
    }

    /// Sets it as it stands. Until somebody has set one, virtio-net shows a table by which its
    /// device does not go: that was told a number of queues, and chooses for itself.
    pub(crate) fn enforce(&mut self) -> io::Result<()> {
        // Somebody's is in force, perhaps since the last look.
        if self.user_set || self.refresh()? { Ok(()) } else { self.write(self.table.clone()) }
    }

    fn write(&mut self, table: Vec<u32>) -> io::Result<()> {
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
        Ok(())
    }

    /// Reads it anew; true if somebody else has set it meanwhile, who is a user.
    pub(crate) fn refresh(&mut self) -> io::Result<bool> {
        let interface = &self.interface;
        let now = self.place.enter(false, || Nics::open()?.spread(interface))??.table;
        // Of another length it belongs to other queues, and so to another session.
        if now == self.table || now.len() != self.table.len() {
            return Ok(false);
        }
        (self.table, self.user_set) = (now, true);
        Ok(true)
    }
}

/// Each of so many queues has as many buckets as the others: what drivers begin with, in whatever
/// order, and what a user who sets a table wants to be otherwise.
fn is_even(table: &[u32], queues: u32) -> bool {
    let mut counts = vec![0usize; queues.clamp(1, 1 << 16) as usize];
    for &queue in table {
        match counts.get_mut(queue as usize) {
            Some(count) => *count += 1,
            None => return false,
        }
    }
    let least = table.len() / counts.len();
    counts.iter().all(|count| (least..=least + 1).contains(count))
}

/// The queues of a table of channels, of which each has every n-th queue. A bucket that stays with
/// its channel stays on its queue, since the channel would not keep it in order; one that moves
/// goes to where it was found, or to that queue of the channel that has the fewest.
fn over_queues(
    table: &[u16],
    channels: u16,
    queues: u32,
    [now, found]: [&Vec<u32>; 2],
) -> Vec<u32> {
    let step = u32::from(channels.max(1));
    let mut counts = vec![0usize; queues.min(1 << 16) as usize];
    let mut out = Vec::with_capacity(table.len());
    for ((&channel, &now), &found) in table.iter().zip(now).zip(found) {
        let channel = u32::from(channel);
        let own = [now, found].into_iter().find(|queue| queue % step == channel % step);
        let fewest = || {
            let all = (channel..queues).step_by(step as usize);
            all.min_by_key(|&queue| counts[queue as usize]).unwrap_or(channel)
        };
        let queue = own.unwrap_or_else(fewest);
        if let Some(count) = counts.get_mut(queue as usize) {
            *count += 1;
        }
        out.push(queue);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: tables with which drivers begin are told from those that somebody made.
    #[test]
    fn what_drivers_begin_with_is_even() {
        let by_turns: Vec<u32> = (0..128).map(|i| i % 6).collect();
        let in_blocks: Vec<u32> = (0..128).map(|i| i * 4 / 128).collect();
        assert!(is_even(&by_turns, 6) && is_even(&in_blocks, 4) && is_even(&[0; 128], 1));
        assert!(!is_even(&by_turns, 8), "ethtool -X equal 6");
        assert!(!is_even(&[0; 128], 2), "equal 1");
        assert!(!is_even(&[0, 1, 1, 1], 2), "weight 1 3");
        assert!(!is_even(&[0, 1, 2, 3], 2), "queues that there are not");
        assert!(!is_even(&[0, 1], 0));
    }

    // Goal: with fewer channels than queues a bucket that moves to a channel is spread over the
    // queues of that channel, one that comes home is where it was found, and one that stays with
    // its channel stays on its queue.
    #[test]
    fn channels_have_all_their_queues() {
        let found: Vec<u32> = (0..16).map(|i| i % 8).collect();
        let home: Vec<u16> = (0..16).map(|i| i % 2).collect();
        assert_eq!(over_queues(&home, 2, 8, [&found, &found]), found);
        let moved = over_queues(&[1; 16], 2, 8, [&found, &found]);
        let count = |of: u32| moved.iter().filter(|queue| **queue == of).count();
        assert_eq!([1, 3, 5, 7].map(count), [4; 4], "{moved:?}");
        let stay = moved.iter().zip(&found).filter(|(_, found)| *found % 2 == 1);
        assert!(stay.clone().count() == 8 && stay.clone().all(|(now, found)| now == found));
        assert_eq!(over_queues(&home, 2, 8, [&moved, &found]), found);
        assert_eq!(over_queues(&home, 8, 8, [&moved, &found])[..2], [0, 1]);
    }

    // Goal: no table of a driver, and none that a user asks for, is out of any bounds.
    #[test]
    fn odd_tables_are_no_trouble() {
        let odd = vec![u32::MAX, 7, 0];
        assert_eq!(over_queues(&[0, 9, 1], 3, 0, [&odd, &odd]), [u32::MAX, 9, 1]);
        assert_eq!(over_queues(&[0], 0, 1, [&odd, &odd]), [u32::MAX]);
    }
}
