//! RSS indirection table of the interface.

use std::io;

use mqnet_netdev::Indirection;
use mqnet_sysio::nic::Nics;
use mqnet_undo::{Setting, SettingNetns, Undo, Value};

/// Indirection table of an interface, restored on drop.
pub(crate) struct Spread {
    place: SettingNetns,
    interface: String,
    hash: &'static str,
    /// Number of RX queues.
    queues: u32,
    /// Table before the first change.
    found: Vec<u32>,
    table: Vec<u32>,
    user_set: bool,
    /// Restore journal entry, after the first change.
    undo: Option<Undo>,
}

impl Spread {
    /// Reads the table; `None` if it cannot be read or is empty. The caller must be in the
    /// interface's namespace.
    pub(crate) fn read(interface: &str, place: &SettingNetns) -> Option<Self> {
        let nics = Nics::open().ok()?;
        let spread = nics.spread(interface).ok().filter(|spread| !spread.table.is_empty())?;
        let channels = nics.channels(interface).ok();
        let named = spread.table.iter().max().map_or(1, |most| most + 1);
        let queues = channels.as_ref().map_or(named, |channels| channels.rx());
        // Default tables of some drivers use all possible queues. A table that is even over either
        // number of queues is a default table.
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

    /// Table from buckets to channels; each channel serves every n-th queue.
    pub(crate) fn in_channels(&self, channels: u16) -> Indirection {
        let channel = |queue: &u32| (queue % u32::from(channels.max(1))) as u16;
        let table = self.table.iter().map(channel).collect();
        Indirection { table, user_set: self.user_set, hash: self.hash }
    }

    /// Sets the table; true if a bucket has moved. With `user_set`, `table` maps buckets to queues
    /// and is set unchanged. Otherwise `table` maps buckets to channels, and buckets that move are
    /// spread over all queues of their channel.
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

    /// Writes the present table to the device. Until a table is set, virtio-net reports a table
    /// that its device does not use: the device selects queues itself.
    pub(crate) fn enforce(&mut self) -> io::Result<()> {
        // A user's table, set by this process or found by the refresh, is in effect already.
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

    /// Reads the table again; true if another program has changed it, which counts as a user's
    /// choice.
    pub(crate) fn refresh(&mut self) -> io::Result<bool> {
        let interface = &self.interface;
        let now = self.place.enter(false, || Nics::open()?.spread(interface))??.table;
        // Ignore a table of another length, which belongs to another number of queues and so to
        // another session.
        if now == self.table || now.len() != self.table.len() {
            return Ok(false);
        }
        (self.table, self.user_set) = (now, true);
        Ok(true)
    }
}

/// True if the buckets are distributed evenly over all `queues` queues, in any order. The tables
/// that drivers set initially are even; a user's table usually is not.
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

/// Table from buckets to queues, for a table from buckets to channels with every n-th queue in
/// each channel. A bucket that keeps its channel keeps its queue, because a channel does not
/// preserve order between its queues. A bucket that moves returns to its original queue if that
/// is in the channel, otherwise to the channel's queue with the fewest buckets.
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

    // Goal: initial tables of drivers are distinguished from tables that a user has set.
    #[test]
    fn initial_tables_of_drivers_are_even() {
        let by_turns: Vec<u32> = (0..128).map(|i| i % 6).collect();
        let in_blocks: Vec<u32> = (0..128).map(|i| i * 4 / 128).collect();
        assert!(is_even(&by_turns, 6) && is_even(&in_blocks, 4) && is_even(&[0; 128], 1));
        assert!(!is_even(&by_turns, 8), "ethtool -X equal 6");
        assert!(!is_even(&[0; 128], 2), "equal 1");
        assert!(!is_even(&[0, 1, 1, 1], 2), "weight 1 3");
        assert!(!is_even(&[0, 1, 2, 3], 2), "queues that there are not");
        assert!(!is_even(&[0, 1], 0));
    }

    // Goal: with fewer channels than queues, buckets that move are spread over the queues of
    // their new channel. A bucket that returns gets its original queue, and a bucket that stays
    // keeps its queue.
    #[test]
    fn moved_buckets_spread_over_queues_of_a_channel() {
        let found: Vec<u32> = (0..16).map(|i| i % 8).collect();
        let original: Vec<u16> = (0..16).map(|i| i % 2).collect();
        assert_eq!(over_queues(&original, 2, 8, [&found, &found]), found);
        let moved = over_queues(&[1; 16], 2, 8, [&found, &found]);
        let count = |of: u32| moved.iter().filter(|queue| **queue == of).count();
        assert_eq!([1, 3, 5, 7].map(count), [4; 4], "{moved:?}");
        let stay = moved.iter().zip(&found).filter(|(_, found)| *found % 2 == 1);
        assert!(stay.clone().count() == 8 && stay.clone().all(|(now, found)| now == found));
        assert_eq!(over_queues(&original, 2, 8, [&moved, &found]), found);
        assert_eq!(over_queues(&original, 8, 8, [&moved, &found])[..2], [0, 1]);
    }

    // Goal: no table of a driver or user causes an access out of bounds.
    #[test]
    fn invalid_tables_stay_within_bounds() {
        let odd = vec![u32::MAX, 7, 0];
        assert_eq!(over_queues(&[0, 9, 1], 3, 0, [&odd, &odd]), [u32::MAX, 9, 1]);
        assert_eq!(over_queues(&[0], 0, 1, [&odd, &odd]), [u32::MAX]);
    }
}
