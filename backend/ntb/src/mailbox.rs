//! Mailbox for control messages: capabilities that an end requests, its step of a channel change
//! (`mqnet_netdev::Peer`), and the state of its partner function.
//!
//! A control message is a few words in the peer's window, replaced as a whole. Word 0 is odd while
//! the message is being written, and a new even number afterwards. A reader that finds the same
//! even number before and after its reads has read one complete message. This relies on the order
//! of posted writes, which a bridge keeps too. After the message, the writer rings the doorbell of
//! the link.
//!
//! | word | lower half | upper half |
//! |---|---|---|
//! | 0 | sequence | |
//! | 1 | number of the request | attempt |
//! | 2 | step | bytes of the reason |
//! | 3 | number of the leader's request in the attempt | number of the follower's request |
//! | 4 | largest number of queue pairs, requested number << 16 | MTU word (`Caps::mtu_word`) |
//! | 5 | largest MTU | largest frame |
//! | 6 | offloads of frames from the writer | offloads of frames to the writer |
//! | 7 | requested bytes of an RX ring, 0 for none | of a TX ring, 0 for none |
//! | 8..24 | reason of word 2, UTF-8, up to 128 bytes | |
//! | 24 | bit mask of the group members that are up at the writer | |
//! | 25 | state of the writer's partner: 0 unknown, 1 up, 2 down | bytes of the reason |
//! | 26..42 | reason of word 25, UTF-8, up to 128 bytes | |

use std::sync::atomic::{Ordering, fence};

use mqnet_netdev::limits::{CHANNELS_MAX, FRAME_MAX, MTU_MAX, MTU_MIN};
use mqnet_netdev::{Caps, ChangeMessage, FarPartner, Offloads, RequestedRings, Step};
use mqnet_wire::Layer;

use crate::hw::MemoryWindows;
use crate::layout::MAILBOX;

/// Number of words of a message after the sequence.
const BODY: usize = PARTNER + 1 + TEXT;
/// Number of words of a reason.
const TEXT: usize = 16;
/// Word of the body with the members of the group that are up.
const HERE: usize = 23;
/// Word of the body with the state of the writer's partner.
const PARTNER: usize = 24;

const _: () = assert!((1 + BODY) * 8 <= MAILBOX);

/// Control message of one end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ControlMessage {
    pub(crate) request: u32,
    pub(crate) caps: Caps,
    pub(crate) rings: RequestedRings,
    pub(crate) word: ChangeMessage,
    /// Bit mask of the writer's group members that are up.
    pub(crate) here: u8,
    /// State of the writer's partner function.
    pub(crate) partner: FarPartner,
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Longest prefix of a text that fits into a message, cut at a character boundary.
fn cut(text: &str) -> &[u8] {
    let end = (0..=TEXT * 8).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    &text.as_bytes()[..end.min(text.len())]
}

fn put_text(words: &mut [u64], text: &[u8]) {
    for (to, bytes) in words.iter_mut().zip(text.chunks(8)) {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        *to = u64::from_le_bytes(word);
    }
}

/// Text of a peer, with control characters replaced: the text is shown on terminals.
fn read_text(words: &[u64], len: usize) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take(len).collect();
    String::from_utf8_lossy(&bytes).replace(char::is_control, "?")
}

impl ControlMessage {
    /// Message used before an end has sent one: no request, no step, the capabilities `caps`.
    pub(crate) fn blank(caps: &Caps) -> Self {
        let (rings, word) = (RequestedRings::default(), ChangeMessage::default());
        let partner = FarPartner::Unknown;
        Self { request: 0, caps: caps.clone(), rings, word, here: 0, partner }
    }

