//! Control interface: the server in front of a [`Host`](mqnet_control_api::Host), its sockets, the
//! client, and discovery of the process that has a device.
//!
//! The server has a thread without privileges; its [`calls`] are executed by the control thread.
//! Nothing here runs on the data path.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod calls;
pub mod client;
pub mod discover;
#[cfg(feature = "testing")]
pub mod fuzzing;
pub mod notify;
mod server;
pub mod socket;
#[cfg(feature = "testing")]
pub mod testing;

#[cfg(feature = "testing")]
pub use server::serve_tcp;
pub use server::{Events, openapi, serve, serve_metrics_tcp};
