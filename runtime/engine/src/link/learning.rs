//! Flow learning (`rx-locality=learn`): the RX queue of a flow follows its opposite direction.
//!
//! Wrappers of the RX queues at the link's other end count on which channel each flow is sent; only
//! links with this option have these wrappers. Buckets move as with `ethtool -X`: the frames of
//! each flow stay in order.

use std::sync::Arc;
use std::time::Duration;

use mqnet_netdev::limits::CHANNELS_MAX;
use mqnet_netdev::wrap::flow_samples::{FlowSamples, wrap_rx};
use mqnet_netdev::{Buckets, Function, Rx};

use super::{Link, LinkError};
use crate::egress::EgressConfig;
use crate::locality::{Judgement, Policy, SAMPLE_INTERVAL, Sample, Trial};

/// Pause after an attempt that could not move flows.
const PAUSE: Duration = Duration::from_secs(10);

/// Number of buckets for a device without a table. The device creates a table of this length.
const BUCKETS: usize = 128;

/// Owner of an indirection table: a function, or a member of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableOwner {
    member: Option<usize>,
    /// Channel of the owner's first queue, and distance between the channels of successive queues.
    first: u16,
    step: u16,
}

impl TableOwner {
    /// Owner with queue numbers that equal its channels: a function that is no group.
    pub(super) const OWN: Self = Self { member: None, first: 0, step: 1 };

    /// Owners of all tables of a function: the members of a group, or the function.
    fn all(end: &dyn Function) -> Vec<Self> {
        let members = end.members().len();
        let member = |at| Self { member: Some(at), first: at as u16, step: members as u16 };
        if members == 0 { vec![Self::OWN] } else { (0..members).map(member).collect() }
    }

    /// Function that owns the table; `None` while the member is lost.
    pub(super) fn of<'a>(&self, end: &'a mut dyn Function) -> Option<&'a mut dyn Function> {
        match self.member {
            Some(at) => end.member(at),
            None => Some(end),
        }
    }

    /// Channel of a queue. The result saturates, because tables of other programs may contain any
    /// queue.
    pub(super) fn channel(&self, queue: u16) -> u16 {
        queue.saturating_mul(self.step).saturating_add(self.first)
    }

    /// Queue of a channel; `None` if the channel belongs to another owner.
    fn queue(&self, channel: u16) -> Option<u16> {
        (channel % self.step == self.first).then_some(channel / self.step)
    }

    /// Number of the owner's queues if the link has `channels` channels.
    fn queues(&self, channels: u16) -> u16 {
        channels.saturating_sub(self.first).div_ceil(self.step)
    }
}

/// Flow counters for the queues of a table.
struct Seen {
    /// Counters of each queue, with their values at the last sample.
    queues: Vec<(Arc<FlowSamples>, Vec<u64>)>,
    buckets: usize,
}

impl Seen {
    fn new(owner: TableOwner, buckets: usize) -> Self {
        let each = |_| (FlowSamples::new(buckets), vec![0; buckets]);
        Self { queues: (0..owner.queues(CHANNELS_MAX)).map(each).collect(), buckets }
    }

    fn on(&self, queue: u16) -> Arc<FlowSamples> {
        self.queues[usize::from(queue)].0.clone()
    }

    /// Number of frames of each bucket on each queue since the last call. Counts of queues from
    /// `queues` on are discarded, so that they do not appear when such a queue is used again.
    fn news(&mut self, queues: u16) -> Vec<Vec<u64>> {
        let mut news = vec![vec![0u64; self.buckets]; self.queues.len()];
        for ((samples, before), news) in self.queues.iter_mut().zip(&mut news) {
            for ((count, before), news) in samples.counts().zip(before).zip(news) {
                *news = count.wrapping_sub(std::mem::replace(before, count));
            }
        }
        news.truncate(queues.into());
        news
    }
}

/// Indirection table that follows the senders. All queue numbers are those of its owner.
struct Follower {
    owner: TableOwner,
    name: String,
    buckets: Buckets,
    /// Counts of the opposite direction, at the other function.
    samples: Seen,
    /// Counts of received frames, to check the hash and the table that a driver reports; `None`: no
    /// check.
    arrivals: Option<(Seen, Trial)>,
    policy: Policy,
    /// True if frames arrive on queues other than those of the table, so that learning has ended.
    gave_up: bool,
}

