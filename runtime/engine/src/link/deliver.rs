//! Orderly shutdown of a link: received frames are delivered before the link is closed.

use std::time::Duration;

use mqnet_sysio::{clock, poll};

use super::{Link, LinkError};
use crate::lane::{Direction, Lane, LaneId};
use crate::worker::Leave;

/// Interval for checking the sinks.
const POLL_INTERVAL: Duration = Duration::from_micros(50);

impl Link {
    /// Waits until the frames in lanes and in their disciplines have been delivered, at most for
    /// `patience`. A drained lane receives no further frame. Frames that are not delivered are
    /// counted when the queues are closed: as dropped, or as lost with the peer.
    pub(super) fn deliver(&mut self, patience: Duration) -> Result<(), LinkError> {
        // During a channel change, frames are in two sets of lanes and the change may take long, so
        // nothing is delivered.
        let Some(running) = self.running.as_ref().filter(|_| self.change.is_none()) else {
            return Ok(());
        };
        if patience.is_zero() {
            return Ok(());
        }
        let begin = clock::monotonic();
        let left = || patience.saturating_sub(clock::monotonic().saturating_sub(begin));
        let set = running.set;
        let channels = running.plan.channels;
        let of = |way| (0..channels).map(move |channel| LaneId { set, channel, way });
        let ways = [Direction::AToB, Direction::BToA].map(|way| of(way).collect::<Vec<_>>());
        ways.iter().for_each(|ids| self.close_sources(ids));
        let ids = ways.concat();
        let (Ok(mut lanes) | Err(mut lanes)) =
            self.workers.take_within(&ids, Leave::Settled, patience)?;
        while lanes.iter_mut().any(waits) && !left().is_zero() {
            poll::pause(POLL_INTERVAL);
        }
        self.drop_lanes(lanes);
        Ok(())
    }
}

/// True if the peer has not taken all frames of the lane. False for a failed sink, which never
/// delivers.
fn waits(lane: &mut Lane) -> bool {
    matches!(lane.tx().is_drained(), Ok(false))
}
