//! Finishing frames that travel unfinished: which checksum, which segments; and the opposite, one
//! large frame of segments. Headers in, headers out; the payload is somebody else's business.

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
pub use merge::{MERGED_HEADERS_MAX, Merge, Part};
pub use parse::{Headers, Transport};
pub use renew::renew_checksum;

use crate::VnetHdr;

/// Bytes from the start of a frame among which all of its headers must lie to be finished here.
pub const UNFINISHED_HEADERS_MAX: usize = 192;

/// Most segments of one frame (`GSO_MAX_SEGS` of the kernel): a frame of any length in segments of
/// any size has fewer.
pub const SEGMENTS_MAX: u32 = 65_535;

/// The end of the checksum field of a frame that lacks only its checksum; `None` when it lacks
/// none.
pub fn checksum_end(hdr: VnetHdr) -> Option<usize> {
    let f = hdr.fields();
    hdr.needs_checksum().then(|| usize::from(f.csum_start) + usize::from(f.csum_offset) + 2)
}

/// True for a small frame whose missing checksum is that of UDP, by where it stands.
#[inline]
pub fn lacks_udp_checksum(hdr: VnetHdr) -> bool {
    !hdr.is_finished() && hdr.needs_checksum() && !hdr.is_large() && hdr.pack().1 == 6
}

/// Fills in the missing checksum of a frame whose first bytes are `head`, at least up to
/// [`checksum_end`], and which goes on with pieces of these sums and lengths. What the field holds
/// before is part of the sum: whoever left it unfinished put the sum of the pseudo header there.
/// `None` when the field is not in `head`.
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

/// The sum of the pseudo header of a frame that begins with `bytes` and has so many bytes behind
/// its IP header.
fn pseudo_header(headers: &Headers, bytes: &[u8], behind_ip: u32) -> Sum {
    let &Headers { ip, is_v6, kind, .. } = headers;
    let mut sum = Sum::new();
    sum.bytes(if is_v6 { &bytes[ip + 8..ip + 40] } else { &bytes[ip + 12..ip + 20] });
    sum.number(if kind == Transport::Tcp { 6 } else { 17 });
    sum.number((behind_ip >> 16) as u16);
    sum.number(behind_ip as u16);
    sum
}
