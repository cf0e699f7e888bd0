//! Requests of the user to a running link, and the replies.

use std::time::Duration;

use mqnet_netdev::{Caps, NextPlan};

use super::Link;
use crate::change::state::Ended;
use crate::settings::{LinkSettings, RejectedRequest, RequestError};

/// Time limit of a request. Without a limit, a peer that does not drain could delay a change
/// forever.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Request under way.
#[derive(Debug)]
pub(super) struct Pending {
    before: LinkSettings,
    since: Duration,
}

impl Link {
    /// Settings that the user requests.
    pub fn settings(&self) -> &LinkSettings {
        &self.settings
    }

    /// Requests new settings. [`answer`](Self::answer) returns the result when the change is
    /// complete. While the link is down, the result is available immediately, and the settings
    /// apply at the next start. After an error the settings are unchanged.
    pub fn request(
        &mut self,
        settings: LinkSettings,
        now: Duration,
    ) -> Result<(), RejectedRequest> {
        if self.pending.is_some() {
            return Err(RejectedRequest::Busy);
        }
        if let Some(why) =
            self.channels_fixed().filter(|_| settings.channels != self.settings.channels)
        {
            return Err(RejectedRequest::Impossible(why));
        }
        if settings.mtu != self.settings.mtu || settings == self.settings {
            self.overrule_devices(settings.mtu);
        }
        let before = std::mem::replace(&mut self.settings, settings);
        self.publish_request();
        if self.running.is_none() {
            self.answer =
                Some(Ok(Some("the link is down: the setting applies when it starts".to_owned())));
            return Ok(());
        }
        if let Some(NextPlan::Impossible(why)) = self.peer().map(|peer| peer.next_plan()) {
            self.settings = before;
            self.publish_request();
            return Err(RejectedRequest::Impossible(why));
        }
        self.forget_failures();
        self.answer = None;
        self.pending = Some(Pending { before, since: now });
        Ok(())
    }

    /// Reason why the number of channels cannot change now; `None` if it can, and while the link is
    /// down.
    fn channels_fixed(&self) -> Option<String> {
        self.running.as_ref()?;
        self.ends.iter().find_map(|end| end.channels_fixed())
    }

    /// Takes the reply to the last request: an optional note, or the reason of the failure. `None`
    /// if no reply is available.
    pub fn answer(&mut self) -> Option<Result<Option<String>, RequestError>> {
        self.answer.take()
    }

    /// Capabilities `caps` with the user's request for channels and MTU applied.
    pub(crate) fn requested_caps(&self, caps: &Caps) -> Caps {
        let least = self.ends.iter().map(|end| end.least_channels()).max().unwrap_or(1);
        let user = self.settings.channels.map(|user| user.max(least));
        let user = user.or((least > 1).then_some(least));
        // The number of channels that the function wants is an upper limit for the user's number.
        let wanted = match (user, caps.wanted) {
            (Some(user), Some(function)) => Some(user.min(function)),
            (user, function) => user.or(function),
        };
        Caps { wanted, mtu: self.settings.mtu.or(caps.mtu), ..caps.clone() }
    }

    /// Capabilities of a side with the user's request and offload restrictions applied.
    pub(crate) fn requested_caps_of(&self, side: usize) -> Caps {
        let caps = self.requested_caps(&self.ends[side].caps());
        let (from, to) = match side {
            0 => (self.settings.without_forth, self.settings.without_back),
            _ => (self.settings.without_back, self.settings.without_forth),
        };
        Caps {
            rx_offloads: caps.rx_offloads.without(from),
            tx_offloads: caps.tx_offloads.without(to),
            ..caps
        }
    }

    /// Publishes the request again if the capabilities of a function have changed, for example
    /// because a guest selected other offloads or queues.
    pub(super) fn check_caps(&mut self) {
        let now = self.ends.each_ref().map(|end| Some(end.caps()));
        if now != self.seen_caps {
            self.publish_request();
        }
    }

    pub(crate) fn publish_request(&mut self) {
        self.seen_caps = self.ends.each_ref().map(|end| Some(end.caps()));
        let rings = self.settings.rings;
        for side in [0, 1] {
            let partner = self.requested_caps_of(1 - side);
            self.ends[side].set_partner(&partner);
            if let Some(peer) = self.ends[side].peer() {
                peer.publish_request(&partner, rings);
            }
        }
    }

    /// Completes the pending request, if any, with the result of the change. A request that needs
    /// no change counts as committed. An undone change restores the previous settings.
    pub(crate) fn end_request(&mut self, ended: Ended) {
        match ended {
            Ended::Committed if self.pending.take().is_some() => {
                let note = self.settled_note();
                self.answer_request(Ok(note));
            }
            Ended::Committed => {}
            Ended::Undone(why) => self.undo_request(RequestError::Undone(why)),
        }
    }

    fn undo_request(&mut self, why: RequestError) {
        let Some(pending) = self.pending.take() else { return };
        self.settings = pending.before;
        self.publish_request();
        self.answer_request(Err(why));
    }

    /// Stores the reply for the user, unless the request was made for a device.
    fn answer_request(&mut self, answer: Result<Option<String>, RequestError>) {
        if !self.is_of_device(&answer) {
            self.answer = Some(answer);
        }
    }

    /// Number of channels that the peer's user requested; `None` if unknown.
    pub fn peer_wants(&mut self) -> Option<u16> {
        self.peer().and_then(|peer| peer.peer_wants())
    }

    /// Reason why the number of channels differs from the user's request. `None` if it does not, if
    /// the user requested no number, and while the link is down.
    pub fn settled_note(&mut self) -> Option<String> {
        let (have, want) = (self.running.as_ref()?.plan.channels, self.settings.channels?);
        let peer = self.peer().and_then(|peer| peer.peer_wants());
        (have != want).then(|| match peer {
            _ if have > want => {
                format!("{have} channels: each member of a group needs one")
            }
            Some(theirs) if theirs == have => {
                format!("{have} channels: the other end was set to {have} (mqnet ethtool -L there)")
            }
            _ => format!("{have} channels: the other side has no more"),
        })
    }

    pub(super) fn link_is_down(&mut self, why: &str) {
        self.end_request(Ended::Undone(format!("the link went down during the change: {why}")));
    }

    pub(super) fn time_out_request(&mut self, now: Duration) {
        let late = |p: &Pending| now.saturating_sub(p.since) > REQUEST_TIMEOUT;
        if self.pending.as_ref().is_some_and(late) {
            let why = match self.change {
                Some(_) => "the peer does not consume the frames in flight",
                None => "the peer does not answer",
            };
            let limit = REQUEST_TIMEOUT.as_secs();
            let why = format!("not done within {limit} s: {why}");
            self.undo_request(RequestError::TimedOut(why));
        }
    }
}