impl Follower {
    /// Creates a follower for a table. Returns `None` after logging the reason if the table cannot
    /// follow.
    fn new(owner: TableOwner, end: &mut dyn Function) -> Option<Self> {
        let group = end.name().to_owned();
        let Some(function) = owner.of(end) else {
            tracing::warn!(
                "{group}: flows stay on their queues until the link restarts: it started while a \
                 member is lost"
            );
            return None;
        };
        let name = function.name().to_owned();
        let spread = function.indirection();
        let count = spread.as_ref().map_or(BUCKETS, |spread| spread.table.len());
        if spread.is_some_and(|spread| spread.user_set) {
            let knob = match owner.member {
                None => "mqnet ethtool -X default enables learning",
                Some(_) => "ethtool -X default, before the link starts, enables learning",
            };
            tracing::info!(
                "{name}: flows stay on their queues: a user has set the indirection table: {knob}"
            );
        }
        let buckets = function.buckets();
        let buckets = buckets.inspect_err(|why| {
            tracing::warn!("{name}: flows stay on their queues: {why}");
        });
        let buckets = buckets.ok()?;
        let seen = || Seen::new(owner, count);
        let arrivals = buckets.of_arrivals.as_ref().map(|_| (seen(), Trial::default()));
        let (samples, policy) = (seen(), Policy::new(count));
        Some(Self { owner, name, buckets, samples, arrivals, policy, gave_up: false })
    }

    /// Counts of each bucket since the last call, as samples for the policy.
    fn sample(&mut self, queues: u16) -> Vec<Sample> {
        let news = self.samples.news(queues);
        let at = |bucket: usize| Sample::of(news.iter().map(|counts| counts[bucket]));
        (0..self.samples.buckets).map(at).collect()
    }

    /// Discards the counts of received frames: another program or the kernel selected their queues.
    fn restart(&mut self, queues: u16) {
        if let Some((seen, trial)) = &mut self.arrivals {
            seen.news(queues);
            trial.restart();
        }
    }

    fn give_up(&mut self, strays: u64, of: u64) {
        self.gave_up = true;
        tracing::warn!(
            "{}: flows stay on their queues: {strays} of {of} frames arrived on other queues than \
             its driver's hash and table select (ethtool -x, -n)",
            self.name
        );
    }

    /// Compares the queues of received frames with the table. Without such counts the table counts
    /// as true.
    fn judge(&mut self, table: &[u16], queues: u16) -> Judgement {
        let Some((seen, trial)) = &mut self.arrivals else { return Judgement::True };
        let news = seen.news(queues);
        trial.compare(table, &news)
    }
}

/// Learning state of both functions.
pub(super) struct Learning {
    /// True for a function with a table that is to follow the senders.
    wanted: [bool; 2],
    /// Followers of each function in this session.
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

    /// Returns an error if the function is configured to learn and cannot.
    pub(super) fn check(&self, side: usize, end: &dyn Function) -> Result<(), LinkError> {
        if self.wanted[side] && !end.can_follow() {
            return Err(LinkError::Learning(end.name().to_owned()));
        }
        Ok(())
    }

    pub(super) fn is_on(&self) -> bool {
        self.wanted.contains(&true)
    }

    /// Creates the followers of a new session, because a replaced NIC may have another hash key.
    pub(super) fn begin(&mut self, ends: &mut [Box<dyn Function>; 2]) {
        for (side, end) in ends.iter_mut().enumerate().filter(|(side, _)| self.wanted[*side]) {
            let all = TableOwner::all(&**end);
            self.followers[side] =
                all.into_iter().filter_map(|owner| Follower::new(owner, &mut **end)).collect();
        }
    }

    /// Wraps the RX queue of a function's channel with the counters that the followers of both
    /// functions need.
    pub(super) fn watch(&self, side: usize, channel: u16, rx: Rx) -> Rx {
        let mut rx = rx;
        for Follower { owner, buckets, arrivals, .. } in &self.followers[side] {
            if let (Some(queue), Some((seen, _)), Some(of_arrivals)) =
                (owner.queue(channel), arrivals, &buckets.of_arrivals)
            {
                rx = wrap_rx(rx, seen.on(queue), of_arrivals.clone());
            }
        }
        for Follower { owner, buckets, samples, .. } in &self.followers[1 - side] {
            if let Some(queue) = owner.queue(channel) {
                rx = wrap_rx(rx, samples.on(queue), buckets.of_answers.clone());
            }
        }
        rx
    }
}

