//! Channel change of a running link as a transaction: prepare, switch, commit. An aborted change
//! restores the old state and reports the reason.
//!
//! # One engine
//! ```text
//! rest -> prepare both functions -> switch each direction -> commit
//!                  |                        |
//!                  +-> abort                +-> switch back, abort
//! ```
//! # Two engines, over a function with a peer
//! Each end switches the direction in which it sends. In the other direction an end attaches lanes
//! to the new channels before the peer sends there (`listen` below). The end keeps the old lanes
//! until the peer has left them.
//!
//! ```text
//! leader                                follower
//! prepare;           Propose  ------->  prepare, listen
//! listen, switch     <-------  Ready    (or Refuse)
//! Switched  ------------------------->  switch
//! drop old           <-------  Switched (or Failed: the leader switches back, then Cancel)
//! Commit    ------------------------->  drop old
//! rest               <-------  Rest
//! ```
//! Each control message contains the number of the attempt. The last message of an end stays
//! readable, so a late reader misses nothing. The leader begins the next attempt after the follower
//! has sent `Rest` or `Refuse`. No lane moves before the follower's reply, so the leader limits
//! that wait; later waits have no limit. The leader attaches its receiving lanes only after
//! `Ready`: the follower's prepare clears the words that arming writes, so a lane armed earlier
//! would never wake.

mod listen;
pub(crate) mod state;

use std::time::Duration;

use mqnet_netdev::{ChangeMessage, NextPlan, Plan, Step};

use crate::error::LinkError;
use crate::lane::{Direction, LaneId};
use crate::link::{Link, Notice};
use crate::switch::{Progress, Switch};
use state::{Change, Ended, Stage};

/// Time limit for the follower's preparation, during which traffic continues. Under load the kernel
/// needs seconds to create one queue of a TAP.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);

fn at(way: Direction) -> usize {
    usize::from(way == Direction::BToA)
}

impl Link {
    /// Clears the record of failed attempts, so that the same requests or plan may be tried again.
    pub(crate) fn forget_failures(&mut self) {
        self.idle_state.failed = None;
        self.idle_state.failed_plan = None;
    }

    /// Performs the next steps of the change that is open or due, until a step has to wait. Returns
    /// a notice if the change was committed or failed, or the link was taken down.
    pub(crate) fn advance(&mut self, now: Duration) -> Result<Option<Notice>, LinkError> {
        // Bound the number of steps, so that the control thread returns to its other work.
        for _ in 0..16 {
            let before = self.change.as_ref().map(|c| (c.stage, c.done));
            let notice = match self.change.take() {
                Some(change) => self.resume(change, now)?,
                None => self.begin_if_due(now)?,
            };
            if notice.is_some() || self.running.is_none() {
                return Ok(notice);
            }
            if before == self.change.as_ref().map(|c| (c.stage, c.done)) {
                break;
            }
        }
        Ok(None)
    }

    /// Direction in which this end sends to its peer. The peer switches the opposite direction.
    fn our_way(&self) -> Direction {
        if self.peer_side == Some(0) { Direction::BToA } else { Direction::AToB }
    }

    fn peers_way(&self) -> Direction {
        if self.our_way() == Direction::AToB { Direction::BToA } else { Direction::AToB }
    }

    fn last_message(&mut self) -> Option<ChangeMessage> {
        self.peer().map(|peer| peer.received_change())
    }

    fn send_step(&mut self, step: Step, requests: [u32; 2], why: &str) {
        let attempt = self.idle_state.attempt;
        if let Some(peer) = self.peer() {
            peer.send_change(ChangeMessage { attempt, step, requests, why: why.to_owned() });
        }
    }

    fn begin_if_due(&mut self, now: Duration) -> Result<Option<Notice>, LinkError> {
        let Some(peer) = self.peer() else { return self.begin_alone(now) };
        let (leads, message, both) = (peer.leads(), peer.received_change(), peer.requests());
        if leads { self.lead(now, &message, both) } else { self.follow(now, message, both) }
    }

