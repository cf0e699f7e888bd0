//! Another spread of flows over the same queues, as `ethtool -X` wants it, each flow in order.
//!
//! For one queue after the other that gains flows: its lane stops, the buckets move, the lanes that
//! lose them run until what had waited is delivered, and all go on. It takes a millisecond or two a
//! queue, on the control thread.

use std::time::Duration;

use mqnet_netdev::{FlowRule, Function, Indirection, OpenError, TxStats};
use mqnet_sysio::{clock, poll};

use super::learning::Whose;
use super::{Link, LinkError};
use crate::lane::{Lane, LaneId, Way};
use crate::switch::drained;
use crate::worker::Leave;

/// How long lanes may take to empty their queues, and sinks to deliver, before it is given up: the
/// control thread waits meanwhile. A queue of a TAP can hold thousands of frames; giving up costs
/// flows their order: what came to the new queue meanwhile is there when their buckets go back.
const LIMIT: Duration = Duration::from_secs(1);

/// The same where nobody asked for it: a peer chooses when it reads, and must not keep the other
/// links of a daemon waiting.
const LIMIT_UNASKED: Duration = Duration::from_millis(250);

/// A sink that has been full for so long, and takes nothing for as long again, is nothing to wait
/// for: nothing is begun.
const STUCK: Duration = Duration::from_millis(50);

/// Why it was given up.
const NOT_TAKEN: &str = "what is on its way is not taken in time: try again";

impl Link {
    /// Spreads what arrives at function `side` by `table`. On an error some of the buckets may
    /// have moved already; the table tells.
    pub fn set_indirection(
        &mut self,
        side: usize,
        table: &[u16],
        user_set: bool,
    ) -> Result<Result<(), String>, LinkError> {
        // What somebody else has made of it meanwhile is what buckets move from.
        self.ends[side].refresh_indirection();
        self.spread((side, Whose::OWN), table, user_set, LIMIT)
    }

    /// The same, of our own accord, for a table in the numbers of its own queues.
    pub(super) fn spread_unasked(
        &mut self,
        side: usize,
        whose: Whose,
        table: &[u16],
    ) -> Result<Result<(), String>, LinkError> {
        // Before any lane stops: the kernel may take its time.
        let function = whose.of(&mut *self.ends[side]);
        if function.is_some_and(|function| function.refresh_indirection()) {
            return Ok(Err("somebody else has set the table, which stays".to_owned()));
        }
        self.spread((side, whose), table, false, LIMIT_UNASKED)
    }

    fn spread(
        &mut self,
        (side, whose): (usize, Whose),
        table: &[u16],
        user_set: bool,
        limit: Duration,
    ) -> Result<Result<(), String>, LinkError> {
        if self.change.is_some() {
            return Ok(Err("another change is under way".to_owned()));
        }
        let Some(now) = shown(whose, &mut *self.ends[side]) else {
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
            let losing: Vec<u16> = losing.into_iter().map(|queue| whose.channel(queue)).collect();
            let gaining = [whose.channel(queue)];
            let before = shown(whose, &mut *self.ends[side]);
            let turn = |end: &mut dyn Function| set(whose, end, &stage, user_set);
            let back = |end: &mut dyn Function| match &before {
                Some(before) => set(whose, end, &before.table, before.user_set),
                None => Ok(()),
            };
            if let Err(why) = self.move_flows(side, (&gaining, &losing), turn, back, limit)? {
                return Ok(Err(why));
            }
        }
        // Nothing moves here any more, but whose table it is may have changed.
        Ok(set(whose, &mut *self.ends[side], table, user_set).map_err(|e| e.to_string()))
    }

    /// What arrives on a queue of function `side` has not been taken for a while.
    fn is_stuck(&self, side: usize, queue: u16) -> bool {
        let stats = self.ends[1 - side].stats();
        stats.get(usize::from(queue)).is_some_and(|channel| stands_still(&channel.tx, poll::pause))
    }

