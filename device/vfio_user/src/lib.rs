//! Server of the vfio-user protocol: this process implements a PCI device of a virtual machine.
//!
//! - [`Model`] describes the function: identity, BARs, MSI-X vectors. The description of a server
//!   never changes.
//! - [`DeviceModel`] is the trait of the device model: trapped accesses, reset, unmapped memory.
//! - [`VfioUserServer`] listens, serves one client at a time and never blocks. It has no threads.
//! - [`DmaMap`] translates guest addresses into mappings of guest memory.
//! - [`Interrupts`] triggers MSI-X vectors from any thread.
//!
//! A message that is malformed, unknown or not allowed is answered with an error, and the reason is
//! kept ([`VfioUserServer::last_refusal`]). A byte stream that cannot be divided into messages ends
//! the connection.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod config;
mod connection;
mod dma;
pub mod fuzzing;
mod interrupts;
mod model;
mod protocol;
mod refusal;
mod requests;
mod server;

pub use config::ConfigSpace;
pub use dma::{BYTES_MAX, DmaMap, DmaSegment, RANGES_MAX};
pub use interrupts::Interrupts;
pub use model::{Bar, DeviceModel, Identity, Model, MsixLocation};
pub use refusal::MessageError;
pub use server::{Status, VfioUserServer};
