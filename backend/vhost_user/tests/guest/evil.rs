//! Tests of violations by a guest. A violation closes the function with the invalid values in the
//! reason, or drops a frame. No violation causes a panic or an access outside of the guest's
//! memory.

use mqnet_netdev::{Burst, DropReason, OwningRx};
use mqnet_testkit::virtq::{Buf, START, Shape};
use mqnet_vhost_user::Vring;
use mqnet_virtio::Features;
use mqnet_wire::{VnetFields, VnetHdr};

use crate::bench::{Guest, bufs, gso, header, send, take};

const SIZE: u16 = 8;
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const NOWHERE: u64 = START - 64;

fn guest(packed: bool) -> Guest {
    Guest::new(Shape { packed, size: SIZE, event_idx: true }, true)
}

/// Fault after a guest has made this chain available in its transmit queue.
fn sending(packed: bool, chain: &[(u64, u32, u16)]) -> String {
    let mut guest = guest(packed);
    guest.driver.add_raw(chain).unwrap();
    guest.driver.publish();
    take(&mut guest.tx_half()).unwrap_err().what
}

/// Fault after a guest has made this chain available in its receive queue.
fn receiving(packed: bool, chain: &[(u64, u32, u16)]) -> String {
    let mut guest = guest(packed);
    guest.driver.add_raw(chain).unwrap();
    guest.driver.publish();
    send(&mut guest.rx_half(), VnetHdr::default(), &[1; 100]).unwrap_err().what
}

fn has(reason: &str, part: &str) {
    assert!(reason.starts_with("the guest: queue 1: ") && reason.contains(part), "{reason}");
}

// Goal: buffers that are empty, too long, outside of the memory, or of the wrong direction close
// the function.
#[test]
fn buffers_must_be_memory() {
    for packed in [false, true] {
        has(&sending(packed, &[(START, 0, 0)]), "length 0");
        has(&sending(packed, &[(START, 64, 0), (START, 0, 0)]), "descriptor 1 of a chain has len");
        has(&sending(packed, &[(NOWHERE, 100, 0)]), "100 bytes at 0xfffc0: not in guest memory");
        has(&sending(packed, &[(START, 12, 0), (NOWHERE, 64, 0)]), "not in guest memory");
        has(&sending(packed, &[(START + (8 << 20) - 50, 51, 0)]), "not in guest memory");
        has(&sending(packed, &[(u64::MAX, 2, 0)]), "not in guest memory");
        has(&sending(packed, &[(START, u32::MAX, 0)]), "not in guest memory");
        let sum = "2147483648 + 2147483648 bytes, more than 4 GiB";
        has(&sending(packed, &[(START, 1 << 31, 0), (START, 1 << 31, 0)]), sum);
        has(
            &sending(packed, &[(START, 100, WRITE)]),
            "1 of 1 buffers of a TX chain are device-writable",
        );
        let mixed = [(START, 100, 0), (START, 9, WRITE)];
        has(&sending(packed, &mixed), "1 of 2 buffers of a TX chain");
        let order = "descriptor 1 of a chain: device-readable after a device-writable one";
        has(&sending(packed, &[(START, 100, WRITE), (START, 9, 0)]), order);
        has(
            &receiving(packed, &[(START, 200, 0)]),
            "1 of 1 buffers of an RX chain are device-read",
        );
        has(&receiving(packed, &mixed), "1 of 2 buffers of an RX chain");
        has(&receiving(packed, &[(NOWHERE, 200, WRITE)]), "not in guest memory");
        let late = [(START, 50, WRITE), (NOWHERE, 200, WRITE)];
        has(&receiving(packed, &late), "not in guest memory");
    }
}

