//! A function that has lost a part of itself, and goes on with other queues in the same lanes.
//!
//! The lanes of these channels leave their workers for a moment, as they are: their queues are
//! parked, which is when others take over inside of them. What a lane holds for a full sink, what
//! waits in its disciplines and what is around its queues stays. No other lane hears of it.

use mqnet_netdev::Fault;

use super::{Link, LinkError, Notice};
use crate::lane::{LaneId, Way};
use crate::worker::LaneFault;

impl Link {
    /// True when a function goes on without what has failed.
    pub(super) fn survives(&mut self, faults: &[LaneFault]) -> bool {
        let now = self.now;
        // Each of them is asked: both may have lost something.
        let survives = self.ends.each_mut().map(|end| !faults.is_empty() && end.survives(now));
        survives.contains(&true)
    }

    /// True when a function goes on without a part of itself.
    pub(super) fn misses_a_member(&self) -> bool {
        self.ends.iter().any(|end| end.members().iter().any(|member| !member.up))
    }

    /// Ends a running link by its first fault.
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
        Ok(self.say_down(why))
    }

    /// Lets queues take over that wait for it. Faults of the old ones are old news then.
    pub(super) fn let_take_over(&mut self, faults: &mut Vec<LaneFault>) -> Result<bool, LinkError> {
        let mut refitted = false;
        for side in 0..self.ends.len() {
            let channels = self.ends[side].refit();
            let Some(set) = self.running.as_ref().map(|running| running.set) else { continue };
            if channels.is_empty() {
                continue;
            }
            let both =
                |&channel: &u16| [Way::Forth, Way::Back].map(|way| LaneId { set, channel, way });
            let ids: Vec<LaneId> = channels.iter().flat_map(both).collect();
            let lanes = self.crew.take_as_they_are(&ids)?;
            let from_here = if side == 0 { Way::Forth } else { Way::Back };
            for mut lane in lanes {
                if lane.id().way == from_here {
                    lane.forget_begun();
                }
                self.crew.attach(lane);
            }
            self.ends[side].refitted();
            faults.extend(self.faults.try_iter());
            faults.retain(|fault| !channels.contains(&fault.channel));
            refitted = true;
        }
        self.note_counted();
        Ok(refitted)
    }

    /// Statistics beyond those of the plan's channels are shown once they are in use.
    pub(crate) fn note_counted(&mut self) {
        let counted = self.ends.iter().map(|end| end.counted()).max().unwrap_or(0);
        self.widest = self.widest.max(counted);
    }
}