    fn begin_alone(&mut self, now: Duration) -> Result<Option<Notice>, LinkError> {
        let caps = [0, 1].map(|side: usize| self.requested_caps_of(side));
        let plan = match Plan::join(&caps[0], &caps[1]) {
            Ok(plan) => plan,
            Err(e) => {
                self.end_request(Ended::Undone(e.to_string()));
                return Ok(None);
            }
        };
        let same = self.running.as_ref().is_none_or(|r| r.plan == plan);
        if same {
            self.end_request(Ended::Committed);
        }
        if same || self.idle_state.failed_plan.as_ref() == Some(&plan) {
            return Ok(None);
        }
        match self.prepare(&plan, [0; 2], now)? {
            Ok(change) => {
                self.change = Some(Change { stage: Stage::Switching, ..change });
                Ok(None)
            }
            Err(why) => {
                self.idle_state.failed_plan = Some(plan);
                Ok(self.undone(why))
            }
        }
    }

    fn lead(
        &mut self,
        now: Duration,
        message: &ChangeMessage,
        [ours, theirs]: [u32; 2],
    ) -> Result<Option<Notice>, LinkError> {
        if let Some(awaited) = self.idle_state.awaited {
            if message.attempt != awaited || !matches!(message.step, Step::Rest | Step::Refuse) {
                return Ok(None);
            }
            self.idle_state.awaited = None;
        }
        let requests = [ours, theirs];
        let plan = match self.peer().map(|peer| peer.next_plan()) {
            Some(NextPlan::Change(plan)) => self.as_first_side(plan),
            Some(NextPlan::Wait) => return Ok(None),
            Some(NextPlan::Same) | None => {
                self.end_request(Ended::Committed);
                return Ok(None);
            }
            Some(NextPlan::Impossible(why)) => {
                self.end_request(Ended::Undone(why));
                return Ok(None);
            }
        };
        if self.idle_state.failed == Some(requests) {
            return Ok(None);
        }
        self.idle_state.attempt = self.idle_state.attempt.wrapping_add(1);
        match self.prepare(&plan, requests, now)? {
            Ok(change) => {
                // Attach the receiving lanes only after `Ready`: arming writes into words that the
                // follower's prepare clears.
                self.change = Some(change);
                self.send_step(Step::Propose, requests, "");
                Ok(None)
            }
            Err(why) => {
                self.idle_state.failed = Some(requests);
                self.cancel(requests, &why);
                Ok(self.undone(why))
            }
        }
    }

    fn cancel(&mut self, requests: [u32; 2], why: &str) {
        self.idle_state.awaited = Some(self.idle_state.attempt);
        self.send_step(Step::Cancel, requests, why);
    }

    fn follow(
        &mut self,
        now: Duration,
        message: ChangeMessage,
        [ours, theirs]: [u32; 2],
    ) -> Result<Option<Notice>, LinkError> {
        let outlook = self.peer().map(|peer| peer.next_plan());
        match &outlook {
            Some(NextPlan::Wait) => return Ok(None),
            Some(NextPlan::Same) => self.end_request(Ended::Committed),
            Some(NextPlan::Impossible(why)) => self.end_request(Ended::Undone(why.clone())),
            _ => {}
        }
        if message.attempt == self.idle_state.attempt || message.step == Step::Rest {
            return Ok(None);
        }
        self.idle_state.attempt = message.attempt;
        match (message.step, outlook) {
            (Step::Propose, Some(NextPlan::Change(plan))) if message.requests == [theirs, ours] => {
                let plan = self.as_first_side(plan);
                match self.prepare(&plan, message.requests, now)? {
                    Ok(change) => {
                        self.change =
                            Some(Change { stage: Stage::Ready, ..self.attach_receivers(change) });
                        self.send_step(Step::Ready, message.requests, "");
                        Ok(None)
                    }
                    Err(why) => {
                        self.send_step(Step::Refuse, message.requests, &why);
                        Ok(self.undone(why))
                    }
                }
            }
            (Step::Propose, _) => {
                self.send_step(Step::Refuse, message.requests, "the requests have changed");
                Ok(None)
            }
            (Step::Cancel, _) => {
                self.send_step(Step::Rest, message.requests, "");
                // Report the failure only if the leader tried the current request of this end. A
                // newer request is still to be tried.
                let ours_was_tried = message.requests[1] == ours;
                Ok(if ours_was_tried { self.undone(message.why) } else { None })
            }
            (step, _) => {
                let what = format!("peer control message: {step:?} for an unproposed change");
                self.take_down(&what)?;
                Ok(self.report_down(what))
            }
        }
    }

