//! Guests: Debian's kernels in QEMU, with scripts as input and files as results.
//!
//! All parts of a guest are downloaded once into the user's cache; nothing is installed on the
//! host. Software emulation suffices, and KVM is used if it works.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod apt;
pub mod arm64;
pub mod bench;
mod cards;
mod console;
mod cpio;
pub mod five;
mod guest;
mod image;
mod kernel;
mod modules;
mod monitor;
pub mod ntb;
pub mod passt;
mod programs;
mod qemu;
mod results;
mod running;
mod selftests;
mod store;
mod tools;

pub use apt::debian_mirror;
pub use guest::{Done, Guest, Outcome, prepare, shell};
pub use kernel::Kernel;
pub use monitor::Monitor;
pub use programs::{build, build_one, profile};
pub use running::Running;
pub use store::Store;

/// Result with an error that is only printed, so its text suffices.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
