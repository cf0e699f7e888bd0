//! RSS bucket of a flow, by the interface's hash with the parameters that its driver reports.

use std::fs;
use std::sync::Arc;

use mqnet_netdev::Buckets;
use mqnet_sysio::nic::{Fields, FlowType, Nics, RssConfig};
use mqnet_wire::rss::{Hasher, KEY_LEN};
use mqnet_wire::{FlowKeys, Layer};

/// Kernel-wide RSS key, used by drivers that report none.
const KERNELS_KEY: &str = "/proc/sys/net/core/netdev_rss_key";

/// Bits of [`Hasher::types`]: addresses, and ports of TCP and UDP. The bits for IPv6 are shifted
/// by 3.
const ADDRESSES: u32 = 1;
const TCP: u32 = 2;
const UDP: u32 = 4;
const V6: u32 = 3;

const IP_TCP: u8 = 6;
const IP_UDP: u8 = 17;

/// Hash parameters of an interface.
#[derive(Debug)]
struct Hash {
    hasher: Hasher,
    /// Bits of [`Hasher::types`] for TCP and UDP flows that are not hashed, and so go to one
    /// queue.
    unhashed: u32,
}

impl Hash {
    /// Bucket of a TCP or UDP frame. `None` for frames that are not hashed, for fragments and for
    /// other protocols: drivers do not report the hash of these frames.
    fn bucket(&self, keys: &FlowKeys, buckets: usize) -> Option<usize> {
        let kind = match keys.proto {
            IP_TCP => TCP,
            IP_UDP => UDP,
            _ => return None,
        };
        let kind = kind << if keys.is_v6 { V6 } else { 0 };
        if keys.fragment || self.unhashed & kind != 0 {
            return None;
        }
        let hashed = self.hasher.hash(keys);
        (hashed.report != 0).then(|| hashed.value as usize & (buckets - 1))
    }
}

/// Hashed and unhashed types, by the fields that the driver reports; `None` if the driver does not
/// report fields, or reports other ones.
fn types(fields: impl Fn(FlowType) -> Option<Fields>) -> Option<(u32, u32)> {
    let (mut types, mut unhashed) = (0, 0);
    for (of, ports, shift) in [
        (FlowType::Tcp4, TCP, 0),
        (FlowType::Udp4, UDP, 0),
        (FlowType::Tcp6, TCP, V6),
        (FlowType::Udp6, UDP, V6),
    ] {
        types |= match fields(of)? {
            Fields::Nothing => {
                unhashed |= ports << shift;
                0
            }
            Fields::Addresses => ADDRESSES,
            Fields::Ports => ADDRESSES | ports,
            Fields::Others => return None,
        } << shift;
    }
    Some((types, unhashed))
}

/// Parses a key in the `/proc` format: hexadecimal bytes separated by colons.
fn parse_key(text: &str) -> Option<Vec<u8>> {
    text.trim().split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect()
}

/// Kernel-wide RSS key; `None` outside of the initial network namespace.
pub(crate) fn kernels_key() -> Option<Vec<u8>> {
    fs::read_to_string(KERNELS_KEY).ok().and_then(|text| parse_key(&text))
}

/// Hash parameters of the interface; `Err` with the reason if its hash cannot be reproduced.
fn hash(
    nics: &Nics,
    interface: &str,
    spread: &RssConfig,
    kernels_key: Option<Vec<u8>>,
) -> Result<Hash, &'static str> {
    if spread.hash != "toeplitz" || spread.is_transformed {
        return Err("its hash function is not toeplitz");
    }
    let key = match spread.key.as_slice() {
        [] => kernels_key,
        key => Some(key.to_vec()),
    };
    let key = key.and_then(|key| key.first_chunk::<KEY_LEN>().copied());
    // A key of zeroes is invalid: the kernel creates its key when a driver first requests it.
    let key =
        key.filter(|key| *key != [0; KEY_LEN]).ok_or("its driver does not report the hash key")?;
    let types = types(|of| nics.hashed_fields(interface, of).ok());
    let (types, unhashed) = types.ok_or("its driver does not report the hashed fields")?;
    Ok(Hash { hasher: Hasher { types, key_len: KEY_LEN as u8, key }, unhashed })
}

