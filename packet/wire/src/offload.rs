//! Offload emulation: checksums and segmentation (GSO) of unfinished frames, and coalescing of
//! segments into one large frame (GRO). The functions work on headers, and callers move the
//! payload.

mod checksum;
mod cut;
mod entry;
mod merge;
mod parse;
mod renew;
#[cfg(test)]
mod tests;

pub use checksum::Sum;
pub use cut::{Cut, Segment};
pub use entry::{Vouched, with_own_hdr_len};
pub use merge::{MERGED_HEADERS_MAX, Merge, MergeCandidate};
pub use parse::{Headers, Transport};
pub use renew::renew_checksum;

use crate::VnetHdr;

/// Maximum length of the headers of a frame that is completed in software.
pub const UNFINISHED_HEADERS_MAX: usize = 192;

/// Maximum number of segments of one frame (`GSO_MAX_SEGS` of the kernel). A frame of up to 64 KiB
/// has no more, for any segment size.
pub const SEGMENTS_MAX: u32 = 65_535;

/// End of the checksum field of a frame that needs a checksum, or `None` for other frames.
pub fn checksum_end(hdr: VnetHdr) -> Option<usize> {
    let f = hdr.fields();
    hdr.needs_checksum().then(|| usize::from(f.csum_start) + usize::from(f.csum_offset) + 2)
}

/// True if the frame needs only a UDP checksum, judged by its `csum_offset`.
#[inline]
pub fn lacks_udp_checksum(hdr: VnetHdr) -> bool {
    !hdr.is_finished() && hdr.needs_checksum() && !hdr.is_large() && hdr.pack().1 == 6
}

/// Fills in the checksum of a frame. `head` holds its first bytes, at least up to [`checksum_end`];
/// `rest` yields sum and length of the segments that follow. The field must hold the sum of the
/// pseudo header, which is included in the result. Returns `None` if the frame needs no checksum,
/// or if the field is not within `head`.
pub fn fill_checksum(
    hdr: VnetHdr,
    head: &mut [u8],
    rest: impl Iterator<Item = (u64, usize)>,
) -> Option<()> {
    let (start, end) = (usize::from(hdr.fields().csum_start), checksum_end(hdr)?);
    let mut sum = Sum::new();
    sum.bytes(head.get(start..)?);
    rest.for_each(|(piece, len)| sum.add(piece, len));
    head.get_mut(end - 2..end)?.copy_from_slice(&sum.field());
    Some(())
}

/// Sum of the pseudo header of a frame that begins with `bytes` and has `behind_ip` bytes after its
/// IP header.
fn pseudo_header(headers: &Headers, bytes: &[u8], behind_ip: u32) -> Sum {
    let &Headers { ip, is_v6, kind, .. } = headers;
    let mut sum = Sum::new();
    sum.bytes(if is_v6 { &bytes[ip + 8..ip + 40] } else { &bytes[ip + 12..ip + 20] });
    sum.number(if kind == Transport::Tcp { 6 } else { 17 });
    sum.number((behind_ip >> 16) as u16);
    sum.number(behind_ip as u16);
    sum
}
