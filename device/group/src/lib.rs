//! A group: several functions that act as one function of a link.
//!
//! - Channel `i` is on member `i mod G`, as channel `i div G` of that member ([`MemberMap`]). The
//!   map never changes. The statistics of channel `i` are those of this channel of the member.
//! - The group comes up when every member is up. Its capabilities are those that all members have.
//! - One member is the primary: the user's choice, or the smallest identity. The primary determines
//!   the table, flags and identity of the group. Members that are separate kernel interfaces
//!   receive and distribute frames separately, so that the table applies only to the frames of the
//!   primary.
//! - [`OnLoss`] selects if the group goes down with any member or continues without it. In a group
//!   that continues, the channels of a lost member fail over: other members open more channels than
//!   the map assigns to them. These channels replace the lost queues inside their lanes, between
//!   two polls. The number of channels, the other lanes and the other side of the link do not
//!   change. Channels fail back when the member returns. A group that continues offers only as many
//!   channels as fit if any one member is lost.
//!
//! A channel change applies to all members. If the change fails at a member, it is undone in
//! reverse order at the members that have completed it.
//!
//! If the far ends of members take part in channel changes ([`Peer`](mqnet_netdev::Peer)), the far
//! end of the group is a group too. The two groups then negotiate like two functions (`far`). In
//! such a group with [`OnLoss::Degrade`], every member has all channels open, so that a failover
//! needs no negotiation.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod channels;
mod election;
mod error;
mod far;
mod function;
mod group;
mod life;
mod loss;
mod map;
mod member;
mod peer;
mod slot;

pub use error::GroupError;
pub use group::{GroupConfig, GroupFunction, MEMBERS, OnLoss};
pub use map::{MemberMap, MemberQueue};

#[cfg(test)]
mod tests;
