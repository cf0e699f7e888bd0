//! Notifications about interfaces: rtnetlink(7), group RTNLGRP_LINK.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};

/// Group mask of RTNLGRP_LINK.
const LINK_GROUP: u32 = 1;
/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Offset of the interface index in a message of this group: `ifi_index` after the header.
const INDEX_AT: usize = HEADER + 4;

/// Subscription to changes of interfaces in the network namespace in which it was opened.
#[derive(Debug)]
pub struct LinkMonitor {
    fd: OwnedFd,
}

impl LinkMonitor {
    /// Opens a socket in the calling thread's network namespace.
    pub fn open() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let kind = SockType::Raw;
        let fd = socket(AddressFamily::Netlink, kind, flags, SockProtocol::NetlinkRoute)?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, LINK_GROUP))?;
        Ok(Self { fd })
    }

    /// Descriptor that is readable if there are notifications.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Reads all notifications. Returns true if some were lost, or if one was about the interface
    /// `index` (about any interface for `None`).
    pub fn take(&self, index: Option<u32>) -> bool {
        let mut buffer = [0; 16 << 10];
        let mut has_changed = false;
        loop {
            match recv(self.fd.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(len) => has_changed |= is_about(&buffer[..len], index),
                Err(Errno::EINTR) => {}
                // The socket buffer overflowed; the error is reported once.
                Err(Errno::ENOBUFS) => has_changed = true,
                Err(_) => return has_changed,
            }
        }
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// True if one of the messages is about the interface `index`; for `None`, if there is any message.
fn is_about(mut messages: &[u8], index: Option<u32>) -> bool {
    let Some(index) = index else { return !messages.is_empty() };
    while let Some(len) = number(messages, 0) {
        if number(messages, INDEX_AT) == Some(index) {
            return true;
        }
        let next = (len as usize).max(HEADER).next_multiple_of(4);
        messages = messages.get(next..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: only messages about the interface count, at any position of a datagram. Parsing stops
    // at a truncated message.
    #[test]
    fn messages_are_filtered_by_index() {
        let message = |index: u32, more: usize| {
            let len = HEADER + 16 + more;
            let mut bytes = vec![0; len.next_multiple_of(4)];
            bytes[..4].copy_from_slice(&(len as u32).to_ne_bytes());
            bytes[INDEX_AT..INDEX_AT + 4].copy_from_slice(&index.to_ne_bytes());
            bytes
        };
        let both = [message(7, 5), message(9, 0)].concat();
        for (index, is) in [(7, true), (9, true), (8, false), (0, false)] {
            assert_eq!(is_about(&both, Some(index)), is, "{index}");
        }
        assert!(is_about(&both, None) && !is_about(&[], None));
        let cut = &both[..both.len() - 14];
        assert!(is_about(cut, Some(7)) && !is_about(cut, Some(9)));
        let mut endless = message(7, 0);
        endless[..4].copy_from_slice(&0u32.to_ne_bytes());
        assert!(!is_about(&endless, Some(9)));
    }

    // Goal: without changes in the namespace there is no notification.
    #[test]
    fn no_change_causes_no_notification() {
        let monitor = LinkMonitor::open().unwrap();
        monitor.take(None);
        assert!(!monitor.take(Some(1 << 30)));
    }
}
