//! The hardware under a bridge, in the kernel's nouns (Documentation/driver-api/ntb.rst).

pub mod ivshmem;
pub mod memfd;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use mqnet_netdev::Device;
use mqnet_shmem::Region;
use mqnet_sysio::eventfd::EventFd;

/// Where the two ends' memory is, once the hardware link is up.
#[derive(Clone, Debug)]
pub struct MemoryWindows {
    /// Our own memory, which the peer writes. Read by us.
    pub inbound: Arc<Region>,
    /// Bytes of it that are window.
    pub inbound_len: u32,
    /// The peer's memory. Written by us, never read.
    pub outbound: Arc<Region>,
    /// Bytes of it that are window.
    pub outbound_len: u32,
    /// Offset of the window in both regions (in front of it may lie the provider's registers).
    pub offset: usize,
}

/// State of the hardware link. A link event carries no state: the client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HwLink {
    /// No peer; why.
    Down(String),
    /// A peer is there. The number changes with every new peer.
    Up(u64),
}

/// A doorbell of the peer.
pub trait Doorbell: Send + Sync {
    /// Rings it: the peer's event becomes ready.
    fn ring(&self) -> io::Result<()>;
}

impl Doorbell for EventFd {
    fn ring(&self) -> io::Result<()> {
        EventFd::ring(self)
    }
}

/// One port of a bridge with one peer.
pub trait Hw: Send {
    /// Makes progress with the hardware link and says how it stands.
    fn poll_link(&mut self, now: Duration) -> HwLink;

    /// Descriptors whose readiness asks for a [`poll_link`](Self::poll_link).
    fn events(&self) -> Vec<BorrowedFd<'_>>;

    /// The memory windows. Only while the link is up.
    fn windows(&self) -> Option<MemoryWindows>;

    /// Reads our scratchpad `pad`, which the peer writes; 0 while the link is down.
    fn spad_read(&self, pad: usize) -> u32;

    /// Writes the peer's scratchpad `pad`; nothing happens while the link is down.
    fn peer_spad_write(&self, pad: usize, value: u32);

    /// The peer's doorbell `bit`; `None` when there is none or the link is down. Bit 0 belongs to
    /// the link, bit 1 + q to queue pair q.
    fn peer_doorbell(&self, bit: usize) -> Option<Arc<dyn Doorbell>>;

    /// The event of our doorbell `bit`, edge-triggered.
    fn doorbell_event(&self, bit: usize) -> Option<Arc<EventFd>>;

    /// Drops the peer and starts anew, not before `retry_after` has passed.
    fn reset(&mut self, now: Duration, retry_after: Duration);

    /// Bytes of our own window.
    fn window_len(&self) -> u32;

    /// The PCI function and its interrupts, once they are known and where there are any.
    fn device(&self) -> Option<Device> {
        None
    }

    /// True for the end that joined an existing port on the same machine.
    fn is_second(&self) -> bool;
}
