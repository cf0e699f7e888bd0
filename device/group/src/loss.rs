//! Failover from lost members and failback to members that return, while channels are in use.

use std::time::Duration;

use mqnet_netdev::LinkStatus;

use crate::channels::How;
use crate::group::{GroupFunction, Layout, Refit, Use};

/// Delay before the next attempt to fail back.
const RETRY_DELAY: Duration = Duration::from_millis(100);

impl GroupFunction {
    /// Moves the channels of members that no longer belong to the group. During a channel change or
    /// a replacement of queues, begins a new session instead.
    pub(crate) fn fail_over(&mut self) -> Result<(), String> {
        if self.in_use.is_none() {
            return Ok(());
        }
        if self.next.is_some() || self.refit.is_some() {
            // Begin a new session, which is faster than completing the change.
            self.session += 1;
            return Ok(());
        }
        self.rearrange()
    }

    /// Fails back to members that are up again. After a failed attempt, the next one is delayed.
    pub(crate) fn fail_back(&mut self, now: Duration) {
        if self.next.is_some() || self.refit.is_some() || now < self.retry_at {
            return;
        }
        // With a group at the far end, leave the failback to a channel change of both ends.
        if self.far.is_some() {
            return;
        }
        let mut back = Vec::new();
        for (at, member) in self.members.iter_mut().enumerate() {
            if let (LinkStatus::Up { session }, None) = (&member.status, member.joined) {
                member.joined = Some(*session);
                member.caps = member.function.caps();
                back.push(at);
            }
        }
        if back.is_empty() {
            return;
        }
        let trouble = self.rearrange().err();
        for at in back {
            let member = &mut self.members[at];
            member.trouble.clone_from(&trouble);
            if trouble.is_some() {
                member.joined = None;
                self.retry_at = now + RETRY_DELAY;
            }
        }
    }

    /// Assigns the channels in use to the members that are present. On failure the state is
    /// unchanged.
    fn rearrange(&mut self) -> Result<(), String> {
        let Some(mut in_use) = self.in_use.take() else { return Ok(()) };
        let done = match self.is_whole() {
            true => self.serve_by_spares(&mut in_use),
            false => self.serve_by_opening(&in_use),
        };
        let (layout, done) = match done {
            Ok((layout, refit)) => (layout, Ok(refit)),
            Err(why) => (in_use.layout, Err(why)),
        };
        self.in_use = Some(Use { layout, ..in_use });
        self.refit = Some(done?);
        Ok(())
    }

    fn serve_by_opening(&mut self, in_use: &Use) -> Result<(Layout, Refit), String> {
        let layout = self.layout(in_use.plan.channels, &self.here())?;
        let step = |at: usize| match (self.members[at].is_here(), self.members[at].open) {
            (true, false) => Some((at, How::Open)),
            (true, true) if layout.on(at) != in_use.layout.on(at) => Some((at, How::Prepare)),
            _ => None,
        };
        let steps: Vec<(usize, How)> = (0..self.members.len()).filter_map(step).collect();
        let mut made = self.make(&in_use.plan, &layout, &steps)?;
        for &(at, how) in &steps {
            let (total, function) = (layout.totals[at], &mut self.members[at].function);
            // Set the new number of queues of a member that does not steer.
            if how == How::Prepare
                && !function.steers()
                && let Err(e) = function.steer(total)
            {
                drop(made);
                self.unmake(&steps);
                return Err(e.to_string());
            }
        }
        let mut next = Vec::new();
        for (channel, place) in (0u16..).zip(&layout.places) {
            let queues = made[place.member].get_mut(usize::from(place.local));
            if let Some(queues) = queues.and_then(Option::take) {
                next.push((channel, queues));
            }
        }
        let slot = |channel: u16| &in_use.slots[usize::from(channel)];
        if let Some((channel, _)) = next.iter().find(|(channel, new)| !slot(*channel).fits(new)) {
            let why = format!("the members differ in the kind of memory of channel {channel}");
            drop((next, made));
            self.unmake(&steps);
            return Err(why);
        }
        let channels = next.iter().map(|(channel, _)| *channel).collect();
        next.into_iter().for_each(|(channel, queues)| slot(channel).replace(queues));
        let of = |wanted: How| {
            let those = steps.iter().filter(move |(_, how)| *how == wanted);
            those.map(|(at, _)| *at).collect()
        };
        let leaving = self.leaving();
        let (prepared, opened) = (of(How::Prepare), of(How::Open));
        Ok((layout, Refit { channels, prepared, opened, leaving }))
    }

    /// Members that no longer belong to the group but have open channels.
    fn leaving(&self) -> Vec<usize> {
        let gone = |at: &usize| self.members[*at].open && !self.members[*at].is_here();
        (0..self.members.len()).filter(gone).collect()
    }

    /// Replaces the channels of lost members by spare channels of present members.
    fn serve_by_spares(&mut self, in_use: &mut Use) -> Result<(Layout, Refit), String> {
        let layout = self.layout(in_use.plan.channels, &self.here())?;
        let moved = |channel: &u16| {
            let channel = usize::from(*channel);
            layout.places[channel] != in_use.layout.places[channel]
        };
        let channels: Vec<u16> = (0..in_use.plan.channels).filter(moved).collect();
        for &channel in &channels {
            let place = layout.places[usize::from(channel)];
            let spare = in_use.spares[place.member].get_mut(usize::from(place.local));
            let spare = spare.and_then(Option::take).ok_or("its spare queues are in use")?;
            in_use.slots[usize::from(channel)].replace(spare);
        }
        let (prepared, opened) = (Vec::new(), Vec::new());
        Ok((layout, Refit { channels, prepared, opened, leaving: self.leaving() }))
    }

    /// Completes the replacement of queues.
    pub(crate) fn settle(&mut self) {
        let Some(refit) = self.refit.take() else { return };
        for at in refit.prepared {
            let member = &mut self.members[at];
            // Report a failed cleanup as the member's trouble. By the contract of `commit`, the
            // change is effective nevertheless.
            member.trouble = member.function.commit().err().map(|e| e.to_string());
        }
        for at in refit.leaving {
            if let Some(used) = &mut self.in_use {
                used.spares.get_mut(at).into_iter().for_each(Vec::clear);
            }
            let member = &mut self.members[at];
            member.open = false;
            // Keep a session that the member may have begun again with its far end.
            if self.far.is_none() || !member.is_up() {
                member.function.close("it was lost");
            }
        }
        for at in refit.opened {
            self.members[at].function.set_carrier(self.carrier);
        }
    }
}
