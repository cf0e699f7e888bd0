use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// Frame with the keys that it must yield.
#[derive(Clone, Debug, Default)]
struct Oracle {
    bytes: Vec<u8>,
    keys: FlowKeys,
}

impl Oracle {
    fn ethernet(mac: [[u8; 6]; 2], tags: &[(bool, u16)], ethertype: u16) -> Self {
        let mut bytes = mac.concat();
        for (service, tci) in tags {
            bytes.extend(if *service { [0x88, 0xa8] } else { [0x81, 0] });
            bytes.extend(tci.to_be_bytes());
        }
        bytes.extend(ethertype.to_be_bytes());
        let vlan = tags.first().map(|(_, tci)| *tci);
        let tpid = tags.first().map_or(0, |(service, _)| if *service { 0x88a8 } else { 0x8100 });
        Self { bytes, keys: FlowKeys { ethertype, mac, vlan, tpid, ..FlowKeys::default() } }
    }

    fn ipv4(&mut self, ends: [u32; 2], tos: u8, proto: u8, options: usize, fragment: u16) {
        self.keys.ip = Some(self.bytes.len() as u16);
        self.bytes.extend([0x45 + options as u8, tos, 0, 0, 0, 0]);
        self.bytes.extend(fragment.to_be_bytes());
        self.bytes.extend([64, proto, 0, 0]);
        ends.iter().for_each(|end| self.bytes.extend(end.to_be_bytes()));
        self.bytes.extend(vec![1; options * 4]);
        self.keys.src[..4].copy_from_slice(&ends[0].to_be_bytes());
        self.keys.dst[..4].copy_from_slice(&ends[1].to_be_bytes());
        (self.keys.tos, self.keys.proto) = (tos, proto);
        self.keys.fragment = fragment & 0x3fff != 0;
    }

    /// Appends an IPv6 header. `extensions` has type and length in units of 8 bytes, in order. Type
    /// 44 is a fragment header.
    fn ipv6(
        &mut self,
        ends: [u128; 2],
        tos: u8,
        proto: u8,
        extensions: &[(u8, u8)],
        fragment: u16,
    ) {
        self.keys.ip = Some(self.bytes.len() as u16);
        self.keys.is_v6 = true;
        let kinds: Vec<u8> = extensions.iter().map(|e| e.0).chain([proto]).collect();
        self.bytes.extend([0x60 | tos >> 4, tos << 4, 0, 0, 0, 0, kinds[0], 64]);
        ends.iter().for_each(|end| self.bytes.extend(end.to_be_bytes()));
        for ((kind, units), next) in extensions.iter().zip(&kinds[1..]) {
            match kind {
                44 => {
                    self.bytes.extend([*next, 0]);
                    self.bytes.extend(fragment.to_be_bytes());
                    self.bytes.extend([0; 4]);
                }
                51 => {
                    self.bytes.extend([*next, units * 2]);
                    self.bytes.extend(vec![7; usize::from(*units) * 8 + 6]);
                }
                _ => {
                    self.bytes.extend([*next, *units]);
                    self.bytes.extend(vec![7; usize::from(*units) * 8 + 6]);
                }
            }
        }
        (self.keys.src, self.keys.dst) = (ends[0].to_be_bytes(), ends[1].to_be_bytes());
        self.keys.tos = tos;
        self.keys.fragment = extensions.iter().any(|e| e.0 == 44) && fragment & 0xfff9 != 0;
        // Headers after a fragment header are not parsed.
        let stop = kinds.iter().position(|kind| *kind == 44).filter(|_| self.keys.fragment);
        self.keys.proto = stop.map_or(proto, |at| kinds[at + 1]);
    }

    fn ports(&mut self, ports: [u16; 2]) {
        ports.iter().for_each(|port| self.bytes.extend(port.to_be_bytes()));
        if !self.keys.fragment && [6, 17, 132].contains(&self.keys.proto) {
            self.keys.ports = ports;
        }
    }
}