    /// Adds a rule in the place of the one at its location, or (`None`) takes that away.
    pub fn set_rule(
        &mut self,
        side: usize,
        location: u32,
        rule: Option<FlowRule>,
    ) -> Result<Result<(), String>, LinkError> {
        if self.change.is_some() {
            return Ok(Err("another change is under way".to_owned()));
        }
        let Some(rules) = self.ends[side].rules().map(<[FlowRule]>::to_vec) else {
            return Ok(Err("the kernel chooses the queues of this device".to_owned()));
        };
        let channels = self.running.as_ref().map_or(0, |running| running.plan.channels);
        let mut stage = rules.clone();
        // One after the other: flows of the old rule go anywhere, those of the new one come from
        // anywhere, and a lane cannot both wait and be waited for.
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
        stage.insert(at, FlowRule { location, ..rule });
        let others: Vec<u16> = (0..channels).filter(|other| *other != queue).collect();
        let done = self.move_rules(side, &[queue], &others, &before, &stage)?;
        if done.is_err() && before != rules {
            // The one that was replaced comes back; where that fails too, the list tells.
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
        before: &[FlowRule],
        after: &[FlowRule],
    ) -> Result<Result<(), String>, LinkError> {
        let turn = |end: &mut dyn Function| end.set_rules(after);
        let back = |end: &mut dyn Function| end.set_rules(before);
        self.move_flows(side, (gaining, losing), turn, back, LIMIT)
    }

    /// `turn` moves flows from some queues to others, `back` undoes it.
    fn move_flows(
        &mut self,
        side: usize,
        (gaining, losing): (&[u16], &[u16]),
        turn: impl Fn(&mut dyn Function) -> Result<(), OpenError>,
        back: impl Fn(&mut dyn Function) -> Result<(), OpenError>,
        limit: Duration,
    ) -> Result<Result<(), String>, LinkError> {
        let way = if side == 0 { Way::Forth } else { Way::Back };
        let Some(set) = self.running.as_ref().map(|running| running.set) else {
            return Ok(turn(&mut *self.ends[side]).map_err(|e| e.to_string()));
        };
        if losing.iter().any(|queue| self.is_stuck(side, *queue)) {
            return Ok(Err(NOT_TAKEN.to_owned()));
        }
        let id = |channel: &u16| LaneId { set, channel: *channel, way };
        let leave = drained(&mut *self.ends[side]);
        let gaining: Vec<LaneId> = gaining.iter().map(id).collect();
        // A lane that holds a frame for a sink that stands still stays, and so does everything.
        let mut parked = match self.crew.take_soon(&gaining, Leave::Settled, limit)? {
            Ok(lanes) => lanes,
            Err(lanes) => {
                lanes.into_iter().for_each(|lane| self.crew.attach(lane));
                return Ok(Err(NOT_TAKEN.to_owned()));
            }
        };
        let mut done = turn(&mut *self.ends[side]).map_err(|e| e.to_string());
        if done.is_ok() {
            let ids: Vec<LaneId> = losing.iter().map(id).collect();
            let delivered = match self.crew.take_soon(&ids, leave, limit)? {
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
        parked.into_iter().for_each(|lane| self.crew.attach(lane));
        Ok(done)
    }
}

/// The table, in the numbers of its own queues.
fn shown(whose: Whose, end: &mut dyn Function) -> Option<Indirection> {
    whose.of(end)?.indirection()
}

fn set(
    whose: Whose,
    end: &mut dyn Function,
    table: &[u16],
    user_set: bool,
) -> Result<(), OpenError> {
    let function = end.name().to_owned();
    let lost = || OpenError { function, what: "a member is lost".to_owned() };
    whose.of(end).ok_or_else(lost)?.set_indirection(table, user_set)
}

/// A sink takes nothing. Under more than it can take it is full whenever its lane has polled, and
/// counts as stopped all the time, though it moves: so what it takes decides.
fn stands_still(tx: &TxStats, mut pause: impl FnMut(Duration)) -> bool {
    let since = Duration::from_nanos(tx.stopped_since_ns.get());
    let begin = clock::monotonic();
    if since.is_zero() || begin.saturating_sub(since) <= STUCK {
        return false;
    }
    let taken = tx.packets.get();
    while clock::monotonic().saturating_sub(begin) < STUCK {
        if tx.packets.get() != taken || tx.stopped_since_ns.get() == 0 {
            return false;
        }
        pause(Duration::from_millis(1));
    }
    true
}

/// Waits until the sinks have delivered what they have; false when that takes too long.
fn drain(lanes: &mut [Lane], limit: Duration) -> bool {
    if lanes.iter_mut().any(|lane| lane.waiting() > 0) {
        // They do not run: what waits in their disciplines cannot go anywhere.
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

    // Goal: a sink that is full at every look but takes frames, and one that goes on, are waited
    // for; one that takes nothing is not.
    #[test]
    fn what_moves_does_not_stand_still() {
        let tx = TxStats::default();
        let nothing = |_| std::thread::yield_now();
        assert!(!stands_still(&tx, nothing), "not full");
        let long_ago = clock::monotonic().saturating_sub(2 * STUCK).max(Duration::from_nanos(1));
        tx.stopped_since_ns.set(long_ago.as_nanos() as u64);
        assert!(!stands_still(&tx, |_| tx.packets.add(1)), "full, and moving");
        assert!(stands_still(&tx, nothing));
        assert!(!stands_still(&tx, |_| tx.stopped_since_ns.set(0)), "it goes on");
    }
}
