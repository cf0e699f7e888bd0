//! Frames of the benchmark: UDP over IPv4, each with flow, sequence number and send time.

/// Bytes of the IPv4 and UDP headers.
const HEADERS: usize = 28;
/// Bytes of the fields at the start of a payload: flow, sequence number, send time. Filler follows.
const WORDS: usize = 20;
/// Bytes of the smallest frame.
pub(super) const LEN_MIN: usize = HEADERS + WORDS;
/// Bytes of the largest frame.
pub(super) const LEN_MAX: usize = 1500;

/// ECN codepoint ECT(0): a discipline with ECN marks the frame instead of dropping the frame.
const ECT: u8 = 2;

/// Fields at the start of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) flow: u32,
    pub(super) seq: u64,
    /// Send time in nanoseconds; 0 if the frame is not used for a delay measurement.
    pub(super) at: u64,
}

/// Buffer in which the frames of one flow are built.
pub(super) struct Frame {
    bytes: Vec<u8>,
}

impl Frame {
    /// Creates the frame buffer of a flow with the source port `port`.
    pub(super) fn new(port: u16) -> Self {
        let mut bytes = vec![0x5a; LEN_MAX];
        bytes[..HEADERS].fill(0);
        (bytes[0], bytes[1], bytes[8], bytes[9]) = (0x45, ECT, 64, 17);
        bytes[12..16].copy_from_slice(&[10, 0, 0, 1]);
        bytes[16..20].copy_from_slice(&[10, 0, 1, 1]);
        bytes[20..22].copy_from_slice(&port.to_be_bytes());
        bytes[22..24].copy_from_slice(&9u16.to_be_bytes());
        Self { bytes }
    }

    /// Builds a frame of `len` bytes, limited to [`LEN_MIN`] and [`LEN_MAX`].
    pub(super) fn fill(&mut self, len: usize, words: Words) -> &[u8] {
        let bytes = &mut self.bytes[..len.clamp(LEN_MIN, LEN_MAX)];
        let total = bytes.len() as u16;
        bytes[2..4].copy_from_slice(&total.to_be_bytes());
        bytes[24..26].copy_from_slice(&(total - 20).to_be_bytes());
        bytes[10..12].fill(0);
        let checksum = checksum(&bytes[..20]);
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        bytes[28..32].copy_from_slice(&words.flow.to_le_bytes());
        bytes[32..40].copy_from_slice(&words.seq.to_le_bytes());
        bytes[40..48].copy_from_slice(&words.at.to_le_bytes());
        bytes
    }
}

/// Fields of a received frame; `None` if the frame is too short. Headers are not checked.
pub(super) fn read(bytes: &[u8]) -> Option<Words> {
    Some(Words {
        flow: u32::from_le_bytes(bytes.get(28..32)?.try_into().ok()?),
        seq: u64::from_le_bytes(bytes.get(32..40)?.try_into().ok()?),
        at: u64::from_le_bytes(bytes.get(40..48)?.try_into().ok()?),
    })
}

fn checksum(header: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(u16::from_be_bytes([pair[0], pair[1]]));
    let sum: u32 = header.chunks_exact(2).map(word).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a built frame has the requested length and a correct header checksum, and its fields
    // are read back.
    #[test]
    fn frames_carry_their_fields() {
        let mut frame = Frame::new(4711);
        for len in [LEN_MIN, 200, LEN_MAX] {
            let words = Words { flow: 3, seq: 1 << 40, at: 99 };
            let bytes = frame.fill(len, words).to_vec();
            assert_eq!((bytes.len(), read(&bytes)), (len, Some(words)));
            assert_eq!(checksum(&bytes[..20]), 0);
            assert_eq!(usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), len);
        }
        assert_eq!(read(&[0; 20]), None);
    }
}
