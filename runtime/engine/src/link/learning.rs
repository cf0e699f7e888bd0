//! Tables of queues that follow the other direction of their flows (`rx-locality=learn`).
//!
//! What is seen is counted by whatever reads the other function's queues, in wrappers that only
//! links with this option have; buckets move as `ethtool -X` moves them, in order.

use std::sync::Arc;
use std::time::Duration;

use mqnet_netdev::limits::CHANNELS_MAX;
use mqnet_netdev::wrap::sights::{Sights, wrap_rx};
use mqnet_netdev::{Buckets, Function, Rx};

use super::{Link, LinkError};
use crate::egress::EgressConfig;
use crate::locality::{Judgement, LOOK, Policy, Sight, Trial};

/// How long nothing is tried again after flows could not move.
const REST: Duration = Duration::from_secs(10);

/// Buckets of a table that is not there yet: the device makes one, of this length, when it may.
const BUCKETS: usize = 128;

/// Whose table it is: a function's own, or that of a member of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Whose {
    member: Option<usize>,
    /// The channel of its first queue, and from one of its queues to the next.
    first: u16,
    step: u16,
}

impl Whose {
    /// The function's, whose queues are the channels.
    pub(super) const OWN: Self = Self { member: None, first: 0, step: 1 };

    /// Each that there is at an end.
    fn all(end: &dyn Function) -> Vec<Self> {
        let members = end.members().len();
        let member = |at| Self { member: Some(at), first: at as u16, step: members as u16 };
        if members == 0 { vec![Self::OWN] } else { (0..members).map(member).collect() }
    }

    /// Who has it; `None` while a member is lost.
    pub(super) fn of<'a>(&self, end: &'a mut dyn Function) -> Option<&'a mut dyn Function> {
        match self.member {
            Some(at) => end.member(at),
            None => Some(end),
        }
    }

    /// The channel of a queue. Tables that other programs set may name any.
    pub(super) fn channel(&self, queue: u16) -> u16 {
        queue.saturating_mul(self.step).saturating_add(self.first)
    }

    /// The queue that is this channel.
    fn queue(&self, channel: u16) -> Option<u16> {
        (channel % self.step == self.first).then_some(channel / self.step)
    }

    /// Its queues of so many channels.
    fn queues(&self, channels: u16) -> u16 {
        channels.saturating_sub(self.first).div_ceil(self.step)
    }
}

/// What was seen on the channels that are the queues of a table.
struct Seen {
    /// For each queue, since its begin and at the last look.
    queues: Vec<(Arc<Sights>, Vec<u64>)>,
    buckets: usize,
}

impl Seen {
    fn new(whose: Whose, buckets: usize) -> Self {
        let each = |_| (Sights::new(buckets), vec![0; buckets]);
        Self { queues: (0..whose.queues(CHANNELS_MAX)).map(each).collect(), buckets }
    }

    fn on(&self, queue: u16) -> Arc<Sights> {
        self.queues[usize::from(queue)].0.clone()
    }

    /// How often each bucket was seen on each queue since the last call. What was seen on others,
    /// before they went, is no news when they are back.
    fn news(&mut self, queues: u16) -> Vec<Vec<u64>> {
        let mut news = vec![vec![0u64; self.buckets]; self.queues.len()];
        for ((sights, before), news) in self.queues.iter_mut().zip(&mut news) {
            for ((count, before), news) in sights.counts().zip(before).zip(news) {
                *news = count.wrapping_sub(std::mem::replace(before, count));
            }
        }
        news.truncate(queues.into());
        news
    }
}

/// A table that follows. All of it is in the numbers of its own queues.
struct Follower {
    whose: Whose,
    name: String,
    buckets: Buckets,
    /// Where answers' buckets were seen at the other function.
    sights: Seen,
    /// Where buckets arrived, of a table whose buckets are a driver's claim.
    arrivals: Option<(Seen, Trial)>,
    policy: Policy,
    /// Frames arrive elsewhere than its driver says.
    gave_up: bool,
}

