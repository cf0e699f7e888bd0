//! Hello message: the first message of each end. The memory file and the doorbells are sent with it
//! as descriptors, in that order.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | "mqnetntb", or "mqntbusy" from a port that has a peer already |
//! | 8..12 | version, 1 |
//! | 12..16 | bytes of the window |
//! | 16..20 | number of doorbells |

use mqnet_netdev::limits::CHANNELS_MAX;

pub(super) const HELLO: usize = 20;

const MAGIC: [u8; 8] = *b"mqnetntb";
const BUSY: [u8; 8] = *b"mqntbusy";
const VERSION: u32 = 1;

/// Largest accepted window of a peer.
const WINDOW_MAX: u32 = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) window: u32,
    pub(super) doorbells: u32,
}

impl Hello {
    pub(super) fn encode(&self) -> [u8; HELLO] {
        let mut out = [0; HELLO];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&self.window.to_le_bytes());
        out[16..].copy_from_slice(&self.doorbells.to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let bytes: &[u8; HELLO] = bytes
            .try_into()
            .map_err(|_| format!("the peer's handshake has {} bytes, not 20", bytes.len()))?;
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        if bytes[..8] == BUSY {
            return Err("both ends of this bridge are in use: use another path".to_owned());
        }
        if bytes[..8] != MAGIC {
            return Err("the program at this socket is not an mqnet NTB port".to_owned());
        }
        if word(8) != VERSION {
            let theirs = word(8);
            return Err(format!("the peer has handshake version {theirs}, supported: 1"));
        }
        let hello = Self { window: word(12), doorbells: word(16) };
        if hello.window == 0 || hello.window > WINDOW_MAX {
            return Err(format!("the peer announces a window of {} bytes", hello.window));
        }
        if !(2..=1 + u32::from(CHANNELS_MAX)).contains(&hello.doorbells) {
            return Err(format!(
                "the peer announces {} doorbells, allowed are 2 to 65",
                hello.doorbells
            ));
        }
        Ok(hello)
    }
}

/// Message to a third process, which reports that both ends of the bridge are in use.
pub(super) fn busy() -> [u8; HELLO] {
    let mut out = Hello { window: 0, doorbells: 0 }.encode();
    out[..8].copy_from_slice(&BUSY);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rule: an encoded hello message is decoded to the same fields; a busy message and invalid
    // messages are refused with a reason.
    #[test]
    fn introductions_are_checked() {
        let hello = Hello { window: 2 << 20, doorbells: 5 };
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        assert!(Hello::decode(&busy()).unwrap_err().contains("both ends"));
        assert!(Hello::decode(b"short").is_err());
        for (at, value) in [(0, 0u8), (8, 9), (19, 1)] {
            let mut bad = hello.encode();
            bad[at] = value;
            assert!(Hello::decode(&bad).is_err(), "byte {at}");
        }
    }
}
