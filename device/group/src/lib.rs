//! Several functions as one function of a link.
//!
//! - Channel `i` is on member `i mod G`, as that member's channel `i div G` ([`MemberMap`]). The
//!   map never changes; a channel's statistics are those of this queue.
//! - The group is up when every member is. Its capabilities are those that all members have.
//! - One member is the primary (the user's choice, or the smallest identity). The primary
//!   determines table, flags and identity of the group. Members that are separate kernel interfaces
//!   each receive their own frames and distribute them over their own queues, so that the table
//!   applies to the frames of the primary only.
//! - [`OnLoss`]: the group goes down with any member, or continues without it. In the latter case
//!   the channels of the lost member fail over: other members open more channels than the map
//!   assigns to them, and these replace the lost queues inside their lanes, between two polls. The
//!   number of channels, the other lanes and the other side of the link do not change. Channels
//!   fail back to their places when the member returns. To guarantee room for a failover, such a
//!   group offers no more channels than fit without any one member.
//!
//! A change applies to all members, or is undone in reverse order for those that made it.
//!
//! If the far ends of members take part in channel changes ([`Peer`](mqnet_netdev::Peer)), the far
//! end of the group is a group too, and the two negotiate as one (`far`). In such a group with
//! [`OnLoss::Degrade`], every member has all channels open, so that a failover needs no
//! negotiation.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod channels;
mod election;
mod far;
mod function;
mod group;
mod life;
mod loss;
mod map;
mod slot;

pub use group::{GroupConfig, GroupError, GroupFunction, MEMBERS, OnLoss};
pub use map::{MemberMap, MemberQueue};

#[cfg(test)]
mod tests;
