//! A multi-queue TUN, TAP or NIC (AF_XDP) for programs, with a queueing discipline and
//! backpressure.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
//! let tun = mqnet::Tun::builder("vpn0")
//!     .queues(4)
//!     .address("10.8.0.1/24")
//!     .qdisc("fq_codel")
//!     .open()?;
//! let (mut rx, mut tx) = tun.queue(0)?;
//! tx.send(&[0x45; 20])?;
//! while let Some(packet) = rx.recv()? {
//!     socket.send(&packet)?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What waits, and where
//! Packets from the kernel go through a lane of the engine to the queue's [`Receiver`]. A program
//! that does not receive stops the lane; meanwhile packets wait in the discipline that was given
//! with [`Builder::qdisc`], which decides what is dropped or marked if anything is. Without one
//! they wait in the kernel's ring, which drops when it is full ([`Stats::dropped_outside`]).
//!
//! In the other direction [`Sender::send`] waits while the queue is full and
//! [`Sender::try_send`] says [`Error::Full`]. Nothing is dropped in either.
//!
//! # Waiting for several things at once
//! [`Receiver`] and [`Sender`] have a descriptor for `poll`, `epoll` or tokio's `AsyncFd`:
//! call [`Receiver::try_recv`] until there is nothing, then wait until the descriptor is readable;
//! the same with [`Sender::try_send`] and [`Sender::arm`].
//!
//! # Changing a device while it runs
//! [`Device::request`] sends the requests of the program's control socket (features, coalescing,
//! qdiscs, counters and others) to the device, with the same checks and errors ([`control`]). The
//! number of queues and the MTU are those that the device was opened with.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use mqnet::control::{NetdevRequest, SetCoalesce};
//! # let tun = mqnet::Tun::builder("vpn0").queues(4).open()?;
//! let coalesce = SetCoalesce { rx_usecs: Some(50), tx_frames: None };
//! tun.request(NetdevRequest::SetCoalesce(coalesce))?;
//! # Ok(())
//! # }
//! ```
//!
//! # A NIC
//! [`Nic`] takes an interface of the kernel over: every RX queue of it, by AF_XDP.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let nic = mqnet::Nic::builder("eth1").open()?;
//! for queue in 0..nic.queues() {
//!     let (mut rx, mut tx) = nic.queue(queue)?;
//!     std::thread::spawn(move || {
//!         while let Ok(Some(frame)) = rx.recv() {
//!             let _ = tx.send(&frame);
//!         }
//!     });
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Payload in the program's own memory
//! [`PayloadDevice`] receives from a virtio device (a vhost-user socket) into a memory file of the
//! program's: the device writes a frame there, the program finds it in its own mapping at the
//! place that a [`Payload`] names, and nobody copies.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod builder;
mod device;
mod join;
mod nic;
mod payload;

pub use builder::{Builder, OpenError, Tap, Tun};
pub use device::{Device, Taken};
/// Types of the requests and replies of [`Device::request`].
pub use mqnet_control_api as control;
pub use mqnet_netdev::RxMemory;
pub use mqnet_port::{Direction, Error, Packet, Receiver, Room, Sender, Stats};
pub use mqnet_virtio_user::{ProvidedMemory, Wish};
pub use nic::{Nic, NicBuilder};
pub use payload::{Payload, PayloadDevice, PayloadError, PayloadHome, PayloadReceiver};
