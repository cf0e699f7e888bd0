//! Unix sockets with descriptor passing (SCM_RIGHTS).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, accept4, bind, connect, recv,
    socket,
};

use crate::broker;
use crate::descriptors::explained;
use crate::listen::{self, Access, Kind, ListenError, SocketFile};
use crate::message::{receive_filtered, receive_from, send_to};

pub use crate::message::{FDS_MAX, Received};

/// Backlog of connections that wait to be accepted.
const BACKLOG: u16 = 8;

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
