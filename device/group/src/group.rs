//! The group and the state of its members.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use mqnet_netdev::limits::CHANNELS_MAX;
use mqnet_netdev::{Channel, Function, LinkStatus, Plan, QueuePairStats};

use crate::election::{Candidate, elect};
use crate::error::GroupError;
use crate::far::{self, Far};
use crate::map::{MemberMap, MemberQueue};
use crate::member::Member;
use crate::slot::Slot;

/// Allowed number of members.
pub const MEMBERS: RangeInclusive<usize> = 2..=8;

/// Reaction to the loss of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// The group goes down until every member is up again.
    #[default]
    Destroy,
    /// The group continues without the member.
    Degrade,
}

/// Parameters of a group.
pub struct GroupConfig {
    /// Name of the group in messages.
    pub name: String,
    /// Members in the order of the channel map.
    pub members: Vec<Box<dyn Function>>,
    /// Reaction to the loss of a member.
    pub on_loss: OnLoss,
    /// Index of the primary, if the user chose one.
    pub primary: Option<usize>,
    /// Random number that differs from group to group.
    pub seed: u64,
}

/// Queue that serves each channel, and the number of channels that each member needs.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) places: Vec<MemberQueue>,
    pub(crate) totals: Vec<u16>,
}

impl Layout {
    /// Pairs of local channel and group channel that a member serves, sorted.
    pub(crate) fn on(&self, member: usize) -> Vec<(u16, u16)> {
        let channels = (0u16..).zip(&self.places).filter(|(_, place)| place.member == member);
        let mut all: Vec<_> = channels.map(|(channel, place)| (place.local, channel)).collect();
        all.sort_unstable();
        all
    }
}

/// Channels in use, or prepared.
pub(crate) struct Use {
    pub(crate) plan: Plan,
    pub(crate) layout: Layout,
    /// Hand-over cells of each channel; empty in a group that does not survive a loss.
    pub(crate) slots: Vec<Slot>,
    /// Spare channels, by member and local channel.
    pub(crate) spares: Vec<Vec<Option<Channel>>>,
    /// Members that join when these channels come into use, with their sessions.
    pub(crate) joins: Vec<(usize, u64)>,
}

/// Replacement of queues that is in progress.
pub(crate) struct Refit {
    pub(crate) channels: Vec<u16>,
    /// Members with a prepared change, to commit.
    pub(crate) prepared: Vec<usize>,
    /// Members that were opened for the replacement.
    pub(crate) opened: Vec<usize>,
    /// Lost members: the replacement drops their last queues.
    pub(crate) leaving: Vec<usize>,
}

/// Several functions as one function.
pub struct GroupFunction {
    pub(crate) name: String,
    pub(crate) map: MemberMap,
    pub(crate) members: Vec<Member>,
    pub(crate) primary: usize,
    pub(crate) why_primary: String,
    pub(crate) on_loss: OnLoss,
    pub(crate) stats: Vec<Arc<QueuePairStats>>,
    /// True if the group is up, with or without some of its members.
    pub(crate) combined: bool,
    pub(crate) session: u64,
    /// Reason why a failover failed and the group went down; `None` once the group is up.
    pub(crate) trouble: Option<String>,
    pub(crate) in_use: Option<Use>,
    pub(crate) next: Option<Use>,
    pub(crate) refit: Option<Refit>,
    /// Negotiation with the far end, if the far end is a group too.
    pub(crate) far: Option<Far>,
    pub(crate) carrier: bool,
    /// Earliest time of the next attempt to fail back.
    pub(crate) retry_at: Duration,
}

