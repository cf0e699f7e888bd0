mod merge;

use proptest::prelude::*;

use super::*;
use crate::{GsoKind, Layer, VnetFields};

/// Large frame with the parameters of its construction.
#[derive(Clone, Debug)]
struct Large {
    layer: Layer,
    is_v6: bool,
    is_tcp: bool,
    bytes: Vec<u8>,
    ip: usize,
    transport: usize,
    payload: usize,
    hdr: VnetHdr,
}

/// Reference implementation of the checksum: byte by byte, as big-endian numbers.
fn slow_sum(parts: &[&[u8]]) -> u32 {
    let bytes: Vec<u8> = parts.concat();
    let mut sum = 0u32;
    for (at, byte) in bytes.iter().enumerate() {
        sum += u32::from(*byte) << if at % 2 == 0 { 8 } else { 0 };
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// True if the transport checksum of a completed frame is correct.
fn verifies(large: &Large, frame: &[u8]) -> bool {
    let Large { ip, transport, is_v6, is_tcp, .. } = *large;
    let addresses = if is_v6 { &frame[ip + 8..ip + 40] } else { &frame[ip + 12..ip + 20] };
    let length = ((frame.len() - transport) as u32).to_be_bytes();
    let protocol = [0, if is_tcp { 6 } else { 17 }];
    slow_sum(&[addresses, &length, &protocol, &frame[transport..]]) == 0xffff
}

prop_compose! {
    fn large()(
        is_v6: bool, is_tcp: bool, tags in 0usize..4, options in 0usize..4, extensions in 0usize..3,
        flags: u8, ecn: bool, size in 64u16..3000, payload in 0usize..60_000, seed: u64,
    ) -> Large {
        let mut state = seed | 1;
        let mut noise = |n: usize| -> Vec<u8> {
            (0..n).map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            }).collect()
        };
        let layer = if tags == 3 { Layer::Ip } else { Layer::Ethernet };
        let mut bytes = if layer == Layer::Ip { Vec::new() } else { noise(12) };
        if layer == Layer::Ethernet {
            for tag in 0..tags {
                bytes.extend([if tag == 0 { 0x88 } else { 0x81 }, if tag == 0 { 0xa8 } else { 0 }]);
                bytes.extend(noise(2));
            }
            bytes.extend(if is_v6 { [0x86, 0xdd] } else { [8, 0] });
        }
        let ip = bytes.len();
        let protocol = if is_tcp { 6 } else { 17 };
        if is_v6 {
            let kinds = [0, 60];
            let kind = |at: usize| if at < extensions { kinds[at] } else { protocol };
            bytes.extend([0x60, 0, 1, 2, 0, 0, kind(0), 64]);
            bytes.extend(noise(32));
            for at in 0..extensions {
                bytes.extend([kind(at + 1), at as u8]);
                bytes.extend(noise(6 + 8 * at));
            }
        } else {
            bytes.extend([0x45 + options as u8, 3, 0, 0]);
            bytes.extend(noise(2));
            bytes.extend([0x40, 0, 64, protocol, 9, 9]);
            bytes.extend(noise(8 + 4 * options));
        }
        let transport = bytes.len();
        if is_tcp {
            bytes.extend(noise(12));
            bytes.extend([(5 + options as u8) << 4, flags]);
            bytes.extend(noise(6 + 4 * options));
        } else {
            bytes.extend(noise(8));
        }
        let at = bytes.len();
        bytes.extend(noise(payload));
        let kind = match (is_tcp, is_v6) { (true, false) => 1, (true, true) => 4, _ => 5 };
        let hdr = VnetHdr::new(VnetFields {
            flags: 1,
            gso_type: kind | if ecn && is_tcp { 0x80 } else { 0 },
            // Set a wrong hint.
            hdr_len: 11,
            gso_size: size,
            csum_start: transport as u16,
            csum_offset: if is_tcp { 16 } else { 6 },
        });
        Large { layer, is_v6, is_tcp, bytes, ip, transport, payload: at, hdr }
    }
}

