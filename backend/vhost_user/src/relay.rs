//! Relay between the VMM's socket and the crate `vhost`. The crate gets no descriptor that can
//! block.
//!
//! The crate closes descriptors that it does not expect. Closing a file of a FUSE file system
//! waits for its server, and a thread in that wait cannot be ended. This module therefore
//! receives each message first and forwards it through a socket pair.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use mqnet_sysio::poll;
use mqnet_sysio::socket::StreamSocket;

use crate::early::{BODY, HEADER, Header};

/// Timeout of waits that should end only by the peer or by the end of the thread.
pub(crate) const NO_LIMIT: Duration = Duration::from_secs(3600);

/// Largest body length. The longest message describes 32 memory ranges.
const BODY_MAX: usize = 4096;

/// Relay of one connection.
pub(crate) struct Relay {
    vmm: StreamSocket,
    crate_side: StreamSocket,
    /// Number of refused descriptors.
    pub(crate) refused: usize,
}

fn send_all(socket: &StreamSocket, mut bytes: &[u8], fds: &[OwnedFd]) -> io::Result<()> {
    let mut fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    while !bytes.is_empty() {
        match socket.send(bytes, &fds) {
            Ok(sent) => {
                bytes = &bytes[sent..];
                fds.clear();
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                poll::wait_writable(socket.as_fd(), NO_LIMIT)?;
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

impl Relay {
    /// Creates the relay of a connection and the socket that the crate serves.
    pub(crate) fn new(vmm: &UnixStream) -> io::Result<(Self, UnixStream)> {
        let (relay_end, crate_end) = UnixStream::pair()?;
        let vmm = StreamSocket::from(OwnedFd::from(vmm.try_clone()?));
        let crate_side = StreamSocket::from(OwnedFd::from(relay_end));
        Ok((Self { vmm, crate_side, refused: 0 }, crate_end))
    }

    /// Forwards the next message, after its header was peeked. `Err` ends the connection.
    pub(crate) fn pass(&mut self, header: Header) -> io::Result<()> {
        let size = header.size();
        if size > BODY_MAX {
            let why = format!("a message of {size} bytes, allowed are {BODY_MAX}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let mut message = [0; HEADER + BODY_MAX];
        let message = &mut message[..HEADER + size];
        let fds = self.receive(message)?;
        send_all(&self.crate_side, message, &fds)
    }

    /// Receives the next message, which the module [`early`](crate::early) handles; returns its
    /// body. `Err` ends the connection.
    pub(crate) fn receive_early(&mut self, header: Header) -> io::Result<[u8; BODY]> {
        let mut message = [0; HEADER + BODY];
        let fds = self.receive(&mut message[..HEADER + header.size().min(BODY)])?;
        if !fds.is_empty() {
            let why = format!("{} descriptors with a message that allows none", fds.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let mut body = [0; BODY];
        body.copy_from_slice(&message[HEADER..]);
        Ok(body)
    }

    /// Receives a message and its descriptors; `Err` if a descriptor can block or was lost.
    fn receive(&mut self, message: &mut [u8]) -> io::Result<Vec<OwnedFd>> {
        let (mut have, mut fds) = (0, Vec::new());
        while have < message.len() {
            poll::wait_readable(&[self.vmm.as_fd()], NO_LIMIT)?;
            let Some(part) = self.vmm.receive(&mut message[have..])? else { continue };
            self.refused += part.refused.count();
            if part.len == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if part.refused.count() > 0 {
                return Err(io::Error::other(
                    "a descriptor that is neither an eventfd nor a file of a local file system: \
                     use memory-backend-memfd, or a file in /dev/shm or hugetlbfs",
                ));
            }
            if part.truncated {
                return Err(io::Error::other(
                    "descriptors were lost: raise the limit of open files (ulimit -n)",
                ));
            }
            fds.extend(part.fds);
            have += part.len;
        }
        Ok(fds)
    }

    /// Forwards all available replies of the crate to the VMM.
    pub(crate) fn answer(&self) -> io::Result<()> {
        let mut bytes = [0; HEADER + BODY_MAX];
        while let Some(part) = self.crate_side.receive_here(&mut bytes)? {
            if part.len == 0 {
                break;
            }
            send_all(&self.vmm, &bytes[..part.len], &part.fds)?;
        }
        Ok(())
    }
}
