//! Which bucket of the interface's table a flow is in: what the interface computes, told by its
//! driver, and computed again.

use std::fs;
use std::sync::Arc;

use mqnet_netdev::Buckets;
use mqnet_sysio::nic::{Fields, FlowType, Nics, Spread};
use mqnet_wire::rss::{Hasher, KEY_LEN};
use mqnet_wire::{FlowKeys, Layer};

/// The key that the kernel makes for all drivers that want one, for those that do not tell theirs.
const KERNELS_KEY: &str = "/proc/sys/net/core/netdev_rss_key";

/// Bits of [`Hasher::types`]: of addresses, and with the ports of TCP and UDP; IPv6 is three on.
const ADDRESSES: u32 = 1;
const TCP: u32 = 2;
const UDP: u32 = 4;
const V6: u32 = 3;

const IP_TCP: u8 = 6;
const IP_UDP: u8 = 17;

/// How an interface hashes.
#[derive(Debug)]
struct Hash {
    hasher: Hasher,
    /// Kinds, as bits of [`Hasher::types`], that come to one queue: not even their addresses count,
    /// though those of the other kind do.
    unhashed: u32,
}

impl Hash {
    /// Only of TCP and UDP, of which the driver tells: whether fragments and all the rest are
    /// hashed by their addresses, differs.
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

/// The kinds of frames that are hashed, and those that are not, from what the driver tells of each;
/// `None` for what we do not know how to compute.
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

/// The bytes of a key as `/proc` has them, in hexadecimal with colons between.
fn parse_key(text: &str) -> Option<Vec<u8>> {
    text.trim().split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect()
}

/// That key, where it is shown: to the first network namespace only.
pub(crate) fn kernels_key() -> Option<Vec<u8>> {
    fs::read_to_string(KERNELS_KEY).ok().and_then(|text| parse_key(&text))
}

/// How the interface hashes, if it is a way that we know; otherwise why not.
fn hash(
    nics: &Nics,
    interface: &str,
    spread: &Spread,
    kernels_key: Option<Vec<u8>>,
) -> Result<Hash, &'static str> {
    if spread.hash != "toeplitz" || spread.is_transformed {
        return Err("its hash is not plain toeplitz");
    }
    let key = match spread.key.as_slice() {
        [] => kernels_key,
        key => Some(key.to_vec()),
    };
    let key = key.and_then(|key| key.first_chunk::<KEY_LEN>().copied());
    // Nobody has asked the kernel for its key before it is there.
    let key = key.filter(|key| *key != [0; KEY_LEN]).ok_or("its driver does not tell the key")?;
    let types = types(|of| nics.hashed_fields(interface, of).ok());
    let (types, unhashed) = types.ok_or("its driver does not tell what it hashes")?;
    Ok(Hash { hasher: Hasher { types, key_len: KEY_LEN as u8, key }, unhashed })
}

fn dissect(headers: &[u8]) -> FlowKeys {
    FlowKeys::dissect(headers, Layer::Ethernet)
}

/// Says in which buckets frames and their answers arrive at an interface; otherwise why that is not
/// known. Call it in the interface's namespace.
pub(crate) fn buckets(
    interface: &str,
    kernels_key: Option<Vec<u8>>,
) -> Result<Buckets, &'static str> {
    let nics = Nics::open().map_err(|_| "it cannot be asked")?;
    let spread = nics.spread(interface).map_err(|_| "its driver has no table")?;
    let buckets = spread.table.len();
    if !buckets.is_power_of_two() {
        return Err("its driver has no table whose length is a power of two");
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

    // Goal: what a driver tells becomes the kinds that are hashed; what is not known is refused.
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

    // Goal: the kernel's own key is read, whatever is in its place.
    #[test]
    fn the_kernels_key_is_read() {
        assert_eq!(parse_key("6d:5a:00\n"), Some(vec![0x6d, 0x5a, 0]));
        assert_eq!(parse_key(""), None);
        assert_eq!(parse_key("6d:zz"), None);
    }

    // Goal: answers to a frame are in the bucket of the published test vector whose source and
    // destination are theirs; what the driver tells nothing of is in none.
    #[test]
    fn answers_have_the_hash() {
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
