//! Map from channels to members.
//!
//! Channel `i` of a group with `G` members is on member `i mod G`, as channel `i div G` of that
//! member. The map does not depend on the number of channels, so that a resize moves no channel and
//! no statistics.

use mqnet_netdev::Caps;
use mqnet_netdev::limits::CHANNELS_MAX;

/// Channel map of a group with a fixed number of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberMap {
    members: u16,
}

/// A queue pair of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberQueue {
    /// Number of the member.
    pub member: usize,
    /// Number of the channel within the member.
    pub local: u16,
}

impl MemberMap {
    /// Creates the map of `members` members (at least one).
    pub fn new(members: usize) -> Self {
        Self { members: (members as u16).max(1) }
    }

    /// Queue of a channel.
    pub fn place(self, channel: u16) -> MemberQueue {
        MemberQueue { member: usize::from(channel % self.members), local: channel / self.members }
    }

    /// Channel of a queue.
    pub fn channel(self, place: MemberQueue) -> u32 {
        u32::from(place.local) * u32::from(self.members) + place.member as u32
    }

    /// Number of channels among the first `channels` that are on a member.
    pub fn share(self, channels: u16, member: usize) -> u16 {
        let before_it = self.members - 1 - member as u16;
        ((u32::from(channels) + u32::from(before_it)) / u32::from(self.members)) as u16
    }

    /// Capabilities of the other function of the link as passed to a member: with the member's part
    /// of the channels, at least one.
    pub(crate) fn part_of_partner(self, partner: &Caps, member: usize) -> Caps {
        let share = |channels: u16| self.share(channels, member).max(1);
        Caps {
            channels: share(partner.channels),
            wanted: partner.wanted.map(share),
            ..partner.clone()
        }
    }

    /// Maximum number of channels of a group in which member `m` has up to `most[m]` channels: all
    /// channels before the first one without a queue, at most [`CHANNELS_MAX`].
    pub fn most(self, most: impl IntoIterator<Item = u16>) -> u16 {
        let first_without = |(member, most)| self.channel(MemberQueue { member, local: most });
        let least = most.into_iter().enumerate().map(first_without).min().unwrap_or(0);
        least.min(u32::from(CHANNELS_MAX)) as u16
    }

    /// Maximum number of channels that still fit if any one member is lost.
    pub fn most_with_one_lost(self, most: &[u16]) -> u16 {
        let all: u32 = most.iter().map(|&n| u32::from(n)).sum();
        let largest = most.iter().max().map_or(0, |&n| u32::from(n));
        (all - largest).min(u32::from(self.most(most.iter().copied()))) as u16
    }

    /// Queues of `channels` channels while only the members with `here` set are up; member `m` has
    /// up to `most[m]` channels. Channels of present members keep their queues. Each other channel,
    /// in order, is served by the present member that serves the fewest channels so far; if there
    /// are several, by the first. `None` if the members have too few channels.
    pub fn serve(self, channels: u16, here: &[bool], most: &[u16]) -> Option<Vec<MemberQueue>> {
        let mut used: Vec<u16> = (0..here.len())
            .map(|member| if here[member] { self.share(channels, member) } else { 0 })
            .collect();
        let mut stand_in = || {
            let free = |&member: &usize| here[member] && used[member] < most[member];
            let member = (0..here.len()).filter(free).min_by_key(|&member| used[member])?;
            let local = used[member];
            used[member] += 1;
            Some(MemberQueue { member, local })
        };
        let places = (0..channels).map(|channel| {
            let own = self.place(channel);
            if here[own.member] { Some(own) } else { stand_in() }
        });
        let places: Vec<MemberQueue> = places.collect::<Option<_>>()?;
        places.iter().all(|place| place.local < most[place.member]).then_some(places)
    }

