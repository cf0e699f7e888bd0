//! Unix sockets with descriptor passing (SCM_RIGHTS), and file locks.

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
use crate::descriptors::{RejectedDescriptors, explained, is_of_kernel};

use crate::listen::{self, Access, Kind, ListenError, SocketFile};

/// Backlog of connections that wait to be accepted.
const BACKLOG: u16 = 8;

/// Maximum number of descriptors per message (the kernel's `SCM_MAX_FD`).
pub const FDS_MAX: usize = 253;

/// True if the stream is open and no data is pending. Data is not consumed.
pub fn is_quiet(fd: BorrowedFd<'_>) -> bool {
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    recv(fd.as_raw_fd(), &mut [0], flags) == Err(nix::errno::Errno::EAGAIN)
}

/// Connected or listening sequenced-packet socket, non-blocking.
#[derive(Debug)]
pub struct SeqSocket {
    fd: OwnedFd,
}

/// Received message.
#[derive(Debug)]
pub struct Received {
    /// Length in bytes.
    pub len: usize,
    /// Descriptors of the message.
    pub fds: Vec<OwnedFd>,
    /// Descriptors of the message whose use or close may wait for a process.
    pub refused: RejectedDescriptors,
    /// True if the message or its descriptors were truncated.
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
        // SAFETY: accept4 just created this descriptor; it has no other owner.
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
    // If control data is truncated, the descriptors that fitted are still returned.
    let mut fds: Vec<OwnedFd> = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            fds.extend(rights);
        }
    }
    let truncated = message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    let refused = RejectedDescriptors::default();
    Ok(Some(Received { len: message.bytes, fds, refused, truncated }))
}

/// Receives a peer's message in this process, and leaks descriptors that may wait for a process.
pub(crate) fn receive_filtered(socket: &OwnedFd, bytes: &mut [u8]) -> io::Result<Option<Received>> {
    let Some(received) = receive_from(socket, bytes)? else { return Ok(None) };
    let (fds, others): (Vec<_>, Vec<_>) =
        received.fds.into_iter().partition(|fd| is_of_kernel(fd.as_fd()));
    let mut refused = RejectedDescriptors::default();
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
    /// Creates a connected pair: the local end, and one for another process.
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

    /// Listens at `path`, and replaces the socket file of a process that has exited.
    pub fn serve(path: &Path, access: Access) -> Result<(Self, SocketFile), ListenError> {
        let (fd, file) = listen::listen_at(path, Kind::SeqPacket, access, BACKLOG)?;
        Ok((Self { fd }, file))
    }

    /// Accepts a pending connection. Returns `None` if there is none.
    pub fn accept(&self) -> io::Result<Option<Self>> {
        Ok(accept_from(&self.fd)?.map(|fd| Self { fd }))
    }

    /// Sends one message with descriptors.
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        send_to(&self.fd, bytes, fds).map(drop)
    }

    /// Receives one message. Returns `None` if none is available. A length of 0 means that the
    /// other end has closed.
    pub fn receive(&self, bytes: &mut [u8]) -> io::Result<Option<Received>> {
        receive_of_peer(&self.fd, bytes)
    }

    /// Receives from a socket pair of this process: all descriptors, without the broker.
    pub fn receive_here(&self, bytes: &mut [u8]) -> io::Result<Option<Received>> {
        receive_from(&self.fd, bytes)
    }

    /// Receives only bytes; the kernel drops descriptors of the message.
    pub fn receive_bytes(&self, bytes: &mut [u8]) -> io::Result<Option<usize>> {
        bytes_from(&self.fd, bytes)
    }
}

impl From<OwnedFd> for SeqSocket {
    /// Wraps a connected socket. Calls never block, for any flags of the descriptor.
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

impl AsFd for SeqSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Connected or listening stream socket, non-blocking.
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

    /// Listens at `path`, and replaces the socket file of a process that has exited.
    pub fn serve(path: &Path, access: Access) -> Result<(Self, SocketFile), ListenError> {
        let (fd, file) = listen::listen_at(path, Kind::Stream, access, BACKLOG)?;
        Ok((Self { fd }, file))
    }

    /// Accepts a pending connection. Returns `None` if there is none.
    pub fn accept(&self) -> io::Result<Option<Self>> {
        Ok(accept_from(&self.fd)?.map(|fd| Self { fd }))
    }

    /// Sends some of the bytes, with the descriptors. Returns the number of bytes.
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
        send_to(&self.fd, bytes, fds)
    }

    /// Receives bytes, limited by the buffer, with their descriptors. Returns `None` if no data is
    /// pending. A length of 0 means that the other end has closed.
    pub fn receive(&self, bytes: &mut [u8]) -> io::Result<Option<Received>> {
        receive_of_peer(&self.fd, bytes)
    }

    /// Receives from a socket pair of this process: all descriptors, without the broker.
    pub fn receive_here(&self, bytes: &mut [u8]) -> io::Result<Option<Received>> {
        receive_from(&self.fd, bytes)
    }

    /// Receives only bytes; the kernel drops descriptors of the message.
    pub fn receive_bytes(&self, bytes: &mut [u8]) -> io::Result<Option<usize>> {
        bytes_from(&self.fd, bytes)
    }
}

impl From<OwnedFd> for StreamSocket {
    /// Wraps a connected stream socket. Calls never block, for any flags of the descriptor.
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

impl AsFd for StreamSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

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
        // Does not follow links, and does not wait for the other end of a pipe.
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
            let why = "it exists and is not an empty lock file: remove it";
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
