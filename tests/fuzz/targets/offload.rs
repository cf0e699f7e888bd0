//! Arbitrary bytes as a frame for offload emulation. Offload emulation reads only headers. The
//! segments contain the payload in order, and their number is limited.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mqnet_wire::offload::{
    Cut, SEGMENTS_MAX, UNFINISHED_HEADERS_MAX, Vouched, fill_checksum, with_own_hdr_len,
};
use mqnet_wire::{Layer, VNET_HDR_LEN, VnetHdr};

fuzz_target!(|input: (bool, u32, [u8; VNET_HDR_LEN], &[u8])| {
    let (is_ip, len, hdr, bytes) = input;
    let (hdr, len) = (VnetHdr::from_bytes(&hdr), len % 70_000);
    let head = &bytes[..bytes.len().min(UNFINISHED_HEADERS_MAX).min(len as usize)];
    let layer = if is_ip { Layer::Ip } else { Layer::Ethernet };
    if let Some(cut) = Cut::new(hdr, len, head, layer) {
        assert!(cut.count() <= SEGMENTS_MAX && cut.headers() <= head.len());
        let (mut out, mut at) = ([0; UNFINISHED_HEADERS_MAX], cut.headers());
        for number in 0..cut.count() {
            let segment = cut.segment(number, head, &mut out);
            assert!(segment.len() <= cut.longest());
            assert_eq!((segment.at, segment.hdr.check(segment.len())), (at, Ok(())));
            at += segment.payload;
        }
        assert_eq!(at, len as usize);
    }
    let ours = with_own_hdr_len(hdr.normalised(), len, head, layer).fields();
    assert!(u32::from(ours.hdr_len) <= len && ours.flags & !1 == 0);
    if let Some(vouched) = Vouched::find(hdr, len, head, layer) {
        let (at, covered) = vouched.range();
        assert!(vouched.field() + 2 <= at + covered && at + covered <= len as usize);
        vouched.begun(head);
    }
    let mut own = head.to_vec();
    let _ = fill_checksum(hdr, &mut own, [(u64::from(len), bytes.len())].into_iter());
});
