//! Writer of the pcapng file format (draft-ietf-opsawg-pcapng): one section, one interface.

use mqnet_control_api::{CapturedFrame, FrameDirection};

/// Block types.
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

/// Byte-order magic of a section header.
const MAGIC: u32 = 0x1a2b_3c4d;
const VERSION: [u16; 2] = [1, 0];
/// Section length of a file of unknown length.
const UNKNOWN_LENGTH: u64 = u64::MAX;
const LINKTYPE_ETHERNET: u16 = 1;
/// Number of the only interface of the file.
const INTERFACE: u32 = 0;

/// Option codes; each code is valid only in one block type.
const END_OF_OPTIONS: u16 = 0;
const COMMENT: u16 = 1;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const ISB_IFDROP: u16 = 5;
const EPB_FLAGS: u16 = 2;
const EPB_DROPCOUNT: u16 = 4;

/// Value of `if_tsresol`: timestamps count 10^-9 s.
const NANOSECONDS: u8 = 9;
/// Values of `epb_flags`: the direction of a frame.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// Writer of blocks into memory, little-endian.
pub(super) struct Writer {
    file: Vec<u8>,
    /// Frames missed since the last written frame.
    missed: u64,
    /// Frames missed since the start of the file.
    missed_in_all: u64,
    /// Timestamp of the last frame.
    time: u64,
}

impl Writer {
    /// Creates a file for one netdev, with its section and interface blocks.
    pub(super) fn new(dev: &str, snaplen: u32) -> Self {
        let mut file = Vec::new();
        Block::begin(&mut file, SECTION_HEADER)
            .u32(MAGIC)
            .u16(VERSION[0])
            .u16(VERSION[1])
            .u64(UNKNOWN_LENGTH)
            .end();
        Block::begin(&mut file, INTERFACE_DESCRIPTION)
            .u16(LINKTYPE_ETHERNET)
            .u16(0)
            .u32(snaplen)
            .option(IF_NAME, dev.as_bytes())
            .option(IF_TSRESOL, &[NANOSECONDS])
            .option(END_OF_OPTIONS, &[])
            .end();
        Self { file, missed: 0, missed_in_all: 0, time: 0 }
    }

    /// Appends frames. If `missed` frames were lost before them, also appends a statistics block;
    /// readers use the last such block of a file.
    pub(super) fn add(&mut self, frames: &[CapturedFrame], missed: u64) {
        self.missed = self.missed.saturating_add(missed);
        if missed > 0 {
            self.missed_in_all = self.missed_in_all.saturating_add(missed);
            Block::begin(&mut self.file, INTERFACE_STATISTICS)
                .u32(INTERFACE)
                .time(frames.first().map_or(self.time, |frame| frame.time_ns))
                .option(ISB_IFDROP, &self.missed_in_all.to_le_bytes())
                .option(END_OF_OPTIONS, &[])
                .end();
        }
        self.time = frames.last().map_or(self.time, |frame| frame.time_ns);
        for frame in frames {
            self.add_one(frame);
        }
    }

    fn add_one(&mut self, frame: &CapturedFrame) {
        let direction = match frame.direction {
            FrameDirection::Inbound => INBOUND,
            FrameDirection::Outbound => OUTBOUND,
        };
        let comment = match frame.drop_reason {
            Some(reason) => format!("channel {}, dropped: {reason}", frame.channel),
            None => format!("channel {}", frame.channel),
        };
        let mut block = Block::begin(&mut self.file, ENHANCED_PACKET)
            .u32(INTERFACE)
            .time(frame.time_ns)
            .u32(frame.bytes.len() as u32)
            .u32(frame.len)
            .padded(&frame.bytes)
            .option(EPB_FLAGS, &direction.to_le_bytes());
        if self.missed > 0 {
            block = block.option(EPB_DROPCOUNT, &std::mem::take(&mut self.missed).to_le_bytes());
        }
        block.option(COMMENT, comment.as_bytes()).option(END_OF_OPTIONS, &[]).end();
    }

    /// Removes and returns the bytes written since the last call.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.file)
    }
}

