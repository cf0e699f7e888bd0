//! Unix sockets that carry descriptors: how two processes introduce themselves.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};

use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, accept4, bind,
    connect, recv, sendmsg, socket, socketpair,
};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};

use crate::broker;
use crate::descriptors::{Refused, explained, is_of_kernel};

use crate::listen::{self, Access, Kind, ListenError, SocketFile};

/// Connections that may wait to be accepted.
const BACKLOG: u16 = 8;

/// Most descriptors that one message may carry (the kernel's `SCM_MAX_FD`).
pub const FDS_MAX: usize = 253;

/// True while the other end of a stream is there and says nothing: what waits is not taken.
pub fn is_quiet(fd: BorrowedFd<'_>) -> bool {
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    recv(fd.as_raw_fd(), &mut [0], flags) == Err(nix::errno::Errno::EAGAIN)
}

/// A connected or listening sequenced-packet socket, non-blocking.
#[derive(Debug)]
pub struct SeqSocket {
    fd: OwnedFd,
}

/// One received message.
#[derive(Debug)]
pub struct Received {
    /// Bytes of the message.
    pub len: usize,
    /// Descriptors that came with it.
    pub fds: Vec<OwnedFd>,
    /// Descriptors that came with it and may wait for a process when they are used or closed.
    pub refused: Refused,
    /// The message or its descriptors did not fit and were cut.
    pub truncated: bool,
}

fn new_socket(kind: SockType) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, kind, flags, None).map_err(explained)
}

fn connect_to(path: &Path, kind: SockType) -> io::Result<OwnedFd> {
    let fd = new_socket(kind)?;
    connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(fd)
}

fn listen_at(path: &Path, kind: SockType) -> io::Result<OwnedFd> {
    let fd = new_socket(kind)?;
    bind(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    nix::sys::socket::listen(&fd, Backlog::new(i32::from(BACKLOG))?)?;
    Ok(fd)
}

fn accept_from(listener: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    match accept4(listener.as_raw_fd(), flags) {
        // SAFETY: accept4 just made this descriptor; nobody else owns it.
        Ok(raw) => Ok(Some(unsafe { OwnedFd::from_raw_fd(raw) })),
        Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::ECONNABORTED) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn send_to(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let raw: Vec<RawFd> = fds.iter().map(|fd| fd.as_raw_fd()).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    Ok(sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(bytes)], control, flags, None)?)
}

fn receive_from(socket: &OwnedFd, bytes: &mut [u8]) -> io::Result<Option<Received>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = match recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags) {
        Ok(message) => message,
        Err(rustix::io::Errno::AGAIN) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    // A message whose descriptors were cut has those that fitted.
    let mut fds: Vec<OwnedFd> = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            fds.extend(rights);
        }
    }
    let truncated = message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    let refused = Refused::default();
    Ok(Some(Received { len: message.bytes, fds, refused, truncated }))
}

/// Receives a message of a peer in this process, and keeps descriptors that may wait for another.
pub(crate) fn receive_filtered(socket: &OwnedFd, bytes: &mut [u8]) -> io::Result<Option<Received>> {
    let Some(received) = receive_from(socket, bytes)? else { return Ok(None) };
    let (fds, others): (Vec<_>, Vec<_>) =
        received.fds.into_iter().partition(|fd| is_of_kernel(fd.as_fd()));
    let mut refused = Refused::default();
    others.into_iter().for_each(|fd| refused.keep(fd));
    Ok(Some(Received { fds, refused, ..received }))
}

fn receive_of_peer(socket: &OwnedFd, bytes: &mut [u8]) -> io::Result<Option<Received>> {
    broker::receive(socket.as_fd(), bytes).unwrap_or_else(|| receive_filtered(socket, bytes))
}

fn bytes_from(socket: &OwnedFd, bytes: &mut [u8]) -> io::Result<Option<usize>> {
    match recv(socket.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT) {
        Ok(len) => Ok(Some(len)),
        Err(nix::errno::Errno::EAGAIN) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

impl SeqSocket {
    /// Two that are connected: ours, and one for another process.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).map_err(explained)?;
        Ok((Self { fd: ours }, theirs))
    }

    /// Connects to the listener at `path`.
    pub fn connect(path: &Path) -> io::Result<Self> {
        Ok(Self { fd: connect_to(path, SockType::SeqPacket)? })
    }

    /// Listens at `path`, which must not exist.
    pub fn listen(path: &Path) -> io::Result<Self> {
        Ok(Self { fd: listen_at(path, SockType::SeqPacket)? })
    }

    /// Listens at `path`, where the socket of a process that is gone is replaced.
    pub fn serve(path: &Path, access: Access) -> Result<(Self, SocketFile), ListenError> {
        let (fd, file) = listen::listen_at(path, Kind::SeqPacket, access, BACKLOG)?;
        Ok((Self { fd }, file))
    }

    /// Takes one waiting connection; `None` when there is none.
    pub fn accept(&self) -> io::Result<Option<Self>> {
        Ok(accept_from(&self.fd)?.map(|fd| Self { fd }))
    }

    /// Sends one message with descriptors.
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        send_to(&self.fd, bytes, fds).map(drop)
    }

    /// Receives one message; `None` when there is none yet. A length of 0 means that the other
    /// end has closed.
    pub fn receive(&self, bytes: &mut [u8]) -> io::Result<Option<Received>> {
        receive_of_peer(&self.fd, bytes)
    }

    /// Receives from a socket pair of this process: all descriptors, without the broker.
    pub fn receive_here(&self, bytes: &mut [u8]) -> io::Result<Option<Received>> {
        receive_from(&self.fd, bytes)
    }

    /// Receives bytes alone: the kernel drops descriptors that came with them.
    pub fn receive_bytes(&self, bytes: &mut [u8]) -> io::Result<Option<usize>> {
        bytes_from(&self.fd, bytes)
    }
}

