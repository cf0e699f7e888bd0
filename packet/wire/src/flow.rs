//! Flow dissection: the header fields that are keys of flows and filters.

#[cfg(test)]
mod tests;

/// Maximum number of header bytes that are copied to private memory and parsed.
pub const HEADERS_MAX: usize = 128;

/// EtherTypes of VLAN tags: 802.1Q and 802.1ad.
const TPIDS: [u16; 2] = [0x8100, 0x88a8];
const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;
/// The kernel's protocol number of a frame with a length instead of an EtherType.
const ETH_P_802_2: u16 = 4;
/// Protocols with both ports in the first four bytes of the header: TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];
/// Maximum number of IPv6 extension headers that are parsed.
const EXTENSIONS_MAX: usize = 8;

/// Type of the first header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Ethernet header.
    Ethernet,
    /// IP header (TUN).
    Ip,
}

/// Keys of one frame. Absent keys are 0 or `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowKeys {
    /// EtherType after the VLAN tags, 0 if the frame is too short, or 4 (`ETH_P_802_2`) if it has a
    /// length instead.
    pub ethertype: u16,
    /// Destination and source MAC address.
    pub mac: [[u8; 6]; 2],
    /// Tag control information of the outer VLAN tag.
    pub vlan: Option<u16>,
    /// EtherType of the outer VLAN tag: 0x8100 or 0x88a8, or 0 without a tag.
    pub tpid: u16,
    /// Source IP address. IPv4 is in the first four bytes.
    pub src: [u8; 16],
    /// Destination IP address. IPv4 is in the first four bytes.
    pub dst: [u8; 16],
    /// Offset of the IP header. The whole fixed part of that header is present.
    pub ip: Option<u16>,
    /// True if the IP header is IPv6.
    pub is_v6: bool,
    /// Transport protocol, after any extension headers.
    pub proto: u8,
    /// TOS or traffic class byte.
    pub tos: u8,
    /// Source and destination port (TCP, UDP, SCTP, DCCP, UDP-Lite), or 0 for fragments.
    pub ports: [u16; 2],
    /// True if the packet is a fragment, including the first one. The ports of a fragment are not
    /// read.
    pub fragment: bool,
}

impl FlowKeys {
    /// Parses the first bytes of a frame: a private copy, limited to [`HEADERS_MAX`] bytes.
    pub fn dissect(headers: &[u8], layer: Layer) -> Self {
        let headers = &headers[..headers.len().min(HEADERS_MAX)];
        let mut keys = Self::default();
        let start = match layer {
            Layer::Ethernet => keys.ethernet(headers),
            Layer::Ip => match headers.first().map(|byte| byte >> 4) {
                Some(4) => Some((ETH_P_IP, 0)),
                Some(6) => Some((ETH_P_IPV6, 0)),
                _ => None,
            },
        };
        if let Some((ethertype, at)) = start {
            keys.ethertype = ethertype;
            match ethertype {
                ETH_P_IP => keys.ipv4(headers, at),
                ETH_P_IPV6 => keys.ipv6(headers, at),
                _ => None,
            };
        }
        keys
    }

    /// EtherType as in `skb->protocol` of a frame with in-band tags: the tag's EtherType, if there
    /// is a tag.
    pub fn protocol(&self) -> u16 {
        if self.vlan.is_some() { self.tpid } else { self.ethertype }
    }

    /// Keys of the flow's opposite direction.
    pub fn reversed(&self) -> Self {
        let ([to, from], [source, target]) = (self.mac, self.ports);
        let (src, dst) = (self.dst, self.src);
        Self { mac: [from, to], src, dst, ports: [target, source], ..*self }
    }

    /// Hash of IP addresses, protocol and ports, or of MAC addresses and EtherType without an IP
    /// header. Both directions of a connection have the same hash.
    pub fn hash(&self) -> u32 {
        let (a, b, kind) = if self.ip.is_some() {
            let end = |address: &[u8; 16], port| end_hash(halves(address), port);
            let [from, to] = self.ports;
            (end(&self.src, from), end(&self.dst, to), u64::from(self.proto))
        } else {
            let end = |mac: &[u8; 6]| end_hash((0, mac_number(mac)), 0);
            (end(&self.mac[0]), end(&self.mac[1]), 0x100 | u64::from(self.ethertype) << 16)
        };
        // A sum is symmetric in the two ends and, unlike XOR, does not cancel equal ends.
        let sum = mix(a.wrapping_add(b) ^ kind.wrapping_mul(0xd6e8_feb8_6659_fd93));
        (sum >> 32) as u32
    }

