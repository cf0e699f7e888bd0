//! Two hosts joined by a non-transparent bridge: each lends the other a window into its memory.
//!
//! In the kernel's storeys: [`hw`] has the nouns of the hardware (memory windows, scratchpads,
//! doorbells, link events), [`layout`] is every byte that the two ends share, [`link`] is the
//! handshake as a table, `rx` and `tx` are the two halves of a queue pair, and [`NtbFunction`]
//! makes a network function of it.
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
pub mod transport;
mod tx;

pub use function::{NtbConfig, NtbFunction};
pub use hw::ivshmem::{DeviceLocation, IvshmemConfig, IvshmemServer, ServerConfig};
