//! The engine: lanes, workers and the link that joins two functions.
//!
//! # Threads
//! - The *control thread* is the caller's: it calls [`Link::turn`] whenever one of
//!   [`Link::events`] is ready or 100 ms have passed.
//! - Each *worker* is a pinned thread that owns lanes and runs them to completion. It hears of
//!   changes through a command queue that it looks at once a pass.
//!
//! # One lane
//! A [`Lane`] moves frames from one RX queue to one TX queue, up to a budget a poll. A full sink
//! makes it stop taking from its source: the source's own ring fills and its sender stops. Nothing
//! inside drops.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod change;
mod crew;
mod egress;
mod idle;
mod lane;
mod link;
mod locality;
mod switch;
mod worker;

pub use crew::WorkerView;
pub use egress::{EgressConfig, Full};
pub use idle::{IdlePolicy, Pause};
pub use lane::{Lane, LaneError, LaneId, Polled, Rest, Way};
pub use link::{
    AskError, CaptureRequest, Captures, Cpus, Link, LinkConfig, LinkError, Notice, RequestError,
    Running, Wish, XdpError,
};
pub use worker::WorkerStats;
