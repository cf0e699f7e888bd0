//! Waits for a few descriptors that change from call to call (control threads).

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout};

/// Waits at most `timeout` until one of `fds` is readable or has hung up. An interrupting signal
/// ends the wait.
pub fn wait_readable(fds: &[BorrowedFd<'_>], timeout: Duration) -> io::Result<()> {
    wait(fds.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect(), timeout)
}

/// Waits at most `timeout` until `fd` is writable or has hung up. An interrupting signal ends the
/// wait.
pub fn wait_writable(fd: BorrowedFd<'_>, timeout: Duration) -> io::Result<()> {
    wait(vec![PollFd::new(fd, PollFlags::POLLOUT)], timeout)
}

fn wait(mut polled: Vec<PollFd<'_>>, timeout: Duration) -> io::Result<()> {
    poll_once(&mut polled, timeout)
}

fn poll_once(polled: &mut [PollFd<'_>], timeout: Duration) -> io::Result<()> {
    let millis = timeout.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32;
    let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
    match nix::poll::poll(polled, timeout) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// True if a read would return data now.
pub fn is_readable(fd: BorrowedFd<'_>) -> io::Result<bool> {
    is_readable_within(fd, Duration::ZERO)
}

/// Waits at most `timeout` (rounded up to milliseconds) until a read would return data; false after
/// the timeout or an interrupting signal.
pub fn is_readable_within(fd: BorrowedFd<'_>, timeout: Duration) -> io::Result<bool> {
    let mut polled = [PollFd::new(fd, PollFlags::POLLIN)];
    poll_once(&mut polled, timeout)?;
    Ok(polled[0].revents().is_some_and(|events| events.contains(PollFlags::POLLIN)))
}

/// True if the object behind the descriptor is gone or failed. poll(2) always reports this.
pub fn is_in_error(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut polled = [PollFd::new(fd, PollFlags::empty())];
    nix::poll::poll(&mut polled, PollTimeout::ZERO)?;
    let bad = PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL;
    Ok(polled[0].revents().is_some_and(|events| events.intersects(bad)))
}

/// Sleeps for `time`, in a control thread that waits for an event without a notification.
pub fn pause(time: Duration) {
    // A signal may end the sleep early; callers re-check their condition.
    let _ = nix::poll::ppoll(&mut [], Some(time.into()), None);
}