impl GroupFunction {
    /// Creates a group. Fails for a wrong number of members, different layers, an invalid primary,
    /// or far ends of different kinds.
    pub fn new(config: GroupConfig) -> Result<Self, GroupError> {
        let GroupConfig { name, members: functions, on_loss, primary, seed } = config;
        let count = functions.len();
        if !MEMBERS.contains(&count) {
            let (least, most) = (MEMBERS.start(), MEMBERS.end());
            let what = format!("group: {count} members, allowed: {least} to {most}");
            return Err(GroupError(what));
        }
        let candidate = |function: &dyn Function| Candidate {
            address: function.name().to_owned(),
            identity: function.identity(),
        };
        let candidates: Vec<Candidate> = functions.iter().map(|f| candidate(&**f)).collect();
        let (primary, why_primary) = elect(&candidates, primary)?;
        let map = MemberMap::new(count);
        let member = |(function, candidate): (Box<dyn Function>, Candidate)| Member {
            identity: candidate.identity.unwrap_or(candidate.address),
            caps: function.caps(),
            status: LinkStatus::Down("not checked yet".to_owned()),
            function,
            joined: None,
            open: false,
            trouble: None,
        };
        let mut members: Vec<Member> = functions.into_iter().zip(candidates).map(member).collect();
        let layer = members[0].caps.layer;
        if let Some(other) = members.iter().find(|member| member.caps.layer != layer) {
            let (one, other) = (members[0].function.name(), other.function.name());
            let what = format!("{one} and {other}: one carries Ethernet frames, one IP packets");
            return Err(GroupError(what));
        }
        let mut far = far::join_members(&mut members, seed)?;
        let stats = match &mut far {
            Some(far) if on_loss == OnLoss::Degrade => {
                far.whole = true;
                share_stats(&mut members)
            }
            _ => interleave(map, &members),
        };
        Ok(Self {
            name,
            map,
            members,
            primary,
            why_primary,
            on_loss,
            stats,
            combined: false,
            session: 0,
            trouble: None,
            in_use: None,
            next: None,
            refit: None,
            far,
            carrier: false,
            retry_at: Duration::ZERO,
        })
    }

    /// Plan of a member with `channels` channels.
    pub(crate) fn part_of(plan: &Plan, channels: u16) -> Plan {
        Plan { channels, ..plan.clone() }
    }

    /// Layout of `channels` channels on the members with `here` set. Fails if there are fewer
    /// channels than members, or too few channels on these members.
    pub(crate) fn layout(&self, channels: u16, here: &[bool]) -> Result<Layout, String> {
        let count = self.members.len();
        if usize::from(channels) < count {
            return Err(format!(
                "the link has {channels} channels, fewer than the {count} members of the group: \
                 each needs one (--channels {count} or more, at both ends)"
            ));
        }
        if self.is_whole() {
            let place = |channel| {
                let member = self.map.serving_member(channel, here)?;
                Some(MemberQueue { member, local: channel })
            };
            let places: Option<Vec<MemberQueue>> = (0..channels).map(place).collect();
            let places = places.ok_or("no member is up")?;
            return Ok(Layout { places, totals: vec![channels; count] });
        }
        let most: Vec<u16> = self.members.iter().map(|member| member.caps.channels).collect();
        let places = self
            .map
            .serve(channels, here, &most)
            .ok_or_else(|| format!("{channels} channels: the members that are up have fewer"))?;
        let mut totals = vec![0; count];
        for place in &places {
            totals[place.member] = totals[place.member].max(place.local + 1);
        }
        Ok(Layout { places, totals })
    }

    /// True for each member that belongs to the group now.
    pub(crate) fn here(&self) -> Vec<bool> {
        self.members.iter().map(Member::is_here).collect()
    }
}

/// Creates statistics that belong to channels, independent of the member that serves a channel.
fn share_stats(members: &mut [Member]) -> Vec<Arc<QueuePairStats>> {
    let stats: Vec<Arc<QueuePairStats>> = (0..CHANNELS_MAX).map(|_| Arc::default()).collect();
    members.iter_mut().for_each(|member| member.function.share_stats(&stats));
    stats
}

/// Statistics of the members' channels, in the order of the group's channels. A number without a
/// channel, because members differ in size, gets empty statistics.
fn interleave(map: MemberMap, members: &[Member]) -> Vec<Arc<QueuePairStats>> {
    let lens = members.iter().map(|member| member.function.stats().len() as u16).enumerate();
    let ends = lens.filter(|(_, len)| *len > 0);
    let last = ends.map(|(member, len)| map.channel(MemberQueue { member, local: len - 1 })).max();
    let all = 0..last.map_or(0, |last| last as u16 + 1);
    let of = |channel: u16| {
        let place = map.place(channel);
        let stats = members[place.member].function.stats().get(usize::from(place.local));
        stats.cloned().unwrap_or_default()
    };
    all.map(of).collect()
}
