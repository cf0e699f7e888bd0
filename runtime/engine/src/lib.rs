//! Engine: lanes, workers, and the link that joins two functions.
//!
//! # Threads
//! - The *control thread* belongs to the caller. It calls [`Link::turn`] when one of
//!   [`Link::events`] is ready or [`Link::patience`] has passed.
//! - Each *worker* is a pinned thread that owns and polls lanes. Changes reach a worker through a
//!   command queue, which the worker checks once per iteration.
//!
//! # Lanes
//! A [`Lane`] moves frames from one RX queue to one TX queue, up to a budget per poll. While its
//! sink is full, a lane stops receiving: the ring of its source fills, and the sender stops. For
//! lack of space in a sink, the engine drops frames only if the egress configuration requests it.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod change;
mod config;
mod egress;
mod error;
mod idle;
mod lane;
mod link;
mod locality;
mod settings;
mod switch;
mod worker;
mod worker_pool;

pub use config::{Cpus, LinkConfig};
pub use egress::{EgressConfig, Full};
pub use error::LinkError;
pub use idle::{IdlePolicy, Pause};
pub use lane::{Direction, Lane, LaneError, LaneId, PollEnd, Polled};
pub use link::{CaptureRequest, Captures, Link, Notice, Running, XdpError};
pub use settings::{LinkSettings, RejectedRequest, RequestError};
pub use worker_pool::WorkerView;
