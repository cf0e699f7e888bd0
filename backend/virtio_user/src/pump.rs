//! Relay between the device's socket and the crate `vhost`, on its own thread.
//!
//! The crate closes descriptors that it receives with replies. Closing a file of a FUSE file system
//! waits for its server, and the crate runs on the thread that serves all links. The crate
//! therefore gets one end of a socket pair. The relay forwards messages with descriptors to the
//! device, and only bytes from the device.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use mqnet_sysio::process;
use mqnet_sysio::socket::StreamSocket;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Buffer size of one copy.
const CHUNK: usize = 8192;

/// Bytes and descriptors that the other socket has not accepted yet.
#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Sends as much as the socket accepts without blocking.
    fn send(&mut self, to: &StreamSocket) -> io::Result<()> {
        let fds: Vec<BorrowedFd<'_>> = self.fds.iter().map(AsFd::as_fd).collect();
        match to.send(&self.bytes, &fds) {
            Ok(sent) => {
                self.bytes.drain(..sent);
                self.fds.clear();
                Ok(())
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
            Err(e) => Err(e),
        }
    }
}

/// Starts the thread and returns the crate's end of the socket pair. The thread ends when either
/// socket does.
pub(crate) fn serve(device: UnixStream) -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    let body = move || {
        if let Err(e) = process::restrict_thread(&[]) {
            tracing::warn!("virtio-user: a thread could not drop its privileges: {e}");
        }
        let sockets = [device, theirs].map(|socket| StreamSocket::from(OwnedFd::from(socket)));
        // Both sockets are closed when this thread ends, which both sides detect.
        if let Err(e) = copy(&sockets) {
            tracing::debug!("virtio-user: {e}");
        }
    };
    std::thread::Builder::new().name("virtio-user".to_owned()).spawn(body)?;
    Ok(ours)
}

/// Relays data until one of the sockets ends.
fn copy([device, link]: &[StreamSocket; 2]) -> io::Result<()> {
    let (mut to_device, mut to_link) = (Waiting::default(), Waiting::default());
    let mut room = [0; CHUNK];
    loop {
        let wanted = |to_send: &Waiting, received: &Waiting| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::POLLOUT, !to_send.is_empty());
            flags.set(PollFlags::POLLIN, received.is_empty());
            flags
        };
        let mut fds = [
            PollFd::new(device.as_fd(), wanted(&to_device, &to_link)),
            PollFd::new(link.as_fd(), wanted(&to_link, &to_device)),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        let hung_up = fds.map(|fd| {
            fd.revents()
                .is_some_and(|seen| seen.intersects(PollFlags::POLLHUP | PollFlags::POLLERR))
        });
        if to_link.is_empty()
            && let Some(len) = device.receive_bytes(&mut room)?
        {
            if len == 0 {
                return Ok(());
            }
            to_link.bytes.extend_from_slice(&room[..len]);
        }
        if to_device.is_empty()
            && let Some(part) = link.receive_here(&mut room)?
        {
            if part.len == 0 {
                return Ok(());
            }
            to_device.bytes.extend_from_slice(&room[..part.len]);
            to_device.fds = part.fds;
        }
        for (waiting, socket) in [(&mut to_link, link), (&mut to_device, device)] {
            if !waiting.is_empty() {
                waiting.send(socket)?;
            }
        }
        if hung_up.contains(&true) && !(to_link.is_empty() && to_device.is_empty()) {
            // No receiver is left for the remaining bytes.
            return Ok(());
        }
    }
}
