//! Reception of descriptors in a separate process.
//!
//! Closing a file of a user-space file system waits for its server, and the exit of a process
//! closes all its files. A small helper process therefore receives the messages of peers. The
//! helper passes on eventfds and files of local file systems, and keeps all other descriptors, so
//! that only the exit of the helper can block. If the helper cannot be started, messages are
//! received in this process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::descriptors::RejectedDescriptors;
use crate::message::{Received, pair, receive_filtered, receive_from, send_to};
use crate::poll;

/// Starts the helper; its standard input is the socket for [`serve`].
type Start = fn(OwnedFd) -> io::Result<()>;

static START: OnceLock<Start> = OnceLock::new();

/// Socket end of this process.
static BROKER: Mutex<Option<OwnedFd>> = Mutex::new(None);

/// Limit of the wait for an answer. The helper answers without blocking.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Maximum number of bytes per message.
const BYTES_MAX: usize = 8192;
/// Header of an answer, four u32: kind, error code, number of descriptors that were kept, and 1 if
/// the message was truncated.
const HEAD: usize = 16;

const NOTHING: u32 = 0;
const MESSAGE: u32 = 1;
const ERROR: u32 = 2;

/// Enables a helper process that receives the messages of peers. `start` starts the helper for the
/// first message.
pub fn enable(start: Start) {
    let _ = START.set(start);
}

/// Starts the helper now, for later use by threads that may not start processes.
pub fn prepare() {
    let Some(start) = START.get() else { return };
    let mut broker = BROKER.lock().unwrap_or_else(PoisonError::into_inner);
    if broker.is_none() {
        *broker = connect(*start).ok();
    }
}

fn connect(start: Start) -> io::Result<OwnedFd> {
    let (ours, theirs) = pair()?;
    start(theirs)?;
    Ok(ours)
}

/// Message that the helper received, or the error of the peer's socket.
type Answer = io::Result<Option<Received>>;

