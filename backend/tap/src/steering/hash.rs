//! Bucket of a frame. `program.rs` implements the same hash in BPF; tests compare the two.

use mqnet_wire::Layer;

use super::table::BUCKETS;

/// Odd number near 2^32 divided by the golden ratio; the multiplication separates neighbouring
/// values.
pub(super) const FACTOR: u32 = 0x9e37_79b1;

/// Shift that leaves the bits of a bucket index.
pub(super) const SHIFT: u32 = u32::BITS - BUCKETS.trailing_zeros();

/// Transport protocols that begin with two ports: TCP, UDP, SCTP.
pub(super) const WITH_PORTS: [u8; 3] = [6, 17, 132];

/// Ethertypes.
pub(super) const VLAN: u16 = 0x8100;
pub(super) const IPV4: u16 = 0x0800;
pub(super) const IPV6: u16 = 0x86dd;

/// IP versions, which replace the ethertype in frames without one.
pub(super) const VERSIONS: [u16; 2] = [4, 6];

/// Mask of the IPv4 fragment word: more fragments, and the offset.
pub(super) const FRAGMENT: u16 = 0x3fff;

struct View<'a>(&'a [u8]);

impl View<'_> {
    fn byte(&self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    fn half(&self, at: usize) -> Option<u16> {
        Some(u16::from_be_bytes(self.0.get(at..at + 2)?.try_into().ok()?))
    }

    fn word(&self, at: usize) -> Option<u32> {
        Some(u32::from_be_bytes(self.0.get(at..at + 4)?.try_into().ok()?))
    }
}

/// Bucket of a frame. Both directions of a flow have the same bucket, and so do all fragments of
/// a datagram. `None` if a header is truncated: the program sends such a frame to queue 0,
/// regardless of the table.
pub fn bucket(frame: &[u8], layer: Layer) -> Option<usize> {
    let frame = View(frame);
    let (kind, at) = match layer {
        Layer::Ip => match u16::from(frame.byte(0)? >> 4) {
            version if version == VERSIONS[0] => (IPV4, 0),
            version if version == VERSIONS[1] => (IPV6, 0),
            other => (other, 0),
        },
        Layer::Ethernet => match frame.half(12)? {
            VLAN => (frame.half(16)?, 18),
            kind => (kind, 14),
        },
    };
    let (mut hash, protocol, ports) = match kind {
        IPV4 => {
            let addresses = frame.word(at + 12)? ^ frame.word(at + 16)?;
            let whole = frame.half(at + 6)? & FRAGMENT == 0;
            let protocol = if whole { frame.byte(at + 9)? } else { 0 };
            let header = usize::from(frame.byte(at)? & 0xf) * 4;
            (addresses, protocol, at + header)
        }
        IPV6 => {
            let mut addresses = 0;
            for i in 0..8 {
                addresses ^= frame.word(at + 8 + 4 * i)?;
            }
            (addresses, frame.byte(at + 6)?, at + 40)
        }
        other => (u32::from(other), 0, at),
    };
    hash = hash.wrapping_mul(FACTOR);
    if WITH_PORTS.contains(&protocol) {
        let both = frame.word(ports)?;
        hash ^= (both >> 16) ^ (both & 0xffff);
    }
    Some((hash.wrapping_mul(FACTOR) >> SHIFT) as usize)
}
