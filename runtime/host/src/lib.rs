//! Owner of the links of a process: their registry, their control steps, and the requests about
//! netdevs.
//!
//! [`LinkHost`] executes every [`Request`](mqnet_control_api::Request). [`HostedLink`] is one link
//! with its names; a program with a single link (the library) uses it with [`verbs::execute`].
//! [`Platform`] is the interface to the backends and the machine.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod foreign;
mod link;
mod links;
pub mod names;
mod place;
mod platform;
mod recent;
mod reopening;
#[cfg(feature = "testing")]
pub mod testing;
pub mod verbs;
mod waiting;

pub use link::{HostedLink, Netdev, Opening};
pub use links::{HostMode, LINKS_DEFAULT, LinkHost};
pub use place::{device_slot, irq_queue};
pub use platform::{Opened, Placed, Platform, is_same_netdev, netns_of};
