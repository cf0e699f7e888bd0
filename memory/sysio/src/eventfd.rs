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

/// eventfd.
#[derive(Debug)]
pub struct EventFd {
    fd: OwnedFd,
    /// True if another process holds, or may have held, the open file description.
    is_shared: AtomicBool,
}

impl EventFd {
    /// Creates a non-blocking eventfd with count 0.
    pub fn new() -> io::Result<Self> {
        let flags = sys::EfdFlags::EFD_NONBLOCK | sys::EfdFlags::EFD_CLOEXEC;
        let event = sys::EventFd::from_value_and_flags(0, flags).map_err(explained)?;
        Ok(Self::of(event.into(), false))
    }

    /// Creates an eventfd that [`become_same_as`](Self::become_same_as) may replace with a peer's.
    pub fn for_peer() -> io::Result<Self> {
        Self::new().map(|event| Self::of(event.fd, true))
    }

    fn of(fd: OwnedFd, is_shared: bool) -> Self {
        Self { fd, is_shared: AtomicBool::new(is_shared) }
    }

    /// Duplicates the eventfd of `owner`, for types without `AsFd`.
    pub fn duplicate(owner: &impl AsRawFd) -> io::Result<Self> {
        // SAFETY: the call takes a number, and fails if it is not a descriptor.
        let raw = unsafe { libc::fcntl(owner.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fcntl just created this descriptor; it has no other owner.
        Ok(Self::of(unsafe { OwnedFd::from_raw_fd(raw) }, true))
    }

    /// Takes ownership of a descriptor that a peer sent. Returns `None` unless the descriptor is an
    /// eventfd. (A pipe, for example, would block when full.)
    pub fn from_peer(fd: OwnedFd) -> Option<Self> {
        is_eventfd(fd.as_fd()).then(|| Self::of(fd, true))
    }

    /// Adds one to the counter, which wakes the waiter. A full counter counts as success, because
    /// it has woken the waiter already. With Linux AIO, the call never blocks.
    ///
    /// On a system without Linux AIO a shared eventfd is polled and then written. A peer that fills
    /// the counter between the two system calls blocks the caller.
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

    /// Sets the count to zero. Never blocks, for any flags that the peer has set.
    pub fn drain(&self) {
        let mut value = [0u8; 8];
        let iov = libc::iovec { iov_base: value.as_mut_ptr().cast(), iov_len: 8 };
        // SAFETY: `iov` describes `value`, which outlives the call.
        unsafe { libc::preadv2(self.fd.as_raw_fd(), &iov, 1, -1, libc::RWF_NOWAIT) };
    }

    /// Makes this descriptor number refer to the eventfd of `other`. A thread that rings
    /// concurrently rings the old or the new eventfd, without a lock. The eventfd must come from
    /// [`for_peer`](Self::for_peer).
    pub fn become_same_as(&self, other: &Self) -> io::Result<()> {
        let (from, to) = (other.fd.as_raw_fd(), self.fd.as_raw_fd());
        debug_assert!(self.is_shared.load(Ordering::Relaxed), "made by `for_peer`");
        // SAFETY: both are open descriptors owned here; dup3 replaces one atomically, so the number
        // stays valid.
        if unsafe { libc::dup3(from, to, libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Duplicates the descriptor, to be passed to a peer.
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
        let mut polled = [PollFd::new(event.as_fd(), PollFlags::POLLIN)];
        nix::poll::poll(&mut polled, PollTimeout::ZERO).unwrap() == 1
    }

    // Goal: a peer that fills the counter and clears O_NONBLOCK cannot block the caller, for every
    // kind of shared eventfd.
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

    // Goal: after the exchange the old number rings the new counter, and the old counter is
    // unchanged.
    #[test]
    fn replaced_eventfd_keeps_its_number() {
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
