//! Refit: a function that has lost a member continues with other queues in the same lanes.
//!
//! The lanes of the affected channels are detached with their frames, and their queues are parked.
//! Then the function exchanges the inner queues. Frames in a lane, its disciplines and the wrappers
//! of its queues stay. Other lanes are not affected.

use mqnet_netdev::Fault;

use super::{Link, LinkError, Notice};
use crate::lane::{Direction, LaneId};
use crate::worker::LaneFault;

impl Link {
    /// True if one of the functions can continue without the failed member. False without faults.
    pub(super) fn survives(&mut self, faults: &[LaneFault]) -> bool {
        let now = self.now;
        // Query both functions, because both may have lost a member.
        let survives = self.ends.each_mut().map(|end| !faults.is_empty() && end.survives(now));
        survives.contains(&true)
    }

    /// True if a function runs without one of its members.
    pub(super) fn misses_a_member(&self) -> bool {
        self.ends.iter().any(|end| end.members().iter().any(|member| !member.up))
    }

    /// Takes a running link down for its first fault if `for_good` is true. Returns the notice;
    /// `None` if the link stays as it is or the reason was already reported.
    pub(super) fn end_by_faults(
        &mut self,
        faults: &[LaneFault],
        for_good: bool,
    ) -> Result<Option<Notice>, LinkError> {
        let fault: Option<&Fault> = faults.first().map(|first| &first.fault);
        let (Some(fault), true, true) = (fault, for_good, self.running.is_some()) else {
            return Ok(None);
        };
        let why = format!("fault: {fault}");
        self.take_down(&why)?;
        Ok(self.report_down(why))
    }

    /// Exchanges the queues of functions that request it. Discards the faults of replaced queues.
    /// Returns true if queues were exchanged.
    pub(super) fn refit_ends(&mut self, faults: &mut Vec<LaneFault>) -> Result<bool, LinkError> {
        let mut refitted = false;
        for side in 0..self.ends.len() {
            let channels = self.ends[side].refit();
            let Some(set) = self.running.as_ref().map(|running| running.set) else { continue };
            if channels.is_empty() {
                continue;
            }
            let both = |&channel: &u16| {
                [Direction::AToB, Direction::BToA].map(|way| LaneId { set, channel, way })
            };
            let ids: Vec<LaneId> = channels.iter().flat_map(both).collect();
            let lanes = self.workers.take_immediately(&ids)?;
            let from_here = if side == 0 { Direction::AToB } else { Direction::BToA };
            for mut lane in lanes {
                if lane.id().way == from_here {
                    lane.forget_partial();
                }
                self.workers.attach(lane);
            }
            self.ends[side].refitted();
            faults.extend(self.faults.try_iter());
            faults.retain(|fault| !channels.contains(&fault.channel));
            refitted = true;
        }
        self.note_counted();
        Ok(refitted)
    }

    /// Extends the reported statistics to channels beyond the plan that a function has used.
    pub(crate) fn note_counted(&mut self) {
        let counted = self.ends.iter().map(|end| end.counted()).max().unwrap_or(0);
        self.widest = self.widest.max(counted);
    }
}
