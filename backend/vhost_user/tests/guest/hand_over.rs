//! Tests of the hand-over of rings, of crashes of the device, and of migration.

use std::sync::Arc;

use mqnet_netdev::{Armed, FrameMeta, OwningRx, OwningTx, Queue};
use mqnet_shmem::{AtomicTable, Region};
use mqnet_sysio::epoll::{Epoll, Interest};
use mqnet_testkit::virtq::{Buf, START, Shape};
use mqnet_vhost_user::{Vring, VringSetup};
use mqnet_virtio::inflight::region_len;
use mqnet_virtio::log::{Log, RingLog};
use mqnet_wire::VnetHdr;
use proptest::prelude::*;
use std::time::Duration;

use crate::bench::{Guest, bufs, header, send, shapes, take};

fn post(guest: &mut Guest, n: u8) -> bool {
    let at = guest.memory.alloc(112, 16);
    guest.memory.write(at, &header(VnetHdr::default()));
    guest.memory.write(at + 12, &[n; 100]);
    let added = guest.driver.add(&[Buf { at, len: 112, write: false }]).is_some();
    guest.driver.publish();
    added
}

fn numbers(half: &mut mqnet_vhost_user::GuestTx) -> Vec<u8> {
    take(half).unwrap().iter().map(|(_, bytes)| bytes[0]).collect()
}

// Goal: a half continues where the previous half parked, including frames that were peeked and not
// released. A half that does not hold the ring finds no frames.
#[test]
fn rings_pass_from_half_to_half() {
    for (shape, _) in shapes(8) {
        let mut guest = Guest::new(shape, true);
        (1..=5).for_each(|n| assert!(post(&mut guest, n)));
        let mut first = guest.tx_half();
        let mut second = guest.tx_half();
        {
            let mut burst = mqnet_netdev::Burst::new();
            first.peek(&mut burst, 4).unwrap();
            assert_eq!(burst.frames().len(), 4);
        }
        first.release(2).unwrap();
        assert!(numbers(&mut second).is_empty(), "the first one has it");
        assert_eq!(second.arm(0).unwrap(), Armed::Sleep);
        first.park();
        assert_eq!(numbers(&mut second), [3, 4, 5]);
        assert!(numbers(&mut first).is_empty());
        drop(second);
        assert!(post(&mut guest, 6));
        assert_eq!(numbers(&mut first), [6]);
    }
}

// Goal: a half on hold leaves the ring to the half of the older lane, and takes the ring after the
// hold.
#[test]
fn a_held_half_leaves_the_ring() {
    let (shape, _) = shapes(8).next().unwrap();
    let mut guest = Guest::new(shape, true);
    let buffers = bufs(&mut guest.memory, &[2048], true);
    guest.driver.add(&buffers).unwrap();
    guest.driver.publish();
    let (mut old, mut new) = (guest.rx_half(), guest.rx_half());
    new.hold(true).unwrap();
    assert!(new.reserve(100).unwrap().is_none());
    assert!(old.reserve(100).unwrap().is_some());
    old.park();
    new.hold(false).unwrap();
    assert!(new.reserve(100).unwrap().is_some());
    new.hold(true).unwrap();
    assert!(old.reserve(100).unwrap().is_some(), "it was given back");
}

// Goal: a sleeping half wakes for a recall and returns the ring to the control thread. The half
// does not take the ring again before it is offered. The base of the returned ring is the position
// at which the half stopped.
#[test]
fn rings_are_recalled() {
    for (shape, _) in shapes(8) {
        let mut guest = Guest::new(shape, true);
        let mut half = guest.tx_half();
        let epoll = Epoll::new().unwrap();
        epoll.add(half.event().unwrap().fd, Interest::ReadableEdge, 0).unwrap();
        let wakes = || epoll.wait(Some(Duration::ZERO), |_| ()).unwrap() > 0;
        post(&mut guest, 1);
        assert_eq!(numbers(&mut half), [1]);
        assert_eq!(half.arm(0).unwrap(), Armed::Sleep);
        while wakes() {}
        guest.cell.recall().unwrap();
        assert!(guest.cell.take().is_none(), "the half has it still");
        assert!(wakes());
        post(&mut guest, 2);
        assert!(numbers(&mut half).is_empty());
        assert!(numbers(&mut half).is_empty(), "it stays away");
        let vring = guest.cell.take().unwrap();
        let base = if shape.packed { 0x8001_8001 } else { 1 };
        assert_eq!((vring.base(), vring.queue()), (base, 1));
        guest.cell.offer(vring).unwrap();
        assert!(wakes());
        assert_eq!(numbers(&mut half), [2]);
    }
}

