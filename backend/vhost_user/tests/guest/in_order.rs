//! Test with drivers that rely on the order of used buffers.

use std::sync::atomic::Ordering::Relaxed;

use mqnet_testkit::virtq::{Buf, Shape};
use mqnet_vhost_user::{Vring, VringSetup};
use mqnet_virtio::Features;
use mqnet_wire::VnetHdr;

use crate::bench::{Guest, HDR, header, take};

/// Sends `frames` frames of two buffers each and receives them in one burst; returns the id of
/// the last chain.
fn send(guest: &mut Guest, half: &mut mqnet_vhost_user::GuestTx, frames: usize) -> u16 {
    let mut last = 0;
    for _ in 0..frames {
        let at = guest.memory.alloc(HDR + 60, 16);
        guest.memory.write(at, &header(VnetHdr::default()));
        let bufs = [(at, HDR), (at + u64::from(HDR), 60)];
        last = guest.driver.add(&bufs.map(|(at, len)| Buf { at, len, write: false })).unwrap();
    }
    guest.driver.publish();
    assert_eq!(take(half).unwrap().len(), frames);
    last
}

// Goal: with IN_ORDER a burst of the guest is returned by one used entry. The entry is at the
// position of the first chain and has the id of the last chain. The next burst continues after the
// whole burst. Without IN_ORDER each chain has an entry.
#[test]
fn in_order_bursts_use_one_entry() {
    for (packed, in_order) in [(false, true), (true, true), (false, false), (true, false)] {
        let shape = Shape { packed, size: 32, event_idx: false };
        let mut guest = Guest::new(shape, false);
        if in_order {
            guest.cell.take();
            let setup = guest.setup();
            let features = setup.features.or(Features::IN_ORDER);
            guest.cell.offer(Vring::new(VringSetup { features, ..setup }).unwrap()).unwrap();
        }
        let mut half = guest.tx_half();
        let [desc, _, used] = guest.driver.tables(&guest.memory);
        let mut before = 0;
        for frames in [5, 3] {
            let last = send(&mut guest, &mut half, frames);
            let marks: Vec<(u16, u32)> = (0..frames as u32)
                .map(|at| {
                    if packed {
                        let word = desc.double((before * 2 + at * 2) * 16 + 8).load(Relaxed);
                        ((word >> 48) as u16 & 0x8080, (word >> 32) as u32 & 0xffff)
                    } else {
                        let entry = 4 + 8 * (before + at);
                        (used.half(2).load(Relaxed), used.word(entry).load(Relaxed))
                    }
                })
                .collect();
            before += frames as u32;
            // The wrap counter is 1: a used descriptor has AVAIL and USED set, an available one
            // only AVAIL.
            let done = if packed { 0x8080 } else { before as u16 };
            let first = marks[0];
            assert_eq!(first.0, done, "{shape:?}");
            assert_eq!(first.1 == u32::from(last), in_order, "{shape:?}");
            let second_done = !packed || !in_order;
            assert_eq!(marks[1].0 == done, second_done, "{shape:?} {in_order}");
        }
    }
}
