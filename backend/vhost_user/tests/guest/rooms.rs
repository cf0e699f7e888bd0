//! Tests of the space in a guest's buffers: frames that do not fit, and frames that their source
//! writes into a reservation.

use mqnet_netdev::{Armed, DropReason, FrameMeta, OwningTx, Queue};
use mqnet_shmem::{Segments, copies};
use mqnet_testkit::virtq::{Buf, Shape};
use mqnet_wire::{VnetFields, VnetHdr};

use crate::bench::{Guest, HDR, bufs, gso, send, shapes};

fn shape(packed: bool, size: u16) -> Shape {
    Shape { packed, size, event_idx: true }
}

/// Writes `bytes` into the pieces of a reservation, like a system call.
fn fill(room: &mut Segments<'_>, bytes: &[u8]) {
    let mut at = room.head.write_header(bytes);
    at += room.tail.write_header(&bytes[at..]);
    for mut piece in room.more() {
        at += piece.write_header(&bytes[at..]);
    }
    assert_eq!(at, bytes.len());
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 256) as u8).collect()
}

fn whole(guest: &Guest, bufs: &[Buf], used: &[u32]) -> Vec<u8> {
    let parts = bufs.iter().zip(used);
    parts.flat_map(|(buf, &len)| guest.memory.read(buf.at, len)).collect()
}

// Goal: a frame that its source writes into a reservation is in the guest's buffers without a copy,
// after a header with the number of buffers. Buffers that the frame does not use stay available.
#[test]
fn reserved_frames_are_not_copied() {
    for (shape, _) in shapes(16) {
        let mut guest = Guest::new(shape, true);
        let bufs = bufs(&mut guest.memory, &[500, 700, 900, 1100, 1300], true);
        let ids: Vec<u16> = bufs.iter().map(|&buf| guest.driver.add(&[buf]).unwrap()).collect();
        guest.driver.publish();
        let mut half = guest.rx_half();
        let before = copies::bytes();
        let bytes = pattern(1000);
        for (at, _) in [0, 2].into_iter().enumerate() {
            let mut room = half.reserve(if at == 0 { 4000 } else { 2000 }).unwrap().unwrap();
            assert!(room.len() >= 2000);
            fill(&mut room, &bytes);
            half.commit(&FrameMeta { len: 1000, hdr: gso(900) });
            assert!(half.reserve(4000).unwrap().is_none(), "only one frame is left");
        }
        half.flush().unwrap();
        assert_eq!(copies::bytes(), before, "nothing was copied");
        let used: Vec<_> = std::iter::from_fn(|| guest.driver.used()).collect();
        assert_eq!(used, [(ids[0], 500), (ids[1], 512), (ids[2], 900), (ids[3], 112)]);
        for (first, lens) in [(0, [500, 512]), (2, [900, 112])] {
            let seen = whole(&guest, &bufs[first..], &lens);
            assert_eq!(VnetHdr::from_bytes(seen.first_chunk().unwrap()), gso(900));
            assert_eq!((&seen[10..12], &seen[12..]), (&[2, 0][..], &bytes[..]));
        }
        assert_eq!(guest.stats.tx.packets.get(), 2);
    }
}

// Goal: an uncommitted reservation has no effect. A frame longer than its reservation is dropped,
// and the buffers stay available.
#[test]
fn uncommitted_reservation_has_no_effect() {
    for packed in [false, true] {
        let mut guest = Guest::new(shape(packed, 4), false);
        let buf = bufs(&mut guest.memory, &[1530], true);
        let id = guest.driver.add(&buf).unwrap();
        guest.driver.publish();
        let mut half = guest.rx_half();
        for _ in 0..3 {
            // The buffer holds a frame of 1518 bytes, and a lane requests one byte more.
            assert_eq!(half.reserve(1519).unwrap().unwrap().len(), 1518);
        }
        half.commit(&FrameMeta { len: 1519, hdr: VnetHdr::default() });
        half.flush().unwrap();
        assert_eq!(guest.driver.used(), None);
        assert_eq!(guest.stats.tx.drops.get(DropReason::BufferTooSmall), 1);
        assert!(send(&mut half, VnetHdr::default(), &pattern(1518)).unwrap());
        assert_eq!(guest.driver.used(), Some((id, 1530)));
    }
}

/// Header and bytes of an IPv4 UDP datagram with a partial checksum, and the bytes with the
/// complete checksum.
fn datagram(ports: [u16; 2], len: usize) -> (VnetHdr, Vec<u8>, Vec<u8>) {
    let mut frame = pattern(len);
    frame[12..14].copy_from_slice(&[8, 0]);
    (frame[14], frame[23]) = (0x45, 17);
    frame[34..36].copy_from_slice(&ports[0].to_be_bytes());
    frame[36..38].copy_from_slice(&ports[1].to_be_bytes());
    let sum = |bytes: &[u8]| {
        let words =
            bytes.chunks(2).map(|c| u32::from(c[0]) << 8 | u32::from(*c.get(1).unwrap_or(&0)));
        let sum: u32 = words.sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        ((sum & 0xffff) + (sum >> 16)) as u16
    };
    let mut done = frame.clone();
    done[40..42].copy_from_slice(&(!sum(&frame[34..])).to_be_bytes());
    let csum = VnetFields { flags: 1, csum_start: 34, csum_offset: 6, ..VnetFields::default() };
    (VnetHdr::new(csum), frame, done)
}

