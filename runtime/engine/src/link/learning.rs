//! Tables of queues that follow the other direction of their flows (`rx-locality=learn`).
//!
//! What is seen is counted by whatever reads the other function's queues, in wrappers that only
//! links with this option have; buckets move as `ethtool -X` moves them, in order.

use std::sync::Arc;
use std::time::Duration;

use mqnet_netdev::limits::CHANNELS_MAX;
use mqnet_netdev::wrap::sights::{Sights, wrap_rx};
use mqnet_netdev::{BucketOf, Function, Rx};

use super::{Link, LinkError};
use crate::egress::EgressConfig;
use crate::locality::{LOOK, Policy, Sight};

/// How long nothing is tried again after flows could not move.
const REST: Duration = Duration::from_secs(10);

/// Buckets of a table that is not there yet: the device makes one, of this length, when it may.
const BUCKETS: usize = 128;

/// A table that follows.
struct Follower {
    bucket_of: BucketOf,
    buckets: usize,
    /// For each channel of the other function, since its begin and at the last look.
    sights: Vec<(Arc<Sights>, Vec<u64>)>,
    policy: Policy,
}

impl Follower {
    fn new(bucket_of: BucketOf, buckets: usize) -> Self {
        let each = |_| (Sights::new(buckets), vec![0; buckets]);
        let sights = (0..CHANNELS_MAX).map(each).collect();
        Self { bucket_of, buckets, sights, policy: Policy::new(buckets) }
    }

    /// Where each bucket was seen since the last call.
    fn look(&mut self, channels: u16) -> Vec<Sight> {
        let mut news = vec![vec![0u64; self.buckets]; usize::from(channels)];
        for ((sights, before), news) in self.sights.iter_mut().zip(&mut news) {
            for ((count, before), news) in sights.counts().zip(before).zip(news) {
                *news = count.wrapping_sub(std::mem::replace(before, count));
            }
        }
        let at = |bucket: usize| Sight::of(news.iter().map(|counts| counts[bucket]));
        (0..self.buckets).map(at).collect()
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
    pub(super) fn begin(&mut self, ends: &[Box<dyn Function>; 2]) {
        for (side, end) in ends.iter().enumerate().filter(|(side, _)| self.wanted[*side]) {
            let buckets = end.indirection().map_or(BUCKETS, |spread| spread.table.len());
            self.followers[side] = match end.bucket_of() {
                Ok(bucket_of) => Some(Follower::new(bucket_of, buckets)),
                Err(why) => {
                    tracing::warn!("{}: flows stay on their queues: {why}", end.name());
                    None
                }
            };
        }
    }

    /// The RX queue of a channel of a function, with what the table of the other one learns from.
    pub(super) fn watch(&self, side: usize, channel: u16, rx: Rx) -> Rx {
        match &self.followers[1 - side] {
            Some(follower) => {
                let (sights, _) = &follower.sights[usize::from(channel)];
                wrap_rx(rx, sights.clone(), follower.bucket_of.clone())
            }
            None => rx,
        }
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
            let leads = if self.peer_side.is_some() { self.leads() } else { side == 0 };
            self.follow_senders(side, channels, leads)?;
        }
        Ok(())
    }

    fn follow_senders(&mut self, side: usize, channels: u16, leads: bool) -> Result<(), LinkError> {
        let Some(follower) = &mut self.learning.followers[side] else { return Ok(()) };
        let sights = follower.look(channels);
        // Without a table the kernel chooses; what a user has set stays.
        let spread = self.ends[side].indirection().filter(|spread| !spread.user_set);
        let Some(mut table) = spread.map(|spread| spread.table) else { return Ok(()) };
        if table.len() != follower.buckets {
            return Ok(());
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
}
