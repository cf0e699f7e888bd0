//! Resteering: another distribution of flows over the same queues, as with `ethtool -X`, with the
//! frames of each flow in order.
//!
//! The queues that gain flows are processed one after the other. The lane of such a queue stops,
//! and the buckets move. The lanes that lose flows run until their waiting frames are delivered.
//! Then all lanes continue. The control thread waits during this time.

use std::time::Duration;

use mqnet_netdev::{Function, Indirection, OpenChannelsError, SteeringRule, TxStats};
use mqnet_sysio::{clock, poll};

use super::learning::TableOwner;
use super::{Link, LinkError};
use crate::lane::{Direction, Lane, LaneId};
use crate::switch::drained;
use crate::worker::Leave;

/// Time limit for lanes to empty their queues and for sinks to deliver, during which the control
/// thread waits. A TAP queue can contain thousands of frames. After a timeout flows may lose their
/// order: frames on the new queue are still there when the buckets move back.
const LIMIT: Duration = Duration::from_secs(1);

/// Time limit for moves without a request of the user. A peer that reads slowly must not delay the
/// other links of a daemon.
const LIMIT_AUTOMATIC: Duration = Duration::from_millis(250);

/// Duration of a stop after which a sink is checked. A sink that then accepts nothing for the same
/// time again counts as stuck, and no move is started.
const STALLED: Duration = Duration::from_millis(50);

/// Error text of a move that timed out.
const NOT_TAKEN: &str = "the frames in flight were not consumed in time: try again";

impl Link {
    /// Distributes frames that arrive at function `side` according to `table`. The inner error is
    /// the reason of a failure; the current table then shows the buckets that have moved already.
    pub fn set_indirection(
        &mut self,
        side: usize,
        table: &[u16],
        user_set: bool,
    ) -> Result<Result<(), String>, LinkError> {
        // Read the table again first: another program may have changed it.
        self.ends[side].refresh_indirection();
        self.spread((side, TableOwner::OWN), table, user_set, LIMIT)
    }

    /// Distributes frames as [`Self::set_indirection`] does, without a request of the user. `table`
    /// contains queue numbers of its owner.
    pub(super) fn spread_automatically(
        &mut self,
        side: usize,
        owner: TableOwner,
        table: &[u16],
    ) -> Result<Result<(), String>, LinkError> {
        // Read the table before any lane stops, because the kernel may need time.
        let function = owner.of(&mut *self.ends[side]);
        if function.is_some_and(|function| function.refresh_indirection()) {
            return Ok(Err("another program has set the indirection table; it is kept".to_owned()));
        }
        self.spread((side, owner), table, false, LIMIT_AUTOMATIC)
    }

    fn spread(
        &mut self,
        (side, owner): (usize, TableOwner),
        table: &[u16],
        user_set: bool,
        limit: Duration,
    ) -> Result<Result<(), String>, LinkError> {
        if self.change.is_some() {
            return Ok(Err("another change is under way".to_owned()));
        }
        let Some(now) = shown(owner, &mut *self.ends[side]) else {
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
            let losing: Vec<u16> = losing.into_iter().map(|queue| owner.channel(queue)).collect();
            let gaining = [owner.channel(queue)];
            let before = shown(owner, &mut *self.ends[side]);
            let turn = |end: &mut dyn Function| set(owner, end, &stage, user_set);
            let back = |end: &mut dyn Function| match &before {
                Some(before) => set(owner, end, &before.table, before.user_set),
                None => Ok(()),
            };
            if let Err(why) = self.move_flows(side, (&gaining, &losing), turn, back, limit)? {
                return Ok(Err(why));
            }
        }
        // All buckets have moved; the call stores `user_set`.
        Ok(set(owner, &mut *self.ends[side], table, user_set).map_err(|e| e.to_string()))
    }

