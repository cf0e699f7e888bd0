//! The end of a link in good order: what it has taken still arrives.

use std::time::Duration;

use mqnet_sysio::{clock, poll};

use super::{Link, LinkError};
use crate::lane::{Lane, LaneId, Way};
use crate::worker::Leave;

/// How long the end may wait for sinks that are full and peers that do not take: far longer than
/// any that works needs, and not felt by who stops a link.
const LIMIT: Duration = Duration::from_millis(100);
/// How often peers are looked at.
const LOOK: Duration = Duration::from_micros(50);

impl Link {
    /// Stops taking frames, and waits until those that were taken have arrived, if that is soon.
    /// What has not is counted when the queues are closed: as dropped, or as lost with the peer.
    pub(super) fn deliver(&mut self) -> Result<(), LinkError> {
        // In the middle of a change frames lie in two sets of lanes; its end may be far.
        let Some(running) = self.running.as_ref().filter(|_| self.change.is_none()) else {
            return Ok(());
        };
        let set = running.set;
        let both = |channel| [Way::Forth, Way::Back].map(|way| LaneId { set, channel, way });
        let ids: Vec<LaneId> = (0..running.plan.channels).flat_map(both).collect();
        let (Ok(mut lanes) | Err(mut lanes)) = self.crew.take_soon(&ids, Leave::Settled, LIMIT)?;
        let begin = clock::monotonic();
        while lanes.iter_mut().any(waits) && clock::monotonic() - begin < LIMIT {
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
