//! What a half has of a ring: its cell, and the ring while it is here.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use mqnet_netdev::{Event, Trigger};
use mqnet_sysio::epoll::{Epoll, Interest};
use mqnet_virtio::{DeviceRing, on_ring};

use super::{Vring, VringCell};

/// What a sleeping half listens to: the bells of its cells, and the kicks of the rings that it has.
/// One descriptor for all, so that rings may come and go while a worker watches it.
#[derive(Debug)]
pub(crate) struct Ears {
    epoll: Epoll,
}

impl Ears {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: Epoll::new()? })
    }

    /// Nobody ever asks which descriptor it was: each arrival at any of them is one at this one.
    pub(crate) fn event(&self) -> Event<'_> {
        Event { fd: self.epoll.as_fd(), trigger: Trigger::Edge }
    }

    /// For who waits for the descriptor by itself: what was heard so far wakes nobody any more.
    pub(crate) fn forget_heard(&self) -> io::Result<()> {
        self.epoll.wait(Some(Duration::ZERO), |_| ()).map(drop)
    }

    /// Listens to what another half listens to, too, or not any more.
    pub(crate) fn listen_to(&self, other: &Self, on: bool) -> io::Result<()> {
        let fd = other.epoll.as_fd();
        if on { self.epoll.add(fd, Interest::ReadableEdge, 0) } else { self.epoll.remove(fd) }
    }
}

/// A cell that a half serves.
#[derive(Debug)]
pub(crate) struct Seat {
    cell: Arc<VringCell>,
    vring: Option<Box<Vring>>,
}

impl Seat {
    pub(crate) fn new(cell: Arc<VringCell>, ears: &Ears) -> io::Result<Self> {
        ears.epoll.add(cell.bell(), Interest::ReadableEdge, 0)?;
        Ok(Self { cell, vring: None })
    }

    /// Takes the ring if it is offered, gives it back if it is recalled; true when it is here.
    #[inline]
    pub(crate) fn is_ready(&mut self, ears: &Ears) -> io::Result<bool> {
        if self.vring.is_some() && !self.cell.is_recalled() { Ok(true) } else { self.change(ears) }
    }

    #[cold]
    fn change(&mut self, ears: &Ears) -> io::Result<bool> {
        self.leave(ears);
        let Some(vring) = self.cell.take_offered() else { return Ok(false) };
        let heard =
            vring.kick_fd().map_or(Ok(()), |kick| ears.epoll.add(kick, Interest::ReadableEdge, 0));
        if let Err(e) = heard {
            // Whoever asks for the ring must find it.
            self.cell.put_back(vring);
            return Err(e);
        }
        self.vring = Some(vring);
        Ok(true)
    }

    /// The ring, if it is here.
    #[inline]
    pub(crate) fn vring(&mut self) -> Option<&mut Vring> {
        self.vring.as_deref_mut()
    }

    /// The ring, if it is here, and where violations in it are noted.
    #[inline]
    pub(crate) fn parts(&mut self) -> (Option<&mut Vring>, &VringCell) {
        (self.vring.as_deref_mut(), &self.cell)
    }

    /// Puts the ring back into the cell.
    pub(crate) fn leave(&mut self, ears: &Ears) {
        let Some(mut vring) = self.vring.take() else { return };
        // It may be asked for between a burst's first frame and its end. What was given back and
        // not shown, the next owner would use a second time; in a packed ring it lies beyond the
        // position from which that goes on, and would never be available again.
        let tell = on_ring!(&mut vring.ring, ring => ring.publish());
        // After a violation it is the control thread that is here: no peer may make it wait.
        if tell && !self.cell.is_violated() {
            // A driver that cannot be interrupted finds out by itself, or is gone.
            let _ = vring.call.ring();
        }
        if let Some(kick) = vring.kick_fd() {
            // It cannot fail: the descriptor was added when the ring came.
            let _ = ears.epoll.remove(kick);
        }
        self.cell.put_back(vring);
    }
}
