//! Offload header of a frame: its pending checksum and segmentation. Layout and names are those of
//! `struct virtio_net_hdr` (virtio 1.3, 5.1.6); TAP, virtio and NTB records use it.

use std::fmt;

/// Length of the header with `num_buffers`, as used by TAP and virtio 1.
pub const VNET_HDR_LEN: usize = 12;

/// Bit of `flags`: a checksum must be computed from `csum_start` on.
const NEEDS_CSUM: u8 = 1;
/// Bit of `flags`: the sender has validated the checksum, and the content of the field is
/// undefined.
const DATA_VALID: u8 = 2;
/// Bit of `gso_type`: the frame carries ECN bits (TCP only).
const GSO_ECN: u8 = 0x80;

/// Segmentation type of a large frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GsoKind {
    /// Frame that is not large.
    None,
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP datagrams of equal size (USO).
    Udp,
}

/// Offload header of a frame.
///
/// Stored as one word with the first eight bytes of the wire form, and `csum_offset`: lanes forward
/// the header without decoding it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct VnetHdr {
    /// flags, gso_type, hdr_len, gso_size, csum_start: 8, 8, 16, 16 and 16 bits from the lowest.
    word: u64,
    csum_offset: u16,
}

/// Decoded fields of a [`VnetHdr`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnetFields {
    /// Flag bits. Bit 0: checksum needed. Bit 1, from a device only: checksum validated.
    pub flags: u8,
    /// Segmentation type, with the ECN bit.
    pub gso_type: u8,
    /// Header length of a large frame (a hint).
    pub hdr_len: u16,
    /// Payload bytes per segment.
    pub gso_size: u16,
    /// Offset of the first byte that the checksum covers.
    pub csum_start: u16,
    /// Offset of the checksum field, relative to `csum_start`.
    pub csum_offset: u16,
}

/// Reason why a header from a peer is invalid for its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// Checksum field that is outside the frame.
    Checksum,
    /// Unknown segmentation type, or a segment size of 0.
    Segmentation,
}

impl VnetHdr {
    /// Encodes the fields.
    pub const fn new(f: VnetFields) -> Self {
        let word = f.flags as u64
            | (f.gso_type as u64) << 8
            | (f.hdr_len as u64) << 16
            | (f.gso_size as u64) << 32
            | (f.csum_start as u64) << 48;
        Self { word, csum_offset: f.csum_offset }
    }

    /// Decodes the fields.
    pub const fn fields(self) -> VnetFields {
        VnetFields {
            flags: self.word as u8,
            gso_type: (self.word >> 8) as u8,
            hdr_len: (self.word >> 16) as u16,
            gso_size: (self.word >> 32) as u16,
            csum_start: (self.word >> 48) as u16,
            csum_offset: self.csum_offset,
        }
    }

    /// Packed form: eight bytes in a word, and `csum_offset`.
    #[inline]
    pub const fn pack(self) -> (u64, u16) {
        (self.word, self.csum_offset)
    }

    /// Creates the header from the result of [`pack`](Self::pack). Every value is accepted.
    #[inline]
    pub const fn unpack(word: u64, csum_offset: u16) -> Self {
        Self { word, csum_offset }
    }

    /// Returns the header with only the fields that matter between two queues. NEEDS_CSUM is the
    /// only flag that remains. Fields of an unset flag or segmentation type become 0.
    #[inline]
    #[must_use]
    pub fn normalised(self) -> Self {
        if self.is_finished() { Self::default() } else { self.without_unused_fields() }
    }

    fn without_unused_fields(self) -> Self {
        let f = self.fields();
        let mut out = VnetFields { flags: f.flags & NEEDS_CSUM, ..VnetFields::default() };
        if self.needs_checksum() {
            (out.csum_start, out.csum_offset) = (f.csum_start, f.csum_offset);
        }
        if self.is_large() {
            (out.gso_type, out.hdr_len, out.gso_size) = (f.gso_type, f.hdr_len, f.gso_size);
        }
        Self::new(out)
    }

    /// True if the device has validated the checksum and none must be filled in. The content of the
    /// checksum field is then undefined.
    #[inline]
    pub const fn is_vouched(self) -> bool {
        self.word as u8 & (NEEDS_CSUM | DATA_VALID) == DATA_VALID
    }

    /// Returns the header with this `hdr_len`.
    pub(crate) fn with_hdr_len(self, hdr_len: u16) -> Self {
        Self::new(VnetFields { hdr_len, ..self.fields() })
    }

    /// Returns the header with a request for a checksum.
    pub(crate) fn with_checksum(self, csum_start: u16, csum_offset: u16) -> Self {
        let f = self.fields();
        Self::new(VnetFields { flags: f.flags | NEEDS_CSUM, csum_start, csum_offset, ..f })
    }

