//! eventfd as a doorbell.
//!
//! A doorbell is shared with a peer process: both hold the same open file description, so the
//! peer may clear `O_NONBLOCK` or fill the counter. Waiting is therefore done with edge-triggered
//! epoll and no read, and [`EventFd::drain`] asks for `RWF_NOWAIT` explicitly.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd as sys;

use crate::descriptors::explained;

/// A counting event descriptor.
#[derive(Debug)]
pub struct EventFd {
    fd: OwnedFd,
}

impl EventFd {
    /// Creates a non-blocking eventfd with a zero count.
    pub fn new() -> io::Result<Self> {
        let flags = sys::EfdFlags::EFD_NONBLOCK | sys::EfdFlags::EFD_CLOEXEC;
        Ok(Self { fd: sys::EventFd::from_value_and_flags(0, flags).map_err(explained)?.into() })
    }

    /// Another descriptor for the eventfd that `owner` holds, whose type knows no borrowed ones.
    pub fn duplicate(owner: &impl AsRawFd) -> io::Result<Self> {
        // SAFETY: the call takes a number, and fails if it is no descriptor.
        let raw = unsafe { libc::fcntl(owner.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fcntl just made this descriptor; nobody else owns it.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(raw) } })
    }

    /// Takes over a descriptor that a peer sent; `None` if it is no eventfd: a pipe, for one, would
    /// block us when it is full.
    pub fn from_peer(fd: OwnedFd) -> Option<Self> {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()?;
        (link.as_os_str() == "anon_inode:[eventfd]").then_some(Self { fd })
    }

    /// Adds one to the count, which wakes the waiter. A full counter already wakes it, so not
    /// being able to is success. The look before the write keeps a peer that filled the counter
    /// and cleared `O_NONBLOCK` from blocking us, unless it fills it in between: so this is for
    /// threads whose standing still harms that peer's link alone (the kernel has no write to an
    /// eventfd that never waits).
    #[inline]
    pub fn ring(&self) -> io::Result<()> {
        let mut look = [PollFd::new(self.fd.as_fd(), PollFlags::POLLOUT)];
        if nix::poll::poll(&mut look, PollTimeout::ZERO)? == 0 {
            return Ok(());
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

    /// Becomes another descriptor for the counter of `other`, under its own number: another thread
    /// that rings it at the same time rings the one or the other, and needs no lock.
    pub fn become_same_as(&self, other: &Self) -> io::Result<()> {
        let (from, to) = (other.fd.as_raw_fd(), self.fd.as_raw_fd());
        // SAFETY: both are open descriptors of ours; dup3 puts one in the other's place at once,
        // so that the number stays valid all the time.
        if unsafe { libc::dup3(from, to, libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Another descriptor for the same counter, to hand to a peer.
    pub fn try_clone(&self) -> io::Result<OwnedFd> {
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

    // Goal: after the exchange the old number rings the new counter, and the old counter is left
    // alone.
    #[test]
    fn a_number_changes_its_counter() {
        let (ours, first, second) =
            (EventFd::new().unwrap(), EventFd::new().unwrap(), EventFd::new().unwrap());
        ours.become_same_as(&first).unwrap();
        ours.ring().unwrap();
        assert!(is_rung(&first) && !is_rung(&second));
        first.drain();
        ours.become_same_as(&second).unwrap();
        ours.ring().unwrap();
        assert!(is_rung(&second) && !is_rung(&first));
    }
}
