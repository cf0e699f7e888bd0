//! Hand-over cell: holds one side of a socket between two queues.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use mqnet_netdev::{Fault, RecallCell, Trigger, WakeSource};
use mqnet_sysio::epoll::{Epoll, Interest};
use mqnet_sysio::eventfd::EventFd;

/// Hand-over cell of one side of a socket. No side is recalled: a queue returns its side when
/// parked.
#[derive(Debug)]
pub(crate) struct Cell<T> {
    parked: RecallCell<T>,
    /// Wakes the queues of the cell when a side returns, in case one tried to take the side before.
    wakeup: Arc<EventFd>,
}

impl<T> Cell<T> {
    pub(crate) fn new(wakeup: Arc<EventFd>, side: T) -> Self {
        Self { parked: RecallCell::new(side), wakeup }
    }

    fn put_back(&self, side: Box<T>) {
        self.parked.put_back(side);
        // An error is ignored: writing to this process's own eventfd does not fail.
        let _ = self.wakeup.ring();
    }

    /// Calls `f` with the parked side, for the control thread; `None` while a queue has the side.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.parked.with(f)
    }
}

/// Events that wake the lane of a queue: the eventfds of its cells, and the sockets of its sides. A
/// worker watches only the descriptor of the set, which remains when sides change.
///
/// A socket is watched only after a lane has slept recently. The kernel notifies per frame, and a
/// notification costs more than forwarding the frame.
#[derive(Debug)]
pub(crate) struct EpollSet {
    epoll: Epoll,
    socket: Interest,
}

impl EpollSet {
    /// Creates a set that watches sockets for events of the kind `socket`.
    pub(crate) fn new(socket: Interest) -> io::Result<Self> {
        Ok(Self { epoll: Epoll::new()?, socket })
    }

    pub(crate) fn event(&self) -> WakeSource<'_> {
        WakeSource { fd: self.epoll.as_fd(), trigger: Trigger::Edge }
    }
}

/// Lease of one side: its cell, and the side while the queue has it.
#[derive(Debug)]
pub(crate) struct Lease<T> {
    cell: Arc<Cell<T>>,
    side: Option<Box<T>>,
    /// True if the socket of the side is in the epoll set.
    is_watched: bool,
    /// Number of polls with work since the lane armed the queue.
    busy: u32,
}

impl<T: AsFd> Lease<T> {
    pub(crate) fn new(cell: Arc<Cell<T>>, epoll_set: &EpollSet) -> io::Result<Self> {
        epoll_set.epoll.add(cell.wakeup.as_fd(), Interest::ReadableEdge, 0)?;
        Ok(Self { cell, side: None, is_watched: false, busy: 0 })
    }

    /// Takes the side if it is parked; `None` while another queue has the side.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<&mut T> {
        if self.side.is_none() {
            self.side = self.cell.parked.take_offered();
        }
        self.side.as_deref_mut()
    }

    /// Adds the socket to the epoll set. The caller must check for earlier events afterwards.
    pub(crate) fn watch(&mut self, epoll_set: &EpollSet) -> io::Result<()> {
        self.busy = 0;
        if let Some(side) = self.side.as_ref().filter(|_| !self.is_watched) {
            epoll_set.epoll.add(side.as_fd(), epoll_set.socket, 0)?;
            self.is_watched = true;
        }
        Ok(())
    }

    /// Counts a poll with work. After more than `patience` such polls, the socket is removed from
    /// the epoll set.
    #[inline]
    pub(crate) fn note_work(&mut self, epoll_set: &EpollSet, patience: u32) {
        if self.is_watched {
            self.busy += 1;
            if self.busy > patience {
                self.unwatch(epoll_set);
            }
        }
    }

    #[cold]
    fn unwatch(&mut self, epoll_set: &EpollSet) {
        if let Some(side) = self.side.as_ref().filter(|_| self.is_watched) {
            // An error is ignored: `watch` has added the descriptor.
            let _ = epoll_set.epoll.remove(side.as_fd());
        }
        self.is_watched = false;
    }

    /// Side, if the queue has it.
    #[inline]
    pub(crate) fn side(&mut self) -> Option<&mut T> {
        self.side.as_deref_mut()
    }

    /// Returns the side to the cell, if the queue has it.
    pub(crate) fn hand_back(&mut self, epoll_set: &EpollSet) {
        self.unwatch(epoll_set);
        if let Some(side) = self.side.take() {
            self.cell.put_back(side);
        }
    }
}

