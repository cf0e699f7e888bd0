//! Descriptors: limits with their remedy, and descriptors that a peer has sent.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::fcntl::{FcntlArg, fcntl};

use crate::bounded;

/// No descriptor was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutOfDescriptors {
    /// To this process (`EMFILE`).
    Process,
    /// To the whole system (`ENFILE`).
    System,
}

impl fmt::Display for OutOfDescriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => {
                "Too many open files (os error 24): raise the limit: ulimit -n, or LimitNOFILE= in \
                 a systemd unit"
            }
            Self::System => {
                "Too many open files in system (os error 23): raise the limit: sysctl fs.file-max"
            }
        })
    }
}

impl std::error::Error for OutOfDescriptors {}

/// The same error; one that says that descriptors have run out says what helps.
pub fn explained(error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    match error.raw_os_error() {
        Some(libc::EMFILE) => io::Error::other(OutOfDescriptors::Process),
        Some(libc::ENFILE) => io::Error::other(OutOfDescriptors::System),
        _ => error,
    }
}

/// True for an eventfd.
pub fn is_eventfd(fd: BorrowedFd<'_>) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    // The link of a file on a file system begins with a slash.
    link.is_ok_and(|link| link.as_os_str() == "anon_inode:[eventfd]")
}

/// True for a file of tmpfs or hugetlbfs, a memory file among them. Only those have seals, and
/// asking for seals never reaches a file system in user space.
pub fn is_memory_file(fd: BorrowedFd<'_>) -> bool {
    fcntl(fd, FcntlArg::F_GET_SEALS).is_ok()
}

/// True where examining, mapping and closing the descriptor never waits for a process.
pub fn is_of_kernel(fd: BorrowedFd<'_>) -> bool {
    is_memory_file(fd) || is_eventfd(fd)
}

/// Closes a descriptor that a peer has sent, without waiting: closing a file of a file system in
/// user space waits for its server.
pub fn close(fd: OwnedFd) {
    if is_of_kernel(fd.as_fd()) {
        return drop(fd);
    }
    bounded::discard(fd);
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: memory files and eventfds are told from what may wait for a process.
    #[test]
    fn kinds_of_descriptors_are_told_apart() {
        let memory = crate::memory::memory_file("test", 4096, false).unwrap();
        assert!(is_memory_file(memory.as_fd()) && !is_eventfd(memory.as_fd()));
        let event = crate::eventfd::EventFd::new().unwrap();
        assert!(is_eventfd(event.as_fd()) && !is_memory_file(event.as_fd()));
        let (pipe, _write) = nix::unistd::pipe().unwrap();
        assert!(!is_of_kernel(pipe.as_fd()));
        close(pipe);
    }

    // Goal: the knob is named where descriptors have run out, and other errors stay as they are.
    #[test]
    fn limits_are_named() {
        let of = |code| explained(io::Error::from_raw_os_error(code));
        assert!(of(libc::EMFILE).to_string().contains("ulimit -n"));
        assert!(of(libc::EMFILE).to_string().contains("LimitNOFILE="));
        assert!(of(libc::ENFILE).to_string().contains("fs.file-max"));
        assert_eq!(of(libc::EPERM).raw_os_error(), Some(libc::EPERM));
    }
}
