//! Connection of one client: a byte stream that is divided into messages with their descriptors.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use mqnet_sysio::descriptors::RejectedDescriptors;
use mqnet_sysio::socket::StreamSocket;

use crate::protocol::{FDS_MAX, HEADER, Header, MESSAGE_MAX};

/// Time limit from the connection to the version message.
const VERSION_TIMEOUT: Duration = Duration::from_secs(5);

/// One message of a client.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) header: Header,
    pub(crate) body: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
}

/// A connected client.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: StreamSocket,
    since: Duration,
    /// Received part of an incomplete message.
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
    pub(crate) is_negotiated: bool,
    /// Message that is handled again at each poll until the device has finished.
    pub(crate) pending: Option<Message>,
    /// Number of rejected descriptors of the client, which stay open.
    pub(crate) refused: usize,
}

impl Connection {
    pub(crate) fn new(socket: StreamSocket, now: Duration) -> Self {
        Self {
            socket,
            since: now,
            bytes: Vec::new(),
            fds: Vec::new(),
            is_negotiated: false,
            pending: None,
            refused: 0,
        }
    }

    /// Receives the next message; `None` if no complete message has been received. An error means
    /// that the connection must be closed.
    pub(crate) fn next(&mut self, now: Duration) -> Result<Option<Message>, String> {
        loop {
            let header = self.bytes.first_chunk::<HEADER>().map(Header::decode);
            let size = header.map_or(HEADER, |header| header.size as usize);
            if !(HEADER..=MESSAGE_MAX).contains(&size) {
                return Err(format!(
                    "message of {size} bytes: allowed are {HEADER} to {MESSAGE_MAX}"
                ));
            }
            let missing = size - self.bytes.len();
            if let (Some(header), 0) = (header, missing) {
                let body = self.bytes.split_off(HEADER);
                self.bytes.clear();
                return Ok(Some(Message { header, body, fds: std::mem::take(&mut self.fds) }));
            }
            if !self.receive(missing)? {
                let is_late = !self.is_negotiated && now > self.since + VERSION_TIMEOUT;
                if !is_late {
                    return Ok(None);
                }
                let limit = VERSION_TIMEOUT.as_secs();
                return Err(format!(
                    "the client connected and did not negotiate the version within {limit} s"
                ));
            }
        }
    }

    /// Receives up to `missing` bytes. Returns false if no bytes wait. Reads never cross the end of
    /// a message, so that received descriptors belong to the current message.
    fn receive(&mut self, missing: usize) -> Result<bool, String> {
        let have = self.bytes.len();
        self.bytes.resize(have + missing, 0);
        let received = self.socket.receive(&mut self.bytes[have..]);
        let len = received.as_ref().map_or(0, |r| r.as_ref().map_or(0, |r| r.len.min(missing)));
        self.bytes.truncate(have + len);
        let Some(mut received) = received.map_err(|e| {
            format!(
                "the client disconnected: \
                                                               {e}"
            )
        })?
        else {
            return Ok(false);
        };
        self.refused += RejectedDescriptors::count(&received.refused);
        if received.len == 0 {
            return Err("the client closed the connection".to_owned());
        }
        self.fds.append(&mut received.fds);
        if self.refused > 0 {
            return Err(
                "the client sent a descriptor that is neither a memory file nor an eventfd"
                    .to_owned(),
            );
        }
        if received.truncated || self.fds.len() > FDS_MAX {
            return Err(format!(
                "message with more than {FDS_MAX} descriptors, or too many open \
                                files (ulimit -n)"
            ));
        }
        Ok(true)
    }

    /// Sends a message; fails if the client does not read its replies or is disconnected.
    pub(crate) fn send(&self, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> Result<(), String> {
        let fds: Vec<_> = fd.into_iter().collect();
        match self.socket.send(bytes, &fds) {
            Ok(len) if len == bytes.len() => Ok(()),
            Ok(_) => Err("the client does not read its replies".to_owned()),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                Err("the client does not read its replies".to_owned())
            }
            Err(e) => Err(format!("the client disconnected: {e}")),
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
