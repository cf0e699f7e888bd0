//! epoll with a `u64` key per descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::epoll as sys;
use nix::sys::epoll::{EpollCreateFlags, EpollEvent, EpollFlags};

/// Which readiness wakes a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Level-triggered: reported as long as there is something to read.
    Readable,
    /// Edge-triggered: reported once per arrival; the reader need not drain it. Used for
    /// descriptors that a peer also holds, because a drain could be made to block.
    ReadableEdge,
}

/// One readiness report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The key given to [`Epoll::add`].
    pub key: u64,
    /// The other end hung up or the descriptor is in error.
    pub hangup: bool,
}

/// An epoll instance.
#[derive(Debug)]
pub struct Epoll {
    inner: sys::Epoll,
}

impl Epoll {
    /// Creates an instance (close-on-exec).
    pub fn new() -> io::Result<Self> {
        Ok(Self { inner: sys::Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)? })
    }

    /// Watches `fd`; `key` comes back in [`Ready`].
    pub fn add(&self, fd: BorrowedFd<'_>, interest: Interest, key: u64) -> io::Result<()> {
        let flags = match interest {
            Interest::Readable => EpollFlags::EPOLLIN,
            Interest::ReadableEdge => EpollFlags::EPOLLIN | EpollFlags::EPOLLET,
        };
        Ok(self.inner.add(fd, EpollEvent::new(flags | EpollFlags::EPOLLRDHUP, key))?)
    }

    /// Stops watching `fd`.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(self.inner.delete(fd)?)
    }

    /// Waits up to `timeout` (`None`: for ever; zero: only looks) and calls `each` for every
    /// report. Returns how many there were; an interrupting signal counts as none.
    pub fn wait(
        &self,
        timeout: Option<Duration>,
        mut each: impl FnMut(Ready),
    ) -> io::Result<usize> {
        let mut events = [EpollEvent::empty(); 64];
        let timeout = match timeout {
            None => sys::EpollTimeout::NONE,
            Some(t) => sys::EpollTimeout::try_from(t.as_micros().div_ceil(1000) as i32)
                .unwrap_or(sys::EpollTimeout::MAX),
        };
        let n = match self.inner.wait(&mut events, timeout) {
            Ok(n) => n,
            Err(nix::errno::Errno::EINTR) => 0,
            Err(e) => return Err(e.into()),
        };
        for event in &events[..n] {
            let bad = EpollFlags::EPOLLHUP | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLERR;
            each(Ready { key: event.data(), hangup: event.events().intersects(bad) });
        }
        Ok(n)
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.0.as_fd()
    }
}
