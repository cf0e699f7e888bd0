//! Messages with one number, for which the crate `vhost` has no functions.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use vhost::vhost_user::message::FrontendReq;

/// Length of a header (request, flags, body size: u32 each), and of a number.
const HEADER: usize = 12;
const NUMBER: usize = 8;
/// Header flags: protocol version 1 and the mask of versions, reply, reply requested
/// (`NEED_REPLY`).
const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const REPLY: u32 = 4;
const WANTS_ANSWER: u32 = 8;

/// Device status after setup: ACKNOWLEDGE, DRIVER, FEATURES_OK and DRIVER_OK.
pub(crate) const READY: u64 = 1 | 2 | 8 | 4;

/// Sends a message with one number, while no other message is in progress. With `answers`, waits
/// for the reply; `Err` for an invalid reply or a refusal.
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
    let word = |at: usize| {
        let mut word = [0; 4];
        word.copy_from_slice(&answer[4 * at..4 * at + 4]);
        u32::from_ne_bytes(word)
    };
    let [replied, flags, size] = [0, 1, 2].map(word);
    let is_reply = flags & (VERSION_MASK | REPLY) == VERSION | REPLY;
    if replied != request as u32 || !is_reply || size != NUMBER as u32 {
        return Err(format!(
            "{request:?}: reply of the device: request {replied}, flags {flags:#x}, {size} bytes, \
             expected: {}, {:#x}, {NUMBER}",
            request as u32,
            VERSION | REPLY
        ));
    }
    if answer[HEADER..] != [0; NUMBER] {
        return Err(format!("{request:?} {number}: the device refuses"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a reply is accepted only with the right request, version, reply flag and size.
    #[test]
    fn replies_are_checked() {
        let with = |header: [u32; 3], body: u64| {
            let (ours, mut device) = UnixStream::pair().unwrap();
            let reply = header.map(u32::to_ne_bytes).concat();
            device.write_all(&[reply, body.to_ne_bytes().to_vec()].concat()).unwrap();
            number(&ours, FrontendReq::SET_STATUS, READY, true)
        };
        let request = FrontendReq::SET_STATUS as u32;
        // Some devices keep NEED_REPLY in the flags of the reply.
        for flags in [5, 13] {
            assert_eq!(with([request, flags, 8], 0), Ok(()));
            assert!(with([request, flags, 8], 1).unwrap_err().contains("refuses"));
        }
        for header in [
            [request + 1, 5, 8],
            [request, 1, 8],
            [request, 6, 8],
            [request, 5, 4],
            [request, 5, 9],
        ] {
            assert!(with(header, 0).unwrap_err().contains("reply of the device"), "{header:?}");
        }
    }
}
