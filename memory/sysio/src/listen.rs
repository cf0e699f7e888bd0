//! Listening Unix sockets: permissions before the first connection, and replacement of stale files.
//!
//! Only the socket file of a process that has exited is replaced. Everything else at the path is
//! kept: a regular file, a link, a device node, and a socket of any type that some process has
//! bound.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket,
};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{Gid, Uid, fchownat};

use crate::file_lock::FileLock;
use crate::poll;

/// Number of attempts to lock the folder of a socket, and the time between them.
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Type of a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Byte stream.
    Stream,
    /// Sequenced packets.
    SeqPacket,
}

/// Permissions of a socket file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Permission bits, or `None` for those of the umask.
    pub mode: Option<u32>,
    /// Owner, or `None` for the user of the process.
    pub uid: Option<u32>,
    /// Group, or `None` for the group of the process.
    pub gid: Option<u32>,
}

/// Reason why a path cannot become a listening socket.
#[derive(Debug)]
pub enum ListenError {
    /// Path that exists and is not a socket.
    NotASocket(PathBuf),
    /// Path to which a process has bound a socket.
    InUse(PathBuf),
    /// Path whose folder does not exist.
    NoFolder(PathBuf, PathBuf),
    /// System call that failed in this step.
    System(PathBuf, &'static str, io::Error),
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotASocket(path) => {
                let path = path.display();
                write!(f, "{path} exists and is not a socket: remove it, or choose another path")
            }
            Self::InUse(path) => {
                let path = path.display();
                write!(f, "{path}: another process listens there: end it, or choose another path")
            }
            Self::NoFolder(path, folder) => {
                let (path, folder) = (path.display(), folder.display());
                write!(f, "{path}: no folder {folder}: create it, or choose another path")
            }
            Self::System(path, step, e) => write!(f, "{}: cannot {step}: {e}", path.display()),
        }
    }
}

impl std::error::Error for ListenError {}

impl From<ListenError> for io::Error {
    fn from(e: ListenError) -> Self {
        let kind = match &e {
            ListenError::NotASocket(_) => io::ErrorKind::AlreadyExists,
            ListenError::InUse(_) => io::ErrorKind::AddrInUse,
            ListenError::NoFolder(..) => io::ErrorKind::NotFound,
            ListenError::System(_, _, e) => e.kind(),
        };
        Self::new(kind, e)
    }
}

/// State of a path, for a process that will listen there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupant {
    /// Nothing.
    Nothing,
    /// Socket file of a process that has exited.
    StaleSocket,
    /// Socket of a running process, or a socket that cannot be examined.
    LiveSocket,
    /// Any other file or socket.
    Other,
}

/// Examines a path without an effect on a process that listens there.
///
/// The probe is a datagram socket. Its connect is refused if no process has bound the file (also
/// before `listen`). The probe never becomes a connection that the other process would have to
/// accept.
pub fn occupant(path: &Path) -> io::Result<Occupant> {
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Occupant::Nothing),
        Err(e) => return Err(e),
        Ok(data) if !data.file_type().is_socket() => return Ok(Occupant::Other),
        Ok(_) => {}
    }
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let probe = socket(AddressFamily::Unix, SockType::Datagram, flags, None)?;
    Ok(match connect(probe.as_raw_fd(), &UnixAddr::new(path)?) {
        Err(Errno::ECONNREFUSED) => Occupant::StaleSocket,
        Err(Errno::ENOENT) => Occupant::Nothing,
        // Another type, a full queue, or no permission for the check: the file must be kept.
        _ => Occupant::LiveSocket,
    })
}

/// Socket file created by this process. Removed at drop, unless another file has replaced it.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl SocketFile {
    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|there| there == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Device and inode of a socket file; fails for any other file. The inode is not reused while the
/// socket is open.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let data = fs::symlink_metadata(path)?;
    let not_ours = || io::Error::other("another file has replaced it");
    data.file_type().is_socket().then_some((data.dev(), data.ino())).ok_or_else(not_ours)
}