fn dissect(headers: &[u8]) -> FlowKeys {
    FlowKeys::dissect(headers, Layer::Ethernet)
}

/// Functions from frames to the buckets of their replies, and of the frames themselves. `Err`
/// with the reason if the buckets are unknown. The caller must be in the interface's namespace.
pub(crate) fn buckets(
    interface: &str,
    kernels_key: Option<Vec<u8>>,
) -> Result<Buckets, &'static str> {
    let nics = Nics::open().map_err(|_| "its driver does not answer")?;
    let spread = nics.spread(interface).map_err(|_| "its driver has no indirection table")?;
    let buckets = spread.table.len();
    if !buckets.is_power_of_two() {
        return Err("its driver has no indirection table with a power of two of entries");
    }
    let hash = Arc::new(hash(&nics, interface, &spread, kernels_key)?);
    let same = hash.clone();
    Ok(Buckets {
        of_answers: Arc::new(move |headers| hash.bucket(&dissect(headers).reversed(), buckets)),
        of_arrivals: Some(Arc::new(move |headers| same.bucket(&dissect(headers), buckets))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: reported fields are converted to hash types; unknown fields are refused.
    #[test]
    fn fields_become_types() {
        let igb = |of| match of {
            FlowType::Tcp4 | FlowType::Tcp6 => Some(Fields::Ports),
            FlowType::Udp4 | FlowType::Udp6 => Some(Fields::Addresses),
        };
        assert_eq!(types(igb), Some((0b011_011, 0)));
        assert_eq!(types(|_| Some(Fields::Ports)), Some((0b111_111, 0)));
        assert_eq!(types(|_| Some(Fields::Nothing)), Some((0, 0b110_110)));
        assert_eq!(types(|_| Some(Fields::Others)), None);
        assert_eq!(types(|_| None), None);
    }

    // Goal: the kernel's key is parsed, and invalid text is rejected.
    #[test]
    fn kernel_key_is_parsed() {
        assert_eq!(parse_key("6d:5a:00\n"), Some(vec![0x6d, 0x5a, 0]));
        assert_eq!(parse_key(""), None);
        assert_eq!(parse_key("6d:zz"), None);
    }

    // Goal: the bucket of a reply is that of the published test vector for its addresses and
    // ports. Frames of a type that the driver does not report have no bucket.
    #[test]
    fn replies_have_the_hash() {
        let key = "6d:5a:56:da:25:5b:0e:c2:41:67:25:3d:43:a3:8f:b0:d0:ca:2b:cb:ae:7b:30:b4:77:cb:\
                   2d:a3:80:30:f2:0c:6a:42:b7:3b:be:ac:01:fa";
        let key = parse_key(key).unwrap().try_into().unwrap();
        let hasher = Hasher { types: 0b011_011, key_len: 40, key };
        let mut hash = Hash { hasher, unhashed: 0 };
        let mut frame = vec![0; 54];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        frame[23] = 6;
        frame[26..30].copy_from_slice(&[161, 142, 100, 80]);
        frame[30..34].copy_from_slice(&[66, 9, 149, 187]);
        frame[34..36].copy_from_slice(&1766u16.to_be_bytes());
        frame[36..38].copy_from_slice(&2794u16.to_be_bytes());
        let answers = |hash: &Hash, frame: &[u8]| hash.bucket(&dissect(frame).reversed(), 128);
        assert_eq!(answers(&hash, &frame), Some(0x51cc_c178 & 127));
        assert_ne!(hash.bucket(&dissect(&frame), 128), answers(&hash, &frame));
        frame[23] = IP_UDP;
        assert_eq!(answers(&hash, &frame), Some(0x323e_8fc2 & 127));
        frame[20] = 0x20;
        assert_eq!(answers(&hash, &frame), None, "a fragment");
        frame[20] = 0;
        hash.unhashed = UDP;
        assert_eq!(answers(&hash, &frame), None, "no UDP");
        frame[23] = 1;
        assert_eq!(answers(&hash, &frame), None, "ICMP");
        frame[12..14].copy_from_slice(&[8, 6]);
        assert_eq!(answers(&hash, &frame), None, "ARP");
    }
}
