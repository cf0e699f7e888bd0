//! Periodic timers as descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::timer::{Expiration, TimerSetTimeFlags};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};

use crate::descriptors::explained;

/// A timer that is readable after each period, until it is cleared.
#[derive(Debug)]
pub struct Timer {
    fd: TimerFd,
}

impl Timer {
    /// Creates a stopped timer.
    pub fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let fd = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(explained)?;
        Ok(Self { fd })
    }

    /// Starts it with this period, which is not zero, or stops it.
    pub fn set(&self, period: Option<Duration>) -> io::Result<()> {
        match period {
            Some(period) => {
                let expiration = Expiration::Interval(period.into());
                Ok(self.fd.set(expiration, TimerSetTimeFlags::empty())?)
            }
            None => Ok(self.fd.unset()?),
        }
    }

    /// Makes it unreadable until the next period ends.
    pub fn clear(&self) {
        // Without an expiration there is nothing to clear.
        let _ = nix::unistd::read(&self.fd, &mut [0; 8]);
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout};

    use super::*;

    fn is_readable(timer: &Timer, ms: u16) -> bool {
        let mut fds = [PollFd::new(timer.as_fd(), PollFlags::POLLIN)];
        nix::poll::poll(&mut fds, PollTimeout::from(ms)).unwrap() == 1
    }

    // Goal: a started timer becomes readable again after it was cleared; a stopped one does not.
    #[test]
    fn timer_is_readable_each_period() {
        let timer = Timer::new().unwrap();
        assert!(!is_readable(&timer, 0));
        timer.set(Some(Duration::from_millis(1))).unwrap();
        for _ in 0..2 {
            assert!(is_readable(&timer, 5000));
            timer.clear();
        }
        timer.set(None).unwrap();
        timer.clear();
        assert!(!is_readable(&timer, 20));
    }
}
