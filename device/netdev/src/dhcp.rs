//! DHCP over IPv4. Its clients and servers read raw sockets, which show a frame as it lies: one
//! whose checksum is left to its receiver looks wrong to them. QEMU fills it in for the same ports.

use arrayvec::ArrayVec;
use mqnet_shmem::Span;
use mqnet_wire::VnetHdr;
use mqnet_wire::offload::{
    UNFINISHED_HEADERS_MAX, checksum_end, fill_checksum, lacks_udp_checksum,
};

use crate::Frame;
use crate::wrap::pieces::{Pieces, payload, read_head, sums};

/// The ports of server and client.
const PORTS: [u16; 2] = [67, 68];

/// The first bytes of a frame in private memory.
pub type Head = [u8; UNFINISHED_HEADERS_MAX];

/// True for ports of DHCP, either way.
pub fn has_ports(udp: [u8; 4]) -> bool {
    let [a, b, c, d] = udp;
    [[a, b], [c, d]].iter().any(|port| PORTS.contains(&u16::from_be_bytes(*port)))
}

/// True for a frame of DHCP that lacks its checksum.
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

/// The pieces of an [unfinished](is_unfinished) frame with its checksum filled in: the first is
/// `room`. `None` when its headers are too long, or its pieces too many.
pub fn complete<'a>(
    frame: &Frame<'a>,
    more: &[Span<'a>],
    room: &'a mut Head,
) -> Option<(Span<'a>, ArrayVec<Span<'a>, { crate::limits::BURST_MORE_PIECES }>)> {
    let (head, n) = read_head::<UNFINISHED_HEADERS_MAX>(frame, more);
    let end = checksum_end(frame.hdr).filter(|end| *end <= n)?;
    let rest: Pieces<'a> = payload(frame.head, more, end, frame.len as usize - end)?;
    *room = head;
    let own = &mut room[..end];
    fill_checksum(frame.hdr, own, sums(&rest))?;
    Some((Span::of(own), rest))
}

/// The header of a completed frame.
pub fn completed() -> VnetHdr {
    VnetHdr::default()
}