    /// True if the sink for frames of a queue of function `side` is stuck.
    fn is_stuck(&self, side: usize, queue: u16) -> bool {
        let stats = self.ends[1 - side].stats();
        stats.get(usize::from(queue)).is_some_and(|channel| is_stalled(&channel.tx, poll::pause))
    }

    /// Adds a rule, replacing a rule at the same location. `None` removes the rule at that
    /// location. The inner error is the reason of a failure.
    pub fn set_rule(
        &mut self,
        side: usize,
        location: u32,
        rule: Option<SteeringRule>,
    ) -> Result<Result<(), String>, LinkError> {
        if self.change.is_some() {
            return Ok(Err("another change is under way".to_owned()));
        }
        let Some(rules) = self.ends[side].rules().map(<[SteeringRule]>::to_vec) else {
            return Ok(Err("the kernel chooses the queues of this device".to_owned()));
        };
        let channels = self.running.as_ref().map_or(0, |running| running.plan.channels);
        let mut stage = rules.clone();
        // Remove the old rule first, then add the new one. Flows of the old rule may go to any
        // queue, and flows of the new rule may come from any. In one move, a lane cannot both gain
        // and lose flows.
        if let Some(at) = rules.iter().position(|old| old.location == location) {
            let old = stage.remove(at);
            let others: Vec<u16> = (0..channels).filter(|queue| *queue != old.queue).collect();
            if let Err(why) = self.move_rules(side, &others, &[old.queue], &rules, &stage)? {
                return Ok(Err(why));
            }
        }
        let Some(rule) = rule else { return Ok(Ok(())) };
        let (before, queue) = (stage.clone(), rule.queue);
        let at = stage.partition_point(|other| other.location < location);
        stage.insert(at, SteeringRule { location, ..rule });
        let others: Vec<u16> = (0..channels).filter(|other| *other != queue).collect();
        let done = self.move_rules(side, &[queue], &others, &before, &stage)?;
        if done.is_err() && before != rules {
            // The new rule could not be added, so restore the replaced rule. If that fails too, the
            // list of rules shows that the rule is missing.
            let queue = rules.iter().find(|old| old.location == location).map(|old| old.queue);
            let gaining: Vec<u16> = queue.into_iter().collect();
            let others: Vec<u16> = (0..channels).filter(|other| !gaining.contains(other)).collect();
            let _ = self.move_rules(side, &gaining, &others, &before, &rules)?;
        }
        Ok(done)
    }

    fn move_rules(
        &mut self,
        side: usize,
        gaining: &[u16],
        losing: &[u16],
        before: &[SteeringRule],
        after: &[SteeringRule],
    ) -> Result<Result<(), String>, LinkError> {
        let turn = |end: &mut dyn Function| end.set_rules(after);
        let back = |end: &mut dyn Function| end.set_rules(before);
        self.move_flows(side, (gaining, losing), turn, back, LIMIT)
    }

    /// Moves flows between queues. `turn` changes the steering, and `back` undoes the change if
    /// frames are not delivered within `limit`. The inner error is the reason of a failure.
    fn move_flows(
        &mut self,
        side: usize,
        (gaining, losing): (&[u16], &[u16]),
        turn: impl Fn(&mut dyn Function) -> Result<(), OpenChannelsError>,
        back: impl Fn(&mut dyn Function) -> Result<(), OpenChannelsError>,
        limit: Duration,
    ) -> Result<Result<(), String>, LinkError> {
        let way = if side == 0 { Direction::AToB } else { Direction::BToA };
        let Some(set) = self.running.as_ref().map(|running| running.set) else {
            return Ok(turn(&mut *self.ends[side]).map_err(|e| e.to_string()));
        };
        if losing.iter().any(|queue| self.is_stuck(side, *queue)) {
            return Ok(Err(NOT_TAKEN.to_owned()));
        }
        let id = |channel: &u16| LaneId { set, channel: *channel, way };
        let leave = drained(&mut *self.ends[side]);
        let gaining: Vec<LaneId> = gaining.iter().map(id).collect();
        // If a lane cannot leave, because it holds a frame for a stuck sink, nothing is moved.
        let mut parked = match self.workers.take_within(&gaining, Leave::Settled, limit)? {
            Ok(lanes) => lanes,
            Err(lanes) => {
                lanes.into_iter().for_each(|lane| self.workers.attach(lane));
                return Ok(Err(NOT_TAKEN.to_owned()));
            }
        };
        let mut done = turn(&mut *self.ends[side]).map_err(|e| e.to_string());
        if done.is_ok() {
            let ids: Vec<LaneId> = losing.iter().map(id).collect();
            let delivered = match self.workers.take_within(&ids, leave, limit)? {
                Ok(lanes) => {
                    parked.extend(lanes);
                    drain(&mut parked, limit)
                }
                Err(lanes) => {
                    parked.extend(lanes);
                    false
                }
            };
            if !delivered {
                let _ = back(&mut *self.ends[side]);
                done = Err(NOT_TAKEN.to_owned());
            }
        }
        parked.into_iter().for_each(|lane| self.workers.attach(lane));
        Ok(done)
    }
}

