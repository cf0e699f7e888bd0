//! Toeplitz hash of receive-side scaling (RSS), with hash types as in virtio (1.3, 5.1.6.4.3).

use crate::FlowKeys;

/// Key length in bytes: the longest input plus four.
pub const KEY_LEN: usize = 40;

/// Supported hash types, one bit each: IPv4, TCPv4, UDPv4, IPv6, TCPv6, UDPv6. IPv6 extension
/// headers are skipped.
pub const TYPES: u32 = 0x3f;

const IPV4: u32 = 1;
const IPV6: u32 = 8;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Input of the maximum length: two IPv6 addresses and two ports.
const INPUT_MAX: usize = 36;

/// Hash configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hasher {
    /// Enabled hash types.
    pub types: u32,
    /// Length of the driver's key in bytes.
    pub key_len: u8,
    /// Key, padded with zeros.
    pub key: [u8; KEY_LEN],
}

/// Hash of a frame, as reported to the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hashed {
    /// Hash value.
    pub value: u32,
    /// Hash report: bit number of the hash type plus one, or 0 without a hash.
    pub report: u16,
}

impl Hashed {
    /// Header part after `num_buffers`: hash value, hash report, two bytes of padding.
    pub fn to_bytes(self) -> [u8; 8] {
        let mut out = [0; 8];
        out[..4].copy_from_slice(&self.value.to_le_bytes());
        out[4..6].copy_from_slice(&self.report.to_le_bytes());
        out
    }
}

impl Default for Hasher {
    /// Enables no hash type.
    fn default() -> Self {
        Self { types: 0, key_len: 0, key: [0; KEY_LEN] }
    }
}

impl Hasher {
    /// Returns the hash of a frame with the flow keys `keys`. The report is 0 if no enabled hash
    /// type applies.
    pub fn hash(&self, keys: &FlowKeys) -> Hashed {
        if keys.ip.is_none() {
            return Hashed::default();
        }
        let (first, address) = if keys.is_v6 { (IPV6, 16) } else { (IPV4, 4) };
        let kind = match keys.proto {
            TCP if !keys.fragment => 1,
            UDP if !keys.fragment => 2,
            _ => 0,
        };
        let has = |kind: u32| self.types & first << kind != 0;
        let kind = if has(kind) { kind } else { 0 };
        if !has(kind) {
            return Hashed::default();
        }
        let mut input = [0; INPUT_MAX];
        input[..address].copy_from_slice(&keys.src[..address]);
        input[address..2 * address].copy_from_slice(&keys.dst[..address]);
        let mut len = 2 * address;
        if kind != 0 {
            for port in keys.ports {
                input[len..len + 2].copy_from_slice(&port.to_be_bytes());
                len += 2;
            }
        }
        let report = (first << kind).trailing_zeros() as u16 + 1;
        Hashed { value: toeplitz(&self.key, &input[..len]), report }
    }
}

/// XORs, for each set bit of the input, the 32 bits of the key that start at the same position.
fn toeplitz(key: &[u8; KEY_LEN], input: &[u8]) -> u32 {
    let mut hash = 0;
    let mut window = u64::from(u32::from_be_bytes([key[0], key[1], key[2], key[3]])) << 8;
    for (byte, next) in input.iter().zip(&key[4..]) {
        window |= u64::from(*next);
        for bit in 0..8 {
            if byte << bit & 0x80 != 0 {
                hash ^= (window >> (8 - bit)) as u32;
            }
        }
        window = window << 8 & 0xff_ffff_ffff;
    }
    hash
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Layer;

    /// Key of the published RSS test vectors.
    const KEY: [u8; KEY_LEN] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    fn v4(src: [u8; 4], dst: [u8; 4], ports: [u16; 2]) -> FlowKeys {
        let mut keys = FlowKeys { ip: Some(14), proto: TCP, ports, ..FlowKeys::default() };
        keys.src[..4].copy_from_slice(&src);
        keys.dst[..4].copy_from_slice(&dst);
        keys
    }

    fn hash(types: u32, keys: &FlowKeys) -> (u32, u16) {
        let hashed = Hasher { types, key_len: 40, key: KEY }.hash(keys);
        (hashed.value, hashed.report)
    }

    // Goal: hashes equal the published test vectors, with and without ports, for both address
    // families.
    #[test]
    fn hashes_equal_published_vectors() {
        let a = v4([66, 9, 149, 187], [161, 142, 100, 80], [2794, 1766]);
        assert_eq!(hash(TYPES, &a), (0x51cc_c178, 2));
        assert_eq!(hash(1, &a), (0x323e_8fc2, 1));
        let b = v4([199, 92, 111, 2], [65, 69, 140, 83], [14230, 4739]);
        assert_eq!(hash(TYPES, &b), (0xc626_b0ea, 2));
        assert_eq!(hash(1, &b), (0xd718_262a, 1));
        let src = 0x3ffe_2501_0200_1fff_0000_0000_0000_0007u128.to_be_bytes();
        let dst = 0x3ffe_2501_0200_0003_0000_0000_0000_0001u128.to_be_bytes();
        let ports = [2794, 1766];
        let c = FlowKeys { ip: Some(14), is_v6: true, proto: TCP, src, dst, ports, ..a };
        assert_eq!(hash(TYPES, &c), (0x4020_7d3d, 5));
        assert_eq!(hash(8, &c), (0x2cc1_8cd5, 4));
    }

    // Goal: disabled hash types report no hash. Fragments, and protocols without an enabled hash
    // type, are hashed by addresses only.
    #[test]
    fn disabled_hash_types_report_none() {
        let tcp = v4([10, 0, 0, 1], [10, 0, 0, 2], [1, 2]);
        let fragment = FlowKeys { fragment: true, ports: [0, 0], ..tcp };
        let udp = FlowKeys { proto: UDP, ..tcp };
        assert_eq!(hash(TYPES, &udp).1, 3);
        assert_eq!(hash(TYPES & !4, &udp), hash(1, &tcp));
        assert_eq!(hash(TYPES, &fragment), hash(1, &tcp));
        assert_eq!(hash(8, &tcp), (0, 0));
        assert_eq!(hash(TYPES, &FlowKeys::default()), (0, 0));
        assert_eq!(Hashed { value: 0x0102_0304, report: 5 }.to_bytes(), [4, 3, 2, 1, 5, 0, 0, 0]);
    }

    proptest! {
        // Goal: the hash equals a bit-by-bit implementation of the definition, for any key and
        // input.
        #[test]
        fn toeplitz_equals_its_definition(
            key in prop::collection::vec(any::<u8>(), KEY_LEN),
            input in prop::collection::vec(any::<u8>(), 0..=INPUT_MAX),
        ) {
            let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (7 - at % 8) & 1 == 1;
            let mut expected = 0u32;
            for at in (0..input.len() * 8).filter(|&at| bit(&input, at)) {
                let window = (0..32).fold(0, |w, i| w << 1 | u32::from(bit(&key, at + i)));
                expected ^= window;
            }
            prop_assert_eq!(toeplitz(&key.try_into().unwrap(), &input), expected);
        }

        // Goal: no frame causes a panic.
        #[test]
        fn arbitrary_frames_do_not_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            types in 0..64u32,
        ) {
            let keys = FlowKeys::dissect(&bytes, Layer::Ethernet);
            let (_, report) = hash(types, &keys);
            prop_assert!(report == 0 || types >> (report - 1) & 1 == 1);
        }
    }
}