impl From<OwnedFd> for SeqSocket {
    /// A connected socket; its calls never block, whatever its flags are.
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

impl AsFd for SeqSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A connected or listening stream socket, non-blocking.
#[derive(Debug)]
pub struct StreamSocket {
    fd: OwnedFd,
}

impl StreamSocket {
    /// Connects to the listener at `path`.
    pub fn connect(path: &Path) -> io::Result<Self> {
        Ok(Self { fd: connect_to(path, SockType::Stream)? })
    }

    /// Listens at `path`, which must not exist.
    pub fn listen(path: &Path) -> io::Result<Self> {
        Ok(Self { fd: listen_at(path, SockType::Stream)? })
    }

    /// Listens at `path`, where the socket of a process that is gone is replaced.
    pub fn serve(path: &Path, access: Access) -> Result<(Self, SocketFile), ListenError> {
        let (fd, file) = listen::listen_at(path, Kind::Stream, access, BACKLOG)?;
        Ok((Self { fd }, file))
    }

    /// Takes one waiting connection; `None` when there is none.
    pub fn accept(&self) -> io::Result<Option<Self>> {
        Ok(accept_from(&self.fd)?.map(|fd| Self { fd }))
    }

    /// Sends some of the bytes, with the descriptors; returns how many.
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
        send_to(&self.fd, bytes, fds)
    }

    /// Receives up to as many bytes as there is room for, and the descriptors that came with them;
    /// `None` when nothing waits. A length of 0 means that the other end has closed.
    pub fn receive(&self, bytes: &mut [u8]) -> io::Result<Option<Received>> {
        receive_of_peer(&self.fd, bytes)
    }

    /// Receives from a socket pair of this process: all descriptors, without the broker.
    pub fn receive_here(&self, bytes: &mut [u8]) -> io::Result<Option<Received>> {
        receive_from(&self.fd, bytes)
    }

    /// Receives bytes alone: the kernel drops descriptors that came with them.
    pub fn receive_bytes(&self, bytes: &mut [u8]) -> io::Result<Option<usize>> {
        bytes_from(&self.fd, bytes)
    }
}

impl From<OwnedFd> for StreamSocket {
    /// A connected stream socket; its calls never block, whatever its flags are.
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

impl AsFd for StreamSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// An exclusive lock on a file that the kernel drops when this process ends, however it ends.
#[derive(Debug)]
pub struct FileLock {
    held: Flock<std::fs::File>,
}

impl FileLock {
    /// Takes the lock at `path`, creating the file; `None` when another process holds it. Only an
    /// empty regular file is a lock file: anything else is refused and stays as it is.
    pub fn try_take(path: &Path) -> io::Result<Option<Self>> {
        use std::os::unix::fs::OpenOptionsExt;
        // Neither follows a link nor waits for the other end of a pipe.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        // Others may not lock a file that they cannot open.
        let mut options = std::fs::File::options();
        let options = options.create(true).append(true).mode(0o600).custom_flags(flags);
        let file = match options.open(path) {
            Ok(file) => file,
            // Of another user, who therefore has it.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied && path.exists() => {
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        let data = file.metadata()?;
        if !data.is_file() || data.len() > 0 {
            let why = "it exists and is not an empty lock file: remove it";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        Self::of(file)
    }

    /// Takes the lock of an open file; `None` when another process holds it.
    pub fn of(file: std::fs::File) -> io::Result<Option<Self>> {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(held) => Ok(Some(Self { held })),
            Err((_, nix::errno::Errno::EAGAIN)) => Ok(None),
            Err((_, e)) => Err(e.into()),
        }
    }

    /// The locked file, in which what is written is appended.
    pub fn file(&self) -> &std::fs::File {
        &self.held
    }

    /// True when `path` still names the locked file: its former owner may have removed it between
    /// our opening it and our locking it, and then the lock keeps nobody out.
    pub fn is_at(&self, path: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        let place = |data: std::fs::Metadata| (data.dev(), data.ino());
        let ours = self.held.metadata().map(place);
        let theirs = std::fs::symlink_metadata(path).map(place);
        matches!((ours, theirs), (Ok(ours), Ok(theirs)) if ours == theirs)
    }
}
