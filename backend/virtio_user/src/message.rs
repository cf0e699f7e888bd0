//! Messages with one number that the crate `vhost` cannot send.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use vhost::vhost_user::message::FrontendReq;

/// Length of a header (request, flags, body size: u32 each), and of a number.
const HEADER: usize = 12;
const NUMBER: usize = 8;
/// Header flags: protocol version 1, reply requested (`NEED_REPLY`).
const VERSION: u32 = 1;
const WANTS_ANSWER: u32 = 8;

/// Device status after setup: ACKNOWLEDGE, DRIVER, FEATURES_OK and DRIVER_OK.
pub(crate) const READY: u64 = 1 | 2 | 8 | 4;

/// Sends a message while no other message is in progress; with `answers`, awaits its reply.
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
