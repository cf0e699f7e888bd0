//! Validation of received offload headers by dissecting the frame. No value of a peer is trusted.

use super::{Headers, Sum, Transport, checksum_end, pseudo_header};
use crate::{Layer, VnetHdr};

/// Returns `hdr` with a trusted `hdr_len`, for a frame of `len` bytes that begins with `head`. The
/// sender's `hdr_len` is only a hint, so the dissected header length replaces it. If the headers
/// cannot be parsed, the hint is clamped to at least the end of the checksum field and at most
/// `len`.
#[must_use]
pub fn with_own_hdr_len(hdr: VnetHdr, len: u32, head: &[u8], layer: Layer) -> VnetHdr {
    if !hdr.is_large() {
        return hdr;
    }
    let end = match Headers::find(head, layer) {
        Some(headers) => headers.payload,
        None => usize::from(hdr.fields().hdr_len).max(checksum_end(hdr).unwrap_or(0)),
    };
    hdr.with_hdr_len(u16::try_from(end.min(len as usize)).unwrap_or(u16::MAX))
}

/// TCP or UDP frame with a checksum that a device has validated (`VIRTIO_NET_HDR_F_DATA_VALID`).
/// The content of the checksum field is undefined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vouched {
    hdr: VnetHdr,
    headers: Headers,
    /// Number of bytes that the checksum covers, from the transport header on.
    covered: u32,
    is_padded: bool,
}

impl Vouched {
    /// Parses a frame of `len` bytes that begins with `head`. Returns `None` for a frame without a
    /// TCP or UDP checksum (other protocols, fragments), or shorter than its headers state.
    pub fn find(hdr: VnetHdr, len: u32, head: &[u8], layer: Layer) -> Option<Self> {
        let headers = Headers::find(head, layer)?;
        let hdr = hdr.normalised();
        let rest = len.checked_sub(headers.transport as u32)?;
        let covered = if hdr.is_large() { rest } else { stated_length(&headers, head)? };
        let least = (headers.payload - headers.transport) as u32;
        let fits = (least..=rest).contains(&covered);
        fits.then_some(Self { hdr, headers, covered, is_padded: covered < rest })
    }

    /// Header that requests the checksum, or `None` if the frame has padding after the packet.
    /// (Checksum offload covers all bytes up to the end of the frame.)
    pub fn unfinished(&self) -> Option<VnetHdr> {
        let Headers { transport, .. } = self.headers;
        let offset = self.field() - transport;
        (!self.is_padded).then(|| self.hdr.with_checksum(transport as u16, offset as u16))
    }

    /// Offset of the checksum field.
    pub fn field(&self) -> usize {
        self.headers.checksum()
    }

    /// Field value while the checksum is pending: the sum of the pseudo header.
    pub fn begun(&self, head: &[u8]) -> [u8; 2] {
        pseudo_header(&self.headers, head, self.covered).unfinished()
    }

    /// Offset and number of the bytes that the checksum covers.
    pub fn range(&self) -> (usize, usize) {
        (self.headers.transport, self.covered as usize)
    }

    /// Computes the checksum from sums and lengths of the segments of [`range`](Self::range). The
    /// checksum field in this range must hold [`begun`](Self::begun).
    pub fn complete(&self, pieces: impl Iterator<Item = (u64, usize)>) -> [u8; 2] {
        let mut sum = Sum::new();
        pieces.for_each(|(piece, len)| sum.add(piece, len));
        sum.field()
    }

    /// Header of the completed frame. A large frame still requests checksums, one per segment.
    pub fn completed(&self) -> VnetHdr {
        self.hdr
    }
}

/// Bytes after the IP header (TCP) or length of the datagram (UDP), according to the headers.
fn stated_length(headers: &Headers, head: &[u8]) -> Option<u32> {
    let &Headers { ip, is_v6, transport, kind, .. } = headers;
    let word = |at: usize| Some(u32::from(u16::from_be_bytes(*head.get(at..)?.first_chunk()?)));
    if kind == Transport::Udp {
        return word(transport + 4);
    }
    let end = if is_v6 { ip as u32 + 40 + word(ip + 4)? } else { ip as u32 + word(ip + 2)? };
    end.checked_sub(transport as u32)
}
