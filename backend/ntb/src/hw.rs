//! Hardware of a bridge, in the terms of the kernel (Documentation/driver-api/ntb.rst).

pub mod ivshmem;
pub mod memfd;
pub mod vfio_user;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use mqnet_netdev::HardwareDevice;
use mqnet_shmem::{MemoryMap, Region};
use mqnet_sysio::eventfd::EventFd;

/// Memory windows of both ends, while the hardware link is up.
#[derive(Clone, Debug)]
pub struct MemoryWindows {
    /// Memory of this end. The peer writes it; this end reads it.
    pub inbound: Arc<Region>,
    /// Bytes of the window in `inbound`.
    pub inbound_len: u32,
    /// Memory of the peer. This end writes it and never reads it.
    pub outbound: Arc<Region>,
    /// Bytes of the window in `outbound`.
    pub outbound_len: u32,
    /// Offset of the window in both regions (registers of the provider may precede it).
    pub offset: usize,
}

/// One memory window of a bridge to a kernel's `ntb_transport`.
#[derive(Clone, Debug)]
pub struct MemoryWindow {
    /// Memory of this end that the peer writes.
    pub inbound: Arc<Region>,
    /// Offset of the window in `inbound`: a multiple of 16.
    pub inbound_at: usize,
    /// Bytes of the window in `inbound`: a multiple of 16.
    pub inbound_len: u32,
    /// Memory of the peer; `None` until the peer has set up the translation.
    pub outbound: Option<Outbound>,
}

/// Memory of the peer behind a window, in one or more mappings.
///
/// A provider may complete a teardown of the translation only when no other clone of `map` exists
/// ([`Arc::strong_count`] is 1). Until then a worker may still write to the memory. The last clone
/// is dropped when the channels are closed, after [`Hw::poll_link`] has reported the link down or a
/// new session.
#[derive(Clone, Debug)]
pub struct Outbound {
    /// Mappings, sorted by offset in the window. Together they cover `0..len` without a gap. One
    /// frame may cross several mappings.
    pub map: Arc<MemoryMap>,
    /// Bytes that the peer has set up, as programmed by the peer.
    pub len: u32,
}

/// Numbering of doorbells, the same at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doorbells {
    /// Doorbell that signals a link event to the peer; `None` if mqnet must not ring one.
    /// `ntb_hw_epf` is such a case: `ntb_transport` initialises its rings again at each link event
    /// (vector 0).
    pub link: Option<usize>,
    /// Doorbell of queue pair 0. Queue pair `q` has doorbell `first_pair + q`.
    pub first_pair: usize,
    /// Number of doorbells, including unused ones.
    pub count: usize,
}

impl Doorbells {
    /// Doorbell of queue pair `pair`; `None` if the pair has no doorbell.
    pub fn of_pair(&self, pair: u16) -> Option<usize> {
        Some(self.first_pair + usize::from(pair)).filter(|bit| *bit < self.count)
    }

    /// Largest number of queue pairs that have a doorbell.
    pub fn pairs_max(&self) -> u16 {
        u16::try_from(self.count.saturating_sub(self.first_pair)).unwrap_or(u16::MAX)
    }
}

/// Switch of a doorbell between plain memory, which the peer writes without an event, and a trap,
/// with which a write makes the event ready.
pub trait DoorbellTrap: Send + Sync {
    /// Arms the doorbell: its event becomes ready when the peer rings after this call. The caller
    /// polls the queue once more afterwards, because rings before the call may be lost.
    fn arm(&self);

    /// Disarms the doorbell: its event need not become ready any more. The first poll after
    /// [`arm`](Self::arm) calls this method, even if the event is not ready. A provider that
    /// disarms at the first ring need not implement this method.
    fn disarm(&self) {}
}

/// Interface of hardware with a peer that can be an `ntb_transport`. The control thread calls all
/// methods.
///
/// # Scratchpads
/// Both sets of scratchpads read 0 when a session of the hardware link begins. A peer may write
/// its set without a notification: then [`Hw::events`] has a descriptor that is ready at most 10
/// ms after a change.
///
/// A translation stays the same for a session. If the peer changes or removes one, or its memory is
/// lost, [`Hw::poll_link`] reports a new session or the link down.
pub trait TransportHw {
    /// Number of memory windows, at least 1.
    fn window_count(&self) -> usize;

