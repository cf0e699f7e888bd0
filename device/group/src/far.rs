//! Negotiation with the far end of a group. If the far ends of the members take part in channel
//! changes, they form a group too. The two groups then negotiate like one function with one peer.
//!
//! The group numbers its wishes and sends the same message through all of its members. Each member
//! sends the wish for its part of the channels, the number of the wish, the members that were up at
//! that time, and the latest control message. A message of the peer is valid when all members of
//! the group have received it. Until then the peer's wish is unknown ([`NextPlan::Wait`]), which
//! takes no longer than the peer's loop over its members. Both ends therefore have the same view of
//! a pair of wishes, and a control message needs only the numbers of the wishes.
//!
//! A member that is up again at both ends returns by an ordinary channel change, which both ends
//! derive from the two wishes. No frame is then lost or reordered. After a loss there is no time
//! for a negotiation: see [`MemberMap::serving_member`](crate::MemberMap::serving_member).

use mqnet_netdev::{
    Caps, ChangeMessage, FarPartner, GroupMembership, GroupMessage, LinkStatus, NextPlan, Peer,
    Plan, RequestedRings, RingSizes,
};

use crate::group::{GroupFunction, Member};
use crate::{GroupError, MemberMap};

/// State of the negotiation with a group at the far end.
#[derive(Debug, Default)]
pub(crate) struct Far {
    /// True if every member has all channels open, and keeps those of other members as spares.
    pub(crate) whole: bool,
    group: u32,
    partner: Option<Caps>,
    rings: RequestedRings,
    /// Latest message of this group.
    ours: GroupMessage,
    /// Session of each member that was up when the latest wish was published; `None` for others.
    up: Vec<Option<u64>>,
    /// Latest message of the peer that all members received.
    theirs: GroupMessage,
    peers_group: u32,
    peer_wants: Option<u16>,
    plan: Option<Plan>,
    outlook: NextPlan,
    /// Members that serve channels after the pending change.
    pub(crate) next: Vec<bool>,
    ring_sizes: RingSizes,
    leads_by_chance: bool,
}

/// Makes the members join the group at their far ends. Returns `None` if no far end takes part in
/// channel changes. Fails if only some do.
pub(crate) fn join_members(members: &mut [Member], seed: u64) -> Result<Option<Far>, GroupError> {
    let has: Vec<bool> = members.iter_mut().map(|m| m.function.peer().is_some()).collect();
    if !has.contains(&true) {
        return Ok(None);
    }
    if let (Some(with), Some(without)) =
        (has.iter().position(|&has| has), has.iter().position(|&has| !has))
    {
        let [with, without] = [with, without].map(|at| members[at].function.name());
        let what = "has a far end with a say in changes, so all members must be of its kind";
        return Err(GroupError(format!("{with} {what}, and {without} is not")));
    }
    let group = (seed as u32 & 0xff_ffff).max(1);
    let of = members.len() as u8;
    for (number, member) in (0u8..).zip(members) {
        if let Some(peer) = member.function.peer() {
            peer.join_group(GroupMembership { number, of, group });
        }
    }
    Ok(Some(Far { group, ..Far::default() }))
}

/// Combines the plans of the members into a plan of the group. Fails if the plans differ in more
/// than the largest frame and the number of channels.
fn combined(map: MemberMap, whole: bool, parts: &[(usize, Plan)]) -> Result<Plan, String> {
    let mut all = parts.first().ok_or("no member is up")?.1.clone();
    all.channels = match whole {
        true => all.channels,
        false => parts.iter().map(|(_, part)| part.channels).sum(),
    };
    all.frame_max = parts.iter().map(|(_, part)| part.frame_max).min().unwrap_or(0);
    let fits = |(at, part): &(usize, Plan)| {
        let channels = if whole { all.channels } else { map.share(all.channels, *at) };
        let same = Plan { channels, frame_max: part.frame_max, ..all.clone() };
        *part == same
    };
    match parts.iter().all(fits) {
        true => Ok(all),
        false => Err("the members have agreed on different things".to_owned()),
    }
}

impl Far {
    /// Wish of a member: all channels if every member has all open, otherwise the member's part.
    fn part(&self, map: MemberMap, partner: &Caps, at: usize) -> Caps {
        match self.whole {
            true => partner.clone(),
            false => GroupFunction::part_of_partner(map, partner, at),
        }
    }

    /// Sends the wish and the latest message through every member that is up.
    fn send_to_all(&self, map: MemberMap, members: &mut [Member]) {
        let Some(partner) = &self.partner else { return };
        for (at, member) in members.iter_mut().enumerate() {
            let part = self.part(map, partner, at);
            let is_up = self.up.get(at).is_some_and(Option::is_some);
            if let Some(peer) = member.function.peer().filter(|_| is_up) {
                peer.send_for_group(&part, self.rings, &self.ours);
            }
        }
    }

