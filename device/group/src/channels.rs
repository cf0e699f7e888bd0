//! Opening and changing the channels of all members, or of none.

use mqnet_netdev::{Channel, LinkStatus, OpenChannelsError, Plan};

use crate::group::{GroupFunction, Layout, OnLoss, Use};
use crate::slot::Slot;

/// Operation that creates channels in a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Open the member, which has no channels.
    Open,
    /// Prepare channels while other channels of the member are in use.
    Prepare,
}

/// Created channels, by member and local number; `None` once taken.
pub(crate) type Made = Vec<Vec<Option<Channel>>>;

impl GroupFunction {
    pub(crate) fn error(&self, what: impl Into<String>) -> OpenChannelsError {
        OpenChannelsError { function: self.name.clone(), what: what.into() }
    }

    /// Creates the channels of several members, one step per member. If a step fails, the completed
    /// steps are undone in reverse order.
    pub(crate) fn make(
        &mut self,
        plan: &Plan,
        layout: &Layout,
        steps: &[(usize, How)],
    ) -> Result<Made, String> {
        let mut made: Made = self.members.iter().map(|_| Vec::new()).collect();
        let joined = self.here();
        for (number, &(at, how)) in steps.iter().enumerate() {
            let part = Self::part_of(plan, layout.totals[at]);
            let member = &mut self.members[at];
            let channels = match how {
                How::Open => member.function.open(&part),
                How::Prepare => member.function.prepare(&part),
            };
            match channels {
                Ok(channels) => {
                    member.open = true;
                    made[at] = channels.into_iter().map(Some).collect();
                }
                Err(e) => {
                    drop(made);
                    if how == How::Open {
                        member.function.close("it could not be opened");
                    }
                    self.unmake(&steps[..number]);
                    self.mark_unjoined_closed(&joined);
                    return Err(e.to_string());
                }
            }
        }
        Ok(made)
    }

    /// Undoes the given steps in reverse order. The caller has dropped the channels.
    pub(crate) fn unmake(&mut self, steps: &[(usize, How)]) {
        for &(at, how) in steps.iter().rev() {
            let member = &mut self.members[at];
            match how {
                How::Prepare => member.function.abort(),
                How::Open => {
                    member.function.close("another member of its group could not be opened");
                    member.open = false;
                }
            }
        }
    }

    /// Marks members that do not belong to the group as closed.
    fn mark_unjoined_closed(&mut self, joined: &[bool]) {
        let strangers = self.members.iter_mut().zip(joined).filter(|(_, joined)| !**joined);
        strangers.for_each(|(member, _)| member.open = false);
    }

    /// Orders the channels by their number in the group. In a group that survives a loss, the
    /// queues are replaceable. Returns `None` if a member created too few channels.
    fn arrange(&self, mut made: Made, plan: &Plan, layout: Layout) -> Option<(Use, Vec<Channel>)> {
        let take = |place: &crate::MemberQueue| {
            made[place.member].get_mut(usize::from(place.local)).and_then(Option::take)
        };
        let channels: Vec<Channel> = layout.places.iter().map(take).collect::<Option<_>>()?;
        let (slots, channels) = match self.on_loss {
            OnLoss::Destroy => (Vec::new(), channels),
            OnLoss::Degrade => channels.into_iter().map(Slot::around).unzip(),
        };
        let spares = if self.is_whole() { made } else { Vec::new() };
        let joins = Vec::new();
        Some((Use { plan: plan.clone(), layout, slots, spares, joins }, channels))
    }

    fn make_all(
        &mut self,
        plan: &Plan,
        how: How,
        here: &[bool],
    ) -> Result<(Use, Vec<Channel>), OpenChannelsError> {
        let layout = self.layout(plan.channels, here).map_err(|what| self.error(what))?;
        let steps: Vec<(usize, How)> =
            (0..here.len()).filter(|&at| here[at]).map(|at| (at, how)).collect();
        let made = self.make(plan, &layout, &steps).map_err(|what| self.error(what))?;
        self.arrange(made, plan, layout).ok_or_else(|| {
            self.unmake(&steps);
            self.error("a member has opened fewer channels than requested")
        })
    }

