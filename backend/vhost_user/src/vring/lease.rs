//! Ring lease of a half: the cell of a ring, and the ring while the half has it.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use mqnet_netdev::{Trigger, WakeSource};
use mqnet_sysio::epoll::{Epoll, Interest};
use mqnet_virtio::{DeviceRing, on_ring};

use super::{Vring, VringCell};

/// Event set of a half: the eventfds of its cells and the kicks of its rings. A worker watches only
/// the descriptor of the set, which remains when rings are exchanged.
#[derive(Debug)]
pub(crate) struct EpollSet {
    epoll: Epoll,
}

impl EpollSet {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: Epoll::new()? })
    }

    /// Edge-triggered event of the set. Each signal of a member triggers the event, so a worker
    /// does not read the set.
    pub(crate) fn event(&self) -> WakeSource<'_> {
        WakeSource { fd: self.epoll.as_fd(), trigger: Trigger::Edge }
    }

    /// Consumes pending events, for a thread that polls the descriptor level-triggered.
    pub(crate) fn drain(&self) -> io::Result<()> {
        self.epoll.wait(Some(Duration::ZERO), |_| ()).map(drop)
    }

    /// Adds the event set of another half if `on`, and removes it otherwise.
    pub(crate) fn set_watched(&self, other: &Self, on: bool) -> io::Result<()> {
        let fd = other.epoll.as_fd();
        if on { self.epoll.add(fd, Interest::ReadableEdge, 0) } else { self.epoll.remove(fd) }
    }
}

/// Lease of the ring in one cell.
#[derive(Debug)]
pub(crate) struct RingLease {
    cell: Arc<VringCell>,
    vring: Option<Box<Vring>>,
}

impl RingLease {
    pub(crate) fn new(cell: Arc<VringCell>, events: &EpollSet) -> io::Result<Self> {
        events.epoll.add(cell.wake_event(), Interest::ReadableEdge, 0)?;
        Ok(Self { cell, vring: None })
    }

    /// Takes an offered ring, or returns a recalled one to the cell. True if the half then has the
    /// ring.
    #[inline]
    pub(crate) fn is_ready(&mut self, events: &EpollSet) -> io::Result<bool> {
        if self.vring.is_some() && !self.cell.is_recalled() {
            Ok(true)
        } else {
            self.change(events)
        }
    }

    #[cold]
    fn change(&mut self, events: &EpollSet) -> io::Result<bool> {
        self.release(events);
        let Some(vring) = self.cell.take_offered() else { return Ok(false) };
        let added = vring
            .kick_fd()
            .map_or(Ok(()), |kick| events.epoll.add(kick, Interest::ReadableEdge, 0));
        if let Err(e) = added {
            // Put the ring back, because the control thread must find it in the cell.
            self.cell.put_back(vring);
            return Err(e);
        }
        self.vring = Some(vring);
        Ok(true)
    }

    /// Ring, if the half has it.
    #[inline]
    pub(crate) fn vring(&mut self) -> Option<&mut Vring> {
        self.vring.as_deref_mut()
    }

    /// Ring, if the half has it, and the cell in which violations are recorded.
    #[inline]
    pub(crate) fn parts(&mut self) -> (Option<&mut Vring>, &VringCell) {
        (self.vring.as_deref_mut(), &self.cell)
    }

    /// Returns the ring to the cell, if the half has it.
    pub(crate) fn release(&mut self, events: &EpollSet) {
        let Some(mut vring) = self.vring.take() else { return };
        // Publish the used descriptors, because a recall may occur within a burst. In a split ring,
        // the next owner would use unpublished descriptors again. The position of a packed ring is
        // already past them, so the driver would never get them back.
        let wants_interrupt = on_ring!(&mut vring.ring, ring => ring.publish());
        // After a violation the control thread calls this function, and a peer must not block that
        // thread.
        if wants_interrupt && !self.cell.is_violated() {
            // An error is ignored: a driver without an interrupt polls, or is gone.
            let _ = vring.call.ring();
        }
        if let Some(kick) = vring.kick_fd() {
            // An error is ignored: the descriptor was added when the ring was taken.
            let _ = events.epoll.remove(kick);
        }
        self.cell.put_back(vring);
    }
}
