//! [`Peer`] of the bridge: the mqnet engine at the far end, which takes part in channel changes.

use mqnet_netdev::{
    Caps, ChangeMessage, FarPartner, GroupMembership, GroupMessage, NextPlan, Peer, Plan,
    RequestedRings, RingSizes,
};

use super::{NtbFunction, refusal_text};
use crate::layout::{Geometry, Phase};
use crate::link::{self, Agreement, OfferError, State};
use crate::mailbox;

impl NtbFunction {
    /// Agreement that results from the latest requests of both ends, with the next change number.
    /// `None` while the link is down; `Some(Err)` if the requests do not fit each other.
    pub(super) fn next_agreement(&self) -> Option<Result<Agreement, OfferError>> {
        let change = self.agreement()?.change.wrapping_add(1);
        Some(link::agree(self.our_offer.as_ref()?, self.their_offer.as_ref()?, change))
    }

    /// Sends the requested capabilities and ring sizes to the peer if they differ from those sent
    /// last. Sends nothing while the link is down. A member of a group sends nothing either: the
    /// group sends its members' requests.
    pub(super) fn publish_request(&mut self) {
        let (caps, rings) = (self.offered_caps(), self.rings);
        let known = caps == self.ours.caps && rings == self.ours.rings;
        if self.state != State::Up || known || self.membership.is_some() {
            return;
        }
        self.want(caps, rings);
        self.ours.request = self.ours.request.wrapping_add(1);
        self.post();
    }

    fn want(&mut self, caps: Caps, rings: RequestedRings) {
        if let Some(offer) = &mut self.our_offer {
            (offer.caps, offer.rings) = (caps.clone(), rings);
        }
        (self.ours.caps, self.ours.rings) = (caps, rings);
    }

    pub(super) fn post(&mut self) {
        self.ours.partner = match &self.partner_down {
            None => FarPartner::Up,
            Some(reason) => FarPartner::Down(reason.clone()),
        };
        let Some(windows) = self.hw.windows() else { return };
        mailbox::post(&windows, &mut self.sent_messages, &self.ours);
        // Signal the doorbell of the link; the phase does not change.
        self.announce(Phase::Accept);
    }
}

impl Peer for NtbFunction {
    fn join_group(&mut self, membership: GroupMembership) {
        self.membership = Some(membership);
    }

    fn leads(&self) -> bool {
        let generation = |offer: &Option<link::Offer>| offer.as_ref().map(|o| o.generation);
        let (ours, theirs) = (generation(&self.our_offer), generation(&self.their_offer));
        // With equal generations, which are random numbers, the end that joined second does not
        // lead.
        if ours == theirs { !self.hw.is_second() } else { ours > theirs }
    }

    fn publish_request(&mut self, partner: &Caps, rings: RequestedRings) -> u32 {
        self.partner = Some(partner.clone());
        self.rings = rings;
        self.publish_request();
        self.ours.request
    }

    fn requests(&self) -> [u32; 2] {
        [self.ours.request, self.theirs.request]
    }

    fn peer_wants(&self) -> Option<u16> {
        self.theirs.caps.wanted
    }

    fn plan(&self) -> Option<Plan> {
        self.agreement().map(|agreement| agreement.plan.clone())
    }

    fn next_plan(&self) -> NextPlan {
        match (self.next_agreement(), self.agreement()) {
            (Some(Ok(next)), Some(now)) if !next.is_like(now) => NextPlan::Change(next.plan),
            (Some(Err(refusal)), _) => NextPlan::Impossible(refusal_text(refusal)),
            _ => NextPlan::Same,
        }
    }

    fn send_change(&mut self, word: ChangeMessage) {
        self.ours.word = word;
        self.post();
    }

    fn received_change(&self) -> ChangeMessage {
        self.theirs.word.clone()
    }

    fn send_for_group(&mut self, partner: &Caps, rings: RequestedRings, voice: &GroupMessage) {
        self.partner = Some(partner.clone());
        self.rings = rings;
        if self.state == State::Up {
            self.want(self.offered_caps(), rings);
            (self.ours.request, self.ours.here) = (voice.request, voice.here);
            self.ours.word = voice.word.clone();
            self.post();
        }
    }

    fn received_for_group(&self) -> GroupMessage {
        let Self { theirs, .. } = self;
        GroupMessage { request: theirs.request, here: theirs.here, word: theirs.word.clone() }
    }

    fn peers_group(&self) -> Option<u32> {
        Some(self.their_offer.as_ref()?.membership?.group)
    }

    fn rings(&self) -> RingSizes {
        let Some(agreement) = self.agreement() else { return RingSizes::default() };
        let most = |window| Geometry::ring_max(window, agreement.plan.channels);
        let outbound = self.hw.windows().map_or(0, |windows| windows.outbound_len);
        RingSizes {
            rx: agreement.inbound.depth,
            rx_max: most(self.hw.window_len()),
            tx: agreement.outbound.depth,
            tx_max: most(outbound),
        }
    }

    fn set_partner_down(&mut self, reason: Option<&str>) {
        if self.partner_down.as_deref() == reason {
            return;
        }
        self.partner_down = reason.map(str::to_owned);
        if self.state == State::Up {
            self.post();
        }
    }

    fn far_partner(&mut self) -> FarPartner {
        match self.state {
            State::Up => self.theirs.partner.clone(),
            _ => FarPartner::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mqnet_netdev::{Function, LinkStatus};

    use super::*;
    use crate::NtbConfig;

    fn end(name: &str, seed: u64) -> NtbFunction {
        let path = std::env::temp_dir().join(format!("mqnet-{name}-{}", std::process::id()));
        NtbFunction::memfd(&NtbConfig { path, window: 1 << 20, mtu: None }, seed)
    }

    /// Polls both ends until `done` returns true; panics after 1000 polls.
    fn until(
        ends: [&mut NtbFunction; 2],
        now: &mut Duration,
        mut done: impl FnMut(&mut NtbFunction, &mut NtbFunction) -> bool,
    ) {
        let [a, b] = ends;
        for _ in 0..1000 {
            *now += Duration::from_millis(5);
            a.poll_link(*now);
            b.poll_link(*now);
            if done(a, b) {
                return;
            }
        }
        panic!("never: {:?} {:?}", a.far_partner(), b.far_partner());
    }

    // Rule: each end receives the state of the far end's partner function before traffic can flow,
    // and after every change. A new peer receives it too.
    #[test]
    fn partner_state_crosses_the_bridge() {
        let name = "partner-state";
        let mut now = Duration::from_secs(1);
        let (mut a, mut b) = (end(name, 1), end(name, 2));
        a.set_partner_down(Some("eth8 is missing\n"));
        assert_eq!(b.far_partner(), FarPartner::Unknown);
        let missing = FarPartner::Down("eth8 is missing?".to_owned());
        until([&mut a, &mut b], &mut now, |_, b| {
            assert_ne!(b.far_partner(), FarPartner::Up);
            b.far_partner() == missing
        });
        until([&mut a, &mut b], &mut now, |a, _| a.far_partner() == FarPartner::Up);
        a.set_partner_down(None);
        until([&mut a, &mut b], &mut now, |_, b| b.far_partner() == FarPartner::Up);
        b.set_partner_down(Some("no carrier"));
        let down = FarPartner::Down("no carrier".to_owned());
        until([&mut a, &mut b], &mut now, |a, _| a.far_partner() == down);
        drop(a);
        let mut a = end(name, 3);
        until([&mut a, &mut b], &mut now, |a, _| a.far_partner() == down);
        assert!(matches!(a.poll_link(now), LinkStatus::Up { .. }));
    }
}
