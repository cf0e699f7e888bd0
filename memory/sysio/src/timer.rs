//! Timers as descriptors (timerfd), for waits without a notification from the peer.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::descriptors::explained;

/// Timer of the monotonic clock.
#[derive(Debug)]
pub struct Timer {
    inner: TimerFd,
}

impl Timer {
    /// Creates a stopped timer.
    pub fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        Ok(Self { inner: TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(explained)? })
    }

    /// Makes the descriptor readable once after this time. Replaces an earlier setting.
    pub fn set(&self, after: Duration) -> io::Result<()> {
        // A time of zero would stop the timer.
        let after = TimeSpec::from_duration(after.max(Duration::from_nanos(1)));
        Ok(self.inner.set(Expiration::OneShot(after), TimerSetTimeFlags::empty())?)
    }

    /// Makes the descriptor readable once per `period`.
    pub fn repeat(&self, period: Duration) -> io::Result<()> {
        let period = TimeSpec::from_duration(period.max(Duration::from_nanos(1)));
        Ok(self.inner.set(Expiration::Interval(period), TimerSetTimeFlags::empty())?)
    }

    /// Stops the timer. The descriptor is not readable afterwards.
    pub fn stop(&self) -> io::Result<()> {
        Ok(self.inner.unset()?)
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoll::{Epoll, Interest};

    // Goal: each expiry is one edge, without a read of the descriptor, and a stopped timer causes
    // none.
    #[test]
    fn each_expiry_is_an_edge() {
        let (timer, epoll) = (Timer::new().unwrap(), Epoll::new().unwrap());
        epoll.add(timer.as_fd(), Interest::ReadableEdge, 1).unwrap();
        let expires = |wait: u64| epoll.wait(Some(Duration::from_millis(wait)), |_| ()).unwrap();
        assert_eq!(expires(0), 0);
        for _ in 0..3 {
            timer.set(Duration::ZERO).unwrap();
            assert_eq!(expires(5000), 1);
            assert_eq!(expires(0), 0, "no second report");
        }
        timer.set(Duration::from_secs(60)).unwrap();
        timer.stop().unwrap();
        assert_eq!(expires(20), 0);
    }
}
