//! virtio-net device of a virtual machine over vhost-user, and of this host's kernel over VDUSE
//! ([`vduse`]). Both use the same rings and queue halves.
//!
//! The halves are named from the guest's point of view: [`GuestTx`] is the guest's transmit queue
//! (an RX queue of this process), [`GuestRx`] is its receive queue (a TX queue of this process).

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod announce;
mod commands;
mod config;
mod control_queue;
mod early;
mod function;
pub mod fuzzing;
mod listener;
mod memory;
mod messages;
mod offer;
mod receive;
mod recover;
mod relay;
mod rx;
mod service;
mod shared;
mod slot;
mod state;
mod steer;
mod tx;
pub mod vduse;
pub mod vring;

pub use config::{Meet, VhostUserConfig};
pub use function::VhostUserFunction;
pub use memory::{MEMORY_DEFAULT, set_memory_max};
pub use rx::GuestTx;
pub use tx::GuestRx;
pub use vring::{Call, Inflight, Vring, VringCell, VringError, VringSetup};
