//! Lanes of the direction in which the peer sends: new lanes are attached before the peer switches,
//! old lanes are detached after it has left them.
//!
//! Frames may wait in disciplines in front of this end's sink, or behind an XDP program. Frames of
//! old lanes are older than those of new lanes, so new lanes hold their frames until the old ones
//! are empty. When the peer moves back, old lanes hold theirs until the new ones are empty.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use mqnet_netdev::Step;

use super::{Change, Stage, at};
use crate::lane::{Closing, Lane, LaneId};
use crate::link::{Link, LinkError, Notice};
use crate::worker::Leave;

impl Link {
    /// Attaches the lanes of the peer's direction. No frame arrives there before the peer switches.
    pub(super) fn attach_receivers(&mut self, mut change: Change) -> Change {
        let may_wait = self.peers_way_may_wait();
        for mut lane in std::mem::take(&mut change.next[at(self.peers_way())]) {
            if may_wait || lane.has_disciplines() {
                // Older frames may wait in the disciplines of the old lanes, also in detached
                // disciplines, or in pages of a program that has passed them.
                let _ = lane.hold(true);
                change.held = true;
            }
            self.workers.attach(lane);
        }
        change
    }

    /// Lanes of `set` in the peer's direction.
    pub(super) fn receiving_lanes(&self, set: u32, channels: u16) -> Vec<LaneId> {
        let Some(_) = self.peer_side else { return Vec::new() };
        let way = self.peers_way();
        (0..channels).map(|channel| LaneId { set, channel, way }).collect()
    }

    pub(super) fn wait_until_left(
        &mut self,
        mut change: Change,
        now: Duration,
    ) -> Result<Option<Notice>, LinkError> {
        if !change.all_have_left() {
            self.change = Some(change);
            return Ok(None);
        }
        Ok(self.close(change, now))
    }

    /// Ends the change after the old lanes have left.
    pub(super) fn close(&mut self, change: Change, now: Duration) -> Option<Notice> {
        let wishes = change.wishes;
        let notice = self.finish(change, now);
        if self.peer_side.is_some() && !self.leads() {
            self.send_step(Step::Rest, wishes, "");
        }
        notice
    }

    /// Closes the sources of lanes of the peer's direction and detaches each lane when it is
    /// drained.
    pub(super) fn detach_when_drained(&self, set: u32, channels: u16) -> (Receiver<Lane>, usize) {
        let receiving_lanes = self.receiving_lanes(set, channels);
        self.close_sources(&receiving_lanes);
        (self.workers.detach(&receiving_lanes, Leave::Settled), receiving_lanes.len())
    }

    /// Makes lanes of one direction receive nothing more.
    pub(crate) fn close_sources(&self, lanes: &[LaneId]) {
        for (id, closing) in lanes.iter().zip(Closing::of(lanes.len())) {
            let close = |lane: &mut Lane| {
                lane.close_source(closing);
                Ok(())
            };
            self.workers.edit(*id, Box::new(close));
        }
    }

    /// Releases held lanes of the peer's direction: they send the frames that they hold and go on.
    pub(super) fn release_held(&self, set: u32, channels: u16) {
        for id in self.receiving_lanes(set, channels) {
            self.workers.edit(id, Box::new(|lane| lane.hold(false)));
        }
    }

    /// Lets attached lanes continue behind those that have left. Frames reinjected by programs of
    /// the old lanes come first, ahead of frames that are not yet received.
    pub(super) fn release_behind(&self, gone: impl IntoIterator<Item = Lane>, held: bool) {
        self.drop_lanes(gone);
        if let Some(running) = self.running.as_ref().filter(|_| held) {
            self.release_held(running.set, running.plan.channels);
        }
    }

    /// Puts the old lanes of the peer's direction back after a failed switch. The leader has moved
    /// and will move back: frames that it sent through the new lanes are newer than those in the
    /// old lanes, and older than those that the old lanes will receive.
    pub(super) fn wait_until_failed(
        &mut self,
        mut change: Change,
    ) -> Result<Option<Notice>, LinkError> {
        if change.all_have_left() {
            let hooks = self.peers_way_has_hooks();
            for mut lane in std::mem::take(&mut change.old[0]) {
                lane.open_source();
                if hooks || lane.has_disciplines() {
                    let _ = lane.hold(true);
                }
                self.workers.attach(lane);
            }
            self.release_held(change.set, change.plan.channels);
            let why = change.why.clone();
            self.send_step(Step::Failed, change.wishes, &why);
            change.stage = Stage::Failed;
        }
        self.change = Some(change);
        Ok(None)
    }

    pub(super) fn wait_until_undone(
        &mut self,
        mut change: Change,
    ) -> Result<Option<Notice>, LinkError> {
        if !change.all_have_left() {
            self.change = Some(change);
            return Ok(None);
        }
        let why = change.why.clone();
        let gone = std::mem::take(&mut change.old[0]);
        self.release_behind(gone, true);
        self.undo(change, why)
    }
}