    /// Bytes of window `index` of this end. The peer reads this size and sets up as many bytes.
    fn window_size(&self, index: usize) -> u32;

    /// Window `index`; `None` while the link is down.
    fn window(&self, index: usize) -> Option<MemoryWindow>;

    /// Number of scratchpads of each end.
    fn spad_count(&self) -> usize;

    /// Atomically writes this end's scratchpad `pad`, which the peer writes too, and returns its
    /// previous value.
    fn spad_swap(&self, pad: usize, value: u32) -> u32;

    /// Reads back the peer's scratchpad `pad`, which this end writes; 0 while the link is down.
    fn peer_spad_read(&self, pad: usize) -> u32;

    /// Numbering of [`Hw::peer_doorbell`] and [`Hw::doorbell_event`].
    fn doorbells(&self) -> Doorbells;

    /// Number of interrupt vectors of the peer, including those without a queue pair.
    fn vectors(&self) -> u16 {
        u16::try_from(self.doorbells().count).unwrap_or(u16::MAX)
    }

    /// Trap for doorbell `bit`; `None` if every ring makes the doorbell's event ready.
    fn doorbell_trap(&self, bit: usize) -> Option<Arc<dyn DoorbellTrap>>;
}

/// State of the hardware link. A link event carries no state: its receiver calls [`Hw::poll_link`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HwLink {
    /// No peer, with the reason.
    Down(String),
    /// A peer is connected. The number changes with every new peer and session.
    Up(u64),
}

/// A doorbell of the peer.
pub trait Doorbell: Send + Sync {
    /// Rings the doorbell: the peer's event becomes ready.
    fn ring(&self) -> io::Result<()>;
}

impl Doorbell for EventFd {
    fn ring(&self) -> io::Result<()> {
        EventFd::ring(self)
    }
}

/// One port of a bridge with one peer.
pub trait Hw: Send {
    /// Makes progress with the hardware link and returns its state.
    fn poll_link(&mut self, now: Duration) -> HwLink;

    /// Descriptors that are ready when [`poll_link`](Self::poll_link) should be called.
    fn events(&self) -> Vec<BorrowedFd<'_>>;

    /// Memory windows; `None` while the link is down.
    fn windows(&self) -> Option<MemoryWindows>;

    /// Reads this end's scratchpad `pad`, which the peer writes; 0 while the link is down.
    fn spad_read(&self, pad: usize) -> u32;

    /// Writes the peer's scratchpad `pad`; ignored while the link is down.
    fn peer_spad_write(&self, pad: usize, value: u32);

    /// Doorbell `bit` of the peer; `None` if there is none or the link is down.
    /// [`TransportHw::doorbells`] defines the numbering; without it, bit 0 is the link and bit 1
    /// + q is queue pair q.
    fn peer_doorbell(&self, bit: usize) -> Option<Arc<dyn Doorbell>>;

    /// Event of this end's doorbell `bit`, edge-triggered; `None` if there is none.
    fn doorbell_event(&self, bit: usize) -> Option<Arc<EventFd>>;

    /// Drops the peer. The next session does not begin before `retry_after` has passed.
    fn reset(&mut self, now: Duration, retry_after: Duration);

    /// Bytes of this end's window.
    fn window_len(&self) -> u32;

    /// PCI function and its interrupts; `None` until they are known, or if there are none.
    fn device(&self) -> Option<HardwareDevice> {
        None
    }

    /// True for exactly one of two mqnet ends: the end that connected to the socket, or that owns
    /// half 1 of an ivshmem device. False if the peer is a kernel.
    fn is_second(&self) -> bool;

    /// Interface for a peer that is a kernel's `ntb_transport`; `None` if the peer can only be
    /// mqnet.
    fn transport(&self) -> Option<&dyn TransportHw> {
        None
    }
}
