//! Driver of a virtio network device in another process, over vhost-user.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod attempt;
mod buffers;
mod config;
mod control;
mod fold;
mod function;
pub mod fuzzing;
mod memory;
mod message;
mod provided;
mod pump;
mod rx;
mod session;
mod shared;
mod tx;

pub use buffers::RxBufferStats;
pub use config::VirtioUserConfig;
pub use function::VirtioUserFunction;
pub use mqnet_virtio::rxbuf::layout::RequestedLayout;
pub use provided::ProvidedMemory;