    /// Prepares the new channels and lanes. The inner error is the reason of a failure, after which
    /// the running channels and lanes are unchanged.
    fn prepare(
        &mut self,
        plan: &Plan,
        requests: [u32; 2],
        now: Duration,
    ) -> Result<Result<Change, String>, LinkError> {
        if let Err(e) = self.workers.grow(plan.channels, self.side(), self.locations()) {
            return Ok(Err(format!("workers: {e}")));
        }
        let a = match self.ends[0].prepare(plan) {
            Ok(channels) => channels,
            Err(e) => return Ok(Err(e.to_string())),
        };
        let b = match self.ends[1].prepare(&plan.mirrored()) {
            Ok(channels) => channels,
            Err(e) => {
                drop(a);
                self.ends[0].abort();
                return Ok(Err(e.to_string()));
            }
        };
        self.sets = self.sets.wrapping_add(1);
        let set = self.sets;
        match self.make_lanes(set, a, b, plan) {
            Ok(next) => Ok(Ok(Change {
                stage: Stage::Proposed,
                since: now,
                plan: plan.clone(),
                set,
                requests,
                settings: self.settings().clone(),
                next,
                old: [Vec::new(), Vec::new()],
                done: [false; 2],
                switch: None,
                leaving: None,
                held: false,
                why: String::new(),
            })),
            Err(why) => {
                self.ends.iter_mut().for_each(|end| end.abort());
                Ok(Err(why))
            }
        }
    }

    fn resume(&mut self, mut change: Change, now: Duration) -> Result<Option<Notice>, LinkError> {
        let message = self.last_message();
        let attempt = self.idle_state.attempt;
        // Ignore a message about another attempt.
        let step = message.as_ref().filter(|w| w.attempt == attempt).map(|w| w.step);
        let why = message.map(|w| w.why).unwrap_or_default();
        match (change.stage, step) {
            (Stage::Proposed, Some(Step::Ready)) => {
                change = Change { stage: Stage::Switching, ..self.attach_receivers(change) };
            }
            (Stage::Proposed, Some(Step::Refuse)) => {
                if self.peer().is_some_and(|peer| peer.requests() != change.requests) {
                    // A request has changed since the proposal. Drop this attempt without a
                    // failure; the next attempt uses the new requests.
                    self.tear_down_new(change)?;
                    self.idle_state.awaited = Some(attempt);
                    return Ok(None);
                }
                return self.undo(change, format!("the peer refuses: {why}"));
            }
            (Stage::Proposed, _) if now.saturating_sub(change.since) > ANSWER_TIMEOUT => {
                let limit = ANSWER_TIMEOUT.as_secs();
                return self.undo(change, format!("the peer did not answer within {limit} s"));
            }
            (Stage::Ready, Some(Step::Switched)) => change.stage = Stage::Switching,
            (Stage::Ready, Some(Step::Cancel)) => return self.undo(change, why),
            (Stage::Failed, Some(Step::Cancel)) => {
                let (set, channels) = (change.set, change.plan.channels);
                change.leaving = Some(self.detach_when_drained(set, channels));
                change.stage = Stage::Undoing;
                return self.wait_until_undone(change);
            }
            (Stage::Ready, None) => {
                // The last message belongs to another attempt: the leader canceled this attempt
                // before this end read `Cancel`.
                return self.undo(change, "the peer canceled it".to_owned());
            }
            (Stage::Switching | Stage::SwitchingBack, _) => return self.switch(change),
            (Stage::Switched, Some(Step::Switched)) if self.leads() => {
                self.send_step(Step::Commit, change.requests, "");
                self.idle_state.awaited = Some(attempt);
                return self.commit(change, now);
            }
            (Stage::Switched, Some(Step::Failed)) if self.leads() => {
                change.why = format!("the peer could not switch: {why}");
                change.stage = Stage::SwitchingBack;
            }
            (Stage::Switched, Some(Step::Commit)) if !self.leads() => {
                return self.commit(change, now);
            }
            (Stage::Leaving, _) => return self.wait_until_left(change, now),
            (Stage::Failing, _) => return self.wait_until_failed(change),
            (Stage::Undoing, _) => return self.wait_until_undone(change),
            _ => {}
        }
        self.change = Some(change);
        Ok(None)
    }

