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
//! # Backpressure
//! Packets from the kernel go through a lane of the engine to the [`Receiver`] of the queue. A
//! program that does not receive stops the lane. Packets then wait in the qdisc of
//! [`Builder::qdisc`], which decides which packets are dropped or marked. Without a qdisc they wait
//! in the kernel's ring, which drops when it is full ([`Stats::dropped_outside`]).
//!
//! In the other direction [`Sender::send`] waits while the queue is full, and
//! [`Sender::try_send`] returns [`Error::Full`]. No packet is dropped.
//!
//! # Waiting for several events
//! [`Receiver`] and [`Sender`] have a descriptor for `poll`, `epoll` or tokio's `AsyncFd`: call
//! [`Receiver::try_recv`] until it returns `None`, then wait until the descriptor is readable; the
//! same with [`Sender::try_send`] and [`Sender::arm`].
//!
//! # Changing a device while it runs
//! [`Device::set_channels`] changes the number of queues in use, from 1 to the number with which
//! the device was opened, and [`Device::set_mtu`] the MTU, up to [`Builder::mtu_max`]. Traffic
//! continues, and no packet is lost:
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tun = mqnet::Tun::builder("vpn0").queues(4).mtu(1400).mtu_max(9000).open()?;
//! for queue in 0..tun.queues() {
//!     let (mut rx, mut tx) = tun.queue(queue)?;
//!     std::thread::spawn(move || {
//!         // Receives nothing while its queue is not in use, and continues afterwards.
//!         while let Ok(Some(packet)) = rx.recv() {
//!             match tx.send(&packet) {
//!                 Ok(()) | Err(mqnet::Error::NotInUse | mqnet::Error::Length { .. }) => {}
//!                 Err(_) => break,
//!             }
//!         }
//!     });
//! }
//! tun.set_channels(2)?;
//! tun.set_mtu(9000)?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Device::request`] sends the other requests of the control socket (features, coalescing,
//! qdiscs, counters) to the device, with the same checks and errors ([`control`]).
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
//! [`Nic`] takes over all RX queues of a kernel interface by AF_XDP.
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
//! program, without a copy. The device writes a frame there, and a [`Payload`] gives the position
//! of the frame.

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
pub use mqnet_port::{DirectionStats, Error, Packet, Receiver, Room, Sender, Stats};
pub use mqnet_virtio_user::{ProvidedMemory, RequestedLayout};
pub use nic::{Nic, NicBuilder};
pub use payload::{Payload, PayloadDevice, PayloadError, PayloadReceiver, PayloadReturner};