// Goal: an indirect table that has an invalid length, is outside of the memory, is nested or was
// not negotiated closes the function.
#[test]
fn indirect_tables_must_be_sound() {
    for packed in [false, true] {
        let allowed = "allowed are 1 to 1024 descriptors";
        for len in [15, 17, 16 * 1025] {
            let reason = sending(packed, &[(START, len, INDIRECT)]);
            has(&reason, &format!("table of {len} bytes: {allowed}"));
        }
        has(&sending(packed, &[(START, 0, INDIRECT)]), allowed);
        has(&sending(packed, &[(NOWHERE, 32, INDIRECT)]), "table at 0xfffc0: not in guest memory");
        let and_more = [(START, 16, INDIRECT), (START, 16, 0)];
        has(&sending(packed, &and_more), "both INDIRECT and NEXT");
        let entries = |list: &[(u64, u32, u16, u16)]| {
            let mut guest = guest(packed);
            let table = guest.memory.alloc(16 * list.len() as u32, 16);
            for (i, &(at, len, flags, next)) in list.iter().enumerate() {
                let last = if packed { [0, flags] } else { [flags, next] };
                let mut raw = at.to_le_bytes().to_vec();
                raw.extend(len.to_le_bytes());
                raw.extend(last.iter().flat_map(|half| half.to_le_bytes()));
                guest.memory.write(table + 16 * i as u64, &raw);
            }
            guest.driver.add_raw(&[(table, 16 * list.len() as u32, INDIRECT)]).unwrap();
            guest.driver.publish();
            take(&mut guest.tx_half()).unwrap_err().what
        };
        has(&entries(&[(START, 32, INDIRECT, 0)]), "table within an indirect table");
        has(&entries(&[(START, 12, NEXT, 1), (START, 0, 0, 0)]), "length 0");
        if !packed {
            has(&entries(&[(START, 12, NEXT, 2), (START, 9, 0, 0)]), "entry 2 of an indirect ta");
            has(&entries(&[(START, 12, NEXT, 1), (START, 9, NEXT, 0)]), "more descriptors than it");
        }
        let mut guest = guest(packed);
        let mut setup = guest.setup();
        setup.features = setup.features.minus(Features::INDIRECT_DESC);
        guest.cell.offer(Vring::new(setup).unwrap()).unwrap();
        guest.driver.add_raw(&[(START, 16, INDIRECT)]).unwrap();
        guest.driver.publish();
        let reason = take(&mut guest.tx_half()).unwrap_err().what;
        has(&reason, "INDIRECT, which was not negotiated");
    }
}

// Goal: in a split ring, an available index that jumps or goes backwards, a descriptor number
// beyond the ring, or an endless chain closes the function.
#[test]
fn split_indices_are_checked() {
    let reason = |edit: &dyn Fn(&Guest, [u64; 3])| {
        let mut guest = guest(false);
        let at = guest.memory.alloc(100, 16);
        guest.driver.add(&[Buf { at, len: 100, write: false }]).unwrap();
        guest.driver.publish();
        let mut half = guest.tx_half();
        let mut burst = Burst::new();
        half.peek(&mut burst, 1).unwrap();
        drop(burst);
        edit(&guest, guest.driver.addresses());
        for _ in 0..3 {
            if let Err(fault) = take(&mut half) {
                return fault.what;
            }
        }
        panic!("no fault");
    };
    let half = |guest: &Guest, at: u64, value: u16| guest.memory.write(at, &value.to_le_bytes());
    let jump = reason(&|guest, [_, avail, _]| half(guest, avail + 2, 9));
    has(&jump, "avail.idx 1 became 9 (queue size 8, used 0)");
    let back = reason(&|guest, [_, avail, _]| half(guest, avail + 2, 0));
    has(&back, "avail.idx 1 became 0");
    has(&reason(&|guest, [_, avail, _]| half(guest, avail + 4, 8)), "descriptor 8, queue size 8");
    let next = |flags: u16, next: u16| {
        move |guest: &Guest, [desc, ..]: [u64; 3]| {
            half(guest, desc + 12, flags);
            half(guest, desc + 14, next);
        }
    };
    has(&reason(&next(NEXT, 8)), "next descriptor 8, queue size 8");
    has(&reason(&next(NEXT, 0)), "a chain of more than the queue's 8 descriptors");
}

