//! ECN mark in the IP header of a packet.

use mqnet_pktbuf::PagePool;
use mqnet_shmem::Span;

use crate::QueuedPacket;

/// Mask of the ECN field, and its value "congestion experienced". A field of 0 means not
/// ECN-capable.
const CE: u8 = 3;

/// Marks a packet. Returns false if the packet is not an ECN-capable IP packet.
pub(crate) fn mark(packet: &mut QueuedPacket, pool: &PagePool) -> bool {
    let Some(ip) = packet.ip.map(usize::from) else { return false };
    let frame = pool.frag_span(&packet.frag).first(packet.len as usize);
    let mut header = [0; 12];
    if frame.skip(ip).read_header(&mut header) < header.len() {
        return false;
    }
    let bytes = match header[0] >> 4 {
        4 => mark_v4(&mut header).then_some(12),
        // The traffic class straddles the first two bytes.
        6 => match header[1] >> 4 & CE {
            0 => None,
            _ => {
                header[1] |= CE << 4;
                Some(2)
            }
        },
        _ => None,
    };
    let Some(n) = bytes else { return false };
    let (_, mut place) = pool.frag_span_mut(&mut packet.frag).split_at(ip);
    place.copy_from(Span::of(&header[..n]));
    true
}

/// Sets the mark and updates the header checksum (RFC 1624, equation 3). Returns false if the
/// header is not ECN-capable.
fn mark_v4(header: &mut [u8; 12]) -> bool {
    if header[1] & CE == 0 {
        return false;
    }
    let word = |h: &[u8; 12], at: usize| u32::from(u16::from_be_bytes([h[at], h[at + 1]]));
    let old = word(header, 0);
    header[1] |= CE;
    let mut sum = (!word(header, 10) & 0xffff) + (!old & 0xffff) + word(header, 0);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    header[10..12].copy_from_slice(&(!sum as u16).to_be_bytes());
    true
}

#[cfg(test)]
mod tests {
    use mqnet_pktbuf::PoolConfig;
    use mqnet_wire::VnetHdr;
    use proptest::prelude::*;

    use super::*;
    use crate::Meta;

    /// Marks a frame of the bytes `bytes` with the IP header at `ip`. Returns the result of
    /// [`mark`] and the new bytes.
    fn marked(bytes: &[u8], ip: Option<u16>) -> (bool, Vec<u8>) {
        let mut pool = PagePool::new(&PoolConfig::default()).unwrap();
        let mut frag = pool.alloc_frag(bytes.len() as u32).unwrap();
        pool.frag_span_mut(&mut frag).copy_from(Span::of(bytes));
        let len = bytes.len() as u32;
        let hdr = VnetHdr::default();
        let meta = Meta::default();
        let mut packet = QueuedPacket { frag, len, hdr, meta, hash: 0, segments: 1, ip, at: 0 };
        let done = mark(&mut packet, &pool);
        let mut after = vec![0; bytes.len()];
        pool.frag_span(&packet.frag).read_header(&mut after);
        pool.free_frag(packet.frag);
        (done, after)
    }

    fn sum(header: &[u8]) -> u16 {
        let words = header.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
        let sum: u32 = words.sum();
        ((sum & 0xffff) + (sum >> 16)) as u16
    }

    proptest! {
        // Goal: in an IPv4 header only the two ECN bits and the checksum change, and the checksum
        // is valid. A packet that is not ECN-capable is unchanged.
        #[test]
        fn ipv4_keeps_a_right_checksum(mut header in any::<[u8; 20]>(), link in 0usize..32) {
            header[0] = 0x45;
            header[10..12].fill(0);
            let mut whole = sum(&header);
            while whole > 0 && u32::from(whole) > 0xffff { whole = 0; }
            header[10..12].copy_from_slice(&(!whole).to_be_bytes());
            prop_assume!(sum(&header) == 0xffff);
            let mut frame = vec![7; link];
            frame.extend(header);
            let (done, after) = marked(&frame, Some(link as u16));
            prop_assert_eq!(done, header[1] & 3 != 0);
            let mut expected = frame.clone();
            if done {
                expected[link + 1] |= 3;
                expected[link + 10..link + 12].copy_from_slice(&after[link + 10..link + 12]);
                prop_assert_eq!(sum(&after[link..]), 0xffff);
            }
            prop_assert_eq!(after, expected);
        }

        // Goal: exactly the two ECN bits of an IPv6 header change.
        #[test]
        fn ipv6_has_no_checksum(mut header in any::<[u8; 40]>()) {
            header[0] = 0x60 | header[0] & 0xf;
            let (done, after) = marked(&header, Some(0));
            let mut expected = header.to_vec();
            if header[1] >> 4 & 3 != 0 {
                expected[1] |= 0x30;
            }
            prop_assert_eq!(done, header[1] >> 4 & 3 != 0);
            prop_assert_eq!(after, expected);
        }

        // Goal: a mark writes nothing at an offset beyond the frame, or in a frame that is not IP.
        #[test]
        fn nothing_else_is_written(bytes in prop::collection::vec(any::<u8>(), 1..64), at: u16) {
            prop_assume!(usize::from(at) + 12 > bytes.len());
            prop_assert_eq!(marked(&bytes, Some(at)), (false, bytes.clone()));
            prop_assert_eq!(marked(&bytes, None), (false, bytes.clone()));
        }
    }
}
