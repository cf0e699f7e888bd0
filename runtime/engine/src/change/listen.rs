//! Lanes of the direction in which the peer sends. New lanes are attached before the peer switches,
//! and old lanes are detached after the peer has left them.
//!
//! Frames may wait in the disciplines of this end's sink, or behind an XDP program. Frames of the
//! old lanes are older, so the new lanes hold their frames until the old lanes are empty. If the
//! peer switches back, the old lanes hold their frames until the new lanes are empty.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use mqnet_netdev::Step;

use super::{Change, Stage, at};
use crate::error::LinkError;
use crate::lane::{Closing, Lane, LaneId};
use crate::link::{Link, Notice};
use crate::worker::Leave;

impl Link {
    /// Attaches the new lanes of the peer's direction. No frame arrives there before the peer
    /// switches.
    pub(super) fn attach_receivers(&mut self, mut change: Change) -> Change {
        let may_wait = self.peers_way_may_wait();
        for mut lane in std::mem::take(&mut change.next[at(self.peers_way())]) {
            if may_wait || lane.has_disciplines() {
                // Older frames may wait in the disciplines of the old lanes, in detached
                // disciplines, or in the pages of an XDP program. The new lane holds its frames
                // until these older frames are sent.
                let _ = lane.hold(true);
                change.held = true;
            }
            self.workers.attach(lane);
        }
        change
    }

    /// Ids of the lanes of `set` in the peer's direction; empty without a peer.
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

    /// Ends the change after the old lanes have left, and returns the notice. The follower reports
    /// `Rest`.
    pub(super) fn close(&mut self, change: Change, now: Duration) -> Option<Notice> {
        let requests = change.requests;
        let notice = self.finish(change, now);
        if self.peer_side.is_some() && !self.leads() {
            self.send_step(Step::Rest, requests, "");
        }
        notice
    }

    /// Closes the sources of the lanes of `set` in the peer's direction. Each lane is detached when
    /// it is drained. Returns the receiver of the detached lanes, and the number of lanes to
    /// expect.
    pub(super) fn detach_when_drained(&self, set: u32, channels: u16) -> (Receiver<Lane>, usize) {
        let receiving_lanes = self.receiving_lanes(set, channels);
        self.close_sources(&receiving_lanes);
        (self.workers.detach(&receiving_lanes, Leave::Settled), receiving_lanes.len())
    }

    /// Closes the sources of lanes of one direction as one group: the lanes receive no more frames.
    pub(crate) fn close_sources(&self, lanes: &[LaneId]) {
        for (id, closing) in lanes.iter().zip(Closing::of(lanes.len())) {
            let close = |lane: &mut Lane| {
                lane.close_source(closing);
                Ok(())
            };
            self.workers.edit(*id, Box::new(close));
        }
    }

    /// Releases held lanes of the peer's direction. The lanes then send their waiting frames.
    pub(super) fn release_held(&self, set: u32, channels: u16) {
        for id in self.receiving_lanes(set, channels) {
            self.workers.edit(id, Box::new(|lane| lane.hold(false)));
        }
    }

    /// Drops lanes that have left. If `held`, then releases the lanes that were held for them.
    /// Reinjected frames of the dropped lanes move to the running lanes first, so they precede
    /// newer frames.
    pub(super) fn release_behind(&self, gone: impl IntoIterator<Item = Lane>, held: bool) {
        self.drop_lanes(gone);
        if let Some(running) = self.running.as_ref().filter(|_| held) {
            self.release_held(running.set, running.plan.channels);
        }
    }

    /// Attaches the old lanes of the peer's direction again after a failed switch, once they have
    /// drained. The leader has switched and will switch back. Frames in the new lanes are newer
    /// than frames that the old lanes have sent. They are older than frames that the old lanes will
    /// receive. Therefore the new lanes are released, and the old lanes hold their frames.
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
            self.send_step(Step::Failed, change.requests, &why);
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