/// Table of an owner, with the owner's queue numbers. `None` without a table, or while the member
/// is lost.
fn shown(owner: TableOwner, end: &mut dyn Function) -> Option<Indirection> {
    owner.of(end)?.indirection()
}

fn set(
    owner: TableOwner,
    end: &mut dyn Function,
    table: &[u16],
    user_set: bool,
) -> Result<(), OpenChannelsError> {
    let function = end.name().to_owned();
    let lost = || OpenChannelsError { function, what: "a member is lost".to_owned() };
    owner.of(end).ok_or_else(lost)?.set_indirection(table, user_set)
}

/// True if a sink has stopped for `STALLED` and then accepts no packet for the same time. An
/// overloaded sink is full after each poll and counts as stopped, although it accepts packets.
/// Therefore the packet counter decides.
fn is_stalled(tx: &TxStats, mut pause: impl FnMut(Duration)) -> bool {
    let since = Duration::from_nanos(tx.stopped_since_ns.get());
    let begin = clock::monotonic();
    if since.is_zero() || begin.saturating_sub(since) <= STALLED {
        return false;
    }
    let taken = tx.packets.get();
    while clock::monotonic().saturating_sub(begin) < STALLED {
        if tx.packets.get() != taken || tx.stopped_since_ns.get() == 0 {
            return false;
        }
        pause(Duration::from_millis(1));
    }
    true
}

/// Waits until the sinks have delivered all frames. Returns false after a timeout, or if frames
/// wait in disciplines.
fn drain(lanes: &mut [Lane], limit: Duration) -> bool {
    if lanes.iter_mut().any(|lane| lane.waiting() > 0) {
        // No worker polls the detached lanes, so frames in their disciplines cannot be sent.
        return false;
    }
    let begin = clock::monotonic();
    while lanes.iter_mut().any(|lane| matches!(lane.tx().is_drained(), Ok(false))) {
        if clock::monotonic().saturating_sub(begin) > limit {
            return false;
        }
        poll::pause(Duration::from_micros(50));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a sink that is full at every check but accepts frames is not stalled, nor is a sink
    // that resumes. A sink that accepts nothing is stalled.
    #[test]
    fn moving_sinks_are_not_stalled() {
        let tx = TxStats::default();
        let nothing = |_| std::thread::yield_now();
        assert!(!is_stalled(&tx, nothing), "not full");
        let long_ago = clock::monotonic().saturating_sub(2 * STALLED).max(Duration::from_nanos(1));
        tx.stopped_since_ns.set(long_ago.as_nanos() as u64);
        assert!(!is_stalled(&tx, |_| tx.packets.add(1)), "full, and moving");
        assert!(is_stalled(&tx, nothing));
        assert!(!is_stalled(&tx, |_| tx.stopped_since_ns.set(0)), "it goes on");
    }
}
