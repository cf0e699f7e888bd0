//! The hardware under a bridge, in the kernel's nouns (Documentation/driver-api/ntb.rst).

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
/// ([`Arc::strong_count`] is 1): until then a worker may still write to the memory. Clones are
/// dropped when [`Hw::poll_link`] has reported the link down or a new session, and the channels
/// were closed.
#[derive(Clone, Debug)]
pub struct Outbound {
    /// The mappings, by offset in the window. Together they cover `0..len` without a gap; one
    /// frame may be in several.
    pub map: Arc<MemoryMap>,
    /// Bytes that the peer has set up, as it programmed them.
    pub len: u32,
}

/// Numbering of doorbells: the same for the doorbells of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doorbells {
    /// Doorbell of the link. `None` where it belongs to the provider: for `ntb_hw_epf`, vector 0 is
    /// a link event, and `ntb_transport` lays its rings out anew at each.
    pub link: Option<usize>,
    /// Doorbell of queue pair 0; that of queue pair `q` is `q` higher.
    pub first_pair: usize,
    /// Number of doorbells, those without a use included.
    pub count: usize,
}

impl Doorbells {
    /// Doorbell of a queue pair; `None` when there are not as many.
    pub fn of_pair(&self, pair: u16) -> Option<usize> {
        Some(self.first_pair + usize::from(pair)).filter(|bit| *bit < self.count)
    }

    /// Most queue pairs that have a doorbell.
    pub fn pairs_max(&self) -> u16 {
        u16::try_from(self.count.saturating_sub(self.first_pair)).unwrap_or(u16::MAX)
    }
}

/// Wake-ups by a doorbell that is plain memory for the peer unless a sleeper needs it.
pub trait DoorbellTrap: Send + Sync {
    /// The doorbell's event becomes ready when the peer rings after this call. The caller polls the
    /// queue once more afterwards: rings before the call may be lost.
    fn arm(&self);

    /// The doorbell's event need not become ready any more. Called at the first poll after
    /// [`arm`](Self::arm), ready or not; a provider that disarms at the first ring ignores it.
    fn disarm(&self) {}
}

/// Interface of hardware with a peer that can be an `ntb_transport`. All methods are called on the
/// control thread.
///
/// # Scratchpads
/// Both sets read 0 when a session of the hardware link begins. A peer may write its set without a
/// notification: then [`Hw::events`] has a descriptor that is ready at most 10 ms after a change.
///
/// # Sessions
/// [`Hw::poll_link`] reports a new session, or the link down, when the peer changes or removes a
/// translation that it has set up, and when memory behind one is lost.
pub trait TransportHw {
    /// Number of memory windows, at least 1.
    fn window_count(&self) -> usize;

    /// Bytes of window `index` of this end; the size announced to the peer, which sets up as many.
    fn window_size(&self, index: usize) -> u32;

    /// Window `index`; `None` while the link is down.
    fn window(&self, index: usize) -> Option<MemoryWindow>;

    /// Number of scratchpads of each end.
    fn spad_count(&self) -> usize;

    /// Writes our own scratchpad `pad`, which the peer writes too, and returns what was in it, in
    /// one atomic step.
    fn spad_swap(&self, pad: usize, value: u32) -> u32;

    /// Reads the peer's scratchpad `pad` back; 0 while the link is down.
    fn peer_spad_read(&self, pad: usize) -> u32;

    /// Numbering of [`Hw::peer_doorbell`] and [`Hw::doorbell_event`].
    fn doorbells(&self) -> Doorbells;

    /// Interrupt vectors of the peer, those without a queue pair included.
    fn vectors(&self) -> u16 {
        u16::try_from(self.doorbells().count).unwrap_or(u16::MAX)
    }

    /// How to be woken by doorbell `bit`; `None` where each ring makes its event ready.
    fn doorbell_trap(&self, bit: usize) -> Option<Arc<dyn DoorbellTrap>>;
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

    /// The peer's doorbell `bit`; `None` when there is none or the link is down. Numbering:
    /// [`TransportHw::doorbells`], or bit 0 for the link and bit 1 + q for queue pair q.
    fn peer_doorbell(&self, bit: usize) -> Option<Arc<dyn Doorbell>>;

    /// The event of our doorbell `bit`, edge-triggered.
    fn doorbell_event(&self, bit: usize) -> Option<Arc<EventFd>>;

    /// Drops the peer and starts anew, not before `retry_after` has passed.
    fn reset(&mut self, now: Duration, retry_after: Duration);

    /// Bytes of our own window.
    fn window_len(&self) -> u32;

    /// The PCI function and its interrupts, once they are known and where there are any.
    fn device(&self) -> Option<HardwareDevice> {
        None
    }

    /// True for the end that joined an existing port on the same machine.
    fn is_second(&self) -> bool;

    /// The part for a peer that is a kernel's `ntb_transport`; `None` where the peer is mqnet.
    fn transport(&self) -> Option<&dyn TransportHw> {
        None
    }
}
