//! The NIC of a virtual machine: the device of virtio-net, over vhost-user; and, with the same
//! rings and halves, one of this kernel's own, over VDUSE ([`vduse`]).
//!
//! The names of the halves are the guest's: [`GuestTx`] is what the guest sends (our RX),
//! [`GuestRx`] what it receives (our TX).

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod announce;
mod commands;
mod config;
mod door;
mod early;
mod function;
pub mod fuzzing;
mod memory;
mod messages;
mod offer;
mod receive;
mod recover;
mod relay;
mod rx;
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
