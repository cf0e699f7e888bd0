//! Recomputation of checksums from the headers of a frame.

use super::{Headers, UNFINISHED_HEADERS_MAX, fill_checksum, pseudo_header};
use crate::{Layer, VnetFields, VnetHdr};

const NEEDS_CSUM: u8 = 1;

impl Headers {
    /// Offset of the end of the IP packet, according to its length field, or `None` if the end is
    /// outside the frame or within the headers.
    fn packet_end(&self, frame: &[u8]) -> Option<usize> {
        let at = if self.is_v6 { self.ip + 4 } else { self.ip + 2 };
        let length = usize::from(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
        let end = self.ip + length + if self.is_v6 { 40 } else { 0 };
        (self.payload..=frame.len()).contains(&end).then_some(end)
    }

    /// Writes the sum of the pseudo header to the checksum field of a frame with these headers,
    /// which must end with its IP packet. Returns the offload header that requests the checksum.
    ///
    /// # Panics
    /// If the frame is shorter than its headers.
    pub fn begin_checksum(&self, frame: &mut [u8]) -> VnetHdr {
        let (field, transport) = (self.checksum(), self.transport);
        let sum = pseudo_header(self, frame, (frame.len() - transport) as u32);
        frame[field..field + 2].copy_from_slice(&sum.unfinished());
        VnetHdr::new(VnetFields {
            flags: NEEDS_CSUM,
            csum_start: transport as u16,
            csum_offset: (field - transport) as u16,
            ..VnetFields::default()
        })
    }
}

/// Computes the TCP or UDP checksum of a contiguous frame, independent of the field's content.
/// Returns `None`, with the frame unchanged, for other protocols, for fragments, and for an IP
/// length beyond the frame.
pub fn renew_checksum(frame: &mut [u8], layer: Layer) -> Option<()> {
    let headers = Headers::find(&frame[..frame.len().min(UNFINISHED_HEADERS_MAX)], layer)?;
    let end = headers.packet_end(frame)?;
    let packet = &mut frame[..end];
    let hdr = headers.begin_checksum(packet);
    fill_checksum(hdr, packet, std::iter::empty())
}