    fn publish_wish(&mut self, map: MemberMap, members: &mut [Member]) {
        self.ours.wish = self.ours.wish.wrapping_add(1);
        let bit = |(at, up): (usize, &Option<u64>)| u8::from(up.is_some()) << at;
        self.ours.here = self.up.iter().enumerate().map(bit).sum();
        self.send_to_all(map, members);
    }

    /// Receives the peer's message. Returns false if its members have not all received the same
    /// one.
    fn receive(&mut self, members: &mut [Member]) -> bool {
        let mut here = members.iter_mut().filter(|member| member.is_here());
        let Some(peer) = here.next().and_then(|member| member.function.peer()) else {
            return false;
        };
        let first = peer.received_for_group();
        self.ring_sizes = peer.rings();
        self.leads_by_chance = peer.leads();
        let mut same = |member: &mut Member| {
            member.function.peer().is_some_and(|peer| peer.received_for_group() == first)
        };
        if !here.all(&mut same) {
            return false;
        }
        self.theirs = first;
        true
    }

    /// Members that were up at both ends when the wishes were published. Returns `None` if that is
    /// not known yet, or if a member is about to be lost.
    fn agreed_members(&self, members: &mut [Member]) -> Option<Vec<bool>> {
        let mut next = Vec::new();
        for (at, member) in members.iter_mut().enumerate() {
            let ours = self.up.get(at).copied().flatten();
            let both = ours.is_some() && self.theirs.here >> at & 1 == 1;
            let is_up =
                matches!(member.status, LinkStatus::Up { session } if Some(session) == ours);
            let heard = member.function.peer().map(|peer| peer.received_for_group().wish);
            if (both && !(is_up && heard == Some(self.theirs.wish))) || (member.is_here() && !both)
            {
                return None;
            }
            next.push(both);
        }
        Some(next)
    }

    fn compare_wishes(&mut self, map: MemberMap, members: &mut [Member], heard: bool) -> NextPlan {
        let Some(next) = heard.then(|| self.agreed_members(members)).flatten() else {
            return NextPlan::Wait;
        };
        let (mut parts, mut changes) = (Vec::new(), false);
        for (at, member) in members.iter_mut().enumerate().filter(|(at, _)| next[*at]) {
            changes |= !member.is_here();
            let Some(peer) = member.function.peer() else { continue };
            match peer.next_plan() {
                NextPlan::Change(plan) => {
                    changes = true;
                    parts.push((at, plan));
                }
                NextPlan::Same => parts.extend(peer.plan().map(|plan| (at, plan))),
                other => return other,
            }
        }
        self.next = next;
        match combined(map, self.whole, &parts) {
            Ok(plan) if changes => NextPlan::Change(plan),
            Ok(_) => NextPlan::Same,
            Err(why) => NextPlan::Impossible(why),
        }
    }
}

impl GroupFunction {
    /// Reason why members that are up cannot form a group. If their plans differ, their sessions
    /// are closed, so that they negotiate again.
    pub(crate) fn far_contradiction(&mut self) -> Option<String> {
        let whole = self.far.as_ref()?.whole;
        let mut groups = Vec::new();
        let mut parts = Vec::new();
        for (at, member) in self.members.iter_mut().enumerate() {
            let peer = member.function.peer()?;
            groups.push(peer.peers_group());
            parts.extend(peer.plan().map(|plan| (at, plan)));
        }
        if let Some(other) = (1..groups.len()).find(|&at| groups[at] != groups[0]) {
            let [one, other] = [0, other].map(|at| self.members[at].function.name());
            return Some(format!(
                "group: {one} and {other} have different peers: all windows of a group lead to one \
                 group at the other end"
            ));
        }
        let why = combined(self.map, whole, &parts).err()?;
        // Negotiate again: the members negotiated in turn, and the wishes changed in between.
        self.members.iter_mut().for_each(|member| member.function.close("it agrees anew"));
        Some(format!("group: {why}: they agree anew"))
    }

    /// Begins a new session, after all members have completed their negotiation.
    pub(crate) fn begin_far_session(&mut self) {
        let Some(far) = &mut self.far else { return };
        let first = self.members[0].function.peer().and_then(|peer| peer.peers_group());
        far.peers_group = first.unwrap_or_default();
        far.ours.word = ChangeMessage::default();
        far.theirs = GroupMessage::default();
        far.up.clear();
    }