/// All segments of the frame, with checksums filled in.
fn finish(large: &Large) -> Vec<Vec<u8>> {
    let head = &large.bytes[..large.bytes.len().min(UNFINISHED_HEADERS_MAX)];
    let cut = Cut::new(large.hdr, large.bytes.len() as u32, head, large.layer).expect("a cut");
    assert_eq!(cut.headers(), large.payload);
    let one = |number| {
        let mut out = vec![0xaa; cut.headers()];
        let segment = cut.segment(number, head, &mut out);
        assert_eq!(segment.hdr.check(segment.len()), Ok(()));
        assert_eq!(segment.hdr.gso(), Some(GsoKind::None));
        let payload = &large.bytes[segment.at..segment.at + segment.payload];
        // Split the payload into two parts of arbitrary lengths, as at a ring's wrap.
        let (a, b) = payload.split_at(payload.len() / 3);
        let mut sums = Vec::new();
        for piece in [a, b] {
            let mut sum = Sum::new();
            sum.bytes(piece);
            sums.push((u64::from(u16::from_ne_bytes(sum.unfinished())), piece.len()));
        }
        fill_checksum(segment.hdr, &mut out, sums.into_iter()).expect("a checksum");
        out.extend_from_slice(payload);
        assert!(out.len() as u32 <= cut.longest());
        out
    };
    (0..cut.count()).map(one).collect()
}

