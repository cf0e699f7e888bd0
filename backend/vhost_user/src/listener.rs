//! Connection thread: accepts or makes connections and handles vhost-user messages.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mqnet_sysio::descriptors::{REFUSED_MAX, explained, refused_text};
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::listen::{Access, Kind, ListenError, SocketFile, listen_at};
use mqnet_sysio::rate::{self, Bucket};
use mqnet_sysio::{bounded, broker, clock, poll, process};
use mqnet_virtio::Features;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, getsockopt, socket, sockopt};
use vhost::vhost_user::{BackendReqHandler, Error};

use crate::config::Meet;
use crate::control_queue::ControlHandler;
use crate::early::{self, Header};
use crate::relay::{NO_LIMIT, Relay};
use crate::state::Shared;

/// Delay between two attempts to connect.
const RETRY: Duration = Duration::from_millis(100);

/// Duration below which a connection is brief. The program that listens at the path may not be a
/// VMM, so attempts to connect are delayed after a brief connection.
const BRIEF: Duration = Duration::from_secs(1);
/// Delay after a brief connection; each further brief connection doubles the delay.
const BRIEF_RETRY: Duration = Duration::from_millis(500);
/// Longest delay after a brief connection.
const BRIEF_RETRY_LONGEST: Duration = Duration::from_secs(10);

/// Number of attempts to listen at a path that is in use. The process that listens there may be
/// terminating.
const IN_USE_TRIES: u32 = 5;
/// Backlog of the listening socket.
const BACKLOG: u16 = 128;

/// Time limit of the join in a drop. Closing a peer's descriptor can block the thread.
const END_LIMIT: Duration = Duration::from_millis(500);

/// Source of connections.
enum ConnectionSource {
    Listen { listener: UnixListener, socket: Option<SocketFile> },
    Connect(PathBuf),
    Once(Option<UnixStream>),
}

/// Handle of the connection thread. A drop ends the thread.
pub(crate) struct Listener {
    end: Arc<EventFd>,
    connection: Arc<Mutex<Connection>>,
    thread: Option<JoinHandle<()>>,
}

/// Current connection, shared with the handle. A drop of the handle shuts down the stream.
#[derive(Default)]
struct Connection {
    stream: Option<Arc<UnixStream>>,
    over: bool,
}

impl Listener {
    /// Opens the socket and starts the thread. `Err` if either fails.
    pub(crate) fn open(meet: Meet, shared: Arc<Shared>) -> io::Result<Self> {
        let source = ConnectionSource::new(meet)?;
        broker::prepare();
        let (end, connection) = (Arc::new(EventFd::new()?), Arc::<Mutex<Connection>>::default());
        let (end_of, current) = (end.clone(), connection.clone());
        let connection_thread =
            ConnectionThread { end: end_of, connection: current, shared, refused: 0 };
        let thread = std::thread::Builder::new().name("vhost-user".to_owned());
        let body = move || {
            // The peer controls the work of this thread, so drop its privileges. `CAP_DAC_OVERRIDE`
            // stays, because the socket may be in another user's directory.
            if let Err(e) = process::restrict_thread(&[process::Capability::DacOverride]) {
                tracing::warn!("vhost-user: a thread could not drop its privileges: {e}");
            }
            connection_thread.run(source);
        };
        let thread = Some(thread.spawn(body)?);
        Ok(Self { end, connection, thread })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.end.ring();
        {
            let mut current = lock(&self.connection);
            current.over = true;
            shut_down(&current);
        }
        if let Some(thread) = self.thread.take()
            && !bounded::join(thread, END_LIMIT)
        {
            tracing::warn!(
                "vhost-user: a thread is blocked by a descriptor of the VMM; it is abandoned"
            );
        }
    }
}

fn lock(current: &Mutex<Connection>) -> std::sync::MutexGuard<'_, Connection> {
    current.lock().unwrap_or_else(PoisonError::into_inner)
}

fn shut_down(current: &Connection) {
    if let Some(stream) = &current.stream {
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
}

/// Connects to `path`; `Err` if the backlog is full. Waiting for a stopped VMM would block this
/// thread and the drop that joins it.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    nix::sys::socket::connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(fd.into())
}

