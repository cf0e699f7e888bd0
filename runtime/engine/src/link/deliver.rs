//! The end of a link in good order: what it has taken still arrives.

use std::time::Duration;

use mqnet_sysio::{clock, poll};

use super::{Link, LinkError};
use crate::lane::{Lane, LaneId, Way};
use crate::worker::Leave;

/// How often peers are looked at.
const LOOK: Duration = Duration::from_micros(50);

impl Link {
    /// Waits until what lanes hold and what waits in their disciplines has arrived, if that is
    /// within `patience`; a lane that has nothing more takes nothing more. What has not arrived is
    /// counted when the queues are closed: as dropped, or as lost with the peer.
    pub(super) fn deliver(&mut self, patience: Duration) -> Result<(), LinkError> {
        // In the middle of a change frames lie in two sets of lanes; its end may be far.
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
        let ways = [Way::Forth, Way::Back].map(|way| of(way).collect::<Vec<_>>());
        ways.iter().for_each(|ids| self.close_sources(ids));
        let ids = ways.concat();
        let (Ok(mut lanes) | Err(mut lanes)) =
            self.crew.take_soon(&ids, Leave::Settled, patience)?;
        while lanes.iter_mut().any(waits) && !left().is_zero() {
            poll::pause(LOOK);
        }
        self.drop_lanes(lanes);
        Ok(())
    }
}

/// True while its peer has not taken everything. One that is at fault never will.
fn waits(lane: &mut Lane) -> bool {
    matches!(lane.tx().is_drained(), Ok(false))
}
