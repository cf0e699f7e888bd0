//! Checksums of DHCP over IPv4. DHCP clients and servers reject frames with partial checksums,
//! which their raw sockets deliver unchanged. The checksum is therefore filled in for the DHCP
//! ports, as in QEMU.

use arrayvec::ArrayVec;
use mqnet_shmem::Span;
use mqnet_wire::VnetHdr;
use mqnet_wire::offload::{
    UNFINISHED_HEADERS_MAX, checksum_end, fill_checksum, lacks_udp_checksum,
};

use crate::Frame;
use crate::wrap::pieces::{Pieces, payload, read_head, sums};

/// UDP ports of the DHCP server and client.
const PORTS: [u16; 2] = [67, 68];

/// First bytes of a frame, copied to private memory.
pub type FrameHead = [u8; UNFINISHED_HEADERS_MAX];

/// True if one of the ports in the first four bytes of a UDP header is a DHCP port.
pub fn has_ports(udp: [u8; 4]) -> bool {
    let [a, b, c, d] = udp;
    [[a, b], [c, d]].iter().any(|port| PORTS.contains(&u16::from_be_bytes(*port)))
}

/// True for a UDP frame with a partial checksum and a DHCP port.
#[inline]
pub fn is_unfinished(frame: &Frame<'_>, more: &[Span<'_>]) -> bool {
    lacks_udp_checksum(frame.hdr) && is_dhcp(frame, more)
}

#[inline(never)]
fn is_dhcp(frame: &Frame<'_>, more: &[Span<'_>]) -> bool {
    let at = usize::from(frame.hdr.fields().csum_start);
    let mut udp = [0; 4];
    let Some(pieces) = payload(frame.head, more, at, udp.len()) else { return false };
    let mut n = 0;
    for piece in &pieces {
        n += piece.read_header(&mut udp[n..]);
    }
    n == udp.len() && has_ports(udp)
}

/// Returns the segments of an [unfinished](is_unfinished) frame, with the checksum filled in. The
/// first segment is a copy of the headers in `room`. Returns `None` if the headers are too long,
/// the checksum cannot be filled in, or the segments are too many.
pub fn complete<'a>(
    frame: &Frame<'a>,
    more: &[Span<'a>],
    room: &'a mut FrameHead,
) -> Option<(Span<'a>, ArrayVec<Span<'a>, { crate::limits::BURST_MORE_PIECES }>)> {
    let (head, n) = read_head::<UNFINISHED_HEADERS_MAX>(frame, more);
    let end = checksum_end(frame.hdr).filter(|end| *end <= n)?;
    let rest: Pieces<'a> = payload(frame.head, more, end, frame.len as usize - end)?;
    *room = head;
    let own = &mut room[..end];
    fill_checksum(frame.hdr, own, sums(&rest))?;
    Some((Span::of(own), rest))
}

/// Virtio header of a frame that [`complete`] returned: no pending checksum.
pub fn completed() -> VnetHdr {
    VnetHdr::default()
}
