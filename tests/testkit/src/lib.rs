//! Test environments: hosts in network namespaces, `mqnet link` processes, verified traffic.
//!
//! Everything that a test starts ends with the test, even after a panic. Helpers panic on failure,
//! so this crate is for tests only.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod control;
mod figures;
mod flow;
mod host;
mod iperf;
mod link;
mod need;
mod numbered;
mod process;
mod socket;
mod stuck;
mod table;
mod verb;
pub mod virtq;
mod wait;
mod world;

pub use control::{Captured, Control, Running, captured};
pub use figures::Figures;
pub use flow::{Datagrams, Stream, pattern};
pub use host::{Host, LinkCounters};
pub use iperf::iperf3;
pub use link::{LinkProcess, program};
pub use need::{Need, has, rounds, skip};
pub use numbered::{Flows, Tally, Worst};
pub use process::{
    IdleCost, anonymous_kib, descriptor_kinds, resident_kib, run_command, threads,
    waiting_descriptor_kinds,
};
pub use table::{EndTable, Lane, assert_pair};
pub use wait::{DEADLINE, until, until_still, until_within};
pub use world::{EndSpec, Folder, Pair, World};
