//! Backend for two hosts joined by a non-transparent bridge: each end writes into the other's
//! memory through a window.
//!
//! Modules: [`hw`] is the hardware interface, in the terms of the kernel's NTB API (memory windows,
//! scratchpads, doorbells, link events). [`layout`] defines the memory that both ends share, and
//! [`link`] the states of the handshake. `rx` and `tx` are the halves of a queue pair.
//! [`transport`] is the protocol of a kernel's `ntb_transport`. [`NtbFunction`] is the network
//! function.
//!
//! Only posted writes cross the bridge: an end writes into its peer's window and reads its own.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod function;
pub mod fuzzing;
pub mod hw;
pub mod layout;
pub mod link;
mod mailbox;
mod mix;
mod rx;
mod session;
mod shared;
pub mod transport;
mod tx;

pub use function::{NtbConfig, NtbFunction};
pub use hw::ivshmem::{DeviceLocation, IvshmemConfig, IvshmemServer, ServerConfig};
