//! Virtqueues and the network device of virtio 1.x (OASIS virtio 1.3), both roles.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod chain;
pub mod driver;
mod either;
pub mod features;
pub mod inflight;
pub mod layout;
pub mod log;
pub mod net;
pub mod packed;
pub mod ring;
pub mod rxbuf;
pub mod split;

pub use chain::{BufferElement, Chain};
pub use either::Ring;
pub use features::Features;
pub use ring::{DeviceRing, UsedChain};

/// Protocol violation by the other side of a virtqueue. The function is closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("queue {queue}: {what}")]
pub struct Broken {
    /// Number of the virtqueue.
    pub queue: u16,
    /// Description of the violation, with the values.
    pub what: String,
}
