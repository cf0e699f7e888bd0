//! Exclusive file locks.

use std::io;
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};

/// Exclusive lock on a file, which the kernel releases when this process ends for any reason.
#[derive(Debug)]
pub struct FileLock {
    held: Flock<std::fs::File>,
}

impl FileLock {
    /// Takes the lock at `path`, and creates the file if needed. Returns `None` if another process
    /// holds the lock. Only an empty regular file is a lock file: any other file is rejected and
    /// left unchanged.
    pub fn try_take(path: &Path) -> io::Result<Option<Self>> {
        use std::os::unix::fs::OpenOptionsExt;
        // Follow no links, and do not wait for the other end of a pipe.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        // Other users cannot open the file, so they cannot lock it.
        let mut options = std::fs::File::options();
        let options = options.create(true).append(true).mode(0o600).custom_flags(flags);
        let file = match options.open(path) {
            Ok(file) => file,
            // The file belongs to another user, so that user holds the lock.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied && path.exists() => {
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        let data = file.metadata()?;
        if !data.is_file() || data.len() > 0 {
            let why = "exists and is not an empty lock file: remove it";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        Self::of(file)
    }

    /// Takes the lock of an open file. Returns `None` if another process holds it.
    pub fn of(file: std::fs::File) -> io::Result<Option<Self>> {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(held) => Ok(Some(Self { held })),
            Err((_, nix::errno::Errno::EAGAIN)) => Ok(None),
            Err((_, e)) => Err(e.into()),
        }
    }

    /// Locked file, in append mode.
    pub fn file(&self) -> &std::fs::File {
        &self.held
    }

    /// True if `path` still names the locked file. The previous owner may have removed the file
    /// between this process's open and lock; such a lock excludes no other process.
    pub fn is_at(&self, path: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        let place = |data: std::fs::Metadata| (data.dev(), data.ino());
        let ours = self.held.metadata().map(place);
        let theirs = std::fs::symlink_metadata(path).map(place);
        matches!((ours, theirs), (Ok(ours), Ok(theirs)) if ours == theirs)
    }
}