// Goal: a half with a ring that is recalled within a burst publishes the used chains first. The
// guest receives these chains, and the next lease continues after them.
#[test]
fn recalled_ring_publishes_used_chains() {
    for (shape, _) in shapes(8) {
        let mut guest = Guest::new(shape, true);
        for buf in bufs(&mut guest.memory, &[2048; 4], true) {
            guest.driver.add(&[buf]).unwrap();
        }
        guest.driver.publish();
        let mut half = guest.rx_half();
        let place = |half: &mut mqnet_vhost_user::GuestRx| {
            let there = half.reserve(100).unwrap().is_some();
            if there {
                half.commit(&FrameMeta { len: 100, hdr: VnetHdr::default() });
            }
            there
        };
        assert!((0..3).all(|_| place(&mut half)));
        guest.cell.recall().unwrap();
        assert!(!place(&mut half));
        half.flush().unwrap();
        let vring = guest.cell.take().unwrap();
        assert_eq!(vring.base(), if shape.packed { 0x8003_8003 } else { 3 }, "{shape:?}");
        assert_eq!(std::iter::from_fn(|| guest.driver.used()).count(), 3, "{shape:?}");
        guest.cell.offer(vring).unwrap();
        assert!(place(&mut half));
        half.flush().unwrap();
        assert_eq!(std::iter::from_fn(|| guest.driver.used()).count(), 1, "{shape:?}");
    }
}

/// Inflight region of a queue.
struct Notes {
    region: Arc<Region>,
    len: u32,
}

impl Notes {
    fn new(shape: Shape) -> Self {
        let len = region_len(shape.packed, shape.size);
        Self { region: Arc::new(Region::private(len as usize, false, None).unwrap()), len }
    }

    fn table(&self) -> AtomicTable {
        AtomicTable::new(self.region.clone(), 0, self.len).unwrap()
    }

    fn setup(&self, guest: &Guest) -> VringSetup {
        VringSetup { inflight: Some(self.table()), ..guest.setup() }
    }
}

/// Copy of the guest's ring memory and of the inflight region, as a crash would leave them.
fn memory_image(guest: &Guest, notes: &Notes) -> (Vec<u8>, Vec<u64>) {
    let used = guest.driver.addresses()[2] + 4096 - START;
    let words = (0..notes.len / 8).map(|i| notes.region.word(i as usize * 8));
    let words = words.map(|word| word.load(std::sync::atomic::Ordering::Relaxed));
    (guest.memory.read(START, used as u32), words.collect())
}

