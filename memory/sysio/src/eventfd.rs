//! Eventfds as doorbells.
//!
//! A peer process that holds an eventfd shares its open file description: it may clear
//! `O_NONBLOCK` or fill the counter. Waiters therefore use edge-triggered epoll without a read,
//! [`EventFd::drain`] passes `RWF_NOWAIT`, and [`EventFd::ring`] signals a shared eventfd through
//! [`signal`], which cannot block.

mod signal;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd as sys;

use crate::descriptors::{explained, is_eventfd};

/// A counting event descriptor.
#[derive(Debug)]
pub struct EventFd {
    fd: OwnedFd,
    /// Another process may hold the open file description, or may have held it.
    is_shared: AtomicBool,
}

impl EventFd {
    /// Creates a non-blocking eventfd with a zero count.
    pub fn new() -> io::Result<Self> {
        let flags = sys::EfdFlags::EFD_NONBLOCK | sys::EfdFlags::EFD_CLOEXEC;
        let event = sys::EventFd::from_value_and_flags(0, flags).map_err(explained)?;
        Ok(Self::of(event.into(), false))
    }

    /// Creates an eventfd that [`become_same_as`](Self::become_same_as) may exchange for a peer's.
    pub fn for_peer() -> io::Result<Self> {
        Self::new().map(|event| Self::of(event.fd, true))
    }

    fn of(fd: OwnedFd, is_shared: bool) -> Self {
        Self { fd, is_shared: AtomicBool::new(is_shared) }
    }

    /// Another descriptor for the eventfd that `owner` holds, whose type knows no borrowed ones.
    pub fn duplicate(owner: &impl AsRawFd) -> io::Result<Self> {
        // SAFETY: the call takes a number, and fails if it is no descriptor.
        let raw = unsafe { libc::fcntl(owner.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fcntl just made this descriptor; nobody else owns it.
        Ok(Self::of(unsafe { OwnedFd::from_raw_fd(raw) }, true))
    }

    /// Takes over a descriptor that a peer sent; `None` if it is no eventfd: a pipe, for one, would
    /// block us when it is full.
    pub fn from_peer(fd: OwnedFd) -> Option<Self> {
        is_eventfd(fd.as_fd()).then(|| Self::of(fd, true))
    }

    /// Adds one to the counter, which wakes the waiter. Never blocks: a full counter, which wakes
    /// the waiter already, counts as success.
    ///
    /// On a system without Linux AIO a shared eventfd is polled and then written, and a peer that
    /// fills the counter between the two system calls blocks the caller.
    #[inline]
    pub fn ring(&self) -> io::Result<()> {
        if self.is_shared.load(Ordering::Relaxed) {
            if let Some(done) = signal::signal(self.fd.as_fd()) {
                return done;
            }
            let mut writable = [PollFd::new(self.fd.as_fd(), PollFlags::POLLOUT)];
            if nix::poll::poll(&mut writable, PollTimeout::ZERO)? == 0 {
                return Ok(());
            }
        }
        match nix::unistd::write(&self.fd, &1u64.to_ne_bytes()) {
            Ok(_) | Err(nix::errno::Errno::EAGAIN) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Sets the count to zero without ever blocking, whatever the peer did to the flags.
    pub fn drain(&self) {
        let mut value = [0u8; 8];
        let iov = libc::iovec { iov_base: value.as_mut_ptr().cast(), iov_len: 8 };
        // SAFETY: `iov` describes `value`, which outlives the call.
        unsafe { libc::preadv2(self.fd.as_raw_fd(), &iov, 1, -1, libc::RWF_NOWAIT) };
    }

    /// Replaces the descriptor by another one for the counter of `other`, under the same number: a
    /// thread that rings at the same time rings the one or the other, and needs no lock. The
    /// eventfd was created by [`for_peer`](Self::for_peer).
    pub fn become_same_as(&self, other: &Self) -> io::Result<()> {
        let (from, to) = (other.fd.as_raw_fd(), self.fd.as_raw_fd());
        debug_assert!(self.is_shared.load(Ordering::Relaxed), "made by `for_peer`");
        // SAFETY: both are open descriptors of ours; dup3 puts one in the other's place at once,
        // so that the number stays valid all the time.
        if unsafe { libc::dup3(from, to, libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Another descriptor for the same counter, to hand to a peer.
    pub fn try_clone(&self) -> io::Result<OwnedFd> {
        self.is_shared.store(true, Ordering::Relaxed);
        self.fd.try_clone()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_rung(event: &EventFd) -> bool {
        let mut look = [PollFd::new(event.as_fd(), PollFlags::POLLIN)];
        nix::poll::poll(&mut look, PollTimeout::ZERO).unwrap() == 1
    }

    // Goal: a peer that filled the counter and cleared O_NONBLOCK cannot block the caller, whatever
    // how the eventfd came to be shared.
    #[test]
    fn shared_full_blocking_eventfd_is_rung_without_waiting() {
        let blocking =
            || sys::EventFd::from_value_and_flags(0, sys::EfdFlags::EFD_CLOEXEC).unwrap();
        let (first, second) = (blocking(), blocking());
        first.write(u64::MAX - 1).unwrap();
        second.write(u64::MAX - 1).unwrap();
        EventFd::duplicate(&first).unwrap().ring().unwrap();
        let ours = EventFd::for_peer().unwrap();
        let theirs = EventFd::from_peer(second.as_fd().try_clone_to_owned().unwrap()).unwrap();
        theirs.ring().unwrap();
        ours.become_same_as(&theirs).unwrap();
        ours.ring().unwrap();
        assert_eq!(first.read().unwrap(), u64::MAX);
        assert_eq!(second.read().unwrap(), u64::MAX);
    }

    // Goal: after the exchange the old number rings the new counter, and the old counter is left
    // alone.
    #[test]
    fn a_number_changes_its_counter() {
        let (ours, first, second) =
            (EventFd::for_peer().unwrap(), EventFd::new().unwrap(), EventFd::new().unwrap());
        ours.become_same_as(&first).unwrap();
        ours.ring().unwrap();
        assert!(is_rung(&first) && !is_rung(&second));
        first.drain();
        ours.become_same_as(&second).unwrap();
        ours.ring().unwrap();
        assert!(is_rung(&second) && !is_rung(&first));
    }
}
