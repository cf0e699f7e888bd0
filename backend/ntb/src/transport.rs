//! Protocol of the Linux kernel's `ntb_transport`, version 4, for a stock `ntb_netdev` as the
//! peer.
//!
//! - [`handshake`]: the scratchpads.
//! - [`geometry`]: division of the windows among queue pairs.
//! - `links`: QP_LINKS, the bit map of open queue pairs.
//! - `slots`: rings of fixed slots with their headers at the end, and credits.
//! - `rx`, `tx`: the queues of a channel.
//! - `session`: one session of the link, polled by the control thread.
//!
//! Only the peer decides how many queue pairs there are and which of them are open. This end has at
//! most as many channels, and serves every open pair. With `C` channels, the RX queue of channel
//! `c` serves the pairs `c`, `c + C`, `c + 2C` and so on.
//!
//! # Memory
//! Frames to the peer are copied once, into the peer's memory. Frames from the peer are read in
//! place. All fields that the peer writes are read once and checked.

mod cell;
pub mod geometry;
pub mod handshake;
mod links;
mod queue_pair;
mod rx;
mod session;
mod shared;
mod slots;
mod tx;
mod violation;

#[cfg(test)]
mod tests;

pub(crate) use session::{Status, Transport};

/// Version of the protocol, in scratchpad 0.
pub const VERSION: u32 = 4;

/// Name of the protocol for `show`.
pub const NAME: &str = "ntb_transport v4";

/// Bytes of a slot, unless both ends are configured otherwise (`transport_mtu=` of the module).
pub const TRANSPORT_MTU: u32 = 0x1_0000;

/// Bytes of a slot's header at the end of the slot: packet number, length, flags.
pub const HEADER: u32 = 12;

/// Smallest number of slots of a queue pair. The kernel's netdev stops below 5 free slots, and
/// one slot of a ring always stays free.
pub const SLOTS_MIN: u32 = 6;

/// Bytes of an Ethernet header, which a slot carries beyond the MTU of the kernel's netdev.
pub const ETHERNET: u32 = 14;