    /// Advances the switch in progress, or begins the switch of the next direction. Returns a
    /// notice if the change or the link ended.
    fn switch(&mut self, mut change: Change) -> Result<Option<Notice>, LinkError> {
        let back = change.stage == Stage::SwitchingBack;
        let Some((way, mut switch)) =
            change.switch.take().or_else(|| self.next_switch(&mut change))
        else {
            return self.all_switched(change);
        };
        let (workers, source) = (&self.workers, &mut *self.ends[at(way)]);
        match switch.turn(workers, source) {
            Progress::Waiting => change.switch = Some((way, switch)),
            Progress::Done => {
                change.done[at(way)] = !back;
                let idle = switch.into_idle();
                if back { change.next[at(way)] = idle } else { change.old[at(way)] = idle }
            }
            Progress::Failed(why) => {
                if back {
                    // The source can use neither the new channels nor the old ones, so only a new
                    // handshake repairs the link.
                    let why = format!("{why}, after {}", change.why);
                    self.keep_to_drop(change, switch);
                    self.take_down(&why)?;
                    return Ok(self.report_down(why));
                }
                change.next[at(way)] = switch.into_idle();
                change.why = why;
                change.stage = Stage::SwitchingBack;
            }
            Progress::Broken(fault) => {
                let why = format!("fault: {fault}");
                self.keep_to_drop(change, switch);
                self.take_down(&why)?;
                return Ok(self.report_down(why));
            }
        }
        self.change = Some(change);
        Ok(None)
    }

    fn keep_to_drop(&mut self, mut change: Change, switch: Switch) {
        change.old[0].extend(switch.into_idle());
        self.change = Some(change);
    }

    /// Begins the switch of the next direction, forward or back. Returns `None` if none is left.
    fn next_switch(&mut self, change: &mut Change) -> Option<(Direction, Switch)> {
        let running = self.running.as_ref()?;
        let back = change.stage == Stage::SwitchingBack;
        let ours = self.our_way();
        let mine = |way: Direction| self.peer_side.is_none() || way == ours;
        let due = |way: &Direction| mine(*way) && change.done[at(*way)] == back;
        let way = [Direction::AToB, Direction::BToA].into_iter().find(due)?;
        let ids = |set, channels| (0..channels).map(move |channel| LaneId { set, channel, way });
        let (from, to) = match back {
            false => (&running.plan, &change.plan),
            true => (&change.plan, &running.plan),
        };
        let set = if back { change.set } else { running.set };
        let old: Vec<LaneId> = ids(set, from.channels).collect();
        let place = if back { &mut change.old } else { &mut change.next };
        let next = std::mem::take(&mut place[at(way)]);
        let empty_all = to.frame_max < from.frame_max;
        let source = &mut *self.ends[at(way)];
        Some((way, Switch::new(&old, next, empty_all, source)))
    }

    /// Continues the change when every direction of this end has been switched, or switched back.
    /// Returns a notice if the change ended.
    fn all_switched(&mut self, mut change: Change) -> Result<Option<Notice>, LinkError> {
        match (change.stage, self.peer_side) {
            (Stage::SwitchingBack, Some(_)) if !self.leads() => {
                change.leaving = self
                    .running
                    .as_ref()
                    .map(|r| (r.set, r.plan.channels))
                    .map(|(set, channels)| self.detach_when_drained(set, channels));
                change.stage = Stage::Failing;
                return self.wait_until_failed(change);
            }
            (Stage::SwitchingBack, _) => {
                let why = change.why.clone();
                return self.undo(change, why);
            }
            (_, None) => return self.commit(change, self.now),
            (_, Some(_)) => {
                self.send_step(Step::Switched, change.requests, "");
                change.stage = Stage::Switched;
            }
        }
        self.change = Some(change);
        Ok(None)
    }

