//! Control interface: the server for a [`Host`](mqnet_control_api::Host), its sockets, the client,
//! and the discovery of running processes.
//!
//! The server runs on a thread without privileges; the control thread executes its [`calls`]. No
//! code of this crate runs on the data path.

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
