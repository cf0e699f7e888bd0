//! Coalescing (GRO) of several small frames as one large frame. Frames are coalesced only if
//! segmentation of the result restores them byte for byte.

use super::{Headers, Sum, Transport, pseudo_header};
use crate::{Layer, VnetFields, VnetHdr};

/// Maximum header length of a frame that can be coalesced: Ethernet with two VLAN tags, IPv6, TCP
/// with all options.
pub const MERGED_HEADERS_MAX: usize = 128;

/// Maximum value of the IPv4 and IPv6 length fields.
const LENGTH_MAX: u32 = 65_535;
const NEEDS_CSUM: u8 = 1;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// State of a frame's checksum field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    /// The field holds the correct sum of the pseudo header.
    Pending,
    /// The field must be verified.
    Unknown,
}

/// Small frame that can be part of a large one.
#[derive(Clone, Copy, Debug)]
pub struct MergeCandidate {
    /// Headers, with the fields that differ between frames set to 0.
    alike: [u8; MERGED_HEADERS_MAX],
    headers: Headers,
    payload: u32,
    seq: u32,
    id: u16,
    pushes: bool,
    field: Field,
    /// Sum of the pseudo header, and of the transport header if the checksum must be verified.
    sum: Sum,
    written: [u8; 2],
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn take(bytes: &mut [u8], at: usize) -> u16 {
    let number = word(bytes, at);
    bytes[at..at + 2].fill(0);
    number
}

impl MergeCandidate {
    /// Parses a frame of `len` bytes that begins with `head`. Returns `None` if the frame is large
    /// already, or cannot result from segmentation. Examples are fragments, IP options, extension
    /// headers, TCP flags other than ACK and PSH, padding, and UDP without a checksum.
    pub fn find(hdr: VnetHdr, len: u32, head: &[u8], layer: Layer) -> Option<Self> {
        let VnetFields { flags, gso_type, csum_start, csum_offset, .. } = hdr.fields();
        if gso_type != 0 || flags & !NEEDS_CSUM != 0 {
            return None;
        }
        let head = &head[..head.len().min(MERGED_HEADERS_MAX)];
        let headers = Headers::find(head, layer)?;
        let Headers { is_v6, transport, kind, payload, .. } = headers;
        let carried = len.checked_sub(payload as u32).filter(|carried| *carried > 0)?;
        let mut alike = [0; MERGED_HEADERS_MAX];
        alike[..payload].copy_from_slice(&head[..payload]);
        let id = if is_v6 {
            find_v6(&mut alike, &headers, len)?;
            0
        } else {
            find_v4(&mut alike, &headers, len)?
        };
        let offset = headers.checksum() - transport;
        let behind_ip = len - transport as u32;
        let mut sum = pseudo_header(&headers, head, behind_ip);
        let field = take(&mut alike, headers.checksum()).to_be_bytes();
        let state = match flags & NEEDS_CSUM {
            0 => Field::Unknown,
            _ if (usize::from(csum_start), usize::from(csum_offset)) != (transport, offset) => {
                return None;
            }
            _ if field != sum.unfinished() => return None,
            _ => Field::Pending,
        };
        let (seq, pushes) = match kind {
            Transport::Tcp => find_tcp(&mut alike[transport..payload])?,
            Transport::Udp => {
                let stated = take(&mut alike, transport + 4);
                // A checksum of 0 means that the sender computed none.
                if u32::from(stated) != behind_ip || field == [0; 2] {
                    return None;
                }
                (0, false)
            }
        };
        if state == Field::Unknown {
            // The field is at an even offset and counts as 0.
            sum.bytes(&head[transport..headers.checksum()]);
            sum.bytes(&head[headers.checksum() + 2..payload]);
        }
        Some(Self {
            alike,
            headers,
            payload: carried,
            seq,
            id,
            pushes,
            field: state,
            sum,
            written: field,
        })
    }

    /// Header bytes.
    pub fn headers(&self) -> usize {
        self.headers.payload
    }

    /// True if the frame is TCP, false if it is UDP.
    pub fn is_tcp(&self) -> bool {
        self.headers.kind == Transport::Tcp
    }

    /// True if the frame is IPv6.
    pub fn is_v6(&self) -> bool {
        self.headers.is_v6
    }

