//! epoll with a `u64` key per descriptor.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use nix::sys::epoll as sys;
use nix::sys::epoll::{EpollCreateFlags, EpollEvent, EpollFlags};

use crate::descriptors::explained;

/// Readiness that wakes a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Level-triggered: reported while there is data to read.
    Readable,
    /// Edge-triggered: reported once per arrival, without draining. Used for descriptors that a
    /// peer also holds, because a drain could be made to block.
    ReadableEdge,
    /// Edge-triggered: reported whenever space may be available again.
    WritableEdge,
}

/// Readiness report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Key passed to [`Epoll::add`].
    pub key: u64,
    /// True if the other end hung up or the descriptor has an error.
    pub hangup: bool,
}

/// epoll instance.
#[derive(Debug)]
pub struct Epoll {
    inner: sys::Epoll,
}

impl Epoll {
    /// Creates an instance (close-on-exec).
    pub fn new() -> io::Result<Self> {
        Ok(Self { inner: sys::Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(explained)? })
    }

    /// Registers `fd`; reports contain `key`.
    pub fn add(&self, fd: BorrowedFd<'_>, interest: Interest, key: u64) -> io::Result<()> {
        let flags = match interest {
            Interest::Readable => EpollFlags::EPOLLIN,
            Interest::ReadableEdge => EpollFlags::EPOLLIN | EpollFlags::EPOLLET,
            Interest::WritableEdge => EpollFlags::EPOLLOUT | EpollFlags::EPOLLET,
        };
        Ok(self.inner.add(fd, EpollEvent::new(flags | EpollFlags::EPOLLRDHUP, key))?)
    }

    /// Unregisters `fd`.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(self.inner.delete(fd)?)
    }

    /// Waits up to `timeout` (`None`: without a limit; zero: no wait) and calls `each` for every
    /// report. Returns the number of reports, or 0 after an interrupting signal.
    pub fn wait(
        &self,
        timeout: Option<Duration>,
        mut each: impl FnMut(Ready),
    ) -> io::Result<usize> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        let limit = timeout.map(|t| libc::timespec {
            tv_sec: t.as_secs().min(1 << 30) as _,
            tv_nsec: t.subsec_nanos().into(),
        });
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let fd = self.inner.0.as_raw_fd();
        let room = events.len();
        let no_mask = std::ptr::null::<libc::sigset_t>();
        // epoll_pwait2 has nanosecond resolution: token buckets wait for less than a millisecond.
        // SAFETY: `events` has space for the requested number, and `limit` is null or a timespec
        // that outlives the call. No signal mask is passed. (Not every libc has a wrapper.)
        let n = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                fd,
                events.as_mut_ptr(),
                room,
                limit,
                no_mask,
                0usize,
            )
        };
        if n < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(0) } else { Err(error) };
        }
        let n = n as usize;
        for event in &events[..n] {
            let bad = (libc::EPOLLHUP | libc::EPOLLRDHUP | libc::EPOLLERR) as u32;
            each(Ready { key: event.u64, hangup: event.events & bad != 0 });
        }
        Ok(n)
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.0.as_fd()
    }
}
