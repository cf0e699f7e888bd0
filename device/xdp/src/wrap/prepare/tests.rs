use proptest::prelude::*;

use super::*;

/// Creates an Ethernet frame with TCP or UDP and the value `field` in its checksum field.
pub(in crate::wrap) fn frame(is_v6: bool, is_tcp: bool, payload: usize, field: u16) -> Vec<u8> {
    let mut frame = vec![2; 12];
    let transport = if is_tcp { 20 } else { 8 };
    let carried = (transport + payload) as u16;
    let protocol = if is_tcp { 6 } else { 17 };
    if is_v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(carried.to_be_bytes());
        frame.extend([protocol, 64]);
        frame.extend([0xfd; 32]);
    } else {
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((20 + carried).to_be_bytes());
        frame.extend([0, 7, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    }
    frame.extend([0x30, 0x39, 0, 80]);
    if is_tcp {
        frame.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 1, 0]);
    } else {
        frame.extend(carried.to_be_bytes());
    }
    frame.extend(field.to_be_bytes());
    if is_tcp {
        frame.extend([0, 0]);
    }
    frame.extend((0..payload).map(|i| (i * 7 + i / 256) as u8));
    frame
}

/// Sets the checksum field of a frame to the pseudo header sum. Returns the virtio header.
fn begin(frame: &mut [u8]) -> VnetHdr {
    find_headers(frame).expect("headers").begin_checksum(frame)
}

pub(in crate::wrap) fn gso(frame: &mut [u8], gso_size: u16) -> VnetHdr {
    let headers = find_headers(frame).expect("headers");
    let fields = begin(frame).fields();
    let gso_type = match (headers.kind, headers.is_v6) {
        (Transport::Tcp, false) => 1,
        (Transport::Tcp, true) => 4,
        (Transport::Udp, _) => 5,
    };
    VnetHdr::new(VnetFields { gso_type, gso_size, hdr_len: headers.payload as u16, ..fields })
}

/// Ones' complement sum of pseudo header, transport header and payload: 0xffff for a correct
/// checksum.
pub(in crate::wrap) fn sum(frame: &[u8]) -> u32 {
    let headers = find_headers(frame).expect("headers");
    let Headers { ip, is_v6, transport, .. } = headers;
    let addresses = if is_v6 { &frame[ip + 8..ip + 40] } else { &frame[ip + 12..ip + 20] };
    let carried = ((frame.len() - transport) as u32).to_be_bytes();
    let protocol = [0, if headers.kind == Transport::Tcp { 6 } else { 17 }];
    let bytes = [addresses, &carried, &protocol, &frame[transport..]].concat();
    let words = bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | w.get(1).map_or(0, |b| (*b).into()));
    words.fold(0, |sum, word| ((sum + word) & 0xffff) + ((sum + word) >> 16))
}

proptest! {
    // Goal: a program receives complete checksums, both for a partial checksum and for a frame with
    // DATA_VALID and any checksum field, also with padding.
    #[test]
    fn checksums_are_complete_before_the_program(
        is_v6: bool, is_tcp: bool, payload in 1usize..1400, field: u16,
    ) {
        let mut wants = frame(is_v6, is_tcp, payload, field);
        let hdr = begin(&mut wants);
        prop_assert_eq!(complete(&mut wants, hdr), Some(()));
        prop_assert_eq!(sum(&wants), 0xffff);
        let mut vouched = frame(is_v6, is_tcp, payload, field);
        vouched.extend([9; 5]);
        let valid = VnetHdr::new(VnetFields { flags: DATA_VALID, ..VnetFields::default() });
        prop_assert_eq!(complete(&mut vouched, valid), Some(()));
        prop_assert_eq!(&vouched[..wants.len()], &wants[..]);
    }

    // Goal: the segments of a GSO frame have complete checksums and together the complete payload.
    #[test]
    fn segments_have_complete_checksums(
        is_v6: bool, is_tcp: bool, payload in 1usize..9000, size in 64u16..1400,
    ) {
        let mut large = frame(is_v6, is_tcp, payload, 0);
        let hdr = gso(&mut large, size);
        let how = cut(&large, hdr).expect("a large frame");
        let mut all: Vec<u8> = Vec::new();
        for number in 0..how.count() {
            let mut page = vec![0; 2000];
            let len = segment(&how, number, &large, &mut page).expect("a segment") as usize;
            prop_assert_eq!(sum(&page[..len]), 0xffff);
            prop_assert!(len <= how.headers() + usize::from(size));
            all.extend_from_slice(&page[how.headers()..len]);
        }
        prop_assert_eq!(&all[..], &large[how.headers()..]);
    }

    // Goal: after a program has changed addresses, added a tag or translated IPv4 to IPv6, the new
    // virtio header matches the bytes. Segments have correct checksums. They are longer than before
    // only by added tags and, for UDP, by the longer IP header.
    #[test]
    fn headers_of_changed_gso_frames_match_their_bytes(
        is_v6: bool, is_tcp: bool, tags in 0usize..3, translates: bool, payload in 2000usize..9000,
    ) {
        let mut old = frame(is_v6, is_tcp, payload, 0);
        let hdr = gso(&mut old, 1000);
        let large = Large::find(&old, hdr).expect("a large frame");
        let mut new = if translates { frame(!is_v6, is_tcp, payload, 0x1234) } else { old.clone() };
        let ip = 14 + if translates != is_v6 { 8 } else { 12 };
        new[ip] ^= 0x55;
        for _ in 0..tags {
            new.splice(12..12, [0x81, 0, 0, 7]);
        }
        let longest = |frame: &[u8], hdr| cut(frame, hdr).map_or(0, |cut| cut.longest());
        let before = longest(&old, hdr);
        let hdr = large.describe(&mut new).expect("a large frame");
        let how = cut(&new, hdr).expect("a large frame");
        let grows = if is_tcp || !translates || is_v6 { 0 } else { 20 };
        let longest = how.longest();
        prop_assert!(longest <= before + 4 * tags as u32 + grows, "{longest} {before}");
        for number in 0..how.count() {
            let mut page = vec![0; 2000];
            let len = segment(&how, number, &new, &mut page).expect("a segment") as usize;
            prop_assert_eq!(sum(&page[..len]), 0xffff);
        }
    }
}

// Goal: a GSO frame that was truncated or replaced gets the header of a small frame. A frame that
// cannot be segmented any more is not passed.
#[test]
fn replaced_gso_frames_get_a_small_header() {
    let mut old = frame(false, true, 5000, 0);
    let hdr = gso(&mut old, 1000);
    let large = Large::find(&old, hdr).expect("a large frame");
    let mut short = old[..1000].to_vec();
    assert_eq!(large.describe(&mut short), Some(VnetHdr::default()));
    assert_eq!(short, old[..1000]);
    let mut icmp = old.clone();
    icmp[23] = 1;
    assert_eq!(large.describe(&mut icmp.clone()), None);
    icmp.truncate(98);
    assert_eq!(large.describe(&mut icmp), Some(VnetHdr::default()));
    let ecn = VnetHdr::new(VnetFields { gso_type: 0x81, ..hdr.fields() });
    let marked = Large::find(&old, ecn).expect("a large frame");
    assert_eq!(marked.describe(&mut old.clone()), Some(ecn), "ECN stays");
    let wrong = VnetHdr::new(VnetFields { gso_type: 5, ..hdr.fields() });
    assert!(Large::find(&old, wrong).is_none() && cut(&old, wrong).is_none());
}