impl Follower {
    /// One that may be; what is in the way is said.
    fn new(whose: Whose, end: &mut dyn Function) -> Option<Self> {
        let group = end.name().to_owned();
        let Some(function) = whose.of(end) else {
            tracing::warn!(
                "{group}: flows stay on their queues until the link begins anew: it began while a \
                 member is lost"
            );
            return None;
        };
        let name = function.name().to_owned();
        let spread = function.indirection();
        let count = spread.as_ref().map_or(BUCKETS, |spread| spread.table.len());
        if spread.is_some_and(|spread| spread.user_set) {
            let knob = match whose.member {
                None => "mqnet ethtool -X default lets it learn",
                Some(_) => "ethtool -X default, before the link begins, lets it learn",
            };
            tracing::info!(
                "{name}: flows stay on their queues: somebody has set the table: {knob}"
            );
        }
        let buckets = function.buckets();
        let buckets = buckets.inspect_err(|why| {
            tracing::warn!("{name}: flows stay on their queues: {why}");
        });
        let buckets = buckets.ok()?;
        let seen = || Seen::new(whose, count);
        let arrivals = buckets.of_arrivals.as_ref().map(|_| (seen(), Trial::default()));
        let (sights, policy) = (seen(), Policy::new(count));
        Some(Self { whose, name, buckets, sights, arrivals, policy, gave_up: false })
    }

    /// Where each bucket was seen since the last call.
    fn look(&mut self, queues: u16) -> Vec<Sight> {
        let news = self.sights.news(queues);
        let at = |bucket: usize| Sight::of(news.iter().map(|counts| counts[bucket]));
        (0..self.sights.buckets).map(at).collect()
    }

    /// What has arrived by a table that is not ours says nothing of the next one.
    fn overlook(&mut self, queues: u16) {
        if let Some((seen, trial)) = &mut self.arrivals {
            seen.news(queues);
            trial.overlook();
        }
    }

    fn give_up(&mut self, strays: u64, of: u64) {
        self.gave_up = true;
        tracing::warn!(
            "{}: flows stay on their queues: {strays} of {of} frames came to others than its \
             driver's hash and table say (ethtool -x, -n)",
            self.name
        );
    }

    /// Whether frames arrive where the table says.
    fn judge(&mut self, table: &[u16], queues: u16) -> Judgement {
        let Some((seen, trial)) = &mut self.arrivals else { return Judgement::True };
        let news = seen.news(queues);
        trial.hear(table, &news)
    }
}

/// What is learnt, for the table of each function.
pub(super) struct Learning {
    /// Whose table is to follow.
    wanted: [bool; 2],
    /// Those whose buckets are known in this session.
    followers: [Vec<Follower>; 2],
    next: Duration,
}

impl Learning {
    pub(super) fn new(
        egress: &[EgressConfig; 2],
        ends: &[Box<dyn Function>; 2],
    ) -> Result<Self, LinkError> {
        let wanted = [egress[1].learn, egress[0].learn];
        let learning = Self { wanted, followers: Default::default(), next: Duration::ZERO };
        (0..2).try_for_each(|side| learning.check(side, &*ends[side]))?;
        Ok(learning)
    }

    /// Refuses a function whose table is to follow and cannot.
    pub(super) fn check(&self, side: usize, end: &dyn Function) -> Result<(), LinkError> {
        if self.wanted[side] && !end.can_follow() {
            return Err(LinkError::Learning(end.name().to_owned()));
        }
        Ok(())
    }

    pub(super) fn is_on(&self) -> bool {
        self.wanted.contains(&true)
    }

    /// A session begins: a card that was exchanged hashes by another key.
    pub(super) fn begin(&mut self, ends: &mut [Box<dyn Function>; 2]) {
        for (side, end) in ends.iter_mut().enumerate().filter(|(side, _)| self.wanted[*side]) {
            let all = Whose::all(&**end);
            self.followers[side] =
                all.into_iter().filter_map(|whose| Follower::new(whose, &mut **end)).collect();
        }
    }

    /// The RX queue of a channel of a function, with what the tables of both learn from.
    pub(super) fn watch(&self, side: usize, channel: u16, rx: Rx) -> Rx {
        let mut rx = rx;
        for Follower { whose, buckets, arrivals, .. } in &self.followers[side] {
            if let (Some(queue), Some((seen, _)), Some(of_arrivals)) =
                (whose.queue(channel), arrivals, &buckets.of_arrivals)
            {
                rx = wrap_rx(rx, seen.on(queue), of_arrivals.clone());
            }
        }
        for Follower { whose, buckets, sights, .. } in &self.followers[1 - side] {
            if let Some(queue) = whose.queue(channel) {
                rx = wrap_rx(rx, sights.on(queue), buckets.of_answers.clone());
            }
        }
        rx
    }
}