// Goal: DHCP frames reach a guest with complete checksums, for programs that read raw sockets.
// Other datagrams keep partial checksums. Tested with copied frames, with reservations, and with
// several splits into buffers.
#[test]
fn dhcp_is_completed() {
    for (shape, _) in shapes(16) {
        for (ports, is_dhcp) in
            [([67, 68], true), ([5, 67], true), ([68, 9], true), ([5, 6], false)]
        {
            for (lens, by_others) in [
                (&[600][..], false),
                (&[600], true),
                (&[47, 6, 300, 300], false),
                (&[53, 600], true),
            ] {
                let mut guest = Guest::new(shape, true);
                let bufs = bufs(&mut guest.memory, lens, true);
                bufs.iter().for_each(|&buf| assert!(guest.driver.add(&[buf]).is_some()));
                guest.driver.publish();
                let (hdr, frame, done) = datagram(ports, 343);
                let mut half = guest.rx_half();
                if by_others {
                    fill(&mut half.reserve(400).unwrap().unwrap(), &frame);
                    half.commit(&FrameMeta { len: 343, hdr });
                    half.flush().unwrap();
                } else {
                    assert!(send(&mut half, hdr, &frame).unwrap());
                }
                let used: Vec<u32> =
                    std::iter::from_fn(|| guest.driver.used()).map(|(_, len)| len).collect();
                let seen = whole(&guest, &bufs, &used);
                let want = if is_dhcp { (VnetHdr::default(), done) } else { (hdr, frame) };
                let got = VnetHdr::from_bytes(seen.first_chunk().unwrap());
                assert_eq!((got, &seen[12..]), (want.0, &want.1[..]), "{ports:?} {lens:?}");
            }
        }
    }
}

// Goal: a frame for which buffers are missing waits, and leaves the buffers available. A frame
// that no chain of the guest can hold is dropped.
#[test]
fn frames_without_room_wait_or_drop() {
    for (shape, mergeable) in shapes(8) {
        let mut guest = Guest::new(shape, mergeable);
        let bufs = bufs(&mut guest.memory, &[1000; 8], true);
        guest.driver.add(&bufs[..1]).unwrap();
        guest.driver.publish();
        let mut half = guest.rx_half();
        let sent = send(&mut half, VnetHdr::default(), &pattern(1500)).unwrap();
        assert_eq!((sent, guest.driver.used()), (!mergeable, None));
        assert_eq!(guest.stats.tx.drops.total(), u64::from(!mergeable));
        assert_eq!(half.arm(1500).unwrap() == Armed::Sleep, mergeable);
        guest.driver.add(&bufs[1..2]).unwrap();
        assert_eq!(guest.driver.publish(), mergeable, "the half requested it");
        let sent = send(&mut half, VnetHdr::default(), &pattern(1500)).unwrap();
        assert!(sent);
        assert_eq!(guest.driver.used().is_some(), mergeable);
        if mergeable {
            while guest.driver.used().is_some() {}
            bufs.iter().for_each(|buf| assert!(guest.driver.add(&[*buf]).is_some()));
            guest.driver.publish();
            // All buffers of the guest are available, so waiting for more would not end.
            assert!(send(&mut half, VnetHdr::default(), &pattern(8000)).unwrap());
            assert_eq!(guest.stats.tx.drops.get(DropReason::BufferTooSmall), 1);
            assert_eq!(half.arm(60_000).unwrap(), Armed::MoreWork);
            assert_eq!(half.reserve(60_000).unwrap().unwrap().len(), 8000 - HDR as usize);
        }
    }
}

// Goal: a half on hold accepts no frames and grants no reservation until the hold ends.
#[test]
fn held_half_takes_no_frames() {
    let mut guest = Guest::new(shape(true, 4), true);
    let bufs = bufs(&mut guest.memory, &[2000; 4], true);
    bufs.iter().for_each(|buf| assert!(guest.driver.add(&[*buf]).is_some()));
    guest.driver.publish();
    let mut half = guest.rx_half();
    half.hold(true).unwrap();
    assert!(!send(&mut half, VnetHdr::default(), &pattern(64)).unwrap());
    assert!(half.reserve(64).unwrap().is_none());
    assert_eq!(half.arm(64).unwrap(), Armed::MoreWork);
    half.hold(false).unwrap();
    assert!(send(&mut half, VnetHdr::default(), &pattern(64)).unwrap());
    assert!(guest.driver.used().is_some() && half.is_drained().unwrap());
}
