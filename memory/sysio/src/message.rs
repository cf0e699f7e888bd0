//! Messages with descriptors (SCM_RIGHTS) over a Unix socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair,
};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};

use crate::descriptors::{RejectedDescriptors, explained, is_of_kernel};

/// Maximum number of descriptors per message (the kernel's `SCM_MAX_FD`).
pub const FDS_MAX: usize = 253;

/// Received message.
#[derive(Debug)]
pub struct Received {
    /// Length of the message in bytes.
    pub len: usize,
    /// Descriptors of the message.
    pub fds: Vec<OwnedFd>,
    /// Descriptors of the message that may block when they are used or closed.
    pub refused: RejectedDescriptors,
    /// True if the message or its descriptors were truncated.
    pub truncated: bool,
}

/// Creates a connected pair of sequenced-packet sockets, non-blocking.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).map_err(explained)
}

/// Sends one message with descriptors; returns the number of bytes.
pub(crate) fn send_to(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let raw: Vec<RawFd> = fds.iter().map(|fd| fd.as_raw_fd()).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    Ok(sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(bytes)], control, flags, None)?)
}

/// Receives one message with all its descriptors; `None` if none is available.
pub(crate) fn receive_from(socket: &OwnedFd, bytes: &mut [u8]) -> io::Result<Option<Received>> {
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