fn number(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

proptest! {
    // Goal: the segments carry the whole payload in order, with correct lengths, and with checksums
    // that match the reference implementation.
    #[test]
    fn segments_carry_the_payload(large in large()) {
        let frames = finish(&large);
        let size = usize::from(large.hdr.fields().gso_size);
        let payload: Vec<u8> =
            frames.iter().flat_map(|frame| frame[large.payload..].to_vec()).collect();
        prop_assert!(payload == large.bytes[large.payload..]);
        for (at, frame) in frames.iter().enumerate() {
            let last = at + 1 == frames.len();
            prop_assert!(last || frame.len() == large.payload + size);
            prop_assert!(verifies(&large, frame), "frame {} of {}", at, frames.len());
            prop_assert_eq!(&frame[..large.ip], &large.bytes[..large.ip]);
            let carried = frame.len() - large.ip;
            if large.is_v6 {
                prop_assert_eq!(usize::from(number(frame, large.ip + 4)), carried - 40);
            } else {
                prop_assert_eq!(usize::from(number(frame, large.ip + 2)), carried);
                prop_assert_eq!(slow_sum(&[&frame[large.ip..large.transport]]), 0xffff);
                let id = number(&large.bytes, large.ip + 4).wrapping_add(at as u16);
                prop_assert_eq!(number(frame, large.ip + 4), id);
            }
            if !large.is_tcp {
                let length = frame.len() - large.transport;
                prop_assert_eq!(usize::from(number(frame, large.transport + 4)), length);
                prop_assert!(number(frame, large.transport + 6) != 0);
            }
        }
    }

    // Goal: sequence numbers are consecutive. Only the last segment has FIN and PSH, only the first
    // has CWR, and all segments have the other flags.
    #[test]
    fn tcp_fields_follow_the_stream(large in large()) {
        prop_assume!(large.is_tcp);
        let frames = finish(&large);
        let tcp = |frame: &[u8]| {
            let at = large.transport;
            let seq = u32::from(number(frame, at + 4)) << 16 | u32::from(number(frame, at + 6));
            (seq, frame[at + 13])
        };
        let (mut seq, flags) = tcp(&large.bytes);
        for (at, frame) in frames.iter().enumerate() {
            let (first, last) = (at == 0, at + 1 == frames.len());
            let gone = if last { 0 } else { 0x09 } | if first { 0 } else { 0x80 };
            prop_assert_eq!(tcp(frame), (seq, flags & !gone));
            seq = seq.wrapping_add((frame.len() - large.payload) as u32);
        }
    }

    // Goal: headers written by a peer cause no panic, and no frame has more than 65535 segments.
    #[test]
    fn hostile_headers_do_not_panic(
        mut large in large(), changes in prop::collection::vec((0usize..200, any::<u8>()), 0..6),
        gso_type: u8, gso_size: u16, flags: u8, csum_start: u16, csum_offset in 0u16..300,
        shown in 0usize..=UNFINISHED_HEADERS_MAX, is_ip: bool, len in 0u32..70_000,
    ) {
        for (at, byte) in changes {
            if let Some(place) = large.bytes.get_mut(at) {
                *place = byte;
            }
        }
        let gso_type = if gso_type & 3 == 0 { gso_type } else { large.hdr.fields().gso_type };
        let fields =
            VnetFields { flags, gso_type, hdr_len: 0, gso_size, csum_start, csum_offset };
        let hdr = VnetHdr::new(fields);
        let head = &large.bytes[..large.bytes.len().min(shown)];
        let layer = if is_ip { Layer::Ip } else { large.layer };
        if let Some(cut) = Cut::new(hdr, len, head, layer) {
            prop_assert!(cut.count() <= SEGMENTS_MAX && cut.headers() <= head.len());
            let mut out = [0; UNFINISHED_HEADERS_MAX];
            let mut at = cut.headers();
            for number in 0..cut.count() {
                let segment = cut.segment(number, head, &mut out);
                prop_assert_eq!(segment.at, at);
                at += segment.payload;
            }
            prop_assert_eq!(at, len as usize);
        }
        let mut own = head.to_vec();
        let _ = fill_checksum(hdr, &mut own, [(u64::MAX, 3), (1, 0)].into_iter());
        let ours = with_own_hdr_len(hdr.normalised(), len, head, layer).fields();
        prop_assert!(u32::from(ours.hdr_len) <= len && ours.flags & !1 == 0);
        if hdr.check(len).is_ok()
            && let Some(vouched) = Vouched::find(hdr, len, head, layer)
        {
            let (at, covered) = vouched.range();
            prop_assert!(vouched.field() + 2 <= at + covered && at + covered <= len as usize);
            prop_assert!(vouched.unfinished().is_none_or(|hdr| hdr.check(len).is_ok()));
            vouched.begun(head);
        }
    }

    // Goal: a device-validated frame ends with the correct checksum, for any content of its field.
    // The receiver fills the checksum in, or `complete` does so if the frame has padding.
    #[test]
    fn device_validated_checksums_are_completed(
        large in large(), field: [u8; 2], padding in 0usize..50, large_too: bool,
    ) {
        let mut bytes = large.bytes.clone();
        let (ip, from) = (large.ip, large.transport);
        bytes.truncate(large.payload + 1400);
        let put = |bytes: &mut [u8], at: usize, n: usize| {
            bytes[at..at + 2].copy_from_slice(&(n as u16).to_be_bytes());
        };
        let whole = bytes.len();
        if large.is_v6 {
            put(&mut bytes, ip + 4, whole - ip - 40);
        } else {
            put(&mut bytes, ip + 2, whole - ip);
        }
        if !large.is_tcp {
            put(&mut bytes, from + 4, whole - from);
        }
        let at = from + if large.is_tcp { 16 } else { 6 };
        bytes[at..at + 2].copy_from_slice(&field);
        let is_large = large_too && padding == 0;
        let kept = if is_large { large.hdr.fields() } else { VnetFields::default() };
        let hdr = VnetHdr::new(VnetFields { flags: 6, csum_start: 9, csum_offset: 9, ..kept });
        bytes.extend(std::iter::repeat_n(0xa5, padding));
        let head = bytes[..bytes.len().min(UNFINISHED_HEADERS_MAX)].to_vec();
        let vouched = Vouched::find(hdr, bytes.len() as u32, &head, large.layer).expect("TCP, UDP");
        prop_assert_eq!((vouched.field(), vouched.range()), (at, (from, whole - from)));
        bytes[at..at + 2].copy_from_slice(&vouched.begun(&head));
        let sum = |bytes: &[u8]| {
            let mut sum = Sum::new();
            sum.bytes(bytes);
            (u64::from(u16::from_ne_bytes(sum.unfinished())), bytes.len())
        };
        match vouched.unfinished() {
            Some(hdr) => {
                prop_assert_eq!((padding, hdr.is_large()), (0, is_large));
                let (head, rest) = bytes.split_at_mut(checksum_end(hdr).expect("a checksum"));
                fill_checksum(hdr, head, [sum(rest)].into_iter()).expect("a field");
            }
            None => {
                prop_assert!(padding > 0 && vouched.completed() == VnetHdr::default());
                let (a, b) = bytes[from..whole].split_at((whole - from) / 3);
                let complete = vouched.complete([sum(a), sum(b)].into_iter());
                bytes[at..at + 2].copy_from_slice(&complete);
            }
        }
        prop_assert!(verifies(&large, &bytes[..whole]));
    }

    // Goal: `hdr_len` of a large frame is dissected from its headers, not copied from a peer.
    #[test]
    fn header_lengths_are_dissected(large in large(), hdr_len: u16) {
        let fields = VnetFields { hdr_len, ..large.hdr.fields() };
        let head = &large.bytes[..large.bytes.len().min(UNFINISHED_HEADERS_MAX)];
        let len = large.bytes.len() as u32;
        let of = |head| with_own_hdr_len(VnetHdr::new(fields), len, head, large.layer).fields();
        prop_assert_eq!(usize::from(of(head).hdr_len), large.payload);
        let end = usize::from(fields.csum_start + fields.csum_offset) + 2;
        let clamped = usize::from(hdr_len).clamp(end, len as usize);
        prop_assert_eq!(usize::from(of(&head[..2]).hdr_len), clamped, "not understood");
    }

    // Goal: a pending checksum is filled in correctly, for any split of the bytes.
    #[test]
    fn pending_checksums_are_filled_in(large in large(), at in 0usize..60_000) {
        let mut bytes = large.bytes.clone();
        let (from, field) = (large.transport, usize::from(large.hdr.fields().csum_offset));
        let (ip, is_v6) = (large.ip, large.is_v6);
        let addresses = if is_v6 { &bytes[ip + 8..ip + 40] } else { &bytes[ip + 12..ip + 20] };
        let length = ((bytes.len() - from) as u32).to_be_bytes();
        let pseudo = slow_sum(&[addresses, &length, &[0, if large.is_tcp { 6 } else { 17 }]]);
        bytes[from + field..][..2].copy_from_slice(&(pseudo as u16).to_be_bytes());
        let fields = VnetFields { gso_type: 0, gso_size: 0, ..large.hdr.fields() };
        let hdr = VnetHdr::new(fields);
        let end = checksum_end(hdr).unwrap();
        let split = at.clamp(end, bytes.len());
        let (head, rest) = bytes.split_at_mut(split);
        let mut sum = Sum::new();
        sum.bytes(rest);
        let sum = u64::from(u16::from_ne_bytes(sum.unfinished()));
        fill_checksum(hdr, head, [(sum, rest.len())].into_iter()).unwrap();
        prop_assert!(verifies(&large, &bytes));
    }
}

// Goal: a frame that does not match its offload header is not segmented. Examples are another
// protocol, a fragment, and options that leave the payload's offset unknown. Any number of segments
// is allowed.
#[test]
fn mismatched_frames_are_not_segmented() {
    let mut frame = vec![0u8; 54 + 4000];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[23] = 6;
    frame[46] = 0x50;
    let hdr = |gso_type, gso_size| {
        VnetHdr::new(VnetFields { gso_type, gso_size, ..VnetFields::default() })
    };
    let cut = |frame: &[u8], hdr| Cut::new(hdr, frame.len() as u32, &frame[..100], Layer::Ethernet);
    assert_eq!(cut(&frame, hdr(1, 1000)).unwrap().count(), 4);
    assert_eq!(cut(&frame, hdr(0x81, 1001)).unwrap().count(), 4);
    assert_eq!(cut(&frame, hdr(4, 1000)), None, "it is IPv4");
    assert_eq!(cut(&frame, hdr(5, 1000)), None, "it is TCP");
    assert_eq!(cut(&frame, hdr(3, 1000)), None, "there is no such kind");
    assert_eq!(cut(&frame, hdr(1, 0)), None);
    assert_eq!(cut(&frame, hdr(1, 3)).unwrap().count(), 1334, "virtio sets no limit");
    for (at, byte, why) in [
        (20, 0x20, "a fragment"),
        (14, 0x44, "a short IP header"),
        (46, 0x40, "a short TCP header"),
        (46, 0xf0, "headers that are not all there"),
    ] {
        let mut other = frame.clone();
        other[at] = byte;
        let head = &other[..if byte == 0xf0 { 80 } else { 100 }];
        let got = Cut::new(hdr(1, 1000), other.len() as u32, head, Layer::Ethernet);
        assert_eq!(got, None, "{why}");
    }
}

// Goal: the checksum of a known header is correct (RFC 1071, computed by hand), and `field` never
// returns 0.
#[test]
fn known_checksums() {
    let header =
        [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];
    let mut sum = Sum::new();
    sum.bytes(&header);
    assert_eq!(sum.header_field(), [0xb8, 0x61]);
    assert_eq!(sum.field(), [0xb8, 0x61]);
    let mut zero = Sum::new();
    zero.bytes(&[0xff, 0xff]);
    assert_eq!((zero.field(), zero.header_field()), ([0xff, 0xff], [0, 0]));
    let (mut whole, mut pieces) = (Sum::new(), Sum::new());
    whole.bytes(&header);
    header.chunks(3).for_each(|piece| pieces.bytes(piece));
    assert_eq!(whole.field(), pieces.field());
}

// Goal: a large frame counts as all of its segments, without a limit.
#[test]
fn all_segments_are_counted() {
    let hdr = VnetFields { flags: 1, gso_type: 1, hdr_len: 54, gso_size: 1, ..Default::default() };
    assert_eq!(VnetHdr::new(hdr).segments(60_054), 60_000);
}