impl Link {
    /// Looks where flows are sent, once in a while, and lets their other direction follow.
    pub(super) fn learn(&mut self) -> Result<(), LinkError> {
        if !self.learning.is_on() || self.change.is_some() || self.now < self.learning.next {
            return Ok(());
        }
        let Some(channels) = self.running.as_ref().map(|running| running.plan.channels) else {
            return Ok(());
        };
        self.learning.next = self.now + LOOK;
        for side in 0..2 {
            let leads = match self.peer_side {
                Some(_) => self.leads(),
                // Where both follow, one has to.
                None => side == 0 || self.learning.wanted != [true, true],
            };
            for at in 0..self.learning.followers[side].len() {
                self.follow_senders(side, at, channels, leads)?;
                // It could not be moved in time: no other one is tried either.
                if self.learning.next > self.now + LOOK {
                    break;
                }
            }
            self.learning.followers[side].retain(|follower| !follower.gave_up);
        }
        Ok(())
    }

    fn follow_senders(
        &mut self,
        side: usize,
        at: usize,
        channels: u16,
        leads: bool,
    ) -> Result<(), LinkError> {
        let follower = &mut self.learning.followers[side][at];
        let (whose, end) = (follower.whose, &mut *self.ends[side]);
        let queues = whose.queues(channels);
        follower.policy.keep_to(queues);
        let sights = follower.look(queues);
        // Without a table the kernel chooses; what a user has set stays.
        let spread = whose.of(end).and_then(|function| function.indirection());
        let spread = spread.filter(|spread| !spread.user_set);
        let own = |table: &Vec<u16>| table.len() == follower.sights.buckets;
        let Some(mut table) = spread.map(|spread| spread.table).filter(own) else {
            follower.overlook(queues);
            return Ok(());
        };
        match follower.judge(&table, queues) {
            Judgement::True => {}
            Judgement::Unknown => return Ok(()),
            Judgement::False { strays, of } => {
                // A table that is somebody's stays anyway, and explains it.
                if !whose.of(end).is_some_and(|function| function.refresh_indirection()) {
                    follower.give_up(strays, of);
                }
                return Ok(());
            }
        }
        // Flows that are moved now would have to wait for a sink that is full.
        let sinks = &self.ends[1 - side].stats()[..usize::from(channels)];
        if sinks.iter().any(|channel| channel.tx.stopped_since_ns.get() != 0) {
            return Ok(());
        }
        let Some(moves) = follower.policy.look(self.now, leads, &table, &sights) else {
            return Ok(());
        };
        for &bucket in &moves.buckets {
            table[bucket] = moves.queue;
        }
        let name = follower.name.clone();
        let (count, queue) = (moves.buckets.len(), moves.queue);
        match self.spread_unasked(side, whose, &table)? {
            Ok(()) => tracing::debug!("{name}: {count} buckets of flows follow to queue {queue}"),
            // Nothing has moved, and trying cost time in which no other link was looked after.
            Err(why) => {
                self.learning.next = self.now + REST;
                tracing::debug!("{name}: {count} buckets stay: {why}");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the queues of each member of a group are its channels by the group's map, each of
    // them once.
    #[test]
    fn queues_are_channels_by_the_map() {
        assert_eq!(
            (Whose::OWN.queues(5), Whose::OWN.queue(4), Whose::OWN.channel(4)),
            (5, Some(4), 4)
        );
        for (members, channels) in [(2, 2), (2, 5), (3, 64), (8, 9)] {
            let of = |at: u16| Whose { member: Some(at.into()), first: at, step: members };
            let mut all = Vec::new();
            for whose in (0..members).map(of) {
                let own = (0..whose.queues(channels)).map(|queue| whose.channel(queue));
                assert!(own.clone().all(|channel| channel % members == whose.first));
                let queues = own.clone().filter_map(|channel| whose.queue(channel));
                assert!(queues.eq(0..whose.queues(channels)));
                all.extend(own);
            }
            all.sort_unstable();
            assert!(all.into_iter().eq(0..channels), "{members} members, {channels} channels");
        }
    }
}
