//! What the headers of a frame say: the keys of flows and filters.

#[cfg(test)]
mod tests;

/// Bytes of a frame that are copied to private memory before they are parsed.
pub const HEADERS_MAX: usize = 128;

/// EtherTypes of VLAN tags: customer and service.
const TPIDS: [u16; 2] = [0x8100, 0x88a8];
const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;
/// What the kernel calls a frame with a length where others have an EtherType.
const ETH_P_802_2: u16 = 4;
/// TCP, UDP, DCCP, SCTP, UDP-Lite: the ports are their first four bytes.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];
/// Extension headers that are walked through before it is called a day.
const EXTENSIONS_MAX: usize = 8;

/// What the first byte of a frame begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// An Ethernet header.
    Ethernet,
    /// An IP header (TUN).
    Ip,
}

/// The keys of one frame. What it does not have is 0 or `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowKeys {
    /// EtherType behind the VLAN tags; 0 when the frame is too short, 4 (`ETH_P_802_2`) when it
    /// has a length instead.
    pub ethertype: u16,
    /// Destination and source of the Ethernet header.
    pub mac: [[u8; 6]; 2],
    /// Tag control information of the outer VLAN tag.
    pub vlan: Option<u16>,
    /// EtherType of the outer VLAN tag: 0x8100 or 0x88a8; 0 without one.
    pub tpid: u16,
    /// Source and destination; IPv4 in the first four bytes.
    pub src: [u8; 16],
    /// Destination.
    pub dst: [u8; 16],
    /// Where the IP header begins; all of its fixed part is there.
    pub ip: Option<u16>,
    /// True for IPv6.
    pub is_v6: bool,
    /// Transport protocol, behind extension headers.
    pub proto: u8,
    /// The TOS or traffic class byte.
    pub tos: u8,
    /// Source and destination port of TCP, UDP, SCTP; 0 for fragments.
    pub ports: [u16; 2],
    /// A fragment: no ports are known.
    pub fragment: bool,
}

impl FlowKeys {
    /// Reads them from the first bytes of a frame (a private copy, at most [`HEADERS_MAX`]).
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

    /// EtherType as `skb->protocol` of a frame with its tag: that of the tag, if there is one.
    pub fn protocol(&self) -> u16 {
        if self.vlan.is_some() { self.tpid } else { self.ethertype }
    }

    /// The keys of the flow's other direction.
    pub fn reversed(&self) -> Self {
        let ([to, from], [source, target]) = (self.mac, self.ports);
        let (src, dst) = (self.dst, self.src);
        Self { mac: [from, to], src, dst, ports: [target, source], ..*self }
    }

    /// A hash of addresses, protocol and ports; both directions of a connection have the same.
    pub fn hash(&self) -> u32 {
        let (a, b, kind) = if self.ip.is_some() {
            let end = |address: &[u8; 16], port| end_hash(halves(address), port);
            let [from, to] = self.ports;
            (end(&self.src, from), end(&self.dst, to), u64::from(self.proto))
        } else {
            let end = |mac: &[u8; 6]| end_hash((0, mac_number(mac)), 0);
            (end(&self.mac[0]), end(&self.mac[1]), 0x100 | u64::from(self.ethertype) << 16)
        };
        // A sum does not care which end is which, and unlike XOR does not cancel equal ends.
        let sum = mix(a.wrapping_add(b) ^ kind.wrapping_mul(0xd6e8_feb8_6659_fd93));
        (sum >> 32) as u32
    }

    /// Reads addresses and tags; EtherType and begin of what follows.
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
        // More fragments, or not the first one.
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
                // Hop-by-hop and destination options, routing, mobility: units of 8, less one.
                0 | 43 | 60 | 135 => (usize::from(*headers.get(at + 1)?) + 1) * 8,
                // Authentication: units of 4, less two.
                51 => (usize::from(*headers.get(at + 1)?) + 2) * 4,
                44 => {
                    // An offset, or more to come; what has neither is whole.
                    self.fragment = word(headers, at + 2)? & 0xfff9 != 0;
                    8
                }
                _ => break,
            };
            self.proto = *headers.get(at)?;
            at += length;
            if self.fragment {
                // All fragments of a packet have to end with the same keys.
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

/// One end of a connection as a number whose every bit depends on every bit of it.
fn end_hash((high, low): (u64, u64), port: u16) -> u64 {
    let low = (low ^ u64::from(port) << 16).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mix(high ^ low ^ low >> 29 ^ u64::from(port))
}

fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}
