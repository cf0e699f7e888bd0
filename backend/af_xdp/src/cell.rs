//! Where a queue's side waits between its owners.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mqnet_netdev::{Event, Fault, Trigger};
use mqnet_sysio::epoll::{Epoll, Interest};
use mqnet_sysio::eventfd::EventFd;

/// The place in which one side of a socket changes hands. The lock is taken at hand-overs only.
#[derive(Debug)]
pub(crate) struct Cell<T> {
    parked: Mutex<Option<Box<T>>>,
    is_here: AtomicBool,
    /// Wakes a half that came for it before it was here.
    bell: Arc<EventFd>,
}

impl<T> Cell<T> {
    pub(crate) fn new(bell: Arc<EventFd>, side: T) -> Self {
        let (parked, is_here) = (Mutex::new(Some(Box::new(side))), AtomicBool::new(true));
        Self { parked, is_here, bell }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<T>>> {
        // A half that panicked did so outside of the lock: what lies here is whole.
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Box<T>> {
        // Only a hint, the lock orders what lies here.
        if !self.is_here.load(Ordering::Relaxed) {
            return None;
        }
        let mut parked = self.lock();
        self.is_here.store(false, Ordering::Relaxed);
        parked.take()
    }

    fn put_back(&self, side: Box<T>) {
        let mut parked = self.lock();
        *parked = Some(side);
        self.is_here.store(true, Ordering::Relaxed);
        drop(parked);
        // An eventfd of our own cannot fail to be rung.
        let _ = self.bell.ring();
    }

    /// What lies here, for the control thread while no half runs.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.lock().as_deref_mut().map(f)
    }
}

/// What a sleeping half listens to: the bells of its cells, and the sockets that it has. One
/// descriptor for all, so that sides may come and go while a worker watches it.
///
/// A socket is listened to only when somebody has slept lately: to tell a listener costs the kernel
/// more than to carry a frame, and it tells of every single one.
#[derive(Debug)]
pub(crate) struct Ears {
    epoll: Epoll,
    socket: Interest,
}

impl Ears {
    /// For news of this kind from sockets.
    pub(crate) fn new(socket: Interest) -> io::Result<Self> {
        Ok(Self { epoll: Epoll::new()?, socket })
    }

    pub(crate) fn event(&self) -> Event<'_> {
        Event { fd: self.epoll.as_fd(), trigger: Trigger::Edge }
    }
}

/// A cell that a half serves, and what was in it while it is here.
#[derive(Debug)]
pub(crate) struct Seat<T> {
    cell: Arc<Cell<T>>,
    side: Option<Box<T>>,
    /// The socket of the side is among what is listened to.
    listens: bool,
    /// How often it had work since somebody slept.
    busy: u32,
}

impl<T: AsFd> Seat<T> {
    pub(crate) fn new(cell: Arc<Cell<T>>, ears: &Ears) -> io::Result<Self> {
        ears.epoll.add(cell.bell.as_fd(), Interest::ReadableEdge, 0)?;
        Ok(Self { cell, side: None, listens: false, busy: 0 })
    }

    /// The side, taken if it is free.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<&mut T> {
        if self.side.is_none() {
            self.side = self.cell.take();
        }
        self.side.as_deref_mut()
    }

    /// From now on news of its socket is heard; what came before must be looked for.
    pub(crate) fn listen(&mut self, ears: &Ears) -> io::Result<()> {
        self.busy = 0;
        if let Some(side) = self.side.as_ref().filter(|_| !self.listens) {
            ears.epoll.add(side.as_fd(), ears.socket, 0)?;
            self.listens = true;
        }
        Ok(())
    }

    /// It had work without anybody having slept; after some of it nobody needs to listen.
    #[inline]
    pub(crate) fn worked(&mut self, ears: &Ears, patience: u32) {
        if self.listens {
            self.busy += 1;
            if self.busy > patience {
                self.stop_listening(ears);
            }
        }
    }

    #[cold]
    fn stop_listening(&mut self, ears: &Ears) {
        if let Some(side) = self.side.as_ref().filter(|_| self.listens) {
            // It cannot fail: the descriptor was added when somebody slept.
            let _ = ears.epoll.remove(side.as_fd());
        }
        self.listens = false;
    }

    /// The side, if it is here.
    #[inline]
    pub(crate) fn side(&mut self) -> Option<&mut T> {
        self.side.as_deref_mut()
    }

    /// Puts the side back into the cell.
    pub(crate) fn leave(&mut self, ears: &Ears) {
        self.stop_listening(ears);
        if let Some(side) = self.side.take() {
            self.cell.put_back(side);
        }
    }
}

#[cold]
pub(crate) fn watching(channel: u16, error: &io::Error) -> Fault {
    Fault { channel, what: format!("watching an AF_XDP socket: {error}") }
}

/// A socket whose interface is gone or down.
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

    fn bell() -> Arc<EventFd> {
        Arc::new(EventFd::new().unwrap())
    }

    impl AsFd for Side {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    // Goal: a side is at one seat at a time, the next one gets it when the first leaves, and is
    // told so if it came too early.
    #[test]
    fn a_side_has_one_owner() {
        let cell = Arc::new(Cell::new(bell(), Side(EventFd::new().unwrap())));
        let ears = [(); 2].map(|()| Ears::new(Interest::ReadableEdge).unwrap());
        let [mut one, mut two] = ears.each_ref().map(|e| Seat::new(cell.clone(), e).unwrap());
        assert!(one.take().is_some());
        assert!(two.take().is_none());
        assert!(cell.with(|_| ()).is_none());
        let heard = || ears[1].epoll.wait(Some(std::time::Duration::ZERO), |_| ()).unwrap();
        assert_eq!(heard(), 0);
        one.leave(&ears[0]);
        assert_eq!(heard(), 1);
        assert!(two.take().is_some() && one.take().is_none());
        assert!(one.side().is_none() && two.side().is_some());
    }

    // Goal: a socket is heard from when somebody is about to sleep until it had work often enough,
    // and then not, until somebody is about to sleep again; nor is one that has left.
    #[test]
    fn only_sleepers_listen() {
        let cell = Arc::new(Cell::new(bell(), Side(EventFd::new().unwrap())));
        let ears = Ears::new(Interest::ReadableEdge).unwrap();
        let mut seat = Seat::new(cell.clone(), &ears).unwrap();
        let heard = || ears.epoll.wait(Some(std::time::Duration::ZERO), |_| ()).unwrap();
        let ring = |seat: &mut Seat<Side>| seat.take().unwrap().0.ring().unwrap();
        ring(&mut seat);
        assert_eq!(heard(), 0, "nobody listens yet");
        seat.listen(&ears).unwrap();
        assert_eq!(heard(), 1, "what came before");
        for _ in 0..3 {
            seat.worked(&ears, 3);
            ring(&mut seat);
            assert_eq!(heard(), 1);
        }
        seat.worked(&ears, 3);
        ring(&mut seat);
        assert_eq!(heard(), 0, "everybody is busy");
        seat.listen(&ears).unwrap();
        seat.listen(&ears).unwrap();
        assert_eq!(heard(), 1);
        seat.leave(&ears);
        // The bell.
        assert_eq!(heard(), 1);
        cell.with(|side| side.0.ring().unwrap()).unwrap();
        assert_eq!(heard(), 0, "it has left");
    }
}
