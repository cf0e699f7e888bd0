//! Negotiation with the far end of a group. If the far ends of the members take part in channel
//! changes, they form a group too. The two groups then negotiate like one function with one peer.
//!
//! The group numbers its requests and sends the same message through all of its members. Each
//! member sends the request for its part of the channels, the number of the request, and the latest
//! control message. The message also has the set of members that were up when the request was
//! published. A message of the peer is valid when all members of the group have received it. Until
//! then the peer's request is unknown ([`NextPlan::Wait`]). This state lasts no longer than the
//! peer's loop over its members. Both ends therefore have the same view of a pair of requests, and
//! a control message needs only the numbers of the requests.
//!
//! A member that is up again at both ends returns by an ordinary channel change, which both ends
//! derive from the two requests. No frame is then lost or reordered. After a loss there is no time
//! for a negotiation: see [`MemberMap::serving_member`](crate::MemberMap::serving_member).

use mqnet_netdev::{
    Caps, GroupMembership, GroupMessage, LinkStatus, NextPlan, Plan, RequestedRings, RingSizes,
};

use crate::error::GroupError;
use crate::map::MemberMap;
use crate::member::Member;

/// State of the negotiation with a group at the far end.
#[derive(Debug, Default)]
pub(crate) struct Far {
    /// True if every member has all channels open, and keeps the channels that other members serve
    /// as spares.
    pub(crate) whole: bool,
    pub(crate) group: u32,
    pub(crate) partner: Option<Caps>,
    pub(crate) rings: RequestedRings,
    /// Latest message of this group.
    pub(crate) ours: GroupMessage,
    /// Session of each member that was up when the latest request was published; `None` for other
    /// members.
    pub(crate) up: Vec<Option<u64>>,
    /// Latest message of the peer that all members received.
    pub(crate) theirs: GroupMessage,
    pub(crate) peers_group: u32,
    pub(crate) peer_wants: Option<u16>,
    pub(crate) plan: Option<Plan>,
    pub(crate) outlook: NextPlan,
    /// Members that serve channels after the pending change.
    pub(crate) next: Vec<bool>,
    pub(crate) ring_sizes: RingSizes,
    pub(crate) leads_by_chance: bool,
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
        let what = "negotiates changes with its peer, so all members must be of its kind";
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

/// Combines the plans of the members into a plan of the group. Fails if a number of channels does
/// not match the channel map, or the plans differ in more than the largest frame and the number of
/// channels.
pub(crate) fn combined(
    map: MemberMap,
    whole: bool,
    parts: &[(usize, Plan)],
) -> Result<Plan, String> {
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
        false => Err("the members' negotiated states differ".to_owned()),
    }
}

impl Far {
    /// Request of member `at`: `partner` with all channels if every member has all channels open,
    /// otherwise with the member's part of the channels.
    pub(crate) fn part(&self, map: MemberMap, partner: &Caps, at: usize) -> Caps {
        match self.whole {
            true => partner.clone(),
            false => map.part_of_partner(partner, at),
        }
    }

    /// Sends the request and the latest message through every member that is up.
    pub(crate) fn send_to_all(&self, map: MemberMap, members: &mut [Member]) {
        let Some(partner) = &self.partner else { return };
        for (at, member) in members.iter_mut().enumerate() {
            let part = self.part(map, partner, at);
            let is_up = self.up.get(at).is_some_and(Option::is_some);
            if let Some(peer) = member.function.peer().filter(|_| is_up) {
                peer.send_for_group(&part, self.rings, &self.ours);
            }
        }
    }

    pub(crate) fn publish_request(&mut self, map: MemberMap, members: &mut [Member]) {
        self.ours.request = self.ours.request.wrapping_add(1);
        let bit = |(at, up): (usize, &Option<u64>)| u8::from(up.is_some()) << at;
        self.ours.here = self.up.iter().enumerate().map(bit).sum();
        self.send_to_all(map, members);
    }

    /// Receives the peer's message. Returns false if no member is present, or the present members
    /// have not received the same message.
    pub(crate) fn receive(&mut self, members: &mut [Member]) -> bool {
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

    /// Members that were up at both ends when the requests were published. Returns `None` if the
    /// peer's set is not known yet, or if a member is about to be lost.
    fn agreed_members(&self, members: &mut [Member]) -> Option<Vec<bool>> {
        let mut next = Vec::new();
        for (at, member) in members.iter_mut().enumerate() {
            let ours = self.up.get(at).copied().flatten();
            let both = ours.is_some() && self.theirs.here >> at & 1 == 1;
            let is_up =
                matches!(member.status, LinkStatus::Up { session } if Some(session) == ours);
            let heard = member.function.peer().map(|peer| peer.received_for_group().request);
            if (both && !(is_up && heard == Some(self.theirs.request)))
                || (member.is_here() && !both)
            {
                return None;
            }
            next.push(both);
        }
        Some(next)
    }

    pub(crate) fn compare_wishes(
        &mut self,
        map: MemberMap,
        members: &mut [Member],
        heard: bool,
    ) -> NextPlan {
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
