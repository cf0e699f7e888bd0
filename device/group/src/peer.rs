//! A group as one peer of the group at the far end.

use mqnet_netdev::{
    Caps, ChangeMessage, FarPartner, GroupMessage, LinkStatus, NextPlan, Peer, Plan,
    RequestedRings, RingSizes,
};

use crate::far::combined;
use crate::group::GroupFunction;
use crate::member::Member;

impl GroupFunction {
    /// Reason why members that are up cannot form a group; `None` if they can. If the plans of the
    /// members differ, their sessions are closed, so that they negotiate again.
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
                "group: {one} and {other} have different peers: all windows of a group must lead \
                 to one group at the other end"
            ));
        }
        let why = combined(self.map, whole, &parts).err()?;
        // Negotiate again: the members negotiated in turn, and the requests changed in between.
        self.members.iter_mut().for_each(|member| member.function.close("it negotiates again"));
        Some(format!("group: {why}: the members negotiate again"))
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

    /// Updates the set of members that are up, and publishes the request again if the set has
    /// changed. Then updates the result of comparing the requests.
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
                far.publish_request(self.map, &mut self.members);
            }
        }
        self.far = Some(far);
        self.update_far();
    }

    /// Receives messages, and updates the result of comparing the requests.
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

    /// Publishes the request again, so that a change that failed while the channels were closed is
    /// retried.
    pub(crate) fn repeat_wish(&mut self) {
        if let Some(far) = &mut self.far {
            far.publish_request(self.map, &mut self.members);
        }
        self.update_far();
    }

    /// Capabilities of the other function of the link as passed to member `at`.
    pub(crate) fn partner_part(&self, partner: &Caps, at: usize) -> Caps {
        match &self.far {
            Some(far) => far.part(self.map, partner, at),
            None => self.map.part_of_partner(partner, at),
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
            // Use the leader of the first present member if the random identifiers are equal
            // (probability 2^-24). That leader is constant as long as no member is lost.
            true => far.leads_by_chance,
            false => far.group > far.peers_group,
        })
    }

    fn publish_request(&mut self, partner: &Caps, rings: RequestedRings) -> u32 {
        let Some(far) = &mut self.far else { return 0 };
        if far.partner.as_ref() != Some(partner) || far.rings != rings {
            (far.partner, far.rings) = (Some(partner.clone()), rings);
            far.publish_request(self.map, &mut self.members);
        }
        let request = far.ours.request;
        self.update_far();
        request
    }

    fn requests(&self) -> [u32; 2] {
        self.far.as_ref().map(|far| [far.ours.request, far.theirs.request]).unwrap_or_default()
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
    /// the state through one member after the other; members without a state are ignored, and a
    /// down state takes precedence.
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