fn listen(path: &Path, access: Access) -> io::Result<ConnectionSource> {
    let mut tries = 1;
    loop {
        match listen_at(path, Kind::Stream, access, BACKLOG) {
            Ok((fd, file)) => {
                return Ok(ConnectionSource::Listen { listener: fd.into(), socket: Some(file) });
            }
            Err(ListenError::InUse(_)) if tries < IN_USE_TRIES => poll::pause(RETRY),
            Err(e @ ListenError::InUse(_)) => {
                let why = format!("{e} (the option connect connects to it)");
                return Err(io::Error::new(io::ErrorKind::AddrInUse, why));
            }
            Err(e) => return Err(e.into()),
        }
        tries += 1;
    }
}

impl ConnectionSource {
    fn new(meet: Meet) -> io::Result<Self> {
        match meet {
            Meet::Listen(path) => listen(&path, Access::default()),
            Meet::ListenAs(path, access) => listen(&path, access),
            Meet::Connect(path) => Ok(Self::Connect(path)),
            Meet::Inherited(fd) => Self::inherited(fd),
        }
    }

    fn inherited(fd: OwnedFd) -> io::Result<Self> {
        let is_unix = getsockopt(&fd, sockopt::SockType).is_ok()
            && nix::sys::socket::getsockname::<UnixAddr>(fd.as_raw_fd()).is_ok();
        if !is_unix {
            return Err(io::Error::other("the inherited descriptor is no Unix socket"));
        }
        Ok(match getsockopt(&fd, sockopt::AcceptConn)? {
            true => Self::Listen { listener: fd.into(), socket: None },
            false => Self::Once(Some(fd.into())),
        })
    }

    /// Status text while no peer is connected.
    fn waiting(&self) -> String {
        match self {
            Self::Listen { socket: Some(socket), .. } => {
                format!("waiting for a VMM to connect to {}", socket.path().display())
            }
            Self::Listen { socket: None, .. } => "waiting for a VMM to connect".to_owned(),
            Self::Connect(path) => format!("waiting for a VMM to listen at {}", path.display()),
            Self::Once(Some(_)) => "the VMM has not sent a message yet".to_owned(),
            Self::Once(None) => "the VMM has ended the inherited connection".to_owned(),
        }
    }

    /// Attempts once to get a connection; `None` if the attempt fails. A signal of `end` ends the
    /// wait early.
    fn meet(&mut self, end: &EventFd) -> Option<UnixStream> {
        let (stream, patience) = match self {
            Self::Listen { listener, .. } => {
                let _ = poll::wait_readable(&[listener.as_fd(), end.as_fd()], NO_LIMIT);
                let is_there = poll::is_readable(listener.as_fd()).unwrap_or(false);
                let stream = is_there.then(|| listener.accept().map(|(stream, _)| stream));
                // A connection that cannot be accepted stays in the backlog, so delay the next
                // attempt.
                let patience = if matches!(stream, Some(Err(_))) { RETRY } else { Duration::ZERO };
                (stream, patience)
            }
            Self::Connect(path) => (Some(connect(path)), RETRY),
            Self::Once(stream) => (stream.take().map(Ok), NO_LIMIT),
        };
        match stream {
            Some(Ok(stream)) => return stream.set_nonblocking(false).is_ok().then_some(stream),
            Some(Err(e)) => tracing::debug!("{}: {e}", self.waiting()),
            None => {}
        }
        let _ = poll::wait_readable(&[end.as_fd()], patience);
        None
    }
}

/// Text of the error that ends a connection at this message; logged if a descriptor was refused.
fn ended(relay: &Relay, header: Header, error: &io::Error) -> String {
    if relay.refused > 0 {
        tracing::warn!("vhost-user: the connection ends at {header:?}: {error}");
    }
    error.to_string()
}

/// State of the connection thread.
struct ConnectionThread {
    end: Arc<EventFd>,
    connection: Arc<Mutex<Connection>>,
    shared: Arc<Shared>,
    /// Number of descriptors that were refused. They stay open, because closing one may block.
    refused: usize,
}