    /// Makes the new channels the only ones in use. The peer has left the old channels of its
    /// sending direction. Old lanes of that direction in which frames may wait are drained first.
    /// Returns the notice of the completed change; `None` while lanes drain.
    fn commit(&mut self, mut change: Change, now: Duration) -> Result<Option<Notice>, LinkError> {
        if let Some(running) = &self.running {
            let (set, channels) = (running.set, running.plan.channels);
            if !change.held && !self.peers_way_may_wait() {
                // No frame can wait in the old lanes of the peer's direction, so they leave
                // immediately.
                change.old[0].extend(self.workers.take(&self.receiving_lanes(set, channels))?);
                return Ok(self.close(change, now));
            }
            change.leaving = Some(self.detach_when_drained(set, channels));
        }
        change.stage = Stage::Leaving;
        self.wait_until_left(change, now)
    }

    fn finish(&mut self, change: Change, now: Duration) -> Option<Notice> {
        let ours = self.is_ours(&change);
        if let Some(running) = &mut self.running {
            running.plan = change.plan.clone();
            running.set = change.set;
        }
        self.release_behind(change.old.into_iter().flatten(), change.held);
        let untidy: Vec<String> =
            self.ends.iter_mut().filter_map(|e| e.commit().err()).map(|e| e.to_string()).collect();
        self.refresh_full();
        self.forget_failures();
        self.widest = self.widest.max(change.plan.channels);
        self.note_counted();
        if ours {
            self.end_request(Ended::Committed);
        }
        Some(Notice::Changed { took: now.saturating_sub(change.since), plan: change.plan, untidy })
    }

    /// Drops the new channels and keeps the old ones. Returns the notice of the failure.
    fn undo(&mut self, change: Change, why: String) -> Result<Option<Notice>, LinkError> {
        let (plan, requests, ours) = (change.plan.clone(), change.requests, self.is_ours(&change));
        self.tear_down_new(change)?;
        if self.peer_side.is_none() {
            self.idle_state.failed_plan = Some(plan);
        } else if self.leads() {
            self.idle_state.failed = Some(requests);
            self.cancel(requests, &why);
        } else {
            self.send_step(Step::Rest, requests, "");
        }
        if ours {
            return Ok(self.undone(why));
        }
        Ok(Some(Notice::ChangeFailed(why)))
    }

    /// Drops the new channels and lanes. The old channels stay in use. Fails if a worker does not
    /// reply in time.
    fn tear_down_new(&mut self, change: Change) -> Result<(), LinkError> {
        // The new receiving lanes are not attached in `Proposed`, and have left in `Undoing`. In
        // other stages the peer has sent nothing to them; only reinjected frames may wait there.
        if !matches!(change.stage, Stage::Proposed | Stage::Undoing) {
            let receiving_lanes = self.receiving_lanes(change.set, change.plan.channels);
            self.drop_lanes(self.workers.take_immediately(&receiving_lanes)?);
        }
        self.refresh_full();
        self.drop_lanes(change.next.into_iter().flatten());
        self.ends.iter_mut().for_each(|end| end.abort());
        Ok(())
    }

    /// True if a change applies the current request of this end; without a peer, the current
    /// settings.
    fn is_ours(&mut self, change: &Change) -> bool {
        let place = usize::from(!self.leads());
        match self.peer().map(|peer| peer.requests()) {
            Some([ours, _]) => change.requests[place] == ours,
            None => change.settings == *self.settings(),
        }
    }

    fn undone(&mut self, why: String) -> Option<Notice> {
        self.end_request(Ended::Undone(why.clone()));
        Some(Notice::ChangeFailed(why))
    }

    pub(crate) fn leads(&mut self) -> bool {
        self.peer().is_some_and(|peer| peer.leads())
    }
}