// Goal: a packed chain that continues in an unavailable descriptor, or around the whole ring,
// closes the function.
#[test]
fn packed_chains_end() {
    let mut guest = guest(true);
    guest.driver.add_raw(&[(START, 100, NEXT)]).unwrap();
    has(&take(&mut guest.tx_half()).unwrap_err().what, "continues at 1, which is not available");
    let mut guest = self::guest(true);
    let ring: Vec<_> = (0..SIZE).map(|_| (START, 100, NEXT)).collect();
    guest.driver.add_raw(&ring).unwrap();
    has(&take(&mut guest.tx_half()).unwrap_err().what, "a chain of more than the queue's 8");
}

// Goal: a frame with an offload that was not negotiated is dropped, because the other end of the
// link relies on the negotiated set. A frame without offloads passes.
#[test]
fn unnegotiated_offloads_are_dropped() {
    let mut guest = guest(false);
    let mut setup = guest.setup();
    setup.features = setup.features.minus(Features::HOST_TSO4);
    guest.cell.offer(Vring::new(setup).unwrap()).unwrap();
    for hdr in [gso(100), VnetHdr::default()] {
        let buf = bufs(&mut guest.memory, &[12 + 80], false);
        guest.memory.write(buf[0].at, &header(hdr));
        guest.driver.add(&buf).unwrap();
    }
    guest.driver.publish();
    let seen = take(&mut guest.tx_half()).unwrap();
    assert_eq!(seen.iter().map(|(hdr, _)| *hdr).collect::<Vec<_>>(), [VnetHdr::default()]);
    assert_eq!(guest.stats.rx.drops.get(DropReason::BadHeader), 1);
}

// Goal: only permitted header fields pass. Other flags and fields are cleared, the length of the
// headers is computed, and no frame is dropped for these reasons.
#[test]
fn stray_header_fields_are_cleared() {
    // Make a TCP segment over IPv4, with 54 bytes of headers.
    let mut frame = vec![0u8; 80];
    (frame[12], frame[14], frame[23], frame[46]) = (8, 0x45, 6, 0x50);
    let csum = VnetFields { flags: 1, csum_start: 34, csum_offset: 16, ..Default::default() };
    let large = VnetFields { gso_type: 1, hdr_len: 54, gso_size: 10, ..csum };
    let dirt = VnetFields { hdr_len: 60_000, gso_size: 9, ..csum };
    let list = [
        (VnetFields { flags: 2, ..Default::default() }, VnetFields::default()),
        (VnetFields { flags: 0xfc, ..dirt }, VnetFields::default()),
        (VnetFields { hdr_len: 2000, ..Default::default() }, VnetFields::default()),
        (VnetFields { csum_offset: 16, ..Default::default() }, VnetFields::default()),
        (VnetFields { flags: 0xff, ..dirt }, csum),
        (VnetFields { hdr_len: 0, ..large }, large),
        (VnetFields { flags: 3, hdr_len: 6, ..large }, large),
        (VnetFields { hdr_len: 60_000, ..large }, large),
    ];
    for (packed, pieces) in [(false, 1), (true, 1), (false, 3), (true, 3)] {
        for (written, passed) in list {
            let mut guest = guest(packed);
            let whole = [&header(VnetHdr::new(written))[..], &frame].concat();
            let lens: &[u32] = if pieces == 1 { &[92] } else { &[12, 30, 50] };
            let chain = bufs(&mut guest.memory, lens, false);
            let mut rest = &whole[..];
            for buf in &chain {
                guest.memory.write(buf.at, &rest[..buf.len as usize]);
                rest = &rest[buf.len as usize..];
            }
            guest.driver.add(&chain).unwrap();
            guest.driver.publish();
            let seen = take(&mut guest.tx_half()).unwrap();
            assert_eq!(seen, [(VnetHdr::new(passed), frame.clone())], "{written:?}");
        }
    }
}