/// Fails for a path in a folder that does not exist.
fn check_folder(path: &Path) -> Result<(), ListenError> {
    let folder = folder_of(path);
    if fs::metadata(folder).is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
        return Err(ListenError::NoFolder(path.to_owned(), folder.to_owned()));
    }
    Ok(())
}

/// Path of the lock file of the process that listens at `path`.
pub fn lock_path(path: &Path) -> PathBuf {
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    lock.into()
}

/// Takes the lock file of the process that listens at `path`. Returns `None` if another process
/// holds it. The lock does not remove the file at its drop.
pub fn lock_listener(path: &Path) -> Result<Option<FileLock>, ListenError> {
    check_folder(path)?;
    let lock = lock_path(path);
    FileLock::try_take(&lock).map_err(|e| ListenError::System(lock, "lock", e))
}

/// Listens at `path`, non-blocking. Replaces only the file of a process that has exited.
/// Connections are refused until mode and owner are set.
pub fn listen_at(
    path: &Path,
    kind: Kind,
    access: Access,
    backlog: u16,
) -> Result<(OwnedFd, SocketFile), ListenError> {
    let failed = |step| move |e: io::Error| ListenError::System(path.to_owned(), step, e);
    // Lock the folder: two processes that find the same stale file must not remove each other's new
    // file.
    check_folder(path)?;
    let folder = lock_folder(folder_of(path));
    match occupant(path).map_err(failed("examine it"))? {
        Occupant::Nothing => {}
        Occupant::StaleSocket => {
            fs::remove_file(path).map_err(failed("remove the stale socket"))?;
        }
        Occupant::LiveSocket => return Err(ListenError::InUse(path.to_owned())),
        Occupant::Other => return Err(ListenError::NotASocket(path.to_owned())),
    }
    let kind = match kind {
        Kind::Stream => SockType::Stream,
        Kind::SeqPacket => SockType::SeqPacket,
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let made = || -> nix::Result<OwnedFd> {
        let fd = socket(AddressFamily::Unix, kind, flags, None)?;
        if let Some(mode) = access.mode {
            // Set the mode bits that `bind` gives to the new file, reduced by the umask.
            fchmod(&fd, Mode::from_bits_truncate(mode))?;
        }
        Ok(fd)
    };
    let fd = made().map_err(|e| failed("create a socket")(e.into()))?;
    let address = UnixAddr::new(path).map_err(|e| failed("listen")(e.into()))?;
    bind(fd.as_raw_fd(), &address).map_err(|e| failed("listen")(e.into()))?;
    let identity = identity(path).map_err(failed("examine it"))?;
    let file = SocketFile { path: path.to_owned(), identity };
    drop(folder);
    admit(&file, access).map_err(failed("set its mode and owner"))?;
    let backlog = Backlog::new(i32::from(backlog)).unwrap_or(Backlog::MAXCONN);
    listen(&fd, backlog).map_err(|e| failed("listen")(e.into()))?;
    Ok((fd, file))
}

/// Folder of a file.
fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Locks the folder, if the lock is available soon, else returns `None`. An unreadable folder
/// cannot be locked, and a cleanup program may hold the lock.
fn lock_folder(folder: &Path) -> Option<FileLock> {
    for _ in 0..LOCK_TRIES {
        match fs::File::open(folder).and_then(FileLock::of) {
            Ok(None) => poll::pause(LOCK_PAUSE),
            Ok(held) => return held,
            Err(_) => return None,
        }
    }
    None
}

/// Sets owner and mode of the file. A link that replaced the file is not followed.
fn admit(file: &SocketFile, access: Access) -> io::Result<()> {
    if access == Access::default() {
        return Ok(());
    }
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let held = open(&file.path, flags, Mode::empty())?;
    let by_descriptor = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
    let data = fs::metadata(&by_descriptor)?;
    if (data.dev(), data.ino()) != file.identity {
        return Err(io::Error::other("another file has replaced it"));
    }
    if access.uid.is_some() || access.gid.is_some() {
        let (uid, gid) = (access.uid.map(Uid::from_raw), access.gid.map(Gid::from_raw));
        fchownat(&held, "", uid, gid, AtFlags::AT_EMPTY_PATH)?;
    }
    if let Some(mode) = access.mode {
        fs::set_permissions(&by_descriptor, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