fn protocols() -> impl Strategy<Value = u8> {
    prop_oneof![Just(6), Just(17), Just(132), Just(1), Just(58), Just(50), Just(47)]
}

fn fragments() -> impl Strategy<Value = u16> {
    prop_oneof![3 => Just(0), 1 => Just(0x4000), 1 => Just(0x2000), 1 => any::<u16>()]
}

fn tags() -> impl Strategy<Value = Vec<(bool, u16)>> {
    prop::collection::vec(any::<(bool, u16)>(), 0..3)
}

fn frames() -> impl Strategy<Value = (Oracle, bool)> {
    let v4 = (any::<[u32; 2]>(), any::<u8>(), protocols(), 0usize..11, fragments());
    let extension = prop_oneof![Just(0u8), Just(43), Just(60), Just(135), Just(51), Just(44)];
    let chain = prop::collection::vec((extension, 0u8..3), 0..3);
    let v6 = (any::<[u128; 2]>(), any::<u8>(), protocols(), chain, fragments());
    let rest = (any::<[[u8; 6]; 2]>(), tags(), any::<[u16; 2]>(), any::<bool>());
    (rest, prop::option::of(v4), v6).prop_map(|((mac, tags, ports, ethernet), v4, v6)| {
        let ethertype = if v4.is_some() { 0x0800 } else { 0x86dd };
        let mut frame = Oracle::ethernet(mac, &tags, ethertype);
        if !ethernet {
            frame.bytes.clear();
            frame.keys = FlowKeys { ethertype, ..FlowKeys::default() };
        }
        match v4 {
            Some((ends, tos, proto, options, fragment)) => {
                frame.ipv4(ends, tos, proto, options, fragment);
            }
            None => {
                let (ends, tos, proto, extensions, fragment) = v6;
                frame.ipv6(ends, tos, proto, &extensions, fragment);
            }
        }
        frame.ports(ports);
        (frame, ethernet)
    })
}

fn layer(ethernet: bool) -> Layer {
    if ethernet { Layer::Ethernet } else { Layer::Ip }
}

proptest! {
    // Goal: every key of independently built frames is read exactly, with tags, options, extension
    // headers, fragments, and ports.
    #[test]
    fn all_keys_are_read_exactly((frame, ethernet) in frames()) {
        prop_assume!(frame.bytes.len() <= HEADERS_MAX);
        prop_assert_eq!(FlowKeys::dissect(&frame.bytes, layer(ethernet)), frame.keys);
    }

    // Goal: a truncated frame yields a subset of the keys of the whole frame.
    #[test]
    fn truncated_frames_yield_a_subset((frame, ethernet) in frames(), cut in 0..HEADERS_MAX) {
        let cut = cut.min(frame.bytes.len());
        let keys = FlowKeys::dissect(&frame.bytes[..cut], layer(ethernet));
        let whole = FlowKeys::dissect(&frame.bytes, layer(ethernet));
        prop_assert!(keys.ethertype == whole.ethertype || keys.ethertype == 0);
        prop_assert!(keys.ip == whole.ip || keys.ip.is_none());
        prop_assert!(keys.src == whole.src || keys.src == [0; 16]);
        prop_assert!(keys.ports == whole.ports || keys.ports == [0; 2]);
    }

    // Goal: arbitrary bytes cause no panic, and bytes beyond the limit are ignored.
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for layer in [Layer::Ethernet, Layer::Ip] {
            let seen = &bytes[..bytes.len().min(HEADERS_MAX)];
            prop_assert_eq!(FlowKeys::dissect(&bytes, layer), FlowKeys::dissect(seen, layer));
        }
    }

    // Goal: both directions of a connection have the same hash, for every type of frame.
    #[test]
    fn hash_is_symmetric((frame, ethernet) in frames()) {
        let keys = FlowKeys::dissect(&frame.bytes, layer(ethernet));
        let [from, to] = keys.ports;
        let [a, b] = keys.mac;
        let (ports, mac) = ([to, from], [b, a]);
        let back = FlowKeys { src: keys.dst, dst: keys.src, ports, mac, ..keys };
        prop_assert_eq!(keys.hash(), back.hash());
    }
}

