//! Descriptors: exhaustion of limits, and checks of descriptors sent by a peer.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::fcntl::{FcntlArg, fcntl};

/// Exhausted limit of descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutOfDescriptors {
    /// Limit of this process (`EMFILE`).
    Process,
    /// Limit of the system (`ENFILE`).
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

/// Returns the error, with a remedy added if descriptors are exhausted.
pub fn explained(error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    match error.raw_os_error() {
        Some(libc::EMFILE) => io::Error::other(OutOfDescriptors::Process),
        Some(libc::ENFILE) => io::Error::other(OutOfDescriptors::System),
        _ => error,
    }
}

/// True if the descriptor is an eventfd.
pub fn is_eventfd(fd: BorrowedFd<'_>) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    // The link of a file on a file system begins with a slash.
    link.is_ok_and(|link| link.as_os_str() == "anon_inode:[eventfd]")
}

/// True if the file is on tmpfs or hugetlbfs, which includes memory files. Only those support
/// seals, and reading seals never reaches a user-space file system.
pub fn is_memory_file(fd: BorrowedFd<'_>) -> bool {
    fcntl(fd, FcntlArg::F_GET_SEALS).is_ok()
}

/// In-kernel file systems. Examining, mapping or closing their files waits for no process.
const FILE_SYSTEMS: [&str; 8] =
    ["tmpfs", "devtmpfs", "hugetlbfs", "ext2", "ext3", "ext4", "xfs", "btrfs"];

/// True if examining, mapping and closing the descriptor never waits for a process. This holds for
/// memory files, eventfds, and files of local file systems mounted in this mount namespace.
///
/// A thread that waits for a user-space file system cannot be ended, not even by `SIGKILL`, so this
/// check never calls into such a file system.
pub fn is_of_kernel(fd: BorrowedFd<'_>) -> bool {
    is_memory_file(fd) || is_eventfd(fd) || is_on_local_disk(fd).unwrap_or(false)
}

fn is_on_local_disk(fd: BorrowedFd<'_>) -> Option<bool> {
    let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    let mount = about.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = mounts.lines().find(|line| line.split(' ').next() == Some(mount))?;
    // proc_pid_mountinfo(5): the file system type follows a separator.
    let kind = line.split(" - ").nth(1)?.split(' ').next()?;
    Some(FILE_SYSTEMS.contains(&kind))
}

/// Maximum number of refused descriptors over the lifetime of a link.
pub const REFUSED_MAX: usize = 16;

/// Descriptors from a peer that may block when they are used or closed. They stay open until the
/// process exits. Each link counts those of its peers ([`REFUSED_MAX`]).
#[derive(Debug, Default)]
pub struct RejectedDescriptors {
    count: usize,
}

impl RejectedDescriptors {
    /// Counts descriptors that another process keeps.
    pub(crate) fn kept_elsewhere(count: usize) -> Self {
        Self { count }
    }

    /// Leaks and counts one descriptor.
    pub fn keep(&mut self, fd: OwnedFd) {
        std::mem::forget(fd);
        self.count += 1;
    }

    /// Number of descriptors.
    pub fn count(&self) -> usize {
        self.count
    }
}

/// Text of the fault after which a link accepts no peer.
pub fn refused_text(count: usize) -> String {
    format!(
        "peers have sent {count} descriptors that are neither eventfds nor files of a local file \
         system; the link accepts no more peers: add it again"
    )
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    // Goal: memory files and eventfds are distinguished from descriptors that may wait for a
    // process.
    #[test]
    fn descriptor_kinds_are_distinguished() {
        let memory = crate::memory::memory_file("test", 4096, false).unwrap();
        assert!(is_memory_file(memory.as_fd()) && !is_eventfd(memory.as_fd()));
        let event = crate::eventfd::EventFd::new().unwrap();
        assert!(is_eventfd(event.as_fd()) && !is_memory_file(event.as_fd()));
        let (pipe, _write) = nix::unistd::pipe().unwrap();
        assert!(!is_of_kernel(pipe.as_fd()));
        let disk = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        assert!(is_on_local_disk(disk.as_fd()).is_some());
        let process = std::fs::File::open("/proc/self/stat").unwrap();
        assert_eq!(is_on_local_disk(process.as_fd()), Some(false));
        let raw = pipe.as_raw_fd();
        let mut refused = RejectedDescriptors::default();
        refused.keep(pipe);
        assert_eq!(refused.count(), 1);
        assert!(std::fs::read_link(format!("/proc/self/fd/{raw}")).is_ok(), "it was closed");
    }

    // Goal: an error by exhausted descriptors names the remedy, and other errors are unchanged.
    #[test]
    fn exhaustion_names_the_remedy() {
        let of = |code| explained(io::Error::from_raw_os_error(code));
        assert!(of(libc::EMFILE).to_string().contains("ulimit -n"));
        assert!(of(libc::EMFILE).to_string().contains("LimitNOFILE="));
        assert!(of(libc::ENFILE).to_string().contains("fs.file-max"));
        assert_eq!(of(libc::EPERM).raw_os_error(), Some(libc::EPERM));
    }
}
