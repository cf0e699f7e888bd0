//! Arbitrary bytes as frames to coalesce. Segmentation of a coalesced frame restores the original
//! frames.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mqnet_wire::offload::{
    Cut, MERGED_HEADERS_MAX, Merge, MergeCandidate, Sum, UNFINISHED_HEADERS_MAX, fill_checksum,
};
use mqnet_wire::{Layer, VnetFields, VnetHdr};

/// Layer, flags, frame size limit, header changes of each frame, and the bytes common to all
/// frames.
type Input<'a> = (bool, u8, u16, Vec<(u8, u8)>, &'a [u8]);

fn filled(hdr: VnetHdr, mut bytes: Vec<u8>) -> Vec<u8> {
    if hdr.needs_checksum() {
        fill_checksum(hdr, &mut bytes, std::iter::empty()).expect("it is in the frame");
    }
    bytes
}

fuzz_target!(|input: Input<'_>| {
    let (is_ip, flags, frame_max, changes, bytes) = input;
    let layer = if is_ip { Layer::Ip } else { Layer::Ethernet };
    // Flags of a peer, without `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
    let hdr = VnetHdr::new(VnetFields { flags: flags & !1, ..VnetFields::default() });
    let head = |bytes: &[u8]| bytes[..bytes.len().min(MERGED_HEADERS_MAX)].to_vec();
    let part = |bytes: &[u8]| {
        let part = MergeCandidate::find(hdr, bytes.len() as u32, &head(bytes), layer)?;
        assert!(part.headers() < bytes.len());
        let mut sum = Sum::new();
        sum.bytes(&bytes[part.headers()..]);
        let sum = u64::from(u16::from_ne_bytes(sum.unfinished()));
        let payload = [(sum, bytes.len() - part.headers())];
        part.is_sound(|| payload.into_iter()).then_some(part)
    };
    let Some(first) = part(bytes) else { return };
    let mut second = bytes.to_vec();
    for (at, byte) in changes {
        let at = usize::from(at) % second.len();
        second[at] = byte;
    }
    let mut merge = Merge::new(first, u32::from(frame_max) + 100);
    let Some(next) = part(&second).filter(|next| merge.goes_on_with(next)) else { return };
    merge.push(&next);
    let mut whole = [bytes, &second[next.headers()..]].concat();
    let large = merge.finish(&mut whole);
    let len = whole.len() as u32;
    assert!(len == merge.len() && len <= u32::from(frame_max) + 100);
    assert_eq!(large.check(len), Ok(()));
    let shown = &whole[..whole.len().min(UNFINISHED_HEADERS_MAX)];
    let cut = Cut::new(large, len, shown, layer).expect("it can be cut");
    assert_eq!(cut.count(), 2);
    for (number, was) in [bytes, &second[..]].into_iter().enumerate() {
        let mut out = vec![0; cut.headers()];
        let segment = cut.segment(number as u32, shown, &mut out);
        out.extend_from_slice(&whole[segment.at..][..segment.payload]);
        let back = filled(segment.hdr, out);
        let differ = back.iter().zip(was).filter(|(a, b)| a != b).count();
        assert_eq!(back.len(), was.len());
        assert_eq!(differ, 0);
    }
});
