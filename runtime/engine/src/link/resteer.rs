//! Another spread of flows over the same queues, as `ethtool -X` wants it, each flow in order.
//!
//! For one queue after the other that gains flows: its lane stops, the buckets move, the lanes that
//! lose them run until what had waited is delivered, and all go on. It takes a millisecond or two a
//! queue, on the control thread.

use std::time::Duration;

use mqnet_sysio::{clock, poll};

use super::{Link, LinkError};
use crate::lane::{Lane, LaneId, Way};
use crate::switch::drained;

/// How long lanes may take to empty their queues, and sinks to deliver, before it is given up: the
/// control thread waits meanwhile.
const LIMIT: Duration = Duration::from_millis(50);

impl Link {
    /// Spreads what arrives at function `side` by `table`. On an error some of the buckets may
    /// have moved already; the table tells.
    pub fn set_indirection(
        &mut self,
        side: usize,
        table: &[u16],
        user_set: bool,
    ) -> Result<Result<(), String>, LinkError> {
        if self.change.is_some() {
            return Ok(Err("another change is under way".to_owned()));
        }
        let Some(now) = self.ends[side].indirection() else {
            return Ok(Err("the kernel chooses the queues of this device".to_owned()));
        };
        let mut stage = now.table;
        let gaining: std::collections::BTreeSet<u16> =
            stage.iter().zip(table).filter(|(now, new)| now != new).map(|(_, new)| *new).collect();
        for queue in gaining {
            let moved = |(now, new): &(&u16, &u16)| **new == queue && now != new;
            let losing: std::collections::BTreeSet<u16> =
                stage.iter().zip(table).filter(moved).map(|(now, _)| *now).collect();
            for (now, new) in stage.iter_mut().zip(table) {
                if *new == queue {
                    *now = queue;
                }
            }
            let losing: Vec<u16> = losing.into_iter().collect();
            if let Err(why) = self.move_buckets(side, queue, &losing, &stage, user_set)? {
                return Ok(Err(why));
            }
        }
        // Nothing moves here any more, but whose table it is may have changed.
        Ok(self.ends[side].set_indirection(table, user_set).map_err(|e| e.to_string()))
    }

    fn move_buckets(
        &mut self,
        side: usize,
        gaining: u16,
        losing: &[u16],
        table: &[u16],
        user_set: bool,
    ) -> Result<Result<(), String>, LinkError> {
        let way = if side == 0 { Way::Forth } else { Way::Back };
        let Some(set) = self.running.as_ref().map(|running| running.set) else {
            let done = self.ends[side].set_indirection(table, user_set);
            return Ok(done.map_err(|e| e.to_string()));
        };
        let id = |channel: &u16| LaneId { set, channel: *channel, way };
        let (before, leave) = (self.ends[side].indirection(), drained(&mut *self.ends[side]));
        let mut parked = self.crew.take(&[id(&gaining)])?;
        let mut done = self.ends[side].set_indirection(table, user_set).map_err(|e| e.to_string());
        if done.is_ok() {
            let ids: Vec<LaneId> = losing.iter().map(id).collect();
            let delivered = match self.crew.take_soon(&ids, leave, LIMIT)? {
                Ok(lanes) => {
                    parked.extend(lanes);
                    drain(&mut parked)
                }
                Err(lanes) => {
                    parked.extend(lanes);
                    false
                }
            };
            if let (false, Some(before)) = (delivered, before) {
                let _ = self.ends[side].set_indirection(&before.table, before.user_set);
                done = Err("what is on its way is not taken in time: try again".to_owned());
            }
        }
        parked.into_iter().for_each(|lane| self.crew.attach(lane));
        Ok(done)
    }
}

/// Waits until the sinks have delivered what they have; false when that takes too long.
fn drain(lanes: &mut [Lane]) -> bool {
    if lanes.iter_mut().any(|lane| lane.waiting() > 0) {
        // They do not run: what waits in their disciplines cannot go anywhere.
        return false;
    }
    let begin = clock::monotonic();
    while lanes.iter_mut().any(|lane| matches!(lane.tx().is_drained(), Ok(false))) {
        if clock::monotonic().saturating_sub(begin) > LIMIT {
            return false;
        }
        poll::pause(Duration::from_micros(50));
    }
    true
}