    pub(crate) fn open_all(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        if !self.combined {
            return Err(self.error("the group is down"));
        }
        let (made, channels) = self.make_all(plan, How::Open, &self.here())?;
        self.in_use = Some(made);
        self.repeat_wish();
        Ok(channels)
    }

    pub(crate) fn prepare_all(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        if self.refit.is_some() || self.in_use.is_none() {
            return Err(self.error("a member is being replaced"));
        }
        let here = match &self.far {
            Some(far) if far.next.len() == self.members.len() => far.next.clone(),
            Some(_) => return Err(self.error("the other end has not agreed to a change")),
            None => self.here(),
        };
        let (mut made, channels) = self.make_all(plan, How::Prepare, &here)?;
        for (at, member) in self.members.iter().enumerate().filter(|(at, _)| here[*at]) {
            if let (LinkStatus::Up { session }, false) = (&member.status, member.is_here()) {
                made.joins.push((at, *session));
            }
        }
        self.next = Some(made);
        Ok(channels)
    }

    pub(crate) fn commit_all(&mut self) -> Result<(), OpenChannelsError> {
        let Some(next) = self.next.take() else { return Ok(()) };
        for &(at, session) in &next.joins {
            let member = &mut self.members[at];
            (member.joined, member.caps) = (Some(session), member.function.caps());
            member.function.set_carrier(self.carrier);
        }
        self.in_use = Some(next);
        let open = self.members.iter_mut().filter(|member| member.open);
        // Commit every member, even if the cleanup of another failed.
        let untidy = open.filter_map(|member| member.function.commit().err());
        let untidy: Vec<String> = untidy.map(|e| e.to_string()).collect();
        self.update_far();
        if untidy.is_empty() { Ok(()) } else { Err(self.error(untidy.join("; "))) }
    }

    pub(crate) fn abort_all(&mut self) {
        let Some(Use { joins, .. }) = self.next.take() else { return };
        let joined = self.here();
        let steps: Vec<(usize, How)> = (0..joined.len())
            .filter(|at| joined[*at] || joins.iter().any(|(join, _)| join == at))
            .map(|at| (at, How::Prepare))
            .collect();
        self.unmake(&steps);
        self.mark_unjoined_closed(&joined);
    }

    pub(crate) fn close_all(&mut self, why: &str) {
        let uses = self.in_use.take().into_iter().chain(self.next.take());
        uses.for_each(|made| made.slots.iter().for_each(Slot::clear));
        self.refit = None;
        for member in self.members.iter_mut().rev() {
            member.function.close(why);
            member.open = false;
        }
    }

    /// Steers new frames to the first `channels` channels; each member steers to its part. If a
    /// member fails, the members before it are steered back.
    pub(crate) fn steer_all(&mut self, channels: u16) -> Result<(), OpenChannelsError> {
        let (from, to) = match (&self.in_use, &self.next) {
            (Some(now), Some(next)) if now.plan.channels == channels => (next, now),
            (Some(now), Some(next)) => (now, next),
            _ => return Err(self.error("no change is open")),
        };
        let counts = |made: &Use| -> Vec<u16> {
            let count = |at: usize| match self.members[at].function.steers() {
                true => self.map.share(made.plan.channels, at),
                // Count the queues for channels of other members too: the kernel distributes frames
                // over all attached queues.
                false => made.layout.totals[at],
            };
            (0..self.members.len()).map(count).collect()
        };
        let (before, after) = (counts(from), counts(to));
        for at in 0..self.members.len() {
            if !self.members[at].is_here() || before[at] == after[at] {
                continue;
            }
            if let Err(e) = self.members[at].function.steer(after[at]) {
                for back in (0..at).rev().filter(|&back| before[back] != after[back]) {
                    if self.members[back].is_here() {
                        // Ignore errors: if a member cannot be steered back, frames in its retired
                        // queues are counted as drops.
                        let _ = self.members[back].function.steer(before[back]);
                    }
                }
                return Err(self.error(e.to_string()));
            }
        }
        Ok(())
    }
}
