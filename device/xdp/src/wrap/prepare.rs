//! Preparation of frames for a program, and reconstruction of their headers afterwards.
//!
//! A program receives the same input as native XDP in the kernel: a linear frame with complete
//! checksums. A GSO frame is segmented first, unless the program accepts large frames
//! (`xdp.frags`). After the program, the virtio header is derived from the bytes again, because the
//! program may have modified any of them.

use mqnet_netdev::Offloads;
use mqnet_wire::offload::{Cut, Headers, Transport, UNFINISHED_HEADERS_MAX};
use mqnet_wire::offload::{fill_checksum, renew_checksum};
use mqnet_wire::{GsoKind, Layer, VnetFields, VnetHdr};

/// Layer of the frames: programs run on Ethernet frames only.
const LAYER: Layer = Layer::Ethernet;
const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_ECN: u8 = 0x80;

/// A received frame that the program has not processed completely.
pub(super) struct Received {
    pub(super) page: Box<[u8]>,
    pub(super) len: u32,
    pub(super) hdr: VnetHdr,
    /// Segmentation of the frame, and the index of the next segment.
    pub(super) begun: Option<(Cut, u32)>,
}

impl Received {
    /// Number of frames that the program must still process; 1 before the segmentation begins.
    pub(super) fn frames(&self) -> usize {
        self.begun.map_or(1, |(cut, next)| (cut.count() - next) as usize)
    }
}

/// Properties of a GSO frame before the program ran.
#[derive(Clone, Copy)]
pub(super) struct Large {
    hdr: VnetHdr,
    headers: Headers,
}

fn find_headers(frame: &[u8]) -> Option<Headers> {
    Headers::find(&frame[..frame.len().min(UNFINISHED_HEADERS_MAX)], LAYER)
}

/// Segmentation of a GSO frame; `None` if the virtio header contradicts the frame's bytes.
pub(super) fn cut(frame: &[u8], hdr: VnetHdr) -> Option<Cut> {
    hdr.check(frame.len() as u32).ok()?;
    Cut::new(hdr, frame.len() as u32, frame, LAYER)
}

/// Writes segment `number` of a GSO frame to `out`, with its checksum. Returns the length of the
/// segment; `None` if the segment does not fit or its checksum cannot be filled in.
pub(super) fn segment(cut: &Cut, number: u32, frame: &[u8], out: &mut [u8]) -> Option<u32> {
    let segment = cut.segment(number, frame, out);
    let end = segment.headers + segment.payload;
    let payload = frame.get(segment.at..)?.get(..segment.payload)?;
    out.get_mut(segment.headers..end)?.copy_from_slice(payload);
    fill_checksum(segment.hdr, &mut out[..end], std::iter::empty())?;
    Some(segment.len())
}

/// Completes the checksum of a small frame; `None` if the virtio header contradicts the frame's
/// bytes.
pub(super) fn complete(frame: &mut [u8], hdr: VnetHdr) -> Option<()> {
    if hdr.is_finished() {
        return Some(());
    }
    hdr.check(frame.len() as u32).ok()?;
    if hdr.needs_checksum() {
        return fill_checksum(hdr, frame, std::iter::empty());
    }
    if hdr.fields().flags & DATA_VALID != 0 {
        // Compute the checksum: DATA_VALID confirms the data, not the checksum field.
        let _ = renew_checksum(frame, LAYER);
    }
    Some(())
}

impl Large {
    /// Checks a GSO frame that is passed unsegmented; `None` if the virtio header contradicts the
    /// frame's bytes.
    pub(super) fn find(frame: &[u8], hdr: VnetHdr) -> Option<Self> {
        cut(frame, hdr)?;
        Some(Self { hdr, headers: find_headers(frame)? })
    }

    /// Derives the virtio header from the bytes of the frame after the program. In a frame that is
    /// still a GSO frame, sets the checksum field to the pseudo header sum. Returns `None` if the
    /// frame cannot be segmented into segments of at most the previous length.
    pub(super) fn describe(self, frame: &mut [u8]) -> Option<VnetHdr> {
        let Self { hdr, headers: before } = self;
        let VnetFields { gso_type, gso_size, .. } = hdr.fields();
        let Some(now) = find_headers(frame) else {
            // Accept a frame without TCP or UDP headers, which the program created, if it is small.
            let small = frame.len() <= before.payload + usize::from(gso_size);
            return small.then(VnetHdr::default);
        };
        let is_tcp = now.kind == Transport::Tcp;
        let grown = (now.payload - now.ip).saturating_sub(before.payload - before.ip) as u16;
        // Keep the length of segments: reduce the payload of TCP segments by the growth of the
        // headers. The boundaries of UDP datagrams must not change.
        let gso_size = if is_tcp { gso_size.checked_sub(grown)? } else { gso_size };
        if frame.len() - now.payload <= usize::from(gso_size) {
            return Some(VnetHdr::default());
        }
        let kind = match (now.kind, now.is_v6) {
            (Transport::Tcp, false) => 1,
            (Transport::Tcp, true) => 4,
            (Transport::Udp, _) => 5,
        };
        let ecn = if is_tcp { gso_type & GSO_ECN } else { 0 };
        let checksum = now.begin_checksum(frame).fields();
        let hdr_len = now.payload as u16;
        let fields = VnetFields { gso_type: kind | ecn, gso_size, hdr_len, ..checksum };
        let hdr = VnetHdr::new(fields);
        cut(frame, hdr).map(|_| hdr)
    }
}

/// Offloads that the sink of a frame with this header must support.
pub(super) fn needed(hdr: VnetHdr) -> Offloads {
    let fields = hdr.fields();
    let csum = if fields.flags & NEEDS_CSUM == 0 { Offloads::NONE } else { Offloads::CSUM };
    let large = match hdr.gso() {
        Some(GsoKind::None) => Offloads::NONE,
        Some(GsoKind::Tcp4) => Offloads::TSO4,
        Some(GsoKind::Tcp6) => Offloads::TSO6,
        Some(GsoKind::Udp) => Offloads::USO4,
        None => Offloads::ALL,
    };
    let ecn = if fields.gso_type & GSO_ECN == 0 { Offloads::NONE } else { Offloads::TSO_ECN };
    csum.or(large).or(ecn)
}

#[cfg(test)]
pub(super) mod tests;
