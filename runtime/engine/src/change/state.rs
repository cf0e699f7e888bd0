//! Stages of a channel change, and the state kept during and between changes.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use mqnet_netdev::Plan;

use crate::lane::{Direction, Lane};
use crate::settings::LinkSettings;
use crate::switch::Switch;

/// Stage of a channel change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Leader: the proposal was sent. Without a peer: initial state after prepare.
    Proposed,
    /// Follower: the new channels are prepared.
    Ready,
    /// The directions in which this end sends are being switched; without a peer, both directions.
    Switching,
    /// Leader: waits until the follower has switched. Follower: waits for the leader's `Commit`.
    Switched,
    /// The directions that were switched are being switched back, because this end or the follower
    /// failed.
    SwitchingBack,
    /// Follower: the switch failed. The old lanes of the leader's direction drain, while the new
    /// lanes there hold their frames.
    Failing,
    /// Follower: the switch failed, and the follower waits for the leader's `Cancel`.
    Failed,
    /// Follower: the new lanes of the leader's direction drain before the old lanes may send again.
    Undoing,
    /// The old lanes of the peer's direction drain before they are dropped.
    Leaving,
}

/// State kept between channel changes.
#[derive(Debug, Default)]
pub(crate) struct IdleState {
    /// Number of the last attempt; the same on both ends of a link.
    pub(super) attempt: u32,
    /// Leader: attempt that the follower has not finished yet.
    pub(super) awaited: Option<u32>,
    /// Requests of the last failed attempt with a peer. An attempt with the same requests is not
    /// repeated.
    pub(super) failed: Option<[u32; 2]>,
    /// Plan of the last failed attempt without a peer. An attempt with the same plan is not
    /// repeated.
    pub(super) failed_plan: Option<Plan>,
}

/// Channel change in progress.
pub(crate) struct Change {
    pub(super) stage: Stage,
    pub(super) since: Duration,
    pub(super) plan: Plan,
    pub(super) set: u32,
    pub(super) requests: [u32; 2],
    /// Settings that the user requested when the change began.
    pub(super) settings: LinkSettings,
    /// New lanes that are not attached to a worker, by direction.
    pub(super) next: [Vec<Lane>; 2],
    /// Old lanes that are detached, by direction.
    pub(super) old: [Vec<Lane>; 2],
    /// True for a direction that this end has switched, by direction.
    pub(super) done: [bool; 2],
    pub(super) switch: Option<(Direction, Switch)>,
    /// Receiver of the lanes of the peer's direction that leave once drained, and the number of
    /// lanes still missing.
    pub(super) leaving: Option<(Receiver<Lane>, usize)>,
    /// True if new lanes of the peer's direction hold their frames until the old lanes are empty.
    pub(super) held: bool,
    /// Reason for switching back.
    pub(super) why: String,
}

impl Change {
    /// Collects the lanes that have left. Returns true if none is missing.
    pub(super) fn all_have_left(&mut self) -> bool {
        let Some((detached, left)) = &mut self.leaving else { return true };
        let before = self.old[0].len();
        self.old[0].extend(detached.try_iter());
        *left -= self.old[0].len() - before;
        *left == 0
    }
}

/// Result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The requested plan is in force.
    Committed,
    /// The old state is kept; the string is the reason.
    Undone(String),
}

impl Change {
    /// Returns the lanes of the change that no worker has, for teardown.
    pub(crate) fn into_lanes(self) -> impl Iterator<Item = Lane> {
        let switch = self.switch.map(|(_, switch)| switch.into_idle()).unwrap_or_default();
        let left =
            self.leaving.into_iter().flat_map(|(lanes, _)| lanes.try_iter().collect::<Vec<_>>());
        self.next.into_iter().chain(self.old).chain([switch]).flatten().chain(left)
    }
}