// Goal: a device that crashed between two polls continues at its position, although its frontend
// knows only the initial base. No frame is lost or duplicated.
#[test]
fn restarted_device_continues() {
    for (shape, _) in shapes(8) {
        let mut guest = Guest::new(shape, true);
        let notes = Notes::new(shape);
        guest.cell.take();
        for life in 0..20u8 {
            // The base in `setup` is the initial one, which is outdated.
            guest.cell.offer(Vring::new(notes.setup(&guest)).unwrap()).unwrap();
            let mut half = guest.tx_half();
            (0..7).for_each(|n| assert!(post(&mut guest, life * 7 + n)));
            let expected: Vec<u8> = (0..7).map(|n| life * 7 + n).collect();
            assert_eq!(numbers(&mut half), expected);
            assert_eq!(std::iter::from_fn(|| guest.driver.used()).count(), 7);
            half.park();
            guest.cell.take();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    // Goal: a device that crashes at any store of a batch neither loses a buffer nor uses one
    // twice, whichever stores had become visible. The test combines memory images from before and
    // after the batch. Only packed rings are tested: a split ring publishes a batch by one index.
    #[test]
    fn batches_are_finished_or_undone(
        before in 0u16..20,
        batch in 1usize..6,
        slots in 1usize..3,
        first_written in any::<bool>(),
        finished in any::<bool>(),
    ) {
        let shape = Shape { packed: true, size: 12, event_idx: false };
        let mut guest = Guest::new(shape, false);
        let notes = Notes::new(shape);
        guest.cell.take();
        guest.cell.offer(Vring::new(notes.setup(&guest)).unwrap()).unwrap();
        let mut half = guest.rx_half();
        let lens = [[200u32, 300], [500, 0]];
        let lens = &lens[2 - slots][..slots];
        let post = |guest: &mut Guest| {
            let bufs = bufs(&mut guest.memory, lens, true);
            guest.driver.add(&bufs).unwrap()
        };
        for i in 0..before {
            post(&mut guest);
            prop_assert!(send(&mut half, VnetHdr::default(), &[i as u8; 60]).unwrap());
            prop_assert!(guest.driver.used().is_some());
        }
        let ids: Vec<u16> = (0..batch).map(|_| post(&mut guest)).collect();
        let old = memory_image(&guest, &notes);
        let bytes = [9; 77];
        let mut burst = mqnet_netdev::Burst::new();
        for _ in 0..batch {
            burst.push(VnetHdr::default(), 77, mqnet_shmem::Span::of(&bytes));
        }
        prop_assert_eq!(half.submit(&burst, 0).unwrap(), batch);
        half.flush().unwrap();
        let new = memory_image(&guest, &notes);
        drop(half);
        guest.cell.take();
        // At the crash, the batch is recorded, and all its descriptors except the first are
        // written. The first descriptor (`first_written`) and the end of the record (`finished`)
        // may be written too.
        let ring = guest.driver.addresses()[0];
        let first = ring + 16 * u64::from((before * slots as u16) % 12);
        if !first_written {
            let at = (first - START) as usize;
            guest.memory.write(first, &old.0[at..at + 16]);
        }
        if !(first_written && finished) {
            unfinish(&notes, &old, &new, ring, slots, batch, before);
        }
        guest.cell.offer(Vring::new(notes.setup(&guest)).unwrap()).unwrap();
        let mut half = guest.rx_half();
        if !first_written {
            for id in &ids {
                prop_assert_eq!(guest.driver.used(), None);
                prop_assert!(send(&mut half, VnetHdr::default(), &[8; 33]).unwrap());
                prop_assert_eq!(guest.driver.used(), Some((*id, 45)));
            }
        } else {
            for id in &ids {
                prop_assert_eq!(guest.driver.used(), Some((*id, 89)));
            }
        }
        prop_assert!(!send(&mut half, VnetHdr::default(), &[1; 33]).unwrap());
        let id = post(&mut guest);
        prop_assert!(send(&mut half, VnetHdr::default(), &[1; 33]).unwrap());
        prop_assert_eq!(guest.driver.used(), Some((id, 45)));
    }
}

/// Sets the inflight region to the state of a batch that is recorded and not finished, as the
/// vhost-user specification defines each entry.
fn unfinish(
    notes: &Notes,
    old: &(Vec<u8>, Vec<u64>),
    new: &(Vec<u8>, Vec<u64>),
    ring: u64,
    slots: usize,
    batch: usize,
    before: u16,
) {
    use std::sync::atomic::Ordering::Relaxed;
    let place =
        |count: usize| (count % 12) as u64 | u64::from((count / 12).is_multiple_of(2)) << 32;
    let (from, to) = (before as usize * slots, (before as usize + batch) * slots);
    assert_eq!(new.1[2], place(to) | place(to) << 16 & 0xffff_0000 | place(to) >> 32 << 40);
    let used = place(to) | place(from) << 16 & 0xffff_0000 | place(from) >> 32 << 40;
    notes.region.word(16).store(used, Relaxed);
    for i in 0..batch * slots {
        let entry = 32 + 32 * i;
        let desc = (ring - START) as usize + 16 * ((from + i) % 12);
        let word = |at: usize| u64::from_le_bytes(old.0[at..at + 8].try_into().unwrap());
        let (addr, rest) = (word(desc), word(desc + 8));
        notes.region.word(entry + 24).store(addr, Relaxed);
        notes.region.word(entry + 16).store(rest.rotate_left(32), Relaxed);
        let is_head = i % slots == 0;
        let head = 1 | ((i + slots - 1) as u64) << 32 | (slots as u64) << 48;
        let links = (i as u64 + 1) << 16;
        notes.region.word(entry).store(links | if is_head { head } else { 0 }, Relaxed);
        notes.region.word(entry + 8).store((before as usize + i + 1) as u64, Relaxed);
    }
}

// Goal: an inflight region for another ring size, or one that is too short or not aligned, is
// refused.
#[test]
fn invalid_inflight_regions_are_refused() {
    for packed in [false, true] {
        let shape = Shape { packed, size: 8, event_idx: false };
        let guest = Guest::new(shape, true);
        let notes = Notes::new(shape);
        notes.region.word(8).store(1 | 9 << 16, std::sync::atomic::Ordering::Relaxed);
        let reason = Vring::new(notes.setup(&guest)).unwrap_err().to_string();
        assert!(reason.contains("version 1 for 9 descriptors"), "{reason}");
        let short = Notes { len: 64, region: notes.region.clone() };
        assert!(Vring::new(short.setup(&guest)).is_err());
        let odd = AtomicTable::new(Notes::new(shape).region, 4, region_len(packed, 8)).unwrap();
        let odd = VringSetup { inflight: Some(odd), ..guest.setup() };
        assert!(Vring::new(odd).unwrap_err().to_string().contains("inflight region"));
    }
}

// Goal: during a migration exactly the written pages are logged: those of buffers and of used
// entries.
#[test]
fn written_pages_are_logged() {
    for (shape, mergeable) in shapes(16) {
        let mut guest = Guest::new(shape, mergeable);
        let far = START + (1 << 20);
        let lens: &[u64] = if mergeable { &[5000, 6000] } else { &[8000] };
        for (i, len) in lens.iter().enumerate() {
            let at = far + i as u64 * 0x10000 + 4000;
            guest.driver.add(&[Buf { at, len: *len as u32, write: true }]).unwrap();
        }
        guest.driver.publish();
        let bits = Arc::new(Region::private(4096, false, None).unwrap());
        let log = Arc::new(Log::new(AtomicTable::new(bits.clone(), 0, 4096).unwrap()));
        let [desc, _, device] = guest.driver.addresses();
        let mut vring = guest.cell.take().unwrap();
        vring.set_log(Some(RingLog { log, desc, device }));
        guest.cell.offer(vring).unwrap();
        let mut half = guest.rx_half();
        assert!(send(&mut half, VnetHdr::default(), &[7; 7000]).unwrap());
        let noted: Vec<u64> = (0..4096 * 8u64)
            .filter(|page| {
                let word = bits.word((page / 64 * 8) as usize);
                word.load(std::sync::atomic::Ordering::Relaxed) >> (page % 64) & 1 == 1
            })
            .map(|page| page << 12)
            .collect();
        let ring = if shape.packed { desc } else { device };
        let mut expected = vec![ring & !4095, (ring + 4) & !4095];
        // The frame takes 7012 bytes from offset 4000 of a page. One buffer has 96, 4096 and 2820
        // bytes in its pages; two buffers have 96, 4096 and 808, and 96 and 1916.
        expected.extend([far, far + 0x1000]);
        if mergeable {
            expected.extend([far + 0x2000, far + 0x10000, far + 0x11000]);
        } else {
            expected.push(far + 0x2000);
        }
        expected.sort_unstable();
        expected.dedup();
        assert_eq!(noted, expected, "{shape:?} {mergeable}");
    }
}
