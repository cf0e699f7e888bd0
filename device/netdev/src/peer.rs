//! The far end of a function, where another engine has a say in changes.
//!
//! Each end publishes its *wish* (what its side of the link can do and wants) and a *word* (where
//! it stands in a change). Both ends compute the same plan from the same two wishes, so that a word
//! needs to name only the wishes that it is about. One end *leads*: it alone begins changes.

use crate::{Caps, Plan};

/// Where an end stands in a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Step {
    /// In none.
    #[default]
    Rest = 0,
    /// Leader: its new channels are ready; the follower should make its own.
    Propose = 1,
    /// Follower: they are.
    Ready = 2,
    /// Follower: they cannot be made; everything is as before.
    Refuse = 3,
    /// Its frames take the new channels, and all older ones have been taken.
    Switched = 4,
    /// Follower: it could not switch and has gone back.
    Failed = 5,
    /// Leader: done, drop the old channels.
    Commit = 6,
    /// Leader: given up, drop the new channels.
    Cancel = 7,
}

impl Step {
    /// Every step.
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

    /// Reads what a peer wrote.
    pub fn decode(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|step| *step as u32 == number)
    }
}

/// What one end says to the other about a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word {
    /// Number of the attempt; the leader counts.
    pub attempt: u32,
    /// Where the speaker stands.
    pub step: Step,
    /// The wishes that the attempt is about: the leader's and the follower's.
    pub wishes: [u32; 2],
    /// Why, with a refusal, a failure or a cancellation.
    pub why: String,
}

/// Sizes that the user wants for the rings of a channel, in bytes; `None`: the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingWish {
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

/// The place of a function in a group whose far end is a group too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Its number in the group, from 0.
    pub number: u8,
    /// Members of the group, 2..=8.
    pub of: u8,
    /// By which members know that they belong together: 24 random bits, not 0.
    pub group: u32,
}

/// What a group says through each of its members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Voice {
    /// Number of its latest wish.
    pub wish: u32,
    /// The members that were up when it made this wish: bit i is member i.
    pub here: u8,
    /// Its latest word.
    pub word: Word,
}

/// What the wishes of both ends come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Outlook {
    /// What is in force.
    #[default]
    Same,
    /// Not known yet: only a part of what the peer wants has been heard.
    Wait,
    /// Another plan, as the partner of this function sees it.
    Change(Plan),
    /// Nothing; why.
    Impossible(String),
}

/// State of the function behind the far end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FarPartner {
    /// The far end has not sent it yet.
    #[default]
    Unknown,
    /// Frames go on from the far end.
    Up,
    /// Frames would end at the far end, for this reason.
    Down(String),
}

/// A far end that has a say in changes. All calls are cheap; only while the link is up.
pub trait Peer {
    /// Makes the function a member of a group: its peer must be the same member of a group of as
    /// many.
    fn take_seat(&mut self, _seat: Seat) {}

    /// True at the end that begins changes. Exactly one of the two.
    fn leads(&self) -> bool;

    /// Publishes what our side wants; returns the number of the wish, a new one if it differs from
    /// the last.
    fn wish(&mut self, partner: &Caps, rings: RingWish) -> u32;

    /// Numbers of the latest wishes: ours and the peer's.
    fn wishes(&self) -> [u32; 2];

    /// Channels that the peer's user asked for.
    fn peer_wants(&self) -> Option<u16>;

    /// The plan in force, as the partner of this function sees it.
    fn plan(&self) -> Option<Plan>;

    /// What the latest wishes come to.
    fn outlook(&self) -> Outlook;

    /// Publishes a word and tells the peer that there is one.
    fn say(&mut self, word: Word);

    /// The peer's latest word.
    fn heard(&self) -> Word;

    /// Ring sizes in use.
    fn rings(&self) -> RingSizes;

    /// Publishes the state of our partner: `None` while it is up, otherwise why it is not. While
    /// the link is down, it is published with the next one.
    fn set_partner_down(&mut self, reason: Option<&str>);

    /// State of the function behind the far end, as the far end published it.
    fn far_partner(&mut self) -> FarPartner;

    /// For a [member](crate::Peer::take_seat) of a group only: what its part of the group
    /// wants, and what the group says, in place of [`wish`](Self::wish) and [`say`](Self::say).
    fn say_for_group(&mut self, _partner: &Caps, _rings: RingWish, _voice: &Voice) {}

    /// What the peer's group said last through this function.
    fn heard_of_group(&self) -> Voice {
        Voice::default()
    }

    /// [`Seat::group`] of the peer.
    fn peers_group(&self) -> Option<u32> {
        None
    }
}