impl ConnectionThread {
    fn run(mut self, mut source: ConnectionSource) {
        let (mut reported, mut delay, mut last_end) = (String::new(), None, String::new());
        let mut accepted = Bucket::full(rate::connections()[0], clock::monotonic());
        while !self.is_over() {
            if self.refused > REFUSED_MAX {
                self.absent(refused_text(self.refused), &mut reported);
                let _ = poll::wait_readable(&[self.end.as_fd()], NO_LIMIT);
                continue;
            }
            // After a brief connection, the status text remains the reason of its end.
            if delay.is_none() {
                // The control thread may read the status text only now: it names the last end.
                self.absent(format!("{last_end}{}", source.waiting()), &mut reported);
            }
            let Some(stream) = source.meet(&self.end) else { continue };
            if !accepted.take(rate::connections(), clock::monotonic()) {
                // The rate limit is reached: leave further connections in the backlog.
                let _ = poll::wait_readable(&[self.end.as_fd()], RETRY);
            }
            let stream = Arc::new(stream);
            if !self.set_connection(&stream) {
                return;
            }
            let Some(relay) = self.relay(&stream, &mut reported) else { return };
            reported.clear();
            self.shared.lock().absent = None;
            self.shared.wake_control();
            let since = clock::monotonic();
            let why = self.serve(&stream, relay);
            lock(&self.connection).stream = None;
            let why = format!("the VMM disconnected ({why})");
            self.leave(&why);
            last_end = format!("{why}; ");
            let is_brief = clock::monotonic().saturating_sub(since) < BRIEF;
            delay = (is_brief && matches!(source, ConnectionSource::Connect(_))).then(|| {
                delay.map_or(BRIEF_RETRY, |delay: Duration| (delay * 2).min(BRIEF_RETRY_LONGEST))
            });
            if let Some(delay) = delay {
                let _ = poll::wait_readable(&[self.end.as_fd()], delay);
            }
        }
    }

    fn is_over(&self) -> bool {
        lock(&self.connection).over
    }

    fn absent(&self, why: String, reported: &mut String) {
        if *reported != why {
            self.shared.lock().absent = Some(why.clone());
            self.shared.wake_control();
            *reported = why;
        }
    }

    /// Publishes the connection to the handle; returns false if the handle was dropped.
    fn set_connection(&self, stream: &Arc<UnixStream>) -> bool {
        let mut current = lock(&self.connection);
        current.stream = Some(stream.clone());
        !current.over
    }

    /// Creates the relay of a connection; `None` if the handle was dropped. Failed attempts are
    /// repeated, because an inherited connection cannot be made again.
    fn relay(&self, line: &UnixStream, reported: &mut String) -> Option<(Relay, UnixStream)> {
        while !self.is_over() {
            match Relay::new(line) {
                Ok(both) => return Some(both),
                Err(e) => self.absent(explained(e).to_string(), reported),
            }
            let _ = poll::wait_readable(&[self.end.as_fd()], RETRY);
        }
        None
    }

    /// Handles messages until the connection ends; returns the reason.
    fn serve(&mut self, line: &UnixStream, (mut relay, stream): (Relay, UnixStream)) -> String {
        let why = self.serve_with(line, &mut relay, stream);
        self.refused += relay.refused;
        why
    }

    fn serve_with(&self, line: &UnixStream, relay: &mut Relay, stream: UnixStream) -> String {
        let mut handler = BackendReqHandler::from_stream(stream, self.shared.clone());
        let mut accepted = false;
        let mut control = ControlHandler::new(self.shared.clone());
        loop {
            if let Err(e) = control.serve_until(line) {
                return e.to_string();
            }
            let Some(header) = early::peek_header(line) else { return "disconnected".to_owned() };
            if let Some(message) = header.early_message(accepted) {
                let done = relay.receive_early(header);
                match done.and_then(|body| header.execute(message, body, line, &self.shared)) {
                    Ok(()) => continue,
                    Err(e) => return ended(relay, header, &e),
                }
            }
            if let Err(e) = relay.pass(header) {
                return ended(relay, header, &e);
            }
            let handled = handler.handle_request();
            if let Err(e) = relay.answer() {
                return e.to_string();
            }
            match handled {
                Ok(()) => {}
                Err(Error::Disconnected) => return "disconnected".to_owned(),
                Err(Error::SocketBroken(e)) => return e.to_string(),
                Err(e) => {
                    tracing::warn!("vhost-user: the connection ends at {header:?}: {e:?}");
                    return e.to_string();
                }
            }
            if header.is_set_features() {
                accepted = self.shared.lock().has(Features::PROTOCOL_FEATURES);
            }
        }
    }

    /// Takes all rings out of service and discards the peer's state. Returns early if the handle
    /// was dropped.
    fn leave(&self, why: &str) {
        self.shared.lock().absent = Some(why.to_owned());
        self.shared.wake_control();
        loop {
            match self.shared.pause_all() {
                Ok(mut state) => {
                    state.forget_peer(why.to_owned());
                    return;
                }
                Err(_) if self.is_over() => return,
                Err(e) => tracing::warn!("vhost-user: {e}"),
            }
        }
    }
}

#[cfg(test)]
mod tests;