    /// Member that serves a channel if every member has every channel open: the first present
    /// member in an order that depends only on the channel. `None` if no member is present. Both
    /// ends of a bridge therefore select the same member, regardless of the order in which they
    /// detect losses. A channel moves to another member only if its serving member is lost, or a
    /// member before it returns.
    pub fn serving_member(self, channel: u16, here: &[bool]) -> Option<usize> {
        let (own, others) = (self.place(channel).member, here.len() - 1);
        let turn = usize::from(channel / self.members);
        let order = (0..others).map(|n| (own + 1 + (turn + n) % others) % here.len());
        std::iter::once(own).chain(order).find(|&member| here[member])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // Goal: five channels on two members are three and two channels.
    #[test]
    fn five_channels_on_two_members() {
        let map = MemberMap::new(2);
        let places: Vec<_> = (0..5).map(|i| map.place(i)).map(|p| (p.member, p.local)).collect();
        assert_eq!(places, [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2)]);
        assert_eq!((map.share(5, 0), map.share(5, 1)), (3, 2));
        assert_eq!((map.most([4, 4]), map.most([4, 2]), map.most([2, 4])), (8, 5, 4));
        assert_eq!(map.most_with_one_lost(&[4, 4]), 4);
    }

    proptest! {
        // Goal: the queue of a channel does not depend on the number of channels, and shares match
        // the queues. Every number of channels up to the maximum fits, and one more does not.
        #[test]
        fn the_map_has_no_holes(most in prop::collection::vec(1u16..=64, 1..=8)) {
            let map = MemberMap::new(most.len());
            let all = map.most(most.iter().copied());
            let fits = |channel| {
                let place = map.place(channel);
                place.local < most[place.member]
            };
            prop_assert!((0..all).all(fits));
            prop_assert!(all == CHANNELS_MAX || !fits(all));
            for channels in 0..=all {
                for member in 0..most.len() {
                    let on_it = (0..channels).filter(|&i| map.place(i).member == member);
                    prop_assert_eq!(on_it.count(), usize::from(map.share(channels, member)));
                }
            }
            prop_assert!((0..all).all(|i| map.channel(map.place(i)) == u32::from(i)));
        }

        // Goal: for any losses, a channel is served if any member is present. The serving member
        // does not change if other members are lost, and the channels of a lost member are
        // distributed over all other members.
        #[test]
        fn serving_member_changes_only_on_its_loss(
            members in 2usize..=8,
            (lost, more, channel) in any::<(u8, u8, u8)>(),
        ) {
            let map = MemberMap::new(members);
            let here =
                |lost: u8| (0..members).map(|m| lost >> m & 1 == 0).collect::<Vec<bool>>();
            let channel = u16::from(channel) % CHANNELS_MAX;
            let (few, fewer) = (here(lost), here(lost | more));
            let first = map.serving_member(channel, &few);
            prop_assert_eq!(first.is_some(), few.contains(&true));
            if let Some(member) = first {
                prop_assert!(few[member]);
                if fewer[member] {
                    prop_assert_eq!(map.serving_member(channel, &fewer), Some(member));
                }
            }
            let own = map.place(channel).member;
            prop_assert_eq!(map.serving_member(channel, &vec![true; members]), Some(own));
            let one = here(1);
            let of_it = (0..CHANNELS_MAX).filter(|i| map.place(*i).member == 0);
            let mut on: Vec<usize> = of_it.filter_map(|i| map.serving_member(i, &one)).collect();
            on.sort_unstable();
            on.dedup();
            prop_assert_eq!(on.len(), members - 1);
        }

        // Goal: for any losses, channels of present members keep their queues. No queue is used
        // twice, no queue of a lost member is used, and with one lost member every channel has a
        // queue.
        #[test]
        fn channels_of_present_members_stay(
            most in prop::collection::vec(1u16..=16, 2..=8),
            lost: u8,
            channels in 1u16..=64,
        ) {
            let map = MemberMap::new(most.len());
            let here: Vec<bool> = (0..most.len()).map(|m| lost >> m & 1 == 0).collect();
            let channels = channels.min(map.most(most.iter().copied()));
            let served = map.serve(channels, &here, &most);
            let others = here.iter().filter(|&&here| !here).count();
            if others <= 1 && channels <= map.most_with_one_lost(&most) {
                prop_assert!(served.is_some());
            }
            let Some(places) = served else { return Ok(()) };
            for (channel, place) in (0u16..).zip(&places) {
                let own = map.place(channel);
                prop_assert!(here[place.member] && place.local < most[place.member]);
                prop_assert!(!here[own.member] || own == *place);
                prop_assert_eq!(places.iter().filter(|other| *other == place).count(), 1);
            }
        }
    }
}
