//! A function whose far end is this very program: frames that the program sends arrive at the
//! link, and frames that the link sends are received by the program.
//!
//! Both directions bring memory: a frame lies in a slot that was made once. What the program sends
//! is copied once by whoever takes it from the slot; what it receives it reads where it lies.
//!
//! Channels are fixed for the life of a port: a change of their number is refused.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod driver;
mod end;
mod function;
mod receiver;
mod rx;
mod sender;
mod stats;
mod tx;

#[cfg(test)]
mod tests;

pub use driver::{Driver, DriverError, Steered};
pub use end::Error;
pub use function::{PortConfig, PortFunction};
pub use receiver::{Packet, Receiver};
pub use sender::{Room, Sender};
pub use stats::{Direction, Stats};
