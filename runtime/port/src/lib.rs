//! Port: function of a link with the program itself as its peer. The link receives the frames that
//! the program sends, and the program receives the frames that the link sends.
//!
//! Both queues own their memory: each frame is in a slot, and the slots are allocated once. A frame
//! that the program sends is copied once, from its slot to the sink. The program reads a received
//! frame in its slot.
//!
//! # Changes of a running link
//! A port takes part in changes of channels and of the MTU. Each channel has one set of rings,
//! which passes from the old queues to the new ones ([`HandOver`](mqnet_netdev::HandOver)), so no
//! frame is lost or duplicated. A channel that is not in use keeps its rings: frames in the rings
//! stay until the program receives them, and senders get [`Error::NotInUse`].
//!
//! ```
//! use mqnet_engine::{LinkConfig, LinkSettings};
//! use mqnet_port::{Error, LinkDriver, PortConfig, PortFunction};
//! use mqnet_sysio::clock;
//! use mqnet_wire::Layer;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = |name: &str| PortConfig {
//!     name: name.to_owned(),
//!     channels: 2,
//!     layer: Layer::Ip,
//!     mtu: 1500,
//!     mtu_max: 9000,
//!     depth: 128,
//! };
//! // Two ports of one program, joined by a link.
//! let (a, mut near) = PortFunction::open(config("near"))?;
//! let (b, mut far) = PortFunction::open(config("far"))?;
//! let driver = LinkDriver::start(Box::new(a), b, LinkConfig::default())?;
//!
//! let settings = LinkSettings { channels: Some(1), mtu: Some(9000), ..LinkSettings::default() };
//! driver.call(move |link| link.request(settings, clock::monotonic()));
//! while driver.plan().channels != 1 {
//!     std::thread::yield_now();
//! }
//! assert_eq!(near[1].1.try_send(&[1; 20]), Err(Error::NotInUse));
//! near[0].1.send(&[2; 9000])?;
//! assert_eq!(far[0].0.recv()?.map(|frame| frame.len()), Some(9000));
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod channel;
mod config;
mod driver;
mod error;
mod function;
mod receiver;
mod rx;
mod sender;
mod stats;
mod tx;

#[cfg(test)]
mod tests;

pub use config::PortConfig;
pub use driver::{DriverError, LinkDriver, Steered};
pub use error::Error;
pub use function::PortFunction;
pub use receiver::{Packet, Receiver};
pub use sender::{Room, Sender};
pub use stats::{DirectionStats, Stats};