// Goal: a violation is recorded in the cell of its ring, and can be taken once. If both ends of a
// link are guests, the cell identifies the guest.
#[test]
fn violations_are_recorded_in_their_cell() {
    let mut guest = guest(false);
    guest.driver.add_raw(&[(START, 0, 0)]).unwrap();
    guest.driver.publish();
    let said = take(&mut guest.tx_half()).unwrap_err().what;
    let noted = guest.cell.take_violation().unwrap();
    assert_eq!(said, format!("the guest: {noted}"));
    assert!(guest.cell.take_violation().is_none());
}

// Goal: frames with an invalid header, without payload, or too long are dropped with their
// reason. Their chains are returned, and the frames around them pass.
#[test]
fn bad_frames_are_dropped_alone() {
    for packed in [false, true] {
        let mut guest = guest(packed);
        let odd = VnetHdr::new(VnetFields { gso_type: 3, gso_size: 1, ..Default::default() });
        let list = [(odd, 64), (gso(100), 64), (odd, 90), (gso(1), 65_559), (gso(9), 70)];
        let mut ids = Vec::new();
        for (hdr, len) in list {
            let buf = bufs(&mut guest.memory, &[12 + len], false);
            guest.memory.write(buf[0].at, &header(hdr));
            ids.extend(guest.driver.add(&buf));
        }
        let short = [(START, 12, 0), (START, 5, 0)].map(|buf| guest.driver.add_raw(&[buf]));
        ids.extend(short.into_iter().flatten());
        guest.driver.publish();
        let mut half = guest.tx_half();
        let mut seen = Vec::new();
        for _ in 0..4 {
            seen.extend(take(&mut half).unwrap().into_iter().map(|(hdr, b)| (hdr, b.len())));
        }
        assert_eq!(seen, [(gso(100), 64), (gso(9), 70)]);
        let back: Vec<_> = std::iter::from_fn(|| guest.driver.used()).collect();
        assert_eq!(back, ids.into_iter().map(|id| (id, 0)).collect::<Vec<_>>());
        let rx = &guest.stats.rx;
        assert_eq!(rx.drops.get(DropReason::BadHeader), 4);
        assert_eq!(rx.drops.get(DropReason::TooLong), 1);
        assert_eq!((rx.packets.get(), rx.drops.total()), (7, 5));
    }
}

// Goal: a ring with invalid parameters is refused before it is served.
#[test]
fn invalid_rings_are_refused() {
    for packed in [false, true] {
        let guest = guest(packed);
        for size in [0, SIZE + 1, 2 * SIZE, u16::MAX] {
            let mut setup = guest.setup();
            setup.size = size;
            let reason = Vring::new(setup).unwrap_err().to_string();
            assert!(reason.contains(&format!("ring of {size} descriptors in areas")), "{reason}");
        }
    }
    for (packed, area, by) in
        [(false, 0, 8), (false, 1, 1), (false, 2, 2), (true, 1, 2), (true, 2, 1)]
    {
        let mut guest = guest(packed);
        let at = guest.memory.alloc(4096, 16) + by;
        let table = guest.memory.map().table(at, 2048, 1).unwrap();
        let mut setup = guest.setup();
        *[&mut setup.desc, &mut setup.driver, &mut setup.device][area] = table;
        let reason = Vring::new(setup).unwrap_err().to_string();
        assert!(reason.contains("bytes at multiples of ["), "{reason}");
    }
    let mut setup = guest(true).setup();
    setup.base = 0x8008;
    let reason = Vring::new(setup).unwrap_err().to_string();
    assert_eq!(reason, "queue 1: base 0x8008 of a packed ring of 8 descriptors");
}
