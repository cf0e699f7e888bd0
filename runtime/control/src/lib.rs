//! The control plane's plumbing: the server in front of a [`Host`](mqnet_control_api::Host), the
//! sockets that it listens on, the client that asks it, and how a client finds the right process.
//!
//! The server has a thread of its own, without privileges; its [`calls`] go to the control thread.
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