    /// Updates the set of members that are up, and the result of comparing the wishes.
    pub(crate) fn poll_far(&mut self) {
        let Some(mut far) = self.far.take() else { return };
        if self.combined {
            let session = |member: &mut Member| match member.status {
                LinkStatus::Up { session } => member
                    .function
                    .peer()
                    .is_some_and(|peer| peer.peers_group() == Some(far.peers_group))
                    .then_some(session),
                LinkStatus::Down(_) => None,
            };
            let up: Vec<Option<u64>> = self.members.iter_mut().map(session).collect();
            if up != far.up {
                far.up = up;
                far.publish_wish(self.map, &mut self.members);
            }
        }
        self.far = Some(far);
        self.update_far();
    }

    /// Receives messages, and updates the result of comparing the wishes.
    pub(crate) fn update_far(&mut self) {
        let Some(mut far) = self.far.take() else { return };
        let heard = far.receive(&mut self.members);
        let (mut parts, mut wants) = (Vec::new(), Vec::new());
        for (at, member) in self.members.iter_mut().enumerate().filter(|(_, m)| m.is_here()) {
            let Some(peer) = member.function.peer() else { continue };
            parts.extend(peer.plan().map(|plan| (at, plan)));
            wants.extend(peer.peer_wants());
        }
        far.peer_wants = match far.whole {
            true => wants.first().copied(),
            false => wants.into_iter().reduce(|one, other| one + other),
        };
        far.plan = combined(self.map, far.whole, &parts).ok();
        far.outlook = match self.combined {
            true => far.compare_wishes(self.map, &mut self.members, heard),
            false => NextPlan::Same,
        };
        self.far = Some(far);
    }

    /// Publishes the wish again, so that a change that failed while the channels were closed is
    /// retried.
    pub(crate) fn repeat_wish(&mut self) {
        if let Some(far) = &mut self.far {
            far.publish_wish(self.map, &mut self.members);
        }
        self.update_far();
    }

    /// Capabilities of the other function of the link as passed to member `at`.
    pub(crate) fn partner_part(&self, partner: &Caps, at: usize) -> Caps {
        match &self.far {
            Some(far) => far.part(self.map, partner, at),
            None => Self::part_of_partner(self.map, partner, at),
        }
    }

    /// True if every member has all channels open.
    pub(crate) fn is_whole(&self) -> bool {
        self.far.as_ref().is_some_and(|far| far.whole)
    }
}

impl Peer for GroupFunction {
    fn leads(&self) -> bool {
        self.far.as_ref().is_some_and(|far| match far.group == far.peers_group {
            // Use the leader of the members if the random identifiers are equal (probability
            // 2^-24). That leader is constant as long as no member is lost.
            true => far.leads_by_chance,
            false => far.group > far.peers_group,
        })
    }

    fn wish(&mut self, partner: &Caps, rings: RequestedRings) -> u32 {
        let Some(far) = &mut self.far else { return 0 };
        if far.partner.as_ref() != Some(partner) || far.rings != rings {
            (far.partner, far.rings) = (Some(partner.clone()), rings);
            far.publish_wish(self.map, &mut self.members);
        }
        let wish = far.ours.wish;
        self.update_far();
        wish
    }

    fn wishes(&self) -> [u32; 2] {
        self.far.as_ref().map(|far| [far.ours.wish, far.theirs.wish]).unwrap_or_default()
    }

    fn peer_wants(&self) -> Option<u16> {
        self.far.as_ref()?.peer_wants
    }

    fn plan(&self) -> Option<Plan> {
        self.far.as_ref()?.plan.clone()
    }

    fn next_plan(&self) -> NextPlan {
        self.far.as_ref().map(|far| far.outlook.clone()).unwrap_or_default()
    }

    fn send_change(&mut self, word: ChangeMessage) {
        if let Some(far) = &mut self.far {
            far.ours.word = word;
            far.send_to_all(self.map, &mut self.members);
        }
    }

    fn received_change(&self) -> ChangeMessage {
        self.far.as_ref().map(|far| far.theirs.word.clone()).unwrap_or_default()
    }

    fn rings(&self) -> RingSizes {
        self.far.as_ref().map(|far| far.ring_sizes).unwrap_or_default()
    }

    fn set_partner_down(&mut self, reason: Option<&str>) {
        for member in &mut self.members {
            if let Some(peer) = member.function.peer() {
                peer.set_partner_down(reason);
            }
        }
    }

    /// Combined state of the far partner, which is the same for all members. The far end publishes
    /// the state through one member after the other; members without a state are ignored.
    fn far_partner(&mut self) -> FarPartner {
        let up = self.members.iter_mut().filter(|m| matches!(m.status, LinkStatus::Up { .. }));
        let states = up.filter_map(|member| Some(member.function.peer()?.far_partner()));
        states
            .reduce(|one, other| match (&one, &other) {
                (FarPartner::Down(_), _) | (_, FarPartner::Unknown) => one,
                _ => other,
            })
            .unwrap_or_default()
    }
}
