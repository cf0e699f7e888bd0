//! The pcapng file format, as far as one interface and its frames need it.

use std::borrow::Cow;
use std::time::Duration;

use mqnet_control_api::{ApiError, CapturedFrame, Code, FrameDirection};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::interface_statistics::{
    InterfaceStatisticsBlock, InterfaceStatisticsOption,
};
use pcap_file::{DataLink, PcapError};

/// Timestamps count 10^-9 s.
const NANOSECONDS: u8 = 9;
/// `epb_flags`: the two directions.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// Writes blocks into memory.
pub(super) struct Writer {
    file: PcapNgWriter<Vec<u8>>,
    /// Frames that were missed since the last frame written.
    missed: u64,
    /// Frames that were missed since the start.
    missed_in_all: u64,
    /// Time of the last frame.
    time: u64,
}

impl Writer {
    /// Begins a file about one netdev.
    pub(super) fn new(dev: &str, snaplen: u32) -> Result<Self, ApiError> {
        let mut file = PcapNgWriter::new(Vec::new()).map_err(failed)?;
        let interface = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen,
            options: vec![
                InterfaceDescriptionOption::IfName(Cow::Borrowed(dev)),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ],
        };
        file.write_pcapng_block(interface).map_err(failed)?;
        Ok(Self { file, missed: 0, missed_in_all: 0, time: 0 })
    }

    /// Adds frames; `missed` were lost before them. Readers take the last statistics of a file.
    pub(super) fn add(&mut self, frames: &[CapturedFrame], missed: u64) -> Result<(), ApiError> {
        self.missed = self.missed.saturating_add(missed);
        if missed > 0 {
            self.missed_in_all = self.missed_in_all.saturating_add(missed);
            let statistics = InterfaceStatisticsBlock {
                interface_id: 0,
                timestamp: upper_half_first(frames.first().map_or(self.time, |f| f.time_ns)),
                options: vec![InterfaceStatisticsOption::IsbIfDrop(self.missed_in_all)],
            };
            self.file.write_pcapng_block(statistics).map_err(failed)?;
        }
        self.time = frames.last().map_or(self.time, |frame| frame.time_ns);
        frames.iter().try_for_each(|frame| self.add_one(frame))
    }

    fn add_one(&mut self, frame: &CapturedFrame) -> Result<(), ApiError> {
        let direction = match frame.direction {
            FrameDirection::Inbound => INBOUND,
            FrameDirection::Outbound => OUTBOUND,
        };
        let mut options = vec![EnhancedPacketOption::Flags(direction)];
        if self.missed > 0 {
            options.push(EnhancedPacketOption::DropCount(std::mem::take(&mut self.missed)));
        }
        let comment = match frame.drop_reason {
            Some(reason) => format!("channel {}, dropped: {reason}", frame.channel),
            None => format!("channel {}", frame.channel),
        };
        options.push(EnhancedPacketOption::Comment(comment.into()));
        let packet = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::from_nanos(frame.time_ns),
            original_len: frame.len,
            data: Cow::Borrowed(&frame.bytes),
            options,
        };
        self.file.write_pcapng_block(packet).map_err(failed)?;
        Ok(())
    }

    /// What has been written since the last call.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(self.file.get_mut())
    }
}

/// A time as the format has it, where the library writes a plain number in the machine's order.
fn upper_half_first(time: u64) -> u64 {
    if cfg!(target_endian = "little") { time.rotate_left(32) } else { time }
}

fn failed(e: PcapError) -> ApiError {
    ApiError::new(Code::Failed, format!("capture: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcap_file::pcapng::{Block, PcapNgReader};
    use proptest::prelude::*;

    fn frame(time_ns: u64, bytes: Vec<u8>, inbound: bool) -> CapturedFrame {
        let direction = if inbound { FrameDirection::Inbound } else { FrameDirection::Outbound };
        let len = bytes.len() as u32 + 7;
        CapturedFrame { time_ns, channel: 3, direction, len, bytes, drop_reason: Some("runt") }
    }

    proptest! {
        // Goal: every frame comes back from the file with its time, length, bytes, direction and
        // comment, and what was missed is counted once, on the first frame after the gap.
        #[test]
        fn frames_survive(
            time: u64,
            inbound: bool,
            missed in 0..3_u64,
            contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..70), 1..5),
        ) {
            let frames: Vec<_> =
                contents.iter().map(|bytes| frame(time, bytes.clone(), inbound)).collect();
            let mut writer = Writer::new("vm0", 100).unwrap();
            writer.add(&[], missed).unwrap();
            writer.add(&frames, 0).unwrap();
            let bytes = writer.take();
            prop_assert!(writer.take().is_empty());
            let mut reader = PcapNgReader::new(&bytes[..]).unwrap();
            let (mut read, mut in_all) = (Vec::new(), 0);
            while let Some(block) = reader.next_block() {
                match block.unwrap() {
                    Block::EnhancedPacket(packet) => read.push(packet.into_owned()),
                    Block::InterfaceStatistics(all) => {
                        let [InterfaceStatisticsOption::IsbIfDrop(n)] = all.options[..] else {
                            return Err(TestCaseError::fail("no number"));
                        };
                        in_all = n;
                    }
                    _ => {}
                }
            }
            prop_assert_eq!(in_all, missed);
            prop_assert_eq!(read.len(), frames.len());
            for (index, (packet, frame)) in read.iter().zip(&frames).enumerate() {
                prop_assert_eq!(packet.timestamp.as_nanos(), u128::from(time));
                prop_assert_eq!(&*packet.data, &*frame.bytes);
                prop_assert_eq!(packet.original_len, frame.len);
                let flags = EnhancedPacketOption::Flags(if inbound { 1 } else { 2 });
                prop_assert!(packet.options.contains(&flags));
                let comment = EnhancedPacketOption::Comment("channel 3, dropped: runt".into());
                prop_assert!(packet.options.contains(&comment));
                let gap = EnhancedPacketOption::DropCount(missed);
                prop_assert_eq!(packet.options.contains(&gap), index == 0 && missed > 0);
            }
        }
    }
}
