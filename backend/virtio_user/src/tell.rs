//! Messages that the crate `vhost` cannot send: one number each.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use vhost::vhost_user::message::FrontendReq;

/// Bytes of a header (request, flags, size of the rest: u32 each), and of a number.
const HEADER: usize = 12;
const NUMBER: usize = 8;
/// In the flags: version 1, an answer is wanted.
const VERSION: u32 = 1;
const WANTS_ANSWER: u32 = 8;

/// What a driver that has set everything up says of itself: it is there, it knows the device, the
/// features are agreed on, it is ready.
pub(crate) const READY: u64 = 1 | 2 | 8 | 4;

/// Tells the device a number while nobody else talks to it; `answers`: it says whether it obeyed.
pub(crate) fn number(
    mut line: &UnixStream,
    request: FrontendReq,
    number: u64,
    answers: bool,
) -> Result<(), String> {
    let gone = |e: std::io::Error| format!("{request:?}: {e}");
    let flags = VERSION | if answers { WANTS_ANSWER } else { 0 };
    let mut message = Vec::with_capacity(HEADER + NUMBER);
    let header = [request as u32, flags, NUMBER as u32];
    message.extend(header.into_iter().flat_map(u32::to_ne_bytes));
    message.extend(number.to_ne_bytes());
    line.write_all(&message).map_err(gone)?;
    if !answers {
        return Ok(());
    }
    let mut answer = [0; HEADER + NUMBER];
    line.read_exact(&mut answer).map_err(gone)?;
    if answer[..4] != message[..4] {
        return Err(format!("{request:?}: the device answers something else"));
    }
    if answer[HEADER..] != [0; NUMBER] {
        return Err(format!("{request:?} {number}: the device refuses"));
    }
    Ok(())
}