    /// Reads MAC addresses and VLAN tags. Returns the EtherType and the offset of the next header,
    /// or `None` if the frame is too short.
    fn ethernet(&mut self, headers: &[u8]) -> Option<(u16, usize)> {
        self.mac = [array(headers, 0)?, array(headers, 6)?];
        let mut at = 12;
        for _ in 0..2 {
            let tpid = word(headers, at)?;
            if !TPIDS.contains(&tpid) {
                break;
            }
            let tci = word(headers, at + 2)?;
            if self.vlan.is_none() {
                (self.vlan, self.tpid) = (Some(tci), tpid);
            }
            at += 4;
        }
        let ethertype = word(headers, at)?;
        Some((if ethertype < 0x600 { ETH_P_802_2 } else { ethertype }, at + 2))
    }

    fn ipv4(&mut self, headers: &[u8], at: usize) -> Option<()> {
        let fixed: [u8; 20] = array(headers, at)?;
        let length = usize::from(fixed[0] & 15) * 4;
        if fixed[0] >> 4 != 4 || length < 20 {
            return None;
        }
        self.ip = Some(at as u16);
        self.tos = fixed[1];
        self.proto = fixed[9];
        self.src[..4].copy_from_slice(&fixed[12..16]);
        self.dst[..4].copy_from_slice(&fixed[16..]);
        // A fragment has the MF flag, or an offset that is not 0.
        self.fragment = word(&fixed, 6)? & 0x3fff != 0;
        self.transport(headers, at + length)
    }

    fn ipv6(&mut self, headers: &[u8], at: usize) -> Option<()> {
        let fixed: [u8; 40] = array(headers, at)?;
        if fixed[0] >> 4 != 6 {
            return None;
        }
        self.ip = Some(at as u16);
        self.is_v6 = true;
        self.tos = fixed[0] << 4 | fixed[1] >> 4;
        self.src.copy_from_slice(&fixed[8..24]);
        self.dst.copy_from_slice(&fixed[24..]);
        self.proto = fixed[6];
        let mut at = at + 40;
        for _ in 0..EXTENSIONS_MAX {
            let length = match self.proto {
                // Hop-by-hop options, routing, destination options, mobility: units of 8 bytes,
                // minus one.
                0 | 43 | 60 | 135 => (usize::from(*headers.get(at + 1)?) + 1) * 8,
                // Authentication header: units of 4 bytes, minus two.
                51 => (usize::from(*headers.get(at + 1)?) + 2) * 4,
                44 => {
                    // A fragment has an offset or the M flag; an atomic fragment (RFC 6946) has
                    // neither.
                    self.fragment = word(headers, at + 2)? & 0xfff9 != 0;
                    8
                }
                _ => break,
            };
            self.proto = *headers.get(at)?;
            at += length;
            if self.fragment {
                // All fragments of a packet must have equal keys.
                break;
            }
        }
        self.transport(headers, at)
    }

    fn transport(&mut self, headers: &[u8], at: usize) -> Option<()> {
        if !self.fragment && WITH_PORTS.contains(&self.proto) {
            let (from, to) = (word(headers, at)?, word(headers, at + 2)?);
            self.ports = [from, to];
        }
        Some(())
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_be_bytes)
}

fn halves(address: &[u8; 16]) -> (u64, u64) {
    let number = u128::from_be_bytes(*address);
    ((number >> 64) as u64, number as u64)
}

fn mac_number(mac: &[u8; 6]) -> u64 {
    mac.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Hash of one end of a connection, with full avalanche.
fn end_hash((high, low): (u64, u64), port: u16) -> u64 {
    let low = (low ^ u64::from(port) << 16).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mix(high ^ low ^ low >> 29 ^ u64::from(port))
}

fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}
