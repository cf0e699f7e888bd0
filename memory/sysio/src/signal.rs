//! Signals as a descriptor, so that the control thread has one way to wait.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::descriptors::explained;

/// SIGINT, SIGTERM and SIGHUP as a readable descriptor. They must be taken before the first
/// thread starts, so that every thread inherits the mask.
#[derive(Debug)]
pub struct StopSignals {
    fd: SignalFd,
}

impl StopSignals {
    /// Blocks the stop signals in the calling thread and opens the descriptor.
    pub fn take() -> io::Result<Self> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            set.add(signal);
        }
        set.thread_block()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        Ok(Self { fd: SignalFd::with_flags(&set, flags).map_err(explained)? })
    }

    /// True when a stop signal has arrived since the last call.
    pub fn pending(&self) -> bool {
        matches!(self.fd.read_signal(), Ok(Some(_)))
    }

    /// The next signal that has arrived: true for SIGHUP, which a daemon takes for "read your
    /// configuration again".
    pub fn next_is_hangup(&self) -> Option<bool> {
        let signal = self.fd.read_signal().ok().flatten()?;
        Some(signal.ssi_signo == Signal::SIGHUP as u32)
    }
}

impl AsFd for StopSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Restores the default signal mask; a child that is about to exec another program calls it.
pub fn unblock_all() {
    let _ = SigSet::all().thread_unblock();
}
