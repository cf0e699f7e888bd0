//! The engine: lanes, workers and the link that joins two functions.
//!
//! # Threads
//! - The *control thread* is the caller's: it calls [`Link::turn`] whenever one of
//!   [`Link::events`] is ready or 100 ms have passed.
//! - Each *worker* is a pinned thread that owns lanes and polls them. Changes reach a worker
//!   through a command queue, checked once per iteration.
//!
//! # One lane
//! A [`Lane`] moves frames from one RX queue to one TX queue, up to a budget per poll. When its
//! sink is full, a lane stops receiving: the ring of its source fills and the sender stops. The
//! engine drops no frame unless the egress configuration requests it.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod change;
mod egress;
mod idle;
mod lane;
mod link;
mod locality;
mod switch;
mod worker;
mod worker_pool;

pub use egress::{EgressConfig, Full};
pub use idle::{IdlePolicy, Pause};
pub use lane::{Direction, Lane, LaneError, LaneId, PollEnd, Polled};
pub use link::{
    CaptureRequest, Captures, Cpus, Link, LinkConfig, LinkError, LinkSettings, Notice,
    RejectedRequest, RequestError, Running, XdpError,
};
pub use worker_pool::WorkerView;
