//! The soak: all backends that work on a host at once, under traffic that is verified, while a
//! seeded schedule of actions is done to them.

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
