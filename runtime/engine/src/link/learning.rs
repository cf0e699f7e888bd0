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

/// What was seen on the channels of a function.
struct Seen {
    /// For each channel, since its begin and at the last look.
    channels: Vec<(Arc<Sights>, Vec<u64>)>,
    buckets: usize,
}

impl Seen {
    fn new(buckets: usize) -> Self {
        let each = |_| (Sights::new(buckets), vec![0; buckets]);
        Self { channels: (0..CHANNELS_MAX).map(each).collect(), buckets }
    }

    fn on(&self, channel: u16) -> Arc<Sights> {
        self.channels[usize::from(channel)].0.clone()
    }

    /// How often each bucket was seen on each channel since the last call.
    fn news(&mut self, channels: u16) -> Vec<Vec<u64>> {
        let mut news = vec![vec![0u64; self.buckets]; usize::from(channels)];
        for ((sights, before), news) in self.channels.iter_mut().zip(&mut news) {
            for ((count, before), news) in sights.counts().zip(before).zip(news) {
                *news = count.wrapping_sub(std::mem::replace(before, count));
            }
        }
        news
    }
}

/// A table that follows.
struct Follower {
    buckets: Buckets,
    /// Where answers' buckets were seen on the other function's channels.
    sights: Seen,
    /// Where buckets arrived, of a table whose buckets are a driver's claim.
    arrivals: Option<(Seen, Trial)>,
    policy: Policy,
}

impl Follower {
    fn new(buckets: Buckets, count: usize) -> Self {
        let arrivals = buckets.of_arrivals.as_ref().map(|_| (Seen::new(count), Trial::default()));
        Self { buckets, sights: Seen::new(count), arrivals, policy: Policy::new(count) }
    }

    /// Where each bucket was seen since the last call.
    fn look(&mut self, channels: u16) -> Vec<Sight> {
        let news = self.sights.news(channels);
        let at = |bucket: usize| Sight::of(news.iter().map(|counts| counts[bucket]));
        (0..self.sights.buckets).map(at).collect()
    }

    /// What has arrived by a table that is not ours says nothing of the next one.
    fn overlook(&mut self, channels: u16) {
        if let Some((seen, trial)) = &mut self.arrivals {
            seen.news(channels);
            trial.overlook();
        }
    }

    /// Whether frames arrive where the table says.
    fn judge(&mut self, table: &[u16], channels: u16) -> Judgement {
        let Some((seen, trial)) = &mut self.arrivals else { return Judgement::True };
        let news = seen.news(channels);
        trial.hear(table, &news)
    }
}

/// What is learnt, for the table of each function.
pub(super) struct Learning {
    /// Whose table is to follow.
    wanted: [bool; 2],
    /// Those whose buckets are known in this session.
    followers: [Option<Follower>; 2],
    next: Duration,
}

impl Learning {
    pub(super) fn new(
        egress: &[EgressConfig; 2],
        ends: &[Box<dyn Function>; 2],
    ) -> Result<Self, LinkError> {
        let wanted = [egress[1].learn, egress[0].learn];
        match (0..2).find(|&side| wanted[side] && !ends[side].can_follow()) {
            Some(side) => Err(LinkError::Learning(ends[side].name().to_owned())),
            None => Ok(Self { wanted, followers: [None, None], next: Duration::ZERO }),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.wanted.contains(&true)
    }

    /// A session begins: a card that was exchanged hashes by another key.
    pub(super) fn begin(&mut self, ends: &mut [Box<dyn Function>; 2]) {
        for (side, end) in ends.iter_mut().enumerate().filter(|(side, _)| self.wanted[*side]) {
            let spread = end.indirection();
            let buckets = spread.as_ref().map_or(BUCKETS, |spread| spread.table.len());
            if spread.is_some_and(|spread| spread.user_set) {
                tracing::info!(
                    "{}: flows stay on their queues: somebody has set the table (ethtool -X \
                     default, of mqnet, lets it learn)",
                    end.name()
                );
            }
            self.followers[side] = match end.buckets() {
                Ok(of) => Some(Follower::new(of, buckets)),
                Err(why) => {
                    tracing::warn!("{}: flows stay on their queues: {why}", end.name());
                    None
                }
            };
        }
    }

    /// The RX queue of a channel of a function, with what the table of the other one learns from.
    pub(super) fn watch(&self, side: usize, channel: u16, rx: Rx) -> Rx {
        let mut rx = rx;
        if let Some(Follower { buckets, arrivals: Some((seen, _)), .. }) = &self.followers[side]
            && let Some(of_arrivals) = &buckets.of_arrivals
        {
            rx = wrap_rx(rx, seen.on(channel), of_arrivals.clone());
        }
        if let Some(Follower { buckets, sights, .. }) = &self.followers[1 - side] {
            rx = wrap_rx(rx, sights.on(channel), buckets.of_answers.clone());
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
            self.follow_senders(side, channels, leads)?;
        }
        Ok(())
    }

    fn follow_senders(&mut self, side: usize, channels: u16, leads: bool) -> Result<(), LinkError> {
        let Some(follower) = &mut self.learning.followers[side] else { return Ok(()) };
        let sights = follower.look(channels);
        // Without a table the kernel chooses; what a user has set stays.
        let spread = self.ends[side].indirection().filter(|spread| !spread.user_set);
        let own = |table: &Vec<u16>| table.len() == follower.sights.buckets;
        let Some(mut table) = spread.map(|spread| spread.table).filter(own) else {
            follower.overlook(channels);
            return Ok(());
        };
        match follower.judge(&table, channels) {
            Judgement::True => {}
            Judgement::Unknown => return Ok(()),
            Judgement::False { strays, of } => {
                self.give_up(side, strays, of);
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
        let name = self.ends[side].name().to_owned();
        let (count, queue) = (moves.buckets.len(), moves.queue);
        match self.spread_unasked(side, &table)? {
            Ok(()) => tracing::debug!("{name}: {count} buckets of flows follow to queue {queue}"),
            // Nothing has moved, and trying cost time in which no other link was looked after.
            Err(why) => {
                self.learning.next = self.now + REST;
                tracing::debug!("{name}: {count} buckets stay: {why}");
            }
        }
        Ok(())
    }

    /// Frames arrive elsewhere than the table says.
    fn give_up(&mut self, side: usize, strays: u64, of: u64) {
        let end = &mut self.ends[side];
        // A table that is somebody's stays anyway, and explains it.
        if end.refresh_indirection() {
            return;
        }
        self.learning.followers[side] = None;
        tracing::warn!(
            "{}: flows stay on their queues: {strays} of {of} frames came to others than its \
             driver's hash and table say (ethtool -x, -n)",
            end.name()
        );
    }
}