    pub(crate) fn encode(&self) -> [u64; BODY] {
        let why = cut(&self.word.why);
        let (partner, partner_why) = match &self.partner {
            FarPartner::Unknown => (0, &[][..]),
            FarPartner::Up => (1, &[][..]),
            FarPartner::Down(why) => (2, cut(why)),
        };
        let (caps, word) = (&self.caps, &self.word);
        let counts = u32::from(caps.channels) | u32::from(caps.wanted.unwrap_or(0)) << 16;
        let mut body = [0; BODY];
        body[..7].copy_from_slice(&[
            pair(self.request, word.attempt),
            pair(word.step as u32, why.len() as u32),
            pair(word.requests[0], word.requests[1]),
            pair(counts, caps.mtu_word()),
            pair(caps.mtu_max, caps.frame_max),
            pair(caps.rx_offloads.bits(), caps.tx_offloads.bits()),
            pair(self.rings.rx.unwrap_or(0), self.rings.tx.unwrap_or(0)),
        ]);
        put_text(&mut body[7..7 + TEXT], why);
        body[HERE] = u64::from(self.here);
        body[PARTNER] = pair(partner, partner_why.len() as u32);
        put_text(&mut body[PARTNER + 1..], partner_why);
        body
    }

    /// Decodes a message that a peer wrote; `Err` with a reason for invalid values.
    pub(crate) fn decode(body: &[u64; BODY]) -> Result<Self, String> {
        let low = |at: usize| body[at] as u32;
        let high = |at: usize| (body[at] >> 32) as u32;
        let check = |what: &str, number: u32, good: bool| match good {
            true => Ok(number),
            false => Err(format!("peer control message: {what} {number}: not allowed")),
        };
        let step = Step::decode(low(1));
        let step =
            step.ok_or_else(|| format!("peer control message: step {} does not exist", low(1)))?;
        let len = check("length of a reason", high(1), high(1) as usize <= TEXT * 8)? as usize;
        let reason = high(PARTNER);
        let reason = check("length of a reason", reason, reason as usize <= TEXT * 8)? as usize;
        let (channels, wanted) = (low(3) & 0xffff, low(3) >> 16);
        let most = u32::from(CHANNELS_MAX);
        let mtus = MTU_MIN..=MTU_MAX;
        let [mtu, mtu_found] = match Caps::read_mtu_word(high(3)) {
            Some(mtus) => mtus,
            None => {
                return Err(format!("peer control message: mtu {:#x}: not allowed", high(3)));
            }
        };
        let some = |n: u32| Some(n).filter(|&n| n > 0);
        Ok(Self {
            request: low(0),
            caps: Caps {
                layer: Layer::Ethernet,
                channels: check("queue pairs", channels, (1..=most).contains(&channels))? as u16,
                wanted: some(check("requested queue pairs", wanted, wanted <= most)?)
                    .map(|n| n as u16),
                mtu,
                mtu_found,
                mtu_max: check("largest mtu", low(4), mtus.contains(&low(4)))?,
                frame_max: check("largest frame", high(4), high(4) <= FRAME_MAX)?,
                rx_offloads: Offloads::from_bits(low(5)),
                tx_offloads: Offloads::from_bits(high(5)),
                rx_fixed: Offloads::NONE,
            },
            rings: RequestedRings { rx: some(low(6)), tx: some(high(6)) },
            word: ChangeMessage {
                attempt: high(0),
                step,
                requests: [low(2), high(2)],
                why: read_text(&body[7..7 + TEXT], len),
            },
            here: low(HERE) as u8,
            partner: match low(PARTNER) {
                0 => FarPartner::Unknown,
                1 => FarPartner::Up,
                2 => FarPartner::Down(read_text(&body[PARTNER + 1..], reason)),
                other => {
                    return Err(format!(
                        "peer control message: partner state {other} does not exist"
                    ));
                }
            },
        })
    }
}

