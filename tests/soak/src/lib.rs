//! Soak test: all backends that work on a host at the same time, under verified traffic and a
//! seeded schedule of actions.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod act;
mod judge;
mod memory;
mod report;
mod rig;
mod rng;
mod runner;
mod schedule;
mod shape;
mod testpmd;
mod traffic;
mod worlds;

pub use runner::{Settings, run, series};
pub use shape::KINDS;
