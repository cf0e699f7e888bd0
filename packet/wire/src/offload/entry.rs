//! Headers of frames where they enter, by our own dissection instead of what a peer wrote.

use super::{Headers, Sum, Transport, checksum_end, pseudo_header};
use crate::{Layer, VnetHdr};

/// The header of a frame of `len` bytes that begins with `head`, as it is passed on. `hdr_len` is a
/// hint of the sender: it is replaced by what the frame's headers say. Where those are not
/// understood, it lies between the end of the checksum field and that of the frame.
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

/// A TCP or UDP frame whose checksum a device has validated, and whose field may hold anything
/// (`VIRTIO_NET_HDR_F_DATA_VALID`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vouched {
    hdr: VnetHdr,
    headers: Headers,
    /// Bytes from the transport header on that the checksum is about.
    covered: u32,
    is_padded: bool,
}

impl Vouched {
    /// Reads the headers of a frame of `len` bytes that begins with `head`. `None` for a frame
    /// without such a checksum (no TCP or UDP, a fragment), or shorter than its headers say.
    pub fn find(hdr: VnetHdr, len: u32, head: &[u8], layer: Layer) -> Option<Self> {
        let headers = Headers::find(head, layer)?;
        let hdr = hdr.normalised();
        let rest = len.checked_sub(headers.transport as u32)?;
        let covered = if hdr.is_large() { rest } else { said(&headers, head)? };
        let least = (headers.payload - headers.transport) as u32;
        let fits = (least..=rest).contains(&covered);
        fits.then_some(Self { hdr, headers, covered, is_padded: covered < rest })
    }

    /// The header that asks for the checksum to be filled in. `None` when bytes follow that do not
    /// belong to the packet: whoever fills in sums up to the end of the frame.
    pub fn unfinished(&self) -> Option<VnetHdr> {
        let Headers { transport, .. } = self.headers;
        let offset = self.field() - transport;
        (!self.is_padded).then(|| self.hdr.with_checksum(transport as u16, offset as u16))
    }

    /// Where the checksum field is.
    pub fn field(&self) -> usize {
        self.headers.checksum()
    }

    /// What the field holds until the checksum is filled in: the sum of the pseudo header.
    pub fn begun(&self, head: &[u8]) -> [u8; 2] {
        pseudo_header(&self.headers, head, self.covered).unfinished()
    }

    /// First byte that the checksum is about, and how many there are.
    pub fn range(&self) -> (usize, usize) {
        (self.headers.transport, self.covered as usize)
    }

    /// The checksum, from the sums and lengths of the pieces of [`range`](Self::range), which has
    /// [`begun`](Self::begun) in its field.
    pub fn complete(&self, pieces: impl Iterator<Item = (u64, usize)>) -> [u8; 2] {
        let mut sum = Sum::new();
        pieces.for_each(|(piece, len)| sum.add(piece, len));
        sum.field()
    }

    /// The header of the completed frame. A large frame keeps asking: each of its segments has a
    /// checksum of its own.
    pub fn completed(&self) -> VnetHdr {
        self.hdr
    }
}

/// Bytes behind the IP header, or those of the datagram, as the headers say.
fn said(headers: &Headers, head: &[u8]) -> Option<u32> {
    let &Headers { ip, is_v6, transport, kind, .. } = headers;
    let word = |at: usize| Some(u32::from(u16::from_be_bytes(*head.get(at..)?.first_chunk()?)));
    if kind == Transport::Udp {
        return word(transport + 4);
    }
    let end = if is_v6 { ip as u32 + 40 + word(ip + 4)? } else { ip as u32 + word(ip + 2)? };
    end.checked_sub(transport as u32)
}
