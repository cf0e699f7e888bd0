//! Control sockets: where they lie, who may use them, and that two processes never share one.
//!
//! A socket file says nothing about its owner: it outlives a killed process. So every socket has a
//! lock file beside it, which the kernel unlocks when its process ends, however it ends. Who holds
//! the lock owns the socket; a socket whose lock is free and at which nobody listens is stale, and
//! whoever comes across it removes it, under the lock.
//!
//! The lock file is removed with the socket, so that a runtime directory does not fill with them.
//! That opens a race (A removes the file while B has it open but not locked yet, and C makes a new
//! one: B and C would both hold "the" lock), which [`FileLock::is_at`] closes: a lock counts only
//! if its file still has its name *after* it was taken.

mod address;
mod owner;
mod place;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mqnet_control_api::{ApiError, Code, Instance};
use mqnet_sysio::process::take_inherited;
use mqnet_sysio::socket::FileLock;
use socket2::{Domain, SockAddr, Socket, Type};

pub use address::Address;
pub use owner::{Owner, parse_mode};
pub use place::Places;

/// Clients that may wait to be accepted.
const BACKLOG: i32 = 128;
/// Another process may look whether the socket is stale, or be about to end: how often and how long
/// apart the lock is tried.
const LOCK_TRIES: u32 = 25;
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// First inherited descriptor of systemd's protocol.
const LISTEN_FDS_START: i32 = 3;

/// What a process is, which names its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// `ctl.sock`.
    Daemon,
    /// `link-<pid>.sock`.
    Link,
}

/// Where to listen and for whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Absent: by role, in the runtime directory.
    pub address: Option<Address>,
    /// Absent: 0660.
    pub mode: Option<u32>,
    /// Absent: the own user and group.
    pub owner: Option<Owner>,
}

/// A listening control socket. Dropping it removes its files.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    address: String,
    /// Absent for abstract and inherited sockets, which have no file of ours.
    _files: Option<Files>,
}

/// The socket file and its lock, removed in this order when dropped: while the lock file has its
/// name, nobody else makes a socket there.
#[derive(Debug)]
struct Files {
    socket: PathBuf,
    lock: PathBuf,
    _held: FileLock,
}

impl Drop for Files {
    fn drop(&mut self) {
        for path in [&self.socket, &self.lock] {
            if let Err(e) = fs::remove_file(path) {
                tracing::debug!("cannot remove {}: {e}", path.display());
            }
        }
    }
}

impl ControlSocket {
    /// Listens.
    pub fn open(options: &Options, role: Role, places: &Places) -> Result<Self, ApiError> {
        let address = match &options.address {
            Some(address) => address.clone(),
            None => default_address(role, places)?,
        };
        let mode = options.mode.unwrap_or(0o660);
        let opened = match &address {
            Address::Abstract(_) if options.mode.is_some() || options.owner.is_some() => {
                let why = "an abstract control socket has neither mode nor owner: \
                           root and its own user may use it";
                return Err(ApiError::field("control", why));
            }
            Address::Abstract(_) => listen(&address, |_| Ok(())).map(|listener| (listener, None)),
            Address::File(path) => {
                let files = claim(path)?;
                // Refused until `listen`: nobody gets in before mode and owner are set.
                let admit = |path: &Path| {
                    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
                    let Some(owner) = options.owner else { return Ok(()) };
                    chown(path, Some(owner.uid), owner.gid)
                };
                listen(&address, admit).map(|listener| (listener, Some(files)))
            }
        };
        match opened {
            Ok((listener, files)) => {
                Ok(Self { listener, address: address.to_string(), _files: files })
            }
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => Err(in_use(&address)),
            Err(e) => Err(cannot(&address, "listen", &e)),
        }
    }

    /// The socket that systemd opened for this process, if it did (`LISTEN_FDS`). Call this before
    /// the process opens anything.
    pub fn inherited() -> Result<Option<Self>, ApiError> {
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
        if number("LISTEN_PID") != Some(std::process::id()) {
            return Ok(None);
        }
        match number("LISTEN_FDS") {
            Some(1) => adopt(LISTEN_FDS_START).map(Some),
            Some(n) if n > 1 => {
                let why =
                    format!("LISTEN_FDS={n}: mqnet takes one ListenStream, the control socket");
                Err(ApiError::field("LISTEN_FDS", why))
            }
            _ => Ok(None),
        }
    }

    /// For the server; needs a tokio runtime.
    pub fn listener(&self) -> io::Result<tokio::net::UnixListener> {
        let listener = self.listener.try_clone()?;
        listener.set_nonblocking(true)?;
        tokio::net::UnixListener::from_std(listener)
    }

    /// Where it listens, as a client writes it.
    pub fn address(&self) -> &str {
        &self.address
    }
}

