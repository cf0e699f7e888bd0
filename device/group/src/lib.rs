//! Several functions that are one function of a link.
//!
//! - Channel `i` is on member `i mod G`, as that member's channel `i div G`, for ever ([`Map`]);
//!   its statistics are that channel's.
//! - All or nothing: the group is up when every member is. What it can do is what all of them can.
//! - One member is the primary (the user's choice, or the smallest identity): table, flags and
//!   identity of the group are its. Members that are interfaces of their own each receive what is
//!   sent to them and spread it over their own queues, so the table says how the primary spreads
//!   *its* frames.
//! - [`OnLoss`]: the group ends with any member, or goes on without it. In the latter case its
//!   channels park, and others stand in behind them: a member opens more channels than are its by
//!   the map, and these take over from the lost queues inside their lanes, between two polls.
//!   Nothing else moves: not the number of channels, nor the other lanes, nor the other side of the
//!   link. When the member is back, its channels are where they were. So that there is room for
//!   that, such a group offers no more channels than fit while any one member is lost.
//!
//! What a change does is done for all members or undone for those that had it, in reverse order.
//!
//! Members whose far end has a say in changes ([`Peer`](mqnet_netdev::Peer)) have a group as their
//! far end, and the two agree as one (`far`). Of these, each has all channels open in a group that
//! goes on: to stand in needs no agreement then.

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
pub use map::{Map, Place};

#[cfg(test)]
mod tests;
