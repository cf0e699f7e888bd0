//! Far end of a function, if it is another engine that takes part in channel changes.
//!
//! Each end publishes its *request*: the capabilities and settings of its side of the link. Each
//! end also publishes a control message with its step of a channel change. Both ends compute the
//! same plan from the same two requests, so that a message contains only the numbers of the
//! requests. One end *leads*: only the leader begins changes.

use crate::{Caps, Plan};

/// Step of one end in a channel change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Step {
    /// No change is in progress.
    #[default]
    Rest = 0,
    /// The leader has its new channels ready; the follower prepares its own.
    Propose = 1,
    /// The follower has its new channels ready.
    Ready = 2,
    /// The follower cannot create the new channels; the old ones stay in use.
    Refuse = 3,
    /// The sender of the message transmits through the new channels, and the frames that it sent
    /// through the old channels are consumed.
    Switched = 4,
    /// The follower's switch failed and was reverted.
    Failed = 5,
    /// The leader completes the change; the old channels are dropped.
    Commit = 6,
    /// The leader cancels the change; the new channels are dropped.
    Cancel = 7,
}

impl Step {
    /// All steps.
    pub const ALL: [Self; 8] = [
        Self::Rest,
        Self::Propose,
        Self::Ready,
        Self::Refuse,
        Self::Switched,
        Self::Failed,
        Self::Commit,
        Self::Cancel,
    ];

    /// Decodes a step that a peer wrote; `None` if the number is unknown.
    pub fn decode(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|step| *step as u32 == number)
    }
}

/// Control message of one end about a channel change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeMessage {
    /// Number of the attempt, assigned by the leader.
    pub attempt: u32,
    /// Step of the sender.
    pub step: Step,
    /// Numbers of the leader's and the follower's request for the attempt.
    pub requests: [u32; 2],
    /// Reason of a refusal, a failure or a cancellation; empty for other steps.
    pub why: String,
}

/// Ring sizes that the user requested for each channel, in bytes; `None`: the default size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestedRings {
    /// RX ring.
    pub rx: Option<u32>,
    /// TX ring.
    pub tx: Option<u32>,
}

/// Sizes of the rings of a channel, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingSizes {
    /// RX ring in use.
    pub rx: u32,
    /// Largest RX ring that the memory allows with this number of channels.
    pub rx_max: u32,
    /// TX ring in use.
    pub tx: u32,
    /// Largest TX ring.
    pub tx_max: u32,
}

/// Membership of a function in a group with a group at its far end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupMembership {
    /// Number of the member in the group, from 0.
    pub number: u8,
    /// Number of members of the group, 2..=8.
    pub of: u8,
    /// Identifier that members of the same group share: 24 random bits, not 0.
    pub group: u32,
}

/// Control message that a group sends through each of its members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMessage {
    /// Number of the group's latest request.
    pub request: u32,
    /// Members that were up when the group published this request: bit i is member i.
    pub here: u8,
    /// Latest message of the group about a channel change.
    pub word: ChangeMessage,
}

/// Plan that follows from the requests of both ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NextPlan {
    /// The plan in force stays.
    #[default]
    Same,
    /// Not known yet: only a part of the peer's request has been received.
    Wait,
    /// Another plan, as seen by the partner of this function.
    Change(Plan),
    /// No plan is possible, for this reason.
    Impossible(String),
}

/// State of the function behind the far end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FarPartner {
    /// The far end has not sent the state yet.
    #[default]
    Unknown,
    /// The far end forwards frames.
    Up,
    /// The far end drops frames, for this reason.
    Down(String),
}

/// Far end that takes part in channel changes. All calls are cheap. Except for
/// [`set_partner_down`](Self::set_partner_down), calls are valid only while the link is up.
pub trait Peer {
    /// Makes the function a member of a group. The peer must be the same member of a group of the
    /// same size.
    fn join_group(&mut self, _membership: GroupMembership) {}

    /// True if this end begins changes; true at exactly one end of the link.
    fn leads(&self) -> bool;

    /// Publishes the request of this side. Returns the number of the request: a new number if the
    /// request differs from the last one.
    fn publish_request(&mut self, partner: &Caps, rings: RequestedRings) -> u32;

    /// Numbers of the latest requests: this end's and the peer's.
    fn requests(&self) -> [u32; 2];

    /// Number of channels that the peer's user requested; `None` without a request.
    fn peer_wants(&self) -> Option<u16>;

    /// Plan in force, as seen by the partner of this function; `None` if there is none.
    fn plan(&self) -> Option<Plan>;

    /// Result of the latest requests.
    fn next_plan(&self) -> NextPlan;

    /// Sends a control message to the peer.
    fn send_change(&mut self, message: ChangeMessage);

    /// Latest control message of the peer.
    fn received_change(&self) -> ChangeMessage;

    /// Ring sizes in use.
    fn rings(&self) -> RingSizes;

    /// Publishes the state of the partner: `None` while the partner is up, otherwise the reason why
    /// the partner is down. While the link is down, the state is published in the next session.
    fn set_partner_down(&mut self, reason: Option<&str>);

    /// State of the function behind the far end, as the far end published it.
    fn far_partner(&mut self) -> FarPartner;

    /// Publishes the request of this member and the control message of its group, in place of
    /// [`publish_request`](Self::publish_request) and [`send_change`](Self::send_change). Only for
    /// a [member](crate::Peer::join_group) of a group.
    fn send_for_group(&mut self, _partner: &Caps, _rings: RequestedRings, _message: &GroupMessage) {
    }

    /// Latest control message of the peer's group through this function.
    fn received_for_group(&self) -> GroupMessage {
        GroupMessage::default()
    }

    /// [`GroupMembership::group`] of the peer; `None` if not known.
    fn peers_group(&self) -> Option<u32> {
        None
    }
}