    /// Decodes the 12-byte form (little-endian; `num_buffers` is ignored).
    #[inline]
    pub fn from_bytes(b: &[u8; VNET_HDR_LEN]) -> Self {
        let word = u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]);
        Self { word, csum_offset: u16::from_le_bytes([b[8], b[9]]) }
    }

    /// Encodes the 12-byte form, with `num_buffers` 1.
    #[inline]
    pub fn to_bytes(self) -> [u8; VNET_HDR_LEN] {
        let mut out = [0; VNET_HDR_LEN];
        out[..8].copy_from_slice(&self.word.to_le_bytes());
        out[8..10].copy_from_slice(&self.csum_offset.to_le_bytes());
        out[10] = 1;
        out
    }

    /// Segmentation type, or `None` for an unknown one.
    pub fn gso(self) -> Option<GsoKind> {
        match self.fields().gso_type & !GSO_ECN {
            0 => Some(GsoKind::None),
            1 => Some(GsoKind::Tcp4),
            4 => Some(GsoKind::Tcp6),
            5 => Some(GsoKind::Udp),
            _ => None,
        }
    }

    /// True if a checksum must be filled in.
    #[inline]
    pub const fn needs_checksum(self) -> bool {
        self.word as u8 & NEEDS_CSUM != 0
    }

    /// True if the frame has any segmentation type.
    #[inline]
    pub const fn is_large(self) -> bool {
        (self.word >> 8) as u8 & !GSO_ECN != 0
    }

    /// True if the segmentation must handle ECN bits.
    pub const fn has_ecn(self) -> bool {
        (self.word >> 8) as u8 & GSO_ECN != 0
    }

    /// Number of frames that a frame of `len` bytes represents: the number of segments of a large
    /// frame, otherwise 1.
    pub fn segments(self, len: u32) -> u16 {
        let f = self.fields();
        if f.gso_size == 0 {
            return 1;
        }
        let payload = len.saturating_sub(u32::from(f.hdr_len));
        payload.div_ceil(u32::from(f.gso_size)).clamp(1, u32::from(u16::MAX)) as u16
    }

    /// Validates the header against the length of its frame. A valid header may be passed to a
    /// kernel or a guest. A frame with an invalid header is dropped and counted.
    #[inline]
    pub fn check(self, frame_len: u32) -> Result<(), Invalid> {
        if self.is_finished() { Ok(()) } else { self.check_fields(frame_len) }
    }

    /// True if the first eight bytes of the header are 0, so that no offload is pending: the common
    /// case of small frames.
    #[inline]
    pub const fn is_finished(self) -> bool {
        self.word == 0
    }

    fn check_fields(self, frame_len: u32) -> Result<(), Invalid> {
        let f = self.fields();
        if f.flags & NEEDS_CSUM != 0
            && u32::from(f.csum_start) + u32::from(f.csum_offset) + 2 > frame_len
        {
            return Err(Invalid::Checksum);
        }
        match self.gso() {
            Some(GsoKind::None) => Ok(()),
            Some(_) if f.gso_size > 0 => Ok(()),
            _ => Err(Invalid::Segmentation),
        }
    }
}

impl fmt::Debug for VnetHdr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fields().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the encoded form has the virtio layout and decodes to the same header.
    #[test]
    fn bytes_are_the_virtio_layout() {
        let hdr = VnetHdr::new(VnetFields {
            flags: 1,
            gso_type: 0x81,
            hdr_len: 0x0203,
            gso_size: 0x0405,
            csum_start: 0x0607,
            csum_offset: 0x0809,
        });
        let bytes = hdr.to_bytes();
        assert_eq!(bytes, [1, 0x81, 3, 2, 5, 4, 7, 6, 9, 8, 1, 0]);
        assert_eq!(VnetHdr::from_bytes(&bytes), hdr);
        let (word, rest) = hdr.pack();
        assert_eq!(VnetHdr::new(VnetHdr::unpack(word, rest).fields()), hdr);
        assert_eq!(hdr.gso(), Some(GsoKind::Tcp4));
    }

    // Goal: device-only flags, unknown flags, and fields of unset types are cleared. The other
    // fields are kept.
    #[test]
    fn unused_fields_are_cleared() {
        let all = VnetFields {
            flags: 0xff,
            gso_type: 0x80,
            hdr_len: 2000,
            gso_size: 9,
            csum_start: 34,
            csum_offset: 16,
        };
        let csum = VnetFields { flags: 1, csum_start: 34, csum_offset: 16, ..Default::default() };
        assert_eq!(VnetHdr::new(all).normalised(), VnetHdr::new(csum));
        for flags in [0, 2, 4, 0xfc] {
            let none = VnetHdr::new(VnetFields { flags, ..all }).normalised();
            assert_eq!(none, VnetHdr::default(), "flags {flags:#x}");
        }
        let large = VnetFields { flags: 3, gso_type: 0x81, ..all };
        let kept = VnetFields { flags: 1, ..large };
        assert_eq!(VnetHdr::new(large).normalised(), VnetHdr::new(kept));
        let offset_alone = VnetFields { csum_offset: 16, ..Default::default() };
        assert_eq!(VnetHdr::new(offset_alone).normalised(), VnetHdr::default());
        let vouched = |flags| VnetHdr::new(VnetFields { flags, ..all }).is_vouched();
        assert_eq!([0, 1, 2, 3, 6].map(vouched), [false, false, true, false, true]);
    }

    // Goal: a checksum field outside the frame and a segmentation without size are rejected.
    #[test]
    fn invalid_headers_are_rejected() {
        let csum = VnetFields { flags: 1, csum_start: 34, csum_offset: 16, ..Default::default() };
        let csum = VnetHdr::new(csum);
        assert_eq!(csum.check(52), Ok(()));
        assert_eq!(csum.check(51), Err(Invalid::Checksum));
        let gso = VnetHdr::new(VnetFields { gso_type: 1, ..Default::default() });
        assert_eq!(gso.check(1500), Err(Invalid::Segmentation));
        let odd = VnetHdr::new(VnetFields { gso_type: 3, gso_size: 1, ..Default::default() });
        assert_eq!(odd.check(1500), Err(Invalid::Segmentation));
        assert_eq!(VnetHdr::default().check(0), Ok(()));
    }
}
