//! Messages handled without the crate `vhost`, which has no handlers for most of them. The crate
//! also rejects `SET_VRING_ENABLE` until features are accepted, but QEMU sends this message earlier
//! and waits for its reply.

use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use vhost::vhost_user::VhostUserBackendReqHandler;
use vhost::vhost_user::message::FrontendReq;

use crate::state::Shared;

/// Header length: request, flags and body size (u32 each).
pub(crate) const HEADER: usize = 12;
/// Body length of all messages of this module except `GET_STATUS`: two u32 or one u64.
pub(crate) const BODY: usize = 8;
/// Header flags: protocol version 1, reply, reply requested (`NEED_REPLY`).
const VERSION: u32 = 1;
const ANSWER: u32 = 4;
const WANTS_ANSWER: u32 = 8;

/// Header of the next message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    request: u32,
    flags: u32,
    size: u32,
}

/// Message that this module handles.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EarlyMessage {
    EarlyEnable,
    SetStatus,
    GetStatus,
    SetMtu,
    SendRarp,
}

/// The u32 value at index `at` of a message.
fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[4 * at..4 * at + 4]);
    u32::from_ne_bytes(word)
}

/// Waits for the next message and peeks at its header; `None` at the end of the connection or for
/// an error.
pub(crate) fn peek_header(line: &UnixStream) -> Option<Header> {
    let mut header = [0; HEADER];
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_WAITALL;
    loop {
        match recv(line.as_raw_fd(), &mut header, flags) {
            Ok(HEADER) => {
                let [request, flags, size] = [0, 1, 2].map(|at| word(&header, at));
                return Some(Header { request, flags, size });
            }
            Err(Errno::EINTR) => {}
            _ => return None,
        }
    }
}

impl Header {
    /// Length of the body.
    pub(crate) fn size(self) -> usize {
        self.size as usize
    }

    fn is(self, request: FrontendReq, size: usize) -> bool {
        self.request == request as u32 && self.size as usize == size
    }

    /// Kind of the message; `None` if the crate `vhost` handles the message. With `accepted`,
    /// `PROTOCOL_FEATURES` was accepted, and the crate handles `SET_VRING_ENABLE`.
    pub(crate) fn early_message(self, accepted: bool) -> Option<EarlyMessage> {
        if self.is(FrontendReq::SET_VRING_ENABLE, BODY) && !accepted {
            return Some(EarlyMessage::EarlyEnable);
        }
        let message = [
            (FrontendReq::SET_STATUS, BODY, EarlyMessage::SetStatus),
            (FrontendReq::GET_STATUS, 0, EarlyMessage::GetStatus),
            (FrontendReq::NET_SET_MTU, BODY, EarlyMessage::SetMtu),
            (FrontendReq::SEND_RARP, BODY, EarlyMessage::SendRarp),
        ];
        message
            .into_iter()
            .find(|(request, size, _)| self.is(*request, *size))
            .map(|message| message.2)
    }

    pub(crate) fn is_set_features(self) -> bool {
        self.request == FrontendReq::SET_FEATURES as u32
    }

    fn answer(self, mut line: &UnixStream, number: u64) -> io::Result<()> {
        let mut answer = Vec::with_capacity(HEADER + BODY);
        let header = [self.request, VERSION | ANSWER, BODY as u32];
        answer.extend(header.into_iter().flat_map(u32::to_ne_bytes));
        answer.extend(number.to_ne_bytes());
        line.write_all(&answer)
    }

    /// Executes the message with its body, and sends a reply if one is due. `Err` ends the
    /// connection: a socket error, or a refused message that requests no reply.
    pub(crate) fn execute(
        self,
        what: EarlyMessage,
        body: [u8; BODY],
        line: &UnixStream,
        shared: &Shared,
    ) -> io::Result<()> {
        if let EarlyMessage::GetStatus = what {
            let status = shared.lock().status;
            return self.answer(line, status.into());
        }
        let number = u64::from_ne_bytes(body);
        let done = match what {
            EarlyMessage::EarlyEnable => {
                let (queue, on) = (word(&body, 0), word(&body, 1) == 1);
                shared.set_vring_enable(queue, on).map_err(|e| e.to_string())
            }
            EarlyMessage::SetStatus => shared.set_status(number as u8),
            EarlyMessage::SetMtu => shared.set_mtu(number),
            // The address is the first six bytes of the body, without a byte order.
            EarlyMessage::SendRarp => {
                let [a, b, c, d, e, f, ..] = body;
                shared.announce([a, b, c, d, e, f]);
                Ok(())
            }
            EarlyMessage::GetStatus => Ok(()),
        };
        if self.flags & WANTS_ANSWER != 0 {
            self.answer(line, u64::from(done.is_err()))?;
            if let Err(why) = done {
                tracing::warn!("vhost-user: {what:?} is refused: {why}");
            }
            return Ok(());
        }
        done.map_err(io::Error::other)
    }
}