/// Reads the helper's answer. The outer error is a failure of the helper, the inner one of the
/// peer's socket.
fn read_answer(broker: &OwnedFd, room: &mut [u8]) -> io::Result<Answer> {
    poll::wait_readable(&[broker.as_fd()], ANSWER_LIMIT)?;
    let mut answer = [0; HEAD + BYTES_MAX];
    let part = receive_from(broker, &mut answer)?.ok_or(io::ErrorKind::TimedOut)?;
    let word = |at: usize| {
        let mut word = [0; 4];
        word.copy_from_slice(&answer[4 * at..4 * at + 4]);
        u32::from_le_bytes(word)
    };
    if part.len < HEAD {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(match word(0) {
        NOTHING => Ok(None),
        MESSAGE => {
            let len = part.len - HEAD;
            let Some(room) = room.get_mut(..len) else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            room.copy_from_slice(&answer[HEAD..part.len]);
            let refused = RejectedDescriptors::kept_elsewhere(word(2) as usize);
            let truncated = part.truncated || word(3) != 0;
            Ok(Some(Received { len, fds: part.fds, refused, truncated }))
        }
        _ => Err(io::Error::from_raw_os_error(word(1) as i32)),
    })
}

fn request(broker: &OwnedFd, socket: BorrowedFd<'_>, room: &[u8]) -> io::Result<()> {
    let most = room.len().min(BYTES_MAX) as u32;
    send_to(broker, &most.to_le_bytes(), &[socket]).map(drop)
}

/// Receives a message of a peer. Returns `None` if no helper is enabled, or if the helper cannot be
/// started.
pub(crate) fn receive(socket: BorrowedFd<'_>, room: &mut [u8]) -> Option<Answer> {
    let start = *START.get()?;
    let mut broker = BROKER.lock().unwrap_or_else(PoisonError::into_inner);
    // A helper that has exited accepts no request: start another helper.
    for _ in 0..2 {
        if broker.is_none() {
            *broker = connect(start).ok();
        }
        let process = broker.as_ref()?;
        if request(process, socket, room).is_err() {
            *broker = None;
            continue;
        }
        // A helper that fails now may have received the message, which is then lost. The error
        // therefore ends the connection.
        let answer = read_answer(process, room).unwrap_or_else(|e| {
            *broker = None;
            Err(e)
        });
        return Some(answer);
    }
    None
}

/// Main function of the helper: serves the socket until the other end is closed.
pub fn serve(broker: OwnedFd) -> io::Result<()> {
    let send = |bytes: &[u8], fds: &[BorrowedFd<'_>]| send_to(&broker, bytes, fds).map(drop);
    let mut room = [0; BYTES_MAX];
    loop {
        poll::wait_readable(&[broker.as_fd()], Duration::from_secs(3600))?;
        let mut request = [0; 4];
        let Some(message) = receive_from(&broker, &mut request)? else { continue };
        if message.len == 0 {
            return Ok(());
        }
        let Some(peer) = message.fds.into_iter().next() else { continue };
        let most = (u32::from_le_bytes(request) as usize).min(BYTES_MAX);
        let received = receive_filtered(&peer, &mut room[..most]);
        let answer = |words: [u32; 4], bytes: &[u8]| {
            [words.map(u32::to_le_bytes).concat(), bytes.to_vec()].concat()
        };
        match received {
            Ok(None) => send(&answer([NOTHING, 0, 0, 0], &[]), &[])?,
            Ok(Some(part)) => {
                let words = [MESSAGE, 0, part.refused.count() as u32, part.truncated.into()];
                let fds: Vec<_> = part.fds.iter().map(AsFd::as_fd).collect();
                send(&answer(words, &room[..part.len]), &fds)?;
            }
            Err(e) => {
                let code = e.raw_os_error().unwrap_or(libc::EIO) as u32;
                send(&answer([ERROR, code, 0, 0], &[]), &[])?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventfd::EventFd;
    use crate::socket::SeqSocket;

    /// A message arrives with its bytes and its eventfds. Descriptors that could block are removed
    /// and counted. The peer's end of stream and an empty socket are distinguished.
    #[test]
    fn descriptors_pass_through_the_helper() {
        let start: Start = |socket| {
            std::thread::spawn(move || serve(socket));
            Ok(())
        };
        let (ours, theirs) = pair().unwrap();
        let broker = connect(start).unwrap();
        let theirs = SeqSocket::from(theirs);
        let mut room = [0; 64];
        let mut receive_next = || {
            request(&broker, ours.as_fd(), &[0; 64]).unwrap();
            read_answer(&broker, &mut room).unwrap().unwrap()
        };
        assert!(receive_next().is_none());
        let event = EventFd::new().unwrap();
        let (pipe, _write) = nix::unistd::pipe().unwrap();
        theirs.send(b"hello", &[event.as_fd(), pipe.as_fd()]).unwrap();
        let part = receive_next().unwrap();
        assert_eq!((part.len, part.refused.count()), (5, 1));
        assert!(!part.truncated && part.fds.len() == 1);
        let received = EventFd::from_peer(part.fds.into_iter().next().unwrap()).unwrap();
        received.ring().unwrap();
        assert!(poll::is_readable(event.as_fd()).unwrap());
        drop(theirs);
        assert_eq!(receive_next().unwrap().len, 0);
        assert_eq!(&room[..5], b"hello");
    }

    /// An answer with more bytes than requested is an error.
    #[test]
    fn answers_longer_than_the_request_are_errors() {
        let (ours, theirs) = pair().unwrap();
        let process = SeqSocket::from(theirs);
        let answer = [[MESSAGE, 0, 0, 0].map(u32::to_le_bytes).concat(), vec![7; 65]].concat();
        process.send(&answer, &[]).unwrap();
        let e = read_answer(&ours, &mut [0; 64]).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::InvalidData);
    }
}
