//! Unix sequenced-packet sockets that carry descriptors: how two processes introduce themselves.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType,
    UnixAddr, accept4, bind, connect, listen, recvmsg, sendmsg, socket,
};

/// Most descriptors that one message may carry (the kernel's `SCM_MAX_FD`).
pub const FDS_MAX: usize = 253;

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
    /// The message or its descriptors did not fit and were cut.
    pub truncated: bool,
}

fn new_socket() -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?)
}

impl SeqSocket {
    /// Connects to the listener at `path`.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let fd = new_socket()?;
        connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok(Self { fd })
    }

    /// Listens at `path`, which must not exist.
    pub fn listen(path: &Path) -> io::Result<Self> {
        let fd = new_socket()?;
        bind(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
        listen(&fd, Backlog::new(8)?)?;
        Ok(Self { fd })
    }

    /// Takes one waiting connection; `None` when there is none.
    pub fn accept(&self) -> io::Result<Option<Self>> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        match accept4(self.fd.as_raw_fd(), flags) {
            // SAFETY: accept4 just made this descriptor; nobody else owns it.
            Ok(raw) => Ok(Some(Self { fd: unsafe { OwnedFd::from_raw_fd(raw) } })),
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::ECONNABORTED) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Sends one message with descriptors.
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let raw: Vec<RawFd> = fds.iter().map(|fd| fd.as_raw_fd()).collect();
        let rights = [ControlMessage::ScmRights(&raw)];
        let control: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        sendmsg::<()>(self.fd.as_raw_fd(), &[IoSlice::new(bytes)], control, flags, None)?;
        Ok(())
    }

    /// Receives one message; `None` when there is none yet. A length of 0 means that the other
    /// end has closed.
    pub fn receive(&self, bytes: &mut [u8]) -> io::Result<Option<Received>> {
        let mut space = nix::cmsg_space!([RawFd; FDS_MAX]);
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
        let mut iov = [IoSliceMut::new(bytes)];
        let message = match recvmsg::<()>(self.fd.as_raw_fd(), &mut iov, Some(&mut space), flags) {
            Ok(message) => message,
            Err(nix::errno::Errno::EAGAIN) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let mut fds = Vec::new();
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(raw) = control {
                // SAFETY: the kernel installed these descriptors for this message only.
                fds.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
            }
        }
        let cut = MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC;
        Ok(Some(Received { len: message.bytes, fds, truncated: message.flags.intersects(cut) }))
    }
}

impl AsFd for SeqSocket {
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
    /// Takes the lock at `path`, creating the file; `None` when another process holds it.
    pub fn try_take(path: &Path) -> io::Result<Option<Self>> {
        let file = std::fs::File::options().create(true).append(true).open(path)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(held) => Ok(Some(Self { held })),
            Err((_, nix::errno::Errno::EAGAIN)) => Ok(None),
            Err((_, e)) => Err(e.into()),
        }
    }

    /// True when `path` still names the locked file: its former owner may have removed it between
    /// our opening it and our locking it, and then the lock keeps nobody out.
    pub fn is_at(&self, path: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        let place = |data: std::fs::Metadata| (data.dev(), data.ino());
        let ours = self.held.metadata().map(place);
        let theirs = std::fs::metadata(path).map(place);
        matches!((ours, theirs), (Ok(ours), Ok(theirs)) if ours == theirs)
    }
}