#[cold]
pub(crate) fn watching(channel: u16, error: &io::Error) -> Fault {
    Fault { channel, what: format!("watching an AF_XDP socket: {error}") }
}

/// Fault of a socket, for example because the interface is down or removed.
#[cold]
pub(crate) fn waking(channel: u16, error: &io::Error) -> Fault {
    let what = match error.raw_os_error() {
        Some(libc::ENETDOWN) => "the interface was set down".to_owned(),
        Some(libc::ENXIO | libc::ENODEV) => "the interface was removed".to_owned(),
        _ => format!("AF_XDP socket: {error}"),
    };
    Fault { channel, what }
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;

    use super::*;

    struct Side(EventFd);

    fn wakeup() -> Arc<EventFd> {
        Arc::new(EventFd::new().unwrap())
    }

    impl AsFd for Side {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    // Goal: a side has one owner at a time. The next owner gets the side after the first returns
    // it, and is woken if it tried too early.
    #[test]
    fn a_side_has_one_owner() {
        let cell = Arc::new(Cell::new(wakeup(), Side(EventFd::new().unwrap())));
        let epoll_set = [(); 2].map(|()| EpollSet::new(Interest::ReadableEdge).unwrap());
        let [mut one, mut two] = epoll_set.each_ref().map(|e| Lease::new(cell.clone(), e).unwrap());
        assert!(one.take().is_some());
        assert!(two.take().is_none());
        assert!(cell.with(|_| ()).is_none());
        let events = || epoll_set[1].epoll.wait(Some(std::time::Duration::ZERO), |_| ()).unwrap();
        assert_eq!(events(), 0);
        one.hand_back(&epoll_set[0]);
        assert_eq!(events(), 1);
        assert!(two.take().is_some() && one.take().is_none());
        assert!(one.side().is_none() && two.side().is_some());
    }

    // Goal: a socket is watched from the time when a lane arms until enough polls had work, and
    // again after the next arm. A returned side is not watched.
    #[test]
    fn sockets_are_watched_while_lanes_sleep() {
        let cell = Arc::new(Cell::new(wakeup(), Side(EventFd::new().unwrap())));
        let epoll_set = EpollSet::new(Interest::ReadableEdge).unwrap();
        let mut lease = Lease::new(cell.clone(), &epoll_set).unwrap();
        let events = || epoll_set.epoll.wait(Some(std::time::Duration::ZERO), |_| ()).unwrap();
        let ring = |lease: &mut Lease<Side>| lease.take().unwrap().0.ring().unwrap();
        ring(&mut lease);
        assert_eq!(events(), 0, "no listener yet");
        lease.watch(&epoll_set).unwrap();
        assert_eq!(events(), 1, "what came before");
        for _ in 0..3 {
            lease.note_work(&epoll_set, 3);
            ring(&mut lease);
            assert_eq!(events(), 1);
        }
        lease.note_work(&epoll_set, 3);
        ring(&mut lease);
        assert_eq!(events(), 0, "everybody is busy");
        lease.watch(&epoll_set).unwrap();
        lease.watch(&epoll_set).unwrap();
        assert_eq!(events(), 1);
        lease.hand_back(&epoll_set);
        // The event is that of the cell's eventfd.
        assert_eq!(events(), 1);
        cell.with(|side| side.0.ring().unwrap()).unwrap();
        assert_eq!(events(), 0, "it has left");
    }
}