    /// True if the checksum is correct. `payload` yields sums and lengths of the payload's
    /// segments. `payload` is called only if the field must be verified.
    pub fn is_sound<I: Iterator<Item = (u64, usize)>>(&self, payload: impl FnOnce() -> I) -> bool {
        if self.field != Field::Unknown {
            return true;
        }
        let mut sum = self.sum;
        payload().for_each(|(piece, len)| sum.add(piece, len));
        sum.field() == self.written
    }
}

/// Returns the identification, or `None` unless the header's checksum and length are correct.
fn find_v4(alike: &mut [u8], headers: &Headers, len: u32) -> Option<u16> {
    let ip = headers.ip;
    if headers.transport != ip + 20 || u32::from(word(alike, ip + 2)) != len - ip as u32 {
        return None;
    }
    let written = [alike[ip + 10], alike[ip + 11]];
    alike[ip + 10..ip + 12].fill(0);
    let mut sum = Sum::new();
    sum.bytes(&alike[ip..ip + 20]);
    alike[ip + 2..ip + 4].fill(0);
    let id = take(alike, ip + 4);
    (sum.header_field() == written).then_some(id)
}

fn find_v6(alike: &mut [u8], headers: &Headers, len: u32) -> Option<()> {
    let ip = headers.ip;
    let stated = take(alike, ip + 4);
    (headers.transport == ip + 40 && u32::from(stated) == len - ip as u32 - 40).then_some(())
}

/// Returns the sequence number and the PSH flag, or `None` unless ACK is the only other flag and no
/// reserved bit is set.
fn find_tcp(tcp: &mut [u8]) -> Option<(u32, bool)> {
    let seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
    let pushes = tcp[13] & PSH != 0;
    if tcp[13] & !PSH != ACK || tcp[12] & 0x0f != 0 {
        return None;
    }
    tcp[4..8].fill(0);
    tcp[13] = ACK;
    Some((seq, pushes))
}

/// Frames that are coalesced into one.
#[derive(Clone, Debug)]
pub struct Merge {
    first: MergeCandidate,
    /// Payload bytes of all frames.
    payload: u32,
    count: u32,
    id: u16,
    /// True if no frame may follow the last one.
    is_complete: bool,
    pushes: bool,
    frame_max: u32,
}

impl Merge {
    /// Starts with one frame. The result has at most `frame_max` bytes.
    pub fn new(first: MergeCandidate, frame_max: u32) -> Self {
        let MergeCandidate { payload, id, pushes, .. } = first;
        let is_complete = pushes || payload > u32::from(u16::MAX);
        Self { first, payload, count: 1, id, is_complete, pushes, frame_max }
    }

    /// Number of coalesced frames.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Length of the large frame.
    pub fn len(&self) -> u32 {
        self.first.headers.payload as u32 + self.payload
    }

    /// Always false: the frame has headers.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// True if `part` can be appended: frames may follow the last one, and `part` has the same
    /// header fields and continues the sequence. For IPv4 its identification must follow too.
    /// `part` must not be longer than the first frame, and the result must be within its limits.
    pub fn goes_on_with(&self, part: &MergeCandidate) -> bool {
        let Headers { ip, is_v6, payload, .. } = self.first.headers;
        let whole = self.len() + part.payload;
        let counted = whole - if is_v6 { ip as u32 + 40 } else { ip as u32 };
        !self.is_complete
            && part.payload <= self.first.payload
            && part.headers == self.first.headers
            && part.seq == self.first.seq_after(self.payload)
            && (is_v6 || part.id == self.id.wrapping_add(1))
            && whole <= self.frame_max
            && counted <= LENGTH_MAX
            && part.alike[..payload] == self.first.alike[..payload]
    }

    /// Appends a frame for which [`goes_on_with`](Self::goes_on_with) returned true.
    pub fn push(&mut self, part: &MergeCandidate) {
        self.payload += part.payload;
        self.count += 1;
        self.id = part.id;
        self.pushes = part.pushes;
        self.is_complete = part.pushes || part.payload < self.first.payload;
    }

    /// Writes the headers of the large frame to `out`, which begins with those of its first frame.
    /// Returns the offload header. The checksum stays pending.
    ///
    /// # Panics
    /// If `out` is shorter than [`MergeCandidate::headers`] of its frames.
    pub fn finish(&self, out: &mut [u8]) -> VnetHdr {
        let Headers { ip, is_v6, transport, kind, payload } = self.first.headers;
        let len = self.len();
        let out = &mut out[..payload];
        let put = |out: &mut [u8], at: usize, number: u32| {
            out[at..at + 2].copy_from_slice(&(number as u16).to_be_bytes());
        };
        if is_v6 {
            put(out, ip + 4, len - ip as u32 - 40);
        } else {
            put(out, ip + 2, len - ip as u32);
            put(out, ip + 10, 0);
            let mut sum = Sum::new();
            sum.bytes(&out[ip..transport]);
            out[ip + 10..ip + 12].copy_from_slice(&sum.header_field());
        }
        let behind_ip = len - transport as u32;
        let gso_type = match (kind, is_v6) {
            (Transport::Tcp, false) => 1,
            (Transport::Tcp, true) => 4,
            (Transport::Udp, _) => 5,
        };
        match kind {
            Transport::Tcp if self.pushes => out[transport + 13] |= PSH,
            Transport::Tcp => {}
            Transport::Udp => put(out, transport + 4, behind_ip),
        }
        let field = self.first.headers.checksum();
        let sum = pseudo_header(&self.first.headers, out, behind_ip).unfinished();
        out[field..field + 2].copy_from_slice(&sum);
        VnetHdr::new(VnetFields {
            flags: NEEDS_CSUM,
            gso_type,
            hdr_len: payload as u16,
            gso_size: self.first.payload as u16,
            csum_start: transport as u16,
            csum_offset: (field - transport) as u16,
        })
    }
}

impl MergeCandidate {
    /// Sequence number after `payload` more bytes, or 0 for datagrams.
    fn seq_after(&self, payload: u32) -> u32 {
        match self.headers.kind {
            Transport::Tcp => self.seq.wrapping_add(payload),
            Transport::Udp => 0,
        }
    }
}