/// Incomplete block at the end of a file.
struct Block<'a> {
    file: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Block<'a> {
    /// Writes the block type, and a placeholder for the length, which `end` overwrites.
    fn begin(file: &'a mut Vec<u8>, kind: u32) -> Self {
        let start = file.len();
        Self { file, start }.u32(kind).u32(0)
    }

    fn u16(self, value: u16) -> Self {
        self.file.extend(value.to_le_bytes());
        self
    }

    fn u32(self, value: u32) -> Self {
        self.file.extend(value.to_le_bytes());
        self
    }

    fn u64(self, value: u64) -> Self {
        self.file.extend(value.to_le_bytes());
        self
    }

    /// Writes a timestamp: the upper 32 bits first, each half little-endian.
    fn time(self, nanoseconds: u64) -> Self {
        self.u32((nanoseconds >> 32) as u32).u32(nanoseconds as u32)
    }

    /// Writes bytes, padded with zeros to a multiple of four.
    fn padded(self, bytes: &[u8]) -> Self {
        self.file.extend_from_slice(bytes);
        let padding = bytes.len().next_multiple_of(4) - bytes.len();
        self.file.resize(self.file.len() + padding, 0);
        self
    }

    /// Writes an option; a value longer than the length field allows is truncated.
    fn option(self, code: u16, value: &[u8]) -> Self {
        let len = u16::try_from(value.len()).unwrap_or(u16::MAX);
        self.u16(code).u16(len).padded(&value[..usize::from(len)])
    }

    /// Writes the length of the block at its end and after its type.
    fn end(self) {
        let len = (self.file.len() - self.start + 4) as u32;
        self.file[self.start + 4..self.start + 8].copy_from_slice(&len.to_le_bytes());
        self.file.extend(len.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(time_ns: u64, bytes: Vec<u8>, inbound: bool) -> CapturedFrame {
        let direction = if inbound { FrameDirection::Inbound } else { FrameDirection::Outbound };
        let len = bytes.len() as u32 + 7;
        CapturedFrame { time_ns, channel: 3, direction, len, bytes, drop_reason: Some("runt") }
    }

    /// Removes and returns the first `len` bytes.
    fn cut<'a>(bytes: &mut &'a [u8], len: usize) -> &'a [u8] {
        let (first, rest) = bytes.split_at(len);
        *bytes = rest;
        first
    }

    fn cut_u16(bytes: &mut &[u8]) -> u16 {
        u16::from_le_bytes(cut(bytes, 2).try_into().unwrap())
    }

    fn cut_u32(bytes: &mut &[u8]) -> u32 {
        u32::from_le_bytes(cut(bytes, 4).try_into().unwrap())
    }

    fn cut_time(bytes: &mut &[u8]) -> u64 {
        let upper = u64::from(cut_u32(bytes));
        upper << 32 | u64::from(cut_u32(bytes))
    }

    fn cut_padded<'a>(bytes: &mut &'a [u8], len: usize) -> &'a [u8] {
        let (value, padding) = cut(bytes, len.next_multiple_of(4)).split_at(len);
        assert!(padding.iter().all(|&byte| byte == 0));
        value
    }

    /// Removes the first block. Returns its type and body.
    fn cut_block<'a>(bytes: &mut &'a [u8]) -> (u32, &'a [u8]) {
        let (kind, len) = (cut_u32(bytes), cut_u32(bytes));
        let body = cut(bytes, len as usize - 12);
        assert_eq!((cut_u32(bytes), len % 4), (len, 0));
        (kind, body)
    }

    fn options(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
        let mut options = Vec::new();
        loop {
            let (code, len) = (cut_u16(&mut bytes), cut_u16(&mut bytes));
            if code == END_OF_OPTIONS {
                assert_eq!((len, bytes.len()), (0, 0));
                return options;
            }
            options.push((code, cut_padded(&mut bytes, len.into())));
        }
    }

    // Goal: a new file begins with the section and interface blocks of the specification, byte for
    // byte.
    #[test]
    fn file_begins_with_section_and_interface() {
        let expected = [
            &b"\x0a\x0d\x0d\x0a\x1c\0\0\0\x4d\x3c\x2b\x1a\x01\0\0\0"[..],
            b"\xff\xff\xff\xff\xff\xff\xff\xff\x1c\0\0\0",
            b"\x01\0\0\0\x28\0\0\0\x01\0\0\0\x64\0\0\0",
            b"\x02\0\x03\0vm0\0\x09\0\x01\0\x09\0\0\0\0\0\0\0\x28\0\0\0",
        ];
        assert_eq!(Writer::new("vm0", 100).take(), expected.concat());
    }

    proptest! {
        // Goal: the file contains every frame with its timestamp, lengths, bytes, direction and
        // comment. Missed frames are counted once, on the first frame after the gap.
        #[test]
        fn frames_survive(
            time: u64,
            inbound: bool,
            missed in 0..3_u64,
            contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..70), 1..5),
        ) {
            let frames: Vec<_> =
                contents.iter().map(|bytes| frame(time, bytes.clone(), inbound)).collect();
            let mut writer = Writer::new("vm0", 100);
            writer.take();
            writer.add(&[], missed);
            writer.add(&frames, 0);
            let bytes = writer.take();
            prop_assert!(writer.take().is_empty());
            let mut rest = &bytes[..];
            if missed > 0 {
                let (kind, mut body) = cut_block(&mut rest);
                prop_assert_eq!((kind, cut_u32(&mut body)), (INTERFACE_STATISTICS, INTERFACE));
                prop_assert_eq!(cut_time(&mut body), 0);
                prop_assert_eq!(options(body), [(ISB_IFDROP, &missed.to_le_bytes()[..])]);
            }
            for (index, frame) in frames.iter().enumerate() {
                let (kind, mut body) = cut_block(&mut rest);
                prop_assert_eq!((kind, cut_u32(&mut body)), (ENHANCED_PACKET, INTERFACE));
                prop_assert_eq!(cut_time(&mut body), time);
                let (captured, len) = (cut_u32(&mut body), cut_u32(&mut body));
                prop_assert_eq!(len, frame.len);
                prop_assert_eq!(cut_padded(&mut body, captured as usize), &frame.bytes);
                let (direction, gap) = (if inbound { 1_u32 } else { 2 }, missed.to_le_bytes());
                let direction = direction.to_le_bytes();
                let mut expected = vec![(EPB_FLAGS, &direction[..])];
                if index == 0 && missed > 0 {
                    expected.push((EPB_DROPCOUNT, &gap));
                }
                expected.push((COMMENT, b"channel 3, dropped: runt"));
                prop_assert_eq!(options(body), expected);
            }
            prop_assert!(rest.is_empty());
        }
    }
}
