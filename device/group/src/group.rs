//! The group: its members, and what it knows of each.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use mqnet_netdev::limits::CHANNELS_MAX;
use mqnet_netdev::{Caps, Channel, ChannelStats, Function, LinkStatus, Plan};

use crate::election::{Candidate, elect};
use crate::far::{self, Far};
use crate::slot::Slot;
use crate::{Map, Place};

/// How many members there can be.
pub const MEMBERS: RangeInclusive<usize> = 2..=8;

/// What becomes of a group that has lost a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// It ends, until every member is there again.
    #[default]
    Destroy,
    /// It goes on without it.
    Degrade,
}

/// Functions that cannot be a group, or not that one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GroupError(pub(crate) String);

/// How to make a group.
pub struct GroupConfig {
    /// What it is called in messages.
    pub name: String,
    /// Its members, in the order of the map.
    pub members: Vec<Box<dyn Function>>,
    /// What becomes of it when one is lost.
    pub on_loss: OnLoss,
    /// Number of the primary, if the user has a say.
    pub primary: Option<usize>,
    /// Any number that differs from group to group: a random one.
    pub seed: u64,
}

pub(crate) struct Member {
    pub(crate) function: Box<dyn Function>,
    pub(crate) identity: String,
    /// What it could do when it was there last.
    pub(crate) caps: Caps,
    pub(crate) status: LinkStatus,
    /// The session with which it belongs to the group; `None`: it does not now.
    pub(crate) joined: Option<u64>,
    /// Its channels are open.
    pub(crate) open: bool,
    /// Why it could not be taken back.
    pub(crate) trouble: Option<String>,
}

impl Member {
    /// True while it is what the group was made of.
    pub(crate) fn is_here(&self) -> bool {
        self.joined.is_some()
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.status, LinkStatus::Up { .. })
    }
}

/// Where channels are served, and how many channels that makes of each member.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) places: Vec<Place>,
    pub(crate) totals: Vec<u16>,
}

impl Layout {
    /// The channels that a member serves, by their numbers there.
    pub(crate) fn on(&self, member: usize) -> Vec<(u16, u16)> {
        let channels = (0u16..).zip(&self.places).filter(|(_, place)| place.member == member);
        let mut all: Vec<_> = channels.map(|(channel, place)| (place.local, channel)).collect();
        all.sort_unstable();
        all
    }
}

/// Channels in use, or about to be.
pub(crate) struct Use {
    pub(crate) plan: Plan,
    pub(crate) layout: Layout,
    /// One of each channel, in a group that goes on without members.
    pub(crate) slots: Vec<Slot>,
    /// Channels that nobody serves, by member and their number there.
    pub(crate) spares: Vec<Vec<Option<Channel>>>,
    /// Members that belong to the group once this is in use.
    pub(crate) joins: Vec<(usize, u64)>,
}

/// Queues that wait to take over.
pub(crate) struct Refit {
    pub(crate) channels: Vec<u16>,
    /// Members with a change to commit.
    pub(crate) prepared: Vec<usize>,
    /// Members that have been opened.
    pub(crate) opened: Vec<usize>,
    /// Members that are lost, whose last queues go.
    pub(crate) leaving: Vec<usize>,
}

/// Several functions as one.
pub struct GroupFunction {
    pub(crate) name: String,
    pub(crate) map: Map,
    pub(crate) members: Vec<Member>,
    pub(crate) primary: usize,
    pub(crate) why_primary: String,
    pub(crate) on_loss: OnLoss,
    pub(crate) stats: Vec<Arc<ChannelStats>>,
    /// It is up, with or without some of its members.
    pub(crate) combined: bool,
    pub(crate) session: u64,
    /// Why it went down, as long as it is.
    pub(crate) trouble: Option<String>,
    pub(crate) in_use: Option<Use>,
    pub(crate) next: Option<Use>,
    pub(crate) refit: Option<Refit>,
    /// The other end, where it is a group too.
    pub(crate) far: Option<Far>,
    pub(crate) carrier: bool,
    /// A member that could not be taken back is not tried before.
    pub(crate) retry_at: Duration,
}

impl GroupFunction {
    /// Makes one function of several.
    pub fn new(config: GroupConfig) -> Result<Self, GroupError> {
        let GroupConfig { name, members: functions, on_loss, primary, seed } = config;
        let count = functions.len();
        if !MEMBERS.contains(&count) {
            let (least, most) = (MEMBERS.start(), MEMBERS.end());
            let what = format!("a group has {least} to {most} members, these are {count}");
            return Err(GroupError(what));
        }
        let candidate = |function: &dyn Function| Candidate {
            address: function.name().to_owned(),
            identity: function.identity(),
        };
        let candidates: Vec<Candidate> = functions.iter().map(|f| candidate(&**f)).collect();
        let (primary, why_primary) = elect(&candidates, primary)?;
        let map = Map::new(count);
        let member = |(function, candidate): (Box<dyn Function>, Candidate)| Member {
            identity: candidate.identity.unwrap_or(candidate.address),
            caps: function.caps(),
            status: LinkStatus::Down("not asked yet".to_owned()),
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
        let mut far = far::seats(&mut members, seed)?;
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

    /// The plan of a member that has `channels` of the channels.
    pub(crate) fn part_of(plan: &Plan, channels: u16) -> Plan {
        Plan { channels, ..plan.clone() }
    }

    /// Where the channels of a plan are now.
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
                let member = self.map.stand_in(channel, here)?;
                Some(Place { member, local: channel })
            };
            let places: Option<Vec<Place>> = (0..channels).map(place).collect();
            let places = places.ok_or("no member is up")?;
            return Ok(Layout { places, totals: vec![channels; count] });
        }
        let most: Vec<u16> = self.members.iter().map(|member| member.caps.channels).collect();
        let places = self.map.serve(channels, here, &most).ok_or_else(|| {
            format!("{channels} channels are more than the members that are up have room for")
        })?;
        let mut totals = vec![0; count];
        for place in &places {
            totals[place.member] = totals[place.member].max(place.local + 1);
        }
        Ok(Layout { places, totals })
    }

    /// The members that belong to it.
    pub(crate) fn here(&self) -> Vec<bool> {
        self.members.iter().map(Member::is_here).collect()
    }
}

/// One of each channel, whoever serves it.
fn share_stats(members: &mut [Member]) -> Vec<Arc<ChannelStats>> {
    let stats: Vec<Arc<ChannelStats>> = (0..CHANNELS_MAX).map(|_| Arc::default()).collect();
    members.iter_mut().for_each(|member| member.function.share_stats(&stats));
    stats
}

/// The statistics of the members' channels under the numbers that these have in the group. Where
/// members differ in how many they have, numbers stay empty.
fn interleave(map: Map, members: &[Member]) -> Vec<Arc<ChannelStats>> {
    let lens = members.iter().map(|member| member.function.stats().len() as u16).enumerate();
    let ends = lens.filter(|(_, len)| *len > 0);
    let last = ends.map(|(member, len)| map.channel(Place { member, local: len - 1 })).max();
    let all = 0..last.map_or(0, |last| last as u16 + 1);
    let of = |channel: u16| {
        let place = map.place(channel);
        let stats = members[place.member].function.stats().get(usize::from(place.local));
        stats.cloned().unwrap_or_default()
    };
    all.map(of).collect()
}
