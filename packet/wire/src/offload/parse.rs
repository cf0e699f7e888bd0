//! Dissection of the headers of a frame that is to be segmented, without trusting a peer's offload
//! header.

use crate::Layer;

const TPIDS: [u16; 2] = [0x8100, 0x88a8];
const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Maximum number of IPv6 extension headers that are parsed.
const EXTENSIONS_MAX: usize = 8;

/// Transport protocol that can be segmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP, a byte stream.
    Tcp,
    /// UDP, with datagrams.
    Udp,
}

/// Positions of the headers of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Offset of the IP header.
    pub ip: usize,
    /// True if the IP header is IPv6.
    pub is_v6: bool,
    /// Offset of the transport header.
    pub transport: usize,
    /// Transport protocol.
    pub kind: Transport,
    /// Offset of the payload.
    pub payload: usize,
}

impl Headers {
    /// Offset of the checksum field.
    pub(super) fn checksum(&self) -> usize {
        self.transport + if self.kind == Transport::Tcp { 16 } else { 6 }
    }

    /// Parses the first bytes of a frame. Returns `None` if the headers are incomplete, or if the
    /// frame cannot be segmented. (Examples are a fragment and a header that depends on the whole
    /// packet.)
    pub fn find(bytes: &[u8], layer: Layer) -> Option<Self> {
        let (ip, is_v6) = match layer {
            Layer::Ethernet => after_ethernet(bytes)?,
            Layer::Ip => (0, bytes.first()? >> 4 == 6),
        };
        let (transport, protocol) =
            if is_v6 { after_ipv6(bytes, ip)? } else { after_ipv4(bytes, ip)? };
        let (kind, length) = match protocol {
            TCP => (Transport::Tcp, usize::from(bytes.get(transport + 12)? >> 4) * 4),
            UDP => (Transport::Udp, 8),
            _ => return None,
        };
        let least = if kind == Transport::Tcp { 20 } else { 8 };
        let payload = transport + length;
        (length >= least && payload <= bytes.len()).then_some(Self {
            ip,
            is_v6,
            transport,
            kind,
            payload,
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

fn after_ethernet(bytes: &[u8]) -> Option<(usize, bool)> {
    let mut at = 12;
    for _ in 0..2 {
        if !TPIDS.contains(&word(bytes, at)?) {
            break;
        }
        at += 4;
    }
    match word(bytes, at)? {
        ETH_P_IP => Some((at + 2, false)),
        ETH_P_IPV6 => Some((at + 2, true)),
        _ => None,
    }
}

fn after_ipv4(bytes: &[u8], ip: usize) -> Option<(usize, u8)> {
    let fixed: [u8; 20] = bytes.get(ip..)?.first_chunk().copied()?;
    let length = usize::from(fixed[0] & 15) * 4;
    let fragment = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff != 0;
    (fixed[0] >> 4 == 4 && length >= 20 && !fragment).then_some((ip + length, fixed[9]))
}

fn after_ipv6(bytes: &[u8], ip: usize) -> Option<(usize, u8)> {
    let fixed: [u8; 40] = bytes.get(ip..)?.first_chunk().copied()?;
    if fixed[0] >> 4 != 6 {
        return None;
    }
    let (mut at, mut next) = (ip + 40, fixed[6]);
    for _ in 0..EXTENSIONS_MAX {
        let units = match next {
            // Hop-by-hop and destination options.
            0 | 60 => bytes.get(at + 1)?,
            // Routing header. If segments are left, the checksum covers the final address inside
            // the routing header.
            43 if *bytes.get(at + 3)? == 0 => bytes.get(at + 1)?,
            _ => return Some((at, next)),
        };
        next = *bytes.get(at)?;
        at += (usize::from(*units) + 1) * 8;
    }
    None
}