/// Writes a message into the peer's mailbox, and adds 1 to `sequence`, the number of messages that
/// this end has sent.
pub(crate) fn post(windows: &MemoryWindows, sequence: &mut u64, letter: &ControlMessage) {
    let word = |at: usize| windows.outbound.word(windows.offset + at * 8);
    *sequence += 1;
    word(0).store((*sequence * 2 - 1).to_le(), Ordering::Relaxed);
    // Pairs with the Acquire fence in read: a reader of any word of this message then also sees the
    // odd number, or a later one.
    fence(Ordering::Release);
    for (at, value) in letter.encode().into_iter().enumerate() {
        word(1 + at).store(value.to_le(), Ordering::Relaxed);
    }
    // Pairs with the Acquire load in read: a reader of the even number sees the body.
    word(0).store((*sequence * 2).to_le(), Ordering::Release);
}

/// Reads a new message from this end's mailbox, and stores its number in `last`. `None` if the
/// message has the number `last` or is not complete; `Some(Err)` if it is invalid.
pub(crate) fn read(
    windows: &MemoryWindows,
    last: &mut u64,
) -> Option<Result<ControlMessage, String>> {
    let word = |at: usize| windows.inbound.word(windows.offset + at * 8);
    // Pairs with the Release store in post: the body of the even number is visible.
    let before = u64::from_le(word(0).load(Ordering::Acquire));
    if before == *last || before % 2 == 1 {
        return None;
    }
    let body: [u64; BODY] =
        std::array::from_fn(|at| u64::from_le(word(1 + at).load(Ordering::Relaxed)));
    // Pairs with the Release fence in post: after a word of a later message, the next read of word
    // 0 returns a later number too.
    fence(Ordering::Acquire);
    if u64::from_le(word(0).load(Ordering::Relaxed)) != before {
        return None;
    }
    *last = before;
    Some(ControlMessage::decode(&body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(why: &str) -> ControlMessage {
        ControlMessage {
            request: 7,
            caps: Caps {
                layer: Layer::Ethernet,
                channels: 64,
                wanted: Some(8),
                mtu: None,
                mtu_found: None,
                mtu_max: MTU_MAX,
                frame_max: FRAME_MAX,
                rx_offloads: Offloads::ALL,
                tx_offloads: Offloads::CSUM,
                rx_fixed: Offloads::NONE,
            },
            rings: RequestedRings { rx: Some(65536), tx: None },
            word: ChangeMessage {
                attempt: 3,
                step: Step::Refuse,
                requests: [1, 7],
                why: why.to_owned(),
            },
            here: 5,
            partner: FarPartner::Down("eth8 has no carrier".to_owned()),
        }
    }

    // Goal: a message is unchanged by encoding and decoding, except that a long reason is cut at
    // a character boundary.
    #[test]
    fn letters_round_trip() {
        let plain = message("no such queue");
        assert_eq!(ControlMessage::decode(&plain.encode()), Ok(plain));
        let long = ControlMessage::decode(&message(&"ä".repeat(100)).encode()).unwrap();
        assert_eq!(long.word.why, "ä".repeat(64));
        for partner in [FarPartner::Unknown, FarPartner::Up, FarPartner::Down("ä".repeat(64))] {
            let sent = ControlMessage { partner: partner.clone(), ..message("") };
            assert_eq!(ControlMessage::decode(&sent.encode()).unwrap().partner, partner);
        }
    }

    proptest! {
        // Goal: any body is refused with a reason, or decoded to a message that can be encoded
        // and decoded.
        #[test]
        fn any_body_is_read(
            body in prop::collection::vec(any::<u64>(), BODY),
            edits in prop::collection::vec((0..BODY, any::<u64>()), 0..4),
        ) {
            let _ = ControlMessage::decode(&body.try_into().unwrap());
            let mut honest = message("x").encode();
            for (at, value) in edits {
                honest[at] = value;
            }
            if let Ok(letter) = ControlMessage::decode(&honest) {
                prop_assert!(letter.caps.channels >= 1);
                prop_assert!(!letter.word.why.contains(char::is_control));
                if let FarPartner::Down(why) = &letter.partner {
                    prop_assert!(!why.contains(char::is_control));
                }
                prop_assert!(ControlMessage::decode(&letter.encode()).is_ok());
            }
        }
    }
}