/// Largest bucket of 4096 hashes in 256 buckets, by the low and by the high bits.
fn fullest(hashes: impl Iterator<Item = u32> + Clone) -> usize {
    let count = |bits: fn(u32) -> u32| {
        let mut buckets = HashMap::new();
        hashes.clone().for_each(|hash| *buckets.entry(bits(hash)).or_insert(0usize) += 1);
        buckets.into_values().max().unwrap()
    };
    count(|hash| hash % 256).max(count(|hash| hash >> 24))
}

// Goal: similar flows (adjacent ports, adjacent hosts, or equal ends) spread like random numbers:
// no bucket has 50 hashes or more, at a mean of 16.
#[test]
fn similar_flows_spread() {
    let flow = |host: u32, from: u16, to: u16| {
        let mut frame = Oracle::ethernet([[2; 6]; 2], &[], 0x0800);
        frame.ipv4([0x0a00_0001 + host, 0x0a00_0002], 0, 6, 0, 0);
        frame.ports([from, to]);
        FlowKeys::dissect(&frame.bytes, Layer::Ethernet).hash()
    };
    assert!(fullest((0..4096).map(|n| flow(0, 10_000 + n, 5201))) < 50);
    assert!(fullest((0..4096).map(|n| flow(0, n, n))) < 50);
    assert!(fullest((0..4096).map(|n| flow(n, 1000, 1000))) < 50);
    assert!(fullest((0..4096u16).map(|n| flow(u32::from(n) * 256, n, 80))) < 50);
    let macs = (0..4096u32).map(|n| {
        let mut frame = Oracle::ethernet([[2; 6], [3; 6]], &[], 0x88cc);
        frame.bytes[8..12].copy_from_slice(&n.to_be_bytes());
        FlowKeys::dissect(&frame.bytes, Layer::Ethernet).hash()
    });
    assert!(fullest(macs) < 50);
}

// Goal: all fragments of one packet have the same hash, so that they stay in one flow.
#[test]
fn fragments_share_one_hash() {
    let fragment = |offset: u16, payload: [u16; 2]| {
        let mut frame = Oracle::ethernet([[2; 6]; 2], &[], 0x0800);
        frame.ipv4([1, 2], 0, 17, 0, offset);
        frame.ports(payload);
        FlowKeys::dissect(&frame.bytes, Layer::Ethernet).hash()
    };
    assert_eq!(fragment(0x2000, [1, 2]), fragment(185, [77, 78]));
}

// Goal: a length instead of an EtherType, a third tag, and a wrong IP version are not parsed as IP.
#[test]
fn other_frames_are_not_parsed_as_ip() {
    let mut frame = Oracle::ethernet([[2; 6]; 2], &[], 0x05dc);
    frame.bytes.extend([0x45; 40]);
    assert_eq!(FlowKeys::dissect(&frame.bytes, Layer::Ethernet).ethertype, 4);
    let mut frame = Oracle::ethernet([[2; 6]; 2], &[(true, 1), (false, 2), (false, 3)], 0x0800);
    frame.ipv4([1, 2], 0, 6, 0, 0);
    let keys = FlowKeys::dissect(&frame.bytes, Layer::Ethernet);
    assert_eq!((keys.ethertype, keys.ip), (0x8100, None));
    let mut frame = Oracle::ethernet([[2; 6]; 2], &[], 0x0800);
    frame.bytes.extend([0x65; 60]);
    assert_eq!(FlowKeys::dissect(&frame.bytes, Layer::Ethernet).ip, None);
    assert_eq!(FlowKeys::dissect(&frame.bytes[14..34], Layer::Ip).ip, None);
}
