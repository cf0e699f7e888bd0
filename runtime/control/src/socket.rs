//! Control sockets: their location, access, and exclusive use by one process.
//!
//! A socket file does not identify its owner, and the file remains after its process was killed.
//! Therefore every socket has a lock file, which the kernel unlocks when its process ends. The
//! holder of the lock owns the socket. A socket with a free lock and without a listener is stale.
//! Any process that finds a stale socket removes it, under the lock.
//!
//! The lock file is removed with the socket, so that a runtime directory does not fill up. The
//! removal allows a race: A removes the file while B has opened but not locked it. Then C creates a
//! new file, so that B and C both hold a lock. [`FileLock::is_at`] closes the race: a lock is valid
//! only if its file still has its name *after* locking.

pub(crate) mod address;
mod owner;
mod place;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mqnet_control_api::{ApiError, Code, Instance};
use mqnet_sysio::file_lock::FileLock;
use mqnet_sysio::listen::{
    Access, Kind, ListenError, Occupant, SocketFile, listen_at, lock_listener, lock_path, occupant,
};
use mqnet_sysio::process::take_inherited;
use socket2::{Domain, Socket, Type};

use crate::client::{Client, IDENTITY_TIMEOUT};

pub use address::SocketAddress;
pub use owner::{Owner, group_id, parse_mode, user_id};
pub use place::Places;

/// Length of the listen queue.
const BACKLOG: u16 = 1024;
/// Number of attempts to take the lock, and the pause between them. Another process may hold the
/// lock for a short time, to check for a stale socket or until it has ended.
const LOCK_TRIES: u32 = 25;
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// First descriptor that systemd passes to a service (`SD_LISTEN_FDS_START`).
const LISTEN_FDS_START: i32 = 3;

/// Role of a process, which determines the name of its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Daemon: `ctl.sock`.
    Daemon,
    /// Process with a single link: `link-<pid>.sock`.
    Link,
}

/// Address and access of a socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// Address; `None`: the name of the role in the runtime directory.
    pub address: Option<SocketAddress>,
    /// Mode of the socket file; `None`: 0660.
    pub mode: Option<u32>,
    /// Owner of the socket file; `None`: user and group of the process.
    pub owner: Option<Owner>,
}

/// Listening control socket. Dropping it removes the socket file and its lock file.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    address: String,
    /// Files of the socket; `None` for abstract and inherited sockets.
    _files: Option<Files>,
}

/// Socket file and its lock file. Drop removes the socket file first: no other process creates a
/// socket at the path while the lock file exists and is locked.
#[derive(Debug)]
struct Files {
    socket: Option<SocketFile>,
    lock: PathBuf,
    held: FileLock,
}

impl Drop for Files {
    fn drop(&mut self) {
        drop(self.socket.take());
        // Remove the lock file only if it is the locked file: another file of that name belongs to
        // another process.
        if self.held.is_at(&self.lock)
            && let Err(e) = fs::remove_file(&self.lock)
        {
            tracing::debug!("cannot remove {}: {e}", self.lock.display());
        }
    }
}

impl ControlSocket {
    /// Opens a listening control socket. Fails if another process uses the address, or if the
    /// options do not apply to it.
    pub fn open(options: &SocketOptions, role: Role, places: &Places) -> Result<Self, ApiError> {
        let address = match &options.address {
            Some(address) => address.clone(),
            None => default_address(role, places)?,
        };
        let (listener, files) = match &address {
            SocketAddress::Abstract(_) if options.mode.is_some() || options.owner.is_some() => {
                let why = "an abstract control socket has neither mode nor owner: \
                           root and its own user may use it";
                return Err(ApiError::field("control", why));
            }
            SocketAddress::Abstract(_) => match listen_at_name(&address) {
                Ok(listener) => (listener, None),
                Err(e) if e.kind() == io::ErrorKind::AddrInUse => return Err(in_use(&address)),
                Err(e) => return Err(cannot(&address, "listen", &e)),
            },
            SocketAddress::File(path) => {
                let access = Access {
                    mode: Some(options.mode.unwrap_or(0o660)),
                    uid: options.owner.map(|owner| owner.uid),
                    gid: options.owner.and_then(|owner| owner.gid),
                };
                let (listener, files) = listen_at_path(path, access)?;
                (listener, Some(files))
            }
        };
        Ok(Self { listener, address: address.to_string(), _files: files })
    }

    /// Returns the socket that systemd passed to this process (`LISTEN_FDS`), or `None` if systemd
    /// passed none. Must be called before the process opens any descriptor.
    pub fn inherited() -> Result<Option<Self>, ApiError> {
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
        if number("LISTEN_PID") != Some(std::process::id()) {
            return Ok(None);
        }
        match number("LISTEN_FDS") {
            Some(1) => adopt(LISTEN_FDS_START).map(Some),
            Some(n) if n > 1 => {
                let why = format!("LISTEN_FDS={n}: allowed: one ListenStream, the control socket");
                Err(ApiError::field("LISTEN_FDS", why))
            }
            _ => Ok(None),
        }
    }

    /// Returns a listener for the server; requires a tokio runtime.
    pub fn listener(&self) -> io::Result<tokio::net::UnixListener> {
        tokio::net::UnixListener::from_std(self.std_listener()?)
    }