impl Link {
    /// Samples the flows once per interval, and moves buckets to the queues of their senders.
    pub(super) fn learn(&mut self) -> Result<(), LinkError> {
        if !self.learning.is_on() || self.change.is_some() || self.now < self.learning.next {
            return Ok(());
        }
        let Some(channels) = self.running.as_ref().map(|running| running.plan.channels) else {
            return Ok(());
        };
        self.learning.next = self.now + SAMPLE_INTERVAL;
        for side in 0..2 {
            let leads = match self.peer_side {
                Some(_) => self.leads(),
                // If both functions learn, exactly one leads.
                None => side == 0 || self.learning.wanted != [true, true],
            };
            for at in 0..self.learning.followers[side].len() {
                self.follow_senders(side, at, channels, leads)?;
                // The last attempt failed, for example by its time limit, so no other table is
                // changed now.
                if self.learning.next > self.now + SAMPLE_INTERVAL {
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
        let (owner, end) = (follower.owner, &mut *self.ends[side]);
        let queues = owner.queues(channels);
        follower.policy.limit_queues(queues);
        let samples = follower.sample(queues);
        // Without a table the kernel selects the queue. A table that a user set is not changed.
        let spread = owner.of(end).and_then(|function| function.indirection());
        let spread = spread.filter(|spread| !spread.user_set);
        let own = |table: &Vec<u16>| table.len() == follower.samples.buckets;
        let Some(mut table) = spread.map(|spread| spread.table).filter(own) else {
            follower.restart(queues);
            return Ok(());
        };
        match follower.judge(&table, queues) {
            Judgement::True => {}
            Judgement::Unknown => return Ok(()),
            Judgement::False { strays, of } => {
                // A table that another program has just set explains the difference. Without such a
                // table, learning ends.
                if !owner.of(end).is_some_and(|function| function.refresh_indirection()) {
                    follower.give_up(strays, of);
                }
                return Ok(());
            }
        }
        // Do not move flows while a sink is full: the move would have to wait for that sink.
        let sinks = &self.ends[1 - side].stats()[..usize::from(channels)];
        if sinks.iter().any(|channel| channel.tx.stopped_since_ns.get() != 0) {
            return Ok(());
        }
        let Some(moves) = follower.policy.decide(self.now, leads, &table, &samples) else {
            return Ok(());
        };
        for &bucket in &moves.buckets {
            table[bucket] = moves.queue;
        }
        let name = follower.name.clone();
        let (count, queue) = (moves.buckets.len(), moves.queue);
        match self.spread_automatically(side, owner, &table)? {
            Ok(()) => tracing::debug!("{name}: {count} buckets of flows move to queue {queue}"),
            // Pause after a failed attempt, because the attempt delayed the other links.
            Err(why) => {
                self.learning.next = self.now + PAUSE;
                tracing::debug!("{name}: {count} buckets stay: {why}");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the queues of a group's members cover each channel exactly once.
    #[test]
    fn member_queues_cover_each_channel_once() {
        assert_eq!(
            (TableOwner::OWN.queues(5), TableOwner::OWN.queue(4), TableOwner::OWN.channel(4)),
            (5, Some(4), 4)
        );
        for (members, channels) in [(2, 2), (2, 5), (3, 64), (8, 9)] {
            let of = |at: u16| TableOwner { member: Some(at.into()), first: at, step: members };
            let mut all = Vec::new();
            for owner in (0..members).map(of) {
                let own = (0..owner.queues(channels)).map(|queue| owner.channel(queue));
                assert!(own.clone().all(|channel| channel % members == owner.first));
                let queues = own.clone().filter_map(|channel| owner.queue(channel));
                assert!(queues.eq(0..owner.queues(channels)));
                all.extend(own);
            }
            all.sort_unstable();
            assert!(all.into_iter().eq(0..channels), "{members} members, {channels} channels");
        }
    }
}
