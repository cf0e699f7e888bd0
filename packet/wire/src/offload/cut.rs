//! Segmentation: splits one large frame into its segments.

use super::{Headers, SEGMENTS_MAX, Sum, Transport, pseudo_header};
use crate::{GsoKind, Layer, VnetFields, VnetHdr};

/// TCP flags that only the last segment keeps (FIN, PSH), and that only the first keeps (CWR).
const FIN_PSH: u8 = 0x01 | 0x08;
const CWR: u8 = 0x80;

/// Segmentation of one large frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    headers: Headers,
    /// Payload bytes of each segment except the last.
    size: u32,
    /// Payload bytes of all segments.
    payload: u32,
}

/// Segment of a large frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Offload header: only the checksum is pending.
    pub hdr: VnetHdr,
    /// Header bytes.
    pub headers: usize,
    /// Offset of the segment's payload in the large frame.
    pub at: usize,
    /// Payload bytes.
    pub payload: usize,
}

impl Segment {
    /// Length of the segment's frame.
    pub fn len(&self) -> u32 {
        (self.headers + self.payload) as u32
    }

    /// Always false: a segment has headers.
    pub fn is_empty(&self) -> bool {
        false
    }
}

impl Cut {
    /// Plans the segmentation of a frame of `len` bytes that begins with `head`. Returns `None` if
    /// the headers are incomplete or do not match the segmentation type. Also returns `None` if the
    /// segment size is 0, or for more than [`SEGMENTS_MAX`] segments.
    pub fn new(hdr: VnetHdr, len: u32, head: &[u8], layer: Layer) -> Option<Self> {
        let headers = Headers::find(head, layer)?;
        let fits = match hdr.gso()? {
            GsoKind::None => false,
            GsoKind::Tcp4 => headers.kind == Transport::Tcp && !headers.is_v6,
            GsoKind::Tcp6 => headers.kind == Transport::Tcp && headers.is_v6,
            GsoKind::Udp => headers.kind == Transport::Udp,
        };
        let size = u32::from(hdr.fields().gso_size);
        let payload = len.checked_sub(headers.payload as u32)?;
        let cut = Self { headers, size, payload };
        (fits && size > 0 && cut.count() <= SEGMENTS_MAX).then_some(cut)
    }

    /// Number of segments.
    pub fn count(&self) -> u32 {
        self.payload.div_ceil(self.size).max(1)
    }

    /// Frame length of the longest segment.
    pub fn longest(&self) -> u32 {
        self.headers.payload as u32 + self.size.min(self.payload)
    }

    /// Header bytes of each segment.
    pub fn headers(&self) -> usize {
        self.headers.payload
    }

    /// Writes the headers of segment `number` to `out`, derived from `head`, the large frame's
    /// headers. The checksum stays pending. Its field holds the sum of the pseudo header, as
    /// [`Segment::hdr`] states.
    ///
    /// # Panics
    /// If `head` is shorter than in [`new`](Self::new), or if `out` is shorter than
    /// [`headers`](Self::headers).
    pub fn segment(&self, number: u32, head: &[u8], out: &mut [u8]) -> Segment {
        let Headers { ip, is_v6, transport, kind, payload: length } = self.headers;
        let before = number * self.size;
        let payload = self.size.min(self.payload - before);
        let out = &mut out[..length];
        out.copy_from_slice(&head[..length]);
        let behind_ip = (length - transport) as u32 + payload;
        if is_v6 {
            let carried = (length - ip - 40) as u32 + payload;
            put(out, ip + 4, carried as u16);
        } else {
            put(out, ip + 2, ((length - ip) as u32 + payload) as u16);
            let id = word(out, ip + 4).wrapping_add(number as u16);
            put(out, ip + 4, id);
            put(out, ip + 10, 0);
            let mut sum = Sum::new();
            sum.bytes(&out[ip..transport]);
            out[ip + 10..ip + 12].copy_from_slice(&sum.header_field());
        }
        match kind {
            Transport::Tcp => self.tcp(number, before, &mut out[transport..]),
            Transport::Udp => put(out, transport + 4, behind_ip as u16),
        }
        let field = self.headers.checksum();
        let sum = pseudo_header(&self.headers, out, behind_ip).unfinished();
        out[field..field + 2].copy_from_slice(&sum);
        let (csum_start, csum_offset) = (transport as u16, (field - transport) as u16);
        Segment {
            hdr: VnetHdr::new(VnetFields { flags: 1, csum_start, csum_offset, ..VNET_NONE }),
            headers: length,
            at: length + before as usize,
            payload: payload as usize,
        }
    }

    fn tcp(&self, number: u32, before: u32, tcp: &mut [u8]) {
        let seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]).wrapping_add(before);
        tcp[4..8].copy_from_slice(&seq.to_be_bytes());
        if number + 1 < self.count() {
            tcp[13] &= !FIN_PSH;
        }
        if number > 0 {
            tcp[13] &= !CWR;
        }
    }
}

const VNET_NONE: VnetFields =
    VnetFields { flags: 0, gso_type: 0, hdr_len: 0, gso_size: 0, csum_start: 0, csum_offset: 0 };

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put(bytes: &mut [u8], at: usize, number: u16) {
    bytes[at..at + 2].copy_from_slice(&number.to_be_bytes());
}