    /// Returns a non-blocking listener for a server on another thread.
    pub fn std_listener(&self) -> io::Result<std::os::unix::net::UnixListener> {
        let listener = self.listener.try_clone()?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// Returns the address of the socket in the notation of clients; `(inherited)` if unknown.
    pub fn address(&self) -> &str {
        &self.address
    }
}

fn adopt(fd: i32) -> Result<ControlSocket, ApiError> {
    let why = |e: &dyn std::fmt::Display| {
        ApiError::field(
            "LISTEN_FDS",
            format!("descriptor {fd} is not a listening Unix socket: {e}"),
        )
    };
    let socket: Socket = take_inherited(fd).map_err(|e| why(&e))?.into();
    let is_unix = socket.domain().map_err(|e| why(&e))? == Domain::UNIX;
    let is_stream = socket.r#type().map_err(|e| why(&e))? == Type::STREAM;
    if !is_unix || !is_stream || !socket.is_listener().map_err(|e| why(&e))? {
        return Err(why(&"wrong kind; use ListenStream=PATH"));
    }
    let listener = UnixListener::from(OwnedFd::from(socket));
    let address = listener.local_addr().ok();
    let path = address.as_ref().and_then(|address| address.as_pathname());
    let address = path.map_or("(inherited)".to_owned(), |path| path.display().to_string());
    Ok(ControlSocket { listener, address, _files: None })
}

fn default_address(role: Role, places: &Places) -> Result<SocketAddress, ApiError> {
    let name = match role {
        Role::Daemon => "ctl.sock".to_owned(),
        Role::Link => format!("link-{}.sock", std::process::id()),
    };
    let path = places.writable()?.join(name);
    SocketAddress::file(&path)
}

/// Locks a path and listens there. An attempt that fails removes the lock file again.
fn listen_at_path(path: &Path, access: Access) -> Result<(UnixListener, Files), ApiError> {
    let lock = lock_path(path);
    let held = take_lock(path, &lock)?;
    let mut files = Files { socket: None, lock, held };
    match listen_at(path, Kind::Stream, access, BACKLOG) {
        Ok((fd, file)) => {
            files.socket = Some(file);
            Ok((fd.into(), files))
        }
        Err(e) => Err(refusal(e)),
    }
}

fn refusal(e: ListenError) -> ApiError {
    match e {
        ListenError::InUse(path) => in_use(&SocketAddress::File(path)),
        ListenError::NotASocket(_) | ListenError::NoFolder(..) => {
            ApiError::field("control", format!("control socket: {e}"))
        }
        ListenError::System(path, step, e) => cannot_file(&path, step, &e),
    }
}

fn take_lock(path: &Path, lock: &Path) -> Result<FileLock, ApiError> {
    for _ in 0..LOCK_TRIES {
        match lock_listener(path) {
            Ok(Some(held)) if held.is_at(lock) => return Ok(held),
            Ok(Some(_)) => continue,
            Ok(None) if is_in_use(path) => break,
            Ok(None) => std::thread::sleep(LOCK_PAUSE),
            Err(e) => return Err(refusal(e)),
        }
    }
    Err(in_use(&SocketAddress::File(path.to_owned())))
}

/// Listens at an abstract name.
fn listen_at_name(address: &SocketAddress) -> io::Result<UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&address.to_socket()?)?;
    socket.listen(BACKLOG.into())?;
    Ok(UnixListener::from(OwnedFd::from(socket)))
}

/// True if a process listens at `path`, or if the state of `path` cannot be determined.
fn is_in_use(path: &Path) -> bool {
    occupant(path).map_or(true, |there| there == Occupant::LiveSocket)
}

fn is_stale(path: &Path) -> bool {
    occupant(path).is_ok_and(|there| there == Occupant::StaleSocket)
}

/// Removes the socket of a process that ended without removing it. Returns true if the socket was
/// removed.
pub fn remove_stale(path: &Path) -> bool {
    if !is_stale(path) {
        return false;
    }
    let lock = lock_path(path);
    match FileLock::try_take(&lock) {
        Ok(Some(held)) if held.is_at(&lock) => {
            let _files = Files { socket: None, lock, held };
            // Check again: another process may have begun to listen before the lock was taken.
            is_stale(path) && fs::remove_file(path).is_ok()
        }
        _ => false,
    }
}

fn in_use(address: &SocketAddress) -> ApiError {
    let other = match owner_of(&address.to_string()) {
        Some(instance) => format!("mqnet process {}", instance.pid),
        None => "a process that does not answer".to_owned(),
    };
    let why = format!(
        "control socket {address} is in use by {other}: choose another with --control-socket"
    );
    ApiError { code: Code::Busy, message: why, field: Some("control".to_owned()) }
}

/// Returns the description of the process at an address, or `None` without an answer. Uses another
/// thread, because the caller may be inside an async runtime.
fn owner_of(address: &str) -> Option<Instance> {
    let ask = || {
        let client = Client::new(address).with_timeout(IDENTITY_TIMEOUT);
        serde_json::from_value(client.get("/v1/instance").ok()?).ok()
    };
    std::thread::scope(|scope| scope.spawn(ask).join().ok().flatten())
}

fn cannot(address: &SocketAddress, what: &str, e: &io::Error) -> ApiError {
    let code = match e.kind() {
        io::ErrorKind::PermissionDenied => Code::Permission,
        _ => Code::Failed,
    };
    let message = format!("control socket {address}: cannot {what}: {e}");
    ApiError { code, message, field: Some("control".to_owned()) }
}

fn cannot_file(path: &Path, what: &str, e: &io::Error) -> ApiError {
    cannot(&SocketAddress::File(path.to_owned()), what, e)
}