fn adopt(fd: i32) -> Result<ControlSocket, ApiError> {
    let why = |e: &dyn std::fmt::Display| {
        ApiError::field("LISTEN_FDS", format!("descriptor {fd} is no listening Unix socket: {e}"))
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

fn default_address(role: Role, places: &Places) -> Result<Address, ApiError> {
    let name = match role {
        Role::Daemon => "ctl.sock".to_owned(),
        Role::Link => format!("link-{}.sock", std::process::id()),
    };
    let path = places.writable()?.join(name);
    Address::file(&path)
}

/// Takes the lock of a path and clears the way for a socket there.
fn claim(path: &Path) -> Result<Files, ApiError> {
    let lock = lock_path(path);
    let held = take_lock(path, &lock)?;
    if let Err(e) = clear(path) {
        // What lies there is not ours and stays; the lock file is.
        let _ = fs::remove_file(&lock);
        return Err(e);
    }
    Ok(Files { socket: path.to_owned(), lock, _held: held })
}

fn clear(path: &Path) -> Result<(), ApiError> {
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(cannot_file(path, "look at it", &e)),
        Ok(data) if !data.file_type().is_socket() => {
            let why = format!("{} exists and is not a socket; it was not touched", path.display());
            Err(ApiError::field("control", why))
        }
        Ok(_) if has_listener(path) => Err(in_use(&Address::File(path.to_owned()))),
        Ok(_) => {
            fs::remove_file(path).map_err(|e| cannot_file(path, "remove the stale socket", &e))
        }
    }
}

fn take_lock(path: &Path, lock: &Path) -> Result<FileLock, ApiError> {
    for _ in 0..LOCK_TRIES {
        match FileLock::try_take(lock) {
            Ok(Some(held)) if held.is_at(lock) => return Ok(held),
            Ok(Some(_)) => continue,
            Ok(None) if has_listener(path) => break,
            Ok(None) => std::thread::sleep(LOCK_PAUSE),
            Err(e) => return Err(cannot_file(lock, "lock", &e)),
        }
    }
    Err(in_use(&Address::File(path.to_owned())))
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// Binds, lets `admit` set who may connect, and listens: until then connections are refused.
fn listen(
    address: &Address,
    admit: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&address.to_socket()?)?;
    if let Address::File(path) = address {
        admit(path)?;
    }
    socket.listen(BACKLOG)?;
    Ok(UnixListener::from(OwnedFd::from(socket)))
}

/// Whether a process listens at `path`, without waiting for it to accept.
fn has_listener(path: &Path) -> bool {
    let connect = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.connect(&SockAddr::unix(path)?)
    };
    match connect() {
        Ok(()) => true,
        // A full listen queue; or we may not know: then it is not ours to remove either.
        Err(e) => !matches!(e.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound),
    }
}

/// Removes the socket of a process that ended without doing so. False when it is in use or cannot
/// be removed.
pub fn remove_stale(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket());
    if !is_socket || has_listener(path) {
        return false;
    }
    let lock = lock_path(path);
    match FileLock::try_take(&lock) {
        Ok(Some(held)) if held.is_at(&lock) => {
            // It may have come to life before we had the lock.
            let stale = !has_listener(path);
            if stale {
                drop(Files { socket: path.to_owned(), lock, _held: held });
            }
            stale
        }
        _ => false,
    }
}

fn in_use(address: &Address) -> ApiError {
    let other = match who(&address.to_string()) {
        Some(instance) => format!("mqnet process {}", instance.pid),
        None => "a process that does not answer".to_owned(),
    };
    let why = format!(
        "control socket {address} is in use by {other}: choose another with --control-socket"
    );
    ApiError { code: Code::Busy, message: why, field: Some("control".to_owned()) }
}

/// The process behind an address, if it answers. On a thread of its own, because the caller may be
/// inside a runtime.
fn who(address: &str) -> Option<Instance> {
    let ask = || {
        let client = crate::client::Client::new(address).with_timeout(crate::discover::PATIENCE);
        serde_json::from_value(client.get("/v1/instance").ok()?).ok()
    };
    std::thread::scope(|scope| scope.spawn(ask).join().ok().flatten())
}

fn cannot(address: &Address, what: &str, e: &io::Error) -> ApiError {
    let code = match e.kind() {
        io::ErrorKind::PermissionDenied => Code::Permission,
        _ => Code::Failed,
    };
    let message = format!("control socket {address}: cannot {what}: {e}");
    ApiError { code, message, field: Some("control".to_owned()) }
}

fn cannot_file(path: &Path, what: &str, e: &io::Error) -> ApiError {
    cannot(&Address::File(path.to_owned()), what, e)
}
