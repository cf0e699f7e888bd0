//! Receiving descriptors in another process.
//!
//! Closing a file of a file system in user space waits for its server, and the end of a process
//! closes all of its files. So messages of peers are received by a small process of our own. It
//! hands on eventfds and files of local file systems and keeps the others, so that only its own end
//! can wait. Where it cannot be started, messages are received in this process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::descriptors::Refused;
use crate::poll;
use crate::socket::{Received, SeqSocket, receive_filtered};

/// Starts the process: its standard input is the socket that [`serve`] takes.
type Start = fn(OwnedFd) -> io::Result<()>;

static START: OnceLock<Start> = OnceLock::new();

/// Our end of the socket.
static BROKER: Mutex<Option<SeqSocket>> = Mutex::new(None);

/// Limit of the wait for an answer. The process itself never blocks.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Most bytes that are received at a time.
const BYTES_MAX: usize = 8192;
/// Bytes of an answer before those of the message: what came, how much, how many descriptors were
/// kept, whether some were lost (u32 each).
const HEAD: usize = 16;

const NOTHING: u32 = 0;
const MESSAGE: u32 = 1;
const ERROR: u32 = 2;

/// Has messages of peers received by a process that `start` makes when the first one comes.
pub fn enable(start: Start) {
    let _ = START.set(start);
}

/// Starts the process now, so that a thread that may start none can use it.
pub fn prepare() {
    let Some(start) = START.get() else { return };
    let mut broker = BROKER.lock().unwrap_or_else(PoisonError::into_inner);
    if broker.is_none() {
        *broker = connect(*start).ok();
    }
}

fn connect(start: Start) -> io::Result<SeqSocket> {
    let (ours, theirs) = SeqSocket::pair()?;
    start(theirs)?;
    Ok(ours)
}

/// A message that the process received, or the error of the socket.
type Answer = io::Result<Option<Received>>;

/// Reads the answer of the process. The outer error is a failure of the process, the inner one of
/// the peer's socket.
fn read_answer(broker: &SeqSocket, room: &mut [u8]) -> io::Result<Answer> {
    poll::wait_readable(&[broker.as_fd()], ANSWER_LIMIT)?;
    let mut answer = [0; HEAD + BYTES_MAX];
    let part = broker.receive_here(&mut answer)?.ok_or(io::ErrorKind::TimedOut)?;
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
            room[..len].copy_from_slice(&answer[HEAD..part.len]);
            let refused = Refused::kept_elsewhere(word(2) as usize);
            let truncated = part.truncated || word(3) != 0;
            Ok(Some(Received { len, fds: part.fds, refused, truncated }))
        }
        _ => Err(io::Error::from_raw_os_error(word(1) as i32)),
    })
}

fn request(broker: &SeqSocket, socket: BorrowedFd<'_>, room: &[u8]) -> io::Result<()> {
    let most = room.len().min(BYTES_MAX) as u32;
    broker.send(&most.to_le_bytes(), &[socket])
}

/// Receives a message of a peer; `None` where no process was enabled or it cannot be started.
pub(crate) fn receive(socket: BorrowedFd<'_>, room: &mut [u8]) -> Option<Answer> {
    let start = *START.get()?;
    let mut broker = BROKER.lock().unwrap_or_else(PoisonError::into_inner);
    // A process that has ended takes no request: another one is started.
    for _ in 0..2 {
        if broker.is_none() {
            *broker = connect(start).ok();
        }
        let process = broker.as_ref()?;
        if request(process, socket, room).is_err() {
            *broker = None;
            continue;
        }
        // A process that fails now may have received the message, which is lost with it: the
        // connection must end.
        let answer = read_answer(process, room).unwrap_or_else(|e| {
            *broker = None;
            Err(e)
        });
        return Some(answer);
    }
    None
}

/// The process: serves the socket until its other end is closed.
pub fn serve(socket: OwnedFd) -> io::Result<()> {
    let broker = SeqSocket::from(socket);
    let mut room = [0; BYTES_MAX];
    loop {
        poll::wait_readable(&[broker.as_fd()], Duration::from_secs(3600))?;
        let mut request = [0; 4];
        let Some(asked) = broker.receive_here(&mut request)? else { continue };
        if asked.len == 0 {
            return Ok(());
        }
        let Some(peer) = asked.fds.into_iter().next() else { continue };
        let most = (u32::from_le_bytes(request) as usize).min(BYTES_MAX);
        let received = receive_filtered(&peer, &mut room[..most]);
        let answer = |words: [u32; 4], bytes: &[u8]| {
            [words.map(u32::to_le_bytes).concat(), bytes.to_vec()].concat()
        };
        match received {
            Ok(None) => broker.send(&answer([NOTHING, 0, 0, 0], &[]), &[])?,
            Ok(Some(part)) => {
                let words = [MESSAGE, 0, part.refused.count() as u32, part.truncated.into()];
                let fds: Vec<_> = part.fds.iter().map(AsFd::as_fd).collect();
                broker.send(&answer(words, &room[..part.len]), &fds)?;
            }
            Err(e) => {
                let code = e.raw_os_error().unwrap_or(libc::EIO) as u32;
                broker.send(&answer([ERROR, code, 0, 0], &[]), &[])?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventfd::EventFd;

    /// A message arrives with its bytes and its eventfds, and without descriptors that could wait,
    /// which are counted. The end of the peer and an empty socket differ.
    #[test]
    fn descriptors_come_through_the_process() {
        let start: Start = |socket| {
            std::thread::spawn(move || serve(socket));
            Ok(())
        };
        let (ours, theirs) = SeqSocket::pair().unwrap();
        let broker = connect(start).unwrap();
        let theirs = SeqSocket::from(theirs);
        let mut room = [0; 64];
        let mut ask = || {
            request(&broker, ours.as_fd(), &[0; 64]).unwrap();
            read_answer(&broker, &mut room).unwrap().unwrap()
        };
        assert!(ask().is_none());
        let event = EventFd::new().unwrap();
        let (pipe, _write) = nix::unistd::pipe().unwrap();
        theirs.send(b"hello", &[event.as_fd(), pipe.as_fd()]).unwrap();
        let part = ask().unwrap();
        assert_eq!((part.len, part.refused.count()), (5, 1));
        assert!(!part.truncated && part.fds.len() == 1);
        let bell = EventFd::from_peer(part.fds.into_iter().next().unwrap()).unwrap();
        bell.ring().unwrap();
        assert!(poll::is_readable(event.as_fd()).unwrap());
        drop(theirs);
        assert_eq!(ask().unwrap().len, 0);
        assert_eq!(&room[..5], b"hello");
    }
}
