//! Signals as a descriptor, so that the control thread has a single wait.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::descriptors::explained;

/// Readable descriptor for SIGINT, SIGTERM and SIGHUP. Must be created before the first thread
/// starts, so that every thread inherits the mask.
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

    /// True if a stop signal has arrived since the last call.
    pub fn pending(&self) -> bool {
        matches!(self.fd.read_signal(), Ok(Some(_)))
    }

    /// Reads the next signal; `None` if none is pending. Returns true for SIGHUP, on which a daemon
    /// reloads its configuration.
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

/// Unblocks all signals, in a child before it executes another program.
pub fn unblock_all() {
    let _ = SigSet::all().thread_unblock();
}
