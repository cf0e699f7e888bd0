//! Sender and receiver of a TCP stream.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::ControlFlow;

use crate::pattern::{BLOCK, Pattern};

/// Decision before each block of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOrder {
    /// Send the block.
    Send,
    /// End the stream.
    End,
}

/// Result of a sender.
#[derive(Debug, Default)]
pub struct SentStream {
    /// Bytes accepted by the socket.
    pub bytes: u64,
    /// Error that ended the stream early.
    pub error: Option<String>,
}

/// Result of a receiver.
#[derive(Debug, Default)]
pub struct ReceivedStream {
    /// Bytes of correct blocks.
    pub verified: u64,
    /// Position of the first wrong byte.
    pub wrong_at: Option<u64>,
    /// Error that ended the stream early.
    pub error: Option<String>,
}

/// True for a time-out of the socket or an interrupting signal: the caller repeats the operation.
fn is_temporary(e: &std::io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Sends blocks of [`BLOCK`] bytes while `next` orders it, then closes the sending direction.
/// `next` may sleep. A time-out of the socket is no error.
pub fn send(
    mut socket: &TcpStream,
    pattern: &Pattern,
    mut next: impl FnMut() -> SendOrder,
) -> SentStream {
    let mut done = SentStream::default();
    let mut bytes = vec![0; BLOCK];
    for block in 0.. {
        if next() == SendOrder::End {
            break;
        }
        pattern.fill(block, &mut bytes);
        let mut left = &bytes[..];
        while !left.is_empty() {
            match socket.write(left) {
                Ok(n) => {
                    left = &left[n..];
                    done.bytes += n as u64;
                }
                Err(e) if is_temporary(&e) => {}
                Err(e) => {
                    done.error = Some(format!("sending at byte {}: {e}", done.bytes));
                    return done;
                }
            }
        }
    }
    if let Err(e) = socket.shutdown(Shutdown::Write) {
        done.error = Some(format!("ending the stream: {e}"));
    }
    done
}

/// Receives and verifies a stream until its end, an error, or [`ControlFlow::Break`] of `each`.
/// Calls `each` with the result so far after every read; blocks are verified when complete. A
/// time-out of the socket is no error.
pub fn receive(
    mut socket: &TcpStream,
    pattern: &Pattern,
    mut each: impl FnMut(&ReceivedStream) -> ControlFlow<()>,
) -> ReceivedStream {
    let mut got = ReceivedStream::default();
    let mut bytes = vec![0; BLOCK];
    for block in 0.. {
        let start = block * BLOCK as u64;
        let mut filled = 0;
        let mut ended = false;
        while filled < BLOCK && !ended {
            match socket.read(&mut bytes[filled..]) {
                Ok(0) => ended = true,
                Ok(n) => filled += n,
                Err(e) if is_temporary(&e) => continue,
                Err(e) => {
                    got.error = Some(format!("receiving at byte {}: {e}", start + filled as u64));
                    return got;
                }
            }
            if filled == BLOCK || ended {
                match pattern.check(block, &bytes[..filled]) {
                    Some(wrong) => _ = got.wrong_at.get_or_insert(start + wrong as u64),
                    None => got.verified += filled as u64,
                }
            }
            if each(&got).is_break() {
                return got;
            }
        }
        if ended {
            break;
        }
    }
    got
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let out = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (out, listener.accept().unwrap().0)
    }

    /// Sends `blocks` blocks of the first seed, and verifies them against the second seed.
    fn run(blocks: usize, seeds: [u64; 2]) -> (SentStream, ReceivedStream) {
        let (out, inbound) = connection();
        let sender = std::thread::spawn(move || {
            let mut left = blocks;
            send(&out, &Pattern::new(seeds[0]), || match left {
                0 => SendOrder::End,
                _ => {
                    left -= 1;
                    SendOrder::Send
                }
            })
        });
        let got = receive(&inbound, &Pattern::new(seeds[1]), |_| ControlFlow::Continue(()));
        (sender.join().unwrap(), got)
    }

    // Rule: every byte of a correct stream is verified, and the first wrong byte is reported.
    #[test]
    fn streams_are_verified() {
        let (sent, got) = run(5, [7, 7]);
        assert_eq!((sent.bytes, sent.error), (5 * BLOCK as u64, None));
        assert_eq!((got.verified, got.wrong_at, got.error), (5 * BLOCK as u64, None, None));
        let (_, got) = run(2, [7, 8]);
        assert_eq!((got.verified, got.wrong_at), (0, Some(0)));
    }

    // Rule: a partial block at the end of a stream is verified.
    #[test]
    fn ends_of_streams_are_verified() {
        let pattern = Pattern::new(1);
        let mut bytes = vec![0; 1000];
        pattern.fill(0, &mut bytes);
        for (at, wrong) in [(None, None), (Some(999), Some(999))] {
            let (mut out, inbound) = connection();
            let mut bytes = bytes.clone();
            if let Some(at) = at {
                bytes[at] ^= 1;
            }
            out.write_all(&bytes).unwrap();
            drop(out);
            let got = receive(&inbound, &pattern, |_| ControlFlow::Continue(()));
            assert_eq!(got.wrong_at, wrong);
            assert_eq!(got.verified, if wrong.is_none() { 1000 } else { 0 });
        }
    }

    // Rule: a receiver stops when `each` returns `ControlFlow::Break`.
    #[test]
    fn receivers_can_be_stopped() {
        let (mut out, inbound) = connection();
        out.write_all(&[0; 10]).unwrap();
        let got = receive(&inbound, &Pattern::new(1), |_| ControlFlow::Break(()));
        assert_eq!((got.verified, got.wrong_at), (0, None));
    }
}
