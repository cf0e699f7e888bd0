//! A frame queued in a qdisc.

use mqnet_pktbuf::Frag;
use mqnet_wire::VnetHdr;

/// Assumed header bytes of a segment without a header-length hint: Ethernet, IPv4, TCP with
/// timestamps.
const HEADERS: u32 = 66;

/// Metadata that filters and qdiscs use and may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// `skb->priority`: 0 unless a filter sets it; 0 to 15, or a class id.
    pub priority: u32,
    /// `skb->mark`.
    pub mark: u32,
    /// TX channel (`queue_mapping`).
    pub channel: u16,
}

/// A detached frame in a fragment of the scheduler's page pool.
#[derive(Debug)]
#[must_use = "a packet that is neither sent nor freed stays in flight"]
pub struct QueuedPacket {
    /// Fragment that begins with the first byte of the frame.
    pub frag: Frag,
    /// Frame length in bytes, with the link-layer header.
    pub len: u32,
    /// GSO and checksum state of the frame.
    pub hdr: VnetHdr,
    /// Metadata of the frame.
    pub meta: Meta,
    /// Flow hash (symmetric, unseeded).
    pub hash: u32,
    /// Number of frames on the wire: 1, or the segments of a large frame.
    pub segments: u16,
    /// Offset of the IP header, if any, for ECN marks.
    pub ip: Option<u16>,
    /// Enqueue time in nanoseconds since the scheduler's clock began.
    pub at: u64,
}

impl QueuedPacket {
    /// Bytes on the wire, with the headers of every segment: the unit of rates and statistics.
    #[inline]
    pub fn wire_len(&self) -> u32 {
        match self.segments {
            0 | 1 => self.len,
            n => self.len.saturating_add((u32::from(n) - 1) * self.headers()),
        }
    }

    /// Bytes of the largest frame on the wire.
    pub fn frame_len(&self) -> u32 {
        let payload = u32::from(self.hdr.fields().gso_size);
        match self.segments {
            0 | 1 => self.len,
            _ if payload == 0 => self.len,
            _ => self.len.min(self.headers() + payload),
        }
    }

    /// Header length of a segment: the `hdr_len` hint of the frame's sender if it is 28 to 256,
    /// otherwise [`HEADERS`].
    fn headers(&self) -> u32 {
        match u32::from(self.hdr.fields().hdr_len) {
            said @ 28..=256 => said,
            _ => HEADERS,
        }
    }
}

#[cfg(test)]
mod tests {
    use mqnet_pktbuf::{PagePool, PoolConfig};
    use mqnet_wire::VnetFields;

    use super::*;

    // Goal: a large frame counts the headers of all its segments, a small one its own length, and
    // an implausible hint is ignored.
    #[test]
    fn the_wire_carries_headers_for_every_segment() {
        let mut pool = PagePool::new(&PoolConfig::default()).unwrap();
        let mut packet = QueuedPacket {
            frag: pool.alloc_frag(64).unwrap(),
            len: 54 + 3000,
            hdr: VnetHdr::new(VnetFields {
                gso_type: 1,
                gso_size: 1000,
                hdr_len: 54,
                ..VnetFields::default()
            }),
            meta: Meta::default(),
            hash: 0,
            segments: 3,
            ip: None,
            at: 0,
        };
        assert_eq!((packet.wire_len(), packet.frame_len()), (3054 + 108, 1054));
        let fields = packet.hdr.fields();
        packet.hdr = VnetHdr::new(VnetFields { hdr_len: 60_000, ..fields });
        assert_eq!((packet.wire_len(), packet.frame_len()), (3054 + 132, 1066));
        packet.segments = 1;
        assert_eq!((packet.wire_len(), packet.frame_len()), (3054, 3054));
        pool.free_frag(packet.frag);
    }
}
