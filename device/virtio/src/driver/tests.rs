//! Driver queues of both layouts against a minimal device.

mod device;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use mqnet_shmem::{AtomicTable, Region};
use proptest::prelude::*;

use device::{Device, Found, PackedDevice, SplitDevice};

use super::*;
use crate::layout;

const SIZE: u16 = 16;

fn tables(region: &Arc<Region>, areas: [u32; 3]) -> [AtomicTable; 3] {
    let mut at = 0;
    areas.map(|len| {
        let table = AtomicTable::new(region.clone(), at, len).unwrap();
        at += (len as usize).next_multiple_of(64);
        table
    })
}

type Pair = (Box<dyn DriverQueue>, Box<dyn Device>);

fn split(event_idx: bool, in_order: bool) -> Pair {
    let region = Arc::new(Region::private(4096, false, None).unwrap());
    let areas = || tables(&region, layout::split::areas(SIZE));
    let device = SplitDevice { areas: areas(), event_idx, taken: 0, given: 0, checked: 0 };
    (split_driver(areas(), event_idx, in_order), Box::new(device))
}

fn split_driver(areas: [AtomicTable; 3], event_idx: bool, in_order: bool) -> Box<dyn DriverQueue> {
    use crate::split::driver::{SplitDriverQueue, SplitInOrderQueue};
    if in_order {
        return Box::new(SplitInOrderQueue::new(7, SIZE, areas, event_idx));
    }
    Box::new(SplitDriverQueue::new(7, SIZE, areas, event_idx))
}

fn packed(event_idx: bool, in_order: bool) -> Pair {
    let region = Arc::new(Region::private(4096, false, None).unwrap());
    let areas = || tables(&region, layout::packed::areas(SIZE));
    let start = (0, true);
    let device =
        PackedDevice { areas: areas(), event_idx, take: start, give: start, unchecked: Vec::new() };
    (packed_driver(areas(), event_idx, in_order), Box::new(device))
}

fn packed_driver(areas: [AtomicTable; 3], event_idx: bool, in_order: bool) -> Box<dyn DriverQueue> {
    use crate::packed::driver::{PackedDriverQueue, PackedInOrderQueue};
    if in_order {
        return Box::new(PackedInOrderQueue::new(7, SIZE, areas, event_idx));
    }
    Box::new(PackedDriverQueue::new(7, SIZE, areas, event_idx))
}

fn all() -> impl Iterator<Item = Pair> {
    let events = [false, true].into_iter();
    events.flat_map(|e| [split(e, false), split(e, true), packed(e, false), packed(e, true)])
}

/// Pairs with `IN_ORDER`.
fn in_order() -> impl Iterator<Item = Pair> {
    all().filter(|(driver, _)| driver.in_order())
}

fn one(len: u32) -> [MemoryRange; 1] {
    [MemoryRange { at: 0x1000, len }]
}

#[derive(Clone, Debug)]
enum Act {
    Add(usize, usize),
    Publish,
    Take(usize),
    Give(usize),
    GiveMany(usize),
    Reap(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (1..5usize, 0..5usize).prop_map(|(n, r)| Act::Add(n, r.min(n))),
        2 => Just(Act::Publish),
        2 => (1..8usize).prop_map(Act::Take),
        2 => (0..8usize).prop_map(Act::Give),
        1 => (1..8usize).prop_map(Act::GiveMany),
        2 => (1..8usize).prop_map(Act::Reap),
    ]
}

/// Number of device-writable bytes.
fn room(pieces: &[(MemoryRange, bool)]) -> u32 {
    pieces.iter().filter(|(_, writes)| *writes).map(|(piece, _)| piece.len).sum()
}

/// Returns several buffers to the driver by one used entry. The result lists the used buffers that
/// the driver must take, each with its number of descriptors.
fn give_many(
    device: &mut dyn Device,
    buffers: impl ExactSizeIterator<Item = Found>,
) -> Vec<(UsedBuffer, u16)> {
    let (most, mut count, mut given) = (buffers.len(), 0, Vec::new());
    for (id, pieces) in buffers {
        let (slots, mut len) = (pieces.len() as u16, room(&pieces));
        count += slots;
        if given.len() + 1 == most {
            len /= 2;
            device.give_many(id, len, most as u16, count);
        }
        given.push((UsedBuffer { id, len }, slots));
    }
    given
}

/// Applies operations to a queue and to a model of its content.
fn run((mut driver, mut device): Pair, acts: &[Act]) {
    let (mut hidden, mut shown) = (VecDeque::new(), VecDeque::new());
    let (mut taken, mut given) = (Vec::new(), VecDeque::new());
    let mut serial = 0u64;
    let mut free = SIZE;
    for act in acts {
        match *act {
            Act::Add(count, readable) => {
                let pieces: Vec<MemoryRange> = (0..count as u64)
                    .map(|n| MemoryRange { at: serial << 8 | n, len: 100 + n as u32 })
                    .collect();
                let expected = driver.next_id();
                let id = driver.add(&pieces, readable);
                assert_eq!(id.is_some(), count as u16 <= free, "{count} of {free}");
                if let Some(id) = id {
                    assert_eq!(Some(id), expected);
                    serial += 1;
                    free -= count as u16;
                    hidden.push_back((id, pieces, readable));
                }
            }
            Act::Publish => {
                driver.publish();
                shown.append(&mut hidden);
            }
            Act::Take(n) => {
                for _ in 0..n {
                    let Some((id, found)) = device.take() else {
                        assert!(shown.is_empty());
                        break;
                    };
                    let (expected, pieces, readable) = shown.pop_front().expect("unpublished");
                    assert_eq!(id, expected);
                    let writes = |n: usize| n >= readable;
                    let pieces: Vec<_> =
                        pieces.into_iter().enumerate().map(|(n, p)| (p, writes(n))).collect();
                    assert_eq!(found, pieces);
                    taken.push((id, found));
                }
            }
            Act::Give(nth) if nth < taken.len() => {
                let nth = if driver.in_order() { 0 } else { nth };
                let (id, pieces) = taken.remove(nth);
                let len = room(&pieces) / 2;
                device.give(id, len, pieces.len() as u16);
                given.push_back((UsedBuffer { id, len }, pieces.len() as u16));
            }
            Act::Give(_) => {}
            // Expect all buffers except the last as completely written.
            Act::GiveMany(n) if driver.in_order() && n <= taken.len() => {
                given.extend(give_many(&mut *device, taken.drain(..n)));
            }
            Act::GiveMany(_) => {}
            Act::Reap(n) => {
                for _ in 0..n {
                    let used = driver.take_used().unwrap();
                    assert_eq!(used, given.front().map(|(used, _)| *used));
                    free += given.pop_front().map_or(0, |(_, count)| count);
                }
            }
        }
        assert_eq!(driver.free(), free);
    }
}

proptest! {
    // Goal: for any operations, each side finds exactly the data of the other side, over many
    // rounds of the ring. Without `IN_ORDER`, buffers return in any order. With `IN_ORDER`, they
    // return in order, and one used entry may return several.
    #[test]
    fn both_sides_see_the_same(acts in prop::collection::vec(act(), 1..400)) {
        for pair in all() {
            run(pair, &acts);
        }
    }

    // Goal: random bytes in all device-writable areas are detected or harmless: an id that the
    // device does not own never returns, and no id returns twice.
    #[test]
    fn noise_is_harmless(noise in prop::collection::vec((0..512u32, any::<u32>()), 1..60)) {
        for in_order in [false, true] {
            let region = Arc::new(Region::private(4096, false, None).unwrap());
            let areas = layout::split::areas(SIZE);
            let used = &tables(&region, areas)[2];
            disturb(&mut *split_driver(tables(&region, areas), true, in_order), used, &noise);
            let region = Arc::new(Region::private(4096, false, None).unwrap());
            let areas = layout::packed::areas(SIZE);
            let desc = &tables(&region, areas)[0];
            disturb(&mut *packed_driver(tables(&region, areas), true, in_order), desc, &noise);
        }
    }
}

fn disturb(driver: &mut dyn DriverQueue, memory: &AtomicTable, noise: &[(u32, u32)]) {
    let mut out = std::collections::BTreeSet::new();
    for &(at, value) in noise {
        while let Some(id) = driver.add(&one(64), 0) {
            assert!(out.insert(id), "{id} is out already");
        }
        driver.publish();
        driver.needs_kick();
        memory.word(at * 4 % (memory.len() / 4 * 4)).store(value, Relaxed);
        driver.arm(3);
        for _ in 0..2 * SIZE {
            match driver.take_used() {
                Ok(Some(used)) => {
                    assert!(out.remove(&used.id) && used.len <= 64);
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

// Goal: an id out of range, an id that the device does not own, an id returned twice, and a length
// beyond the buffer each fail the queue. The error has the number of the queue and the invalid
// values.
#[test]
fn invalid_used_entries_are_detected() {
    type Violation = fn(&mut dyn Device, u16);
    let cases: [(&str, Violation); 3] = [
        ("buffer 16 used, but", |device, _| device.give(16, 0, 1)),
        ("used, but", |device, id| {
            device.give(id, 0, 1);
            device.give(id, 0, 1);
        }),
        ("of 64 bytes used with 65 bytes", |device, id| device.give(id, 65, 1)),
    ];
    for (words, violate) in cases {
        for (mut driver, mut device) in all() {
            for _ in 0..4 {
                driver.add(&one(64), 0).unwrap();
            }
            driver.publish();
            let (id, _) = device.take().unwrap();
            violate(&mut *device, id);
            let broken = (0..3).find_map(|_| driver.take_used().err()).unwrap();
            assert_eq!(broken.queue, 7);
            assert!(broken.what.contains(words), "{broken}");
        }
    }
}

// Goal: a used index beyond the available buffers is detected.
#[test]
fn used_index_ahead_is_detected() {
    let region = Arc::new(Region::private(4096, false, None).unwrap());
    let areas = || tables(&region, layout::split::areas(SIZE));
    let mut driver = crate::split::driver::SplitDriverQueue::new(3, SIZE, areas(), false);
    driver.add(&one(8), 0).unwrap();
    driver.publish();
    areas()[2].half(2).store(2, Relaxed);
    let broken = driver.take_used().unwrap_err();
    assert_eq!(broken.to_string(), "queue 3: used index 2 is 2 ahead, at most 1 are possible");
}

// Goal: after new buffers, the driver notifies a device that requests notifications, and no other
// device. Without new buffers, the driver sends no further notification.
#[test]
fn kicks_follow_requests() {
    for (mut driver, mut device) in all() {
        for round in 0..100 {
            let wanted = round % 3 != 0;
            device.want_kicks(wanted);
            driver.add(&one(8), 1).unwrap();
            driver.add(&one(8), 1).unwrap();
            driver.publish();
            assert_eq!(driver.needs_kick(), wanted, "round {round}");
            assert!(!driver.needs_kick(), "nothing new");
            for _ in 0..2 {
                let (id, _) = device.take().unwrap();
                device.give(id, 0, 1);
                assert!(driver.take_used().unwrap().is_some());
            }
        }
    }
}

// Goal: an armed queue receives an interrupt; a disarmed queue receives none. `arm` returns true if
// a buffer is used already.
#[test]
fn interrupts_come_when_armed() {
    for (mut driver, mut device) in all() {
        for round in 0..50 {
            for _ in 0..4 {
                driver.add(&one(8), 1).unwrap();
            }
            driver.publish();
            let ids: Vec<u16> = (0..4).map(|_| device.take().unwrap().0).collect();
            driver.disarm();
            device.give(ids[0], 0, 1);
            assert!(!device.interrupts(), "round {round}: disarmed");
            assert!(driver.arm(1), "round {round}: it is there already");
            driver.take_used().unwrap().unwrap();
            assert!(!driver.arm(1), "round {round}: nothing is there");
            device.give(ids[1], 0, 1);
            assert!(device.interrupts(), "round {round}: armed");
            driver.take_used().unwrap().unwrap();
            assert!(!driver.arm(2));
            device.give(ids[2], 0, 1);
            device.give(ids[3], 0, 1);
            assert!(device.interrupts(), "round {round}: armed for the second");
            while driver.take_used().unwrap().is_some() {}
            assert_eq!(driver.free(), SIZE);
        }
    }
}

// Goal: the device finds a held buffer unchanged after it is added again, over many rounds of the
// ring and out of order. A used entry for a held buffer is an error. A released id is free and is
// used next.
#[test]
fn held_buffers_are_added_again() {
    for (mut driver, mut device) in all() {
        let piece = |id: u16| MemoryRange { at: 0x1000 + u64::from(id) * 256, len: 200 };
        while let Some(id) = driver.next_id() {
            assert_eq!(driver.add_one(piece(id), false), Some(id));
        }
        driver.publish();
        for round in 0..100 {
            let mut found: Vec<Found> = (0..3).map(|_| device.take().unwrap()).collect();
            if !driver.in_order() {
                found.reverse();
            }
            for (id, pieces) in &found {
                assert_eq!(pieces, &[(piece(*id), true)]);
                device.give(*id, round, 1);
            }
            for (id, _) in &found {
                assert_eq!(driver.hold_used().unwrap(), Some(UsedBuffer { id: *id, len: round }));
                assert_eq!(driver.add_again(*id, piece(*id)), *id);
            }
            assert_eq!((driver.hold_used().unwrap(), driver.free()), (None, 0));
            driver.publish();
        }
        let (id, _) = device.take().unwrap();
        device.give(id, 1, 1);
        assert!(driver.hold_used().unwrap().is_some());
        device.give(id, 1, 1);
        assert!(driver.hold_used().is_err());
        driver.let_go(id);
        assert_eq!((driver.free(), driver.next_id()), (1, Some(id)));
    }
}

// Goal: with `IN_ORDER`, held buffers that follow a released buffer are added under other ids. The
// device finds and returns each buffer under the id that `add_again` returned, over many rounds.
#[test]
fn in_order_buffers_move_up() {
    for (mut driver, mut device) in in_order() {
        let mut pieces: Vec<MemoryRange> = (0..SIZE)
            .map(|n| MemoryRange { at: 0x1000 * u64::from(n), len: 100 + u32::from(n) })
            .collect();
        for piece in &pieces {
            driver.add_one(*piece, false).unwrap();
        }
        driver.publish();
        for round in 0..50u16 {
            let found: Vec<Found> = (0..5).map(|_| device.take().unwrap()).collect();
            for (id, there) in &found {
                assert_eq!(there, &[(pieces[usize::from(*id)], true)], "round {round}");
                device.give(*id, 7, 1);
                assert_eq!(driver.hold_used().unwrap(), Some(UsedBuffer { id: *id, len: 7 }));
            }
            let gone = usize::from(round % 5);
            driver.let_go(found[gone].0);
            for (number, (id, there)) in found.iter().enumerate() {
                if number != gone {
                    let at = driver.add_again(*id, there[0].0);
                    assert_eq!(at == *id, number < gone);
                    pieces[usize::from(at)] = there[0].0;
                }
            }
            let id = driver.add_one(found[gone].1[0].0, false).unwrap();
            pieces[usize::from(id)] = found[gone].1[0].0;
            driver.publish();
            assert_eq!((driver.free(), driver.hold_used().unwrap()), (0, None));
        }
    }
}

// Goal: a used entry of a device-readable buffer frees all buffers up to and including that buffer,
// across the end of the ring and for several entries. An id that was not added or has returned
// already is an error.
#[test]
fn sent_buffers_return_by_one_entry() {
    for (mut driver, mut device) in in_order() {
        for round in 0..40 {
            for at in 0..7 {
                let id = driver.take_id().unwrap();
                driver.add_taken(id, MemoryRange { at, len: 60 });
            }
            driver.publish();
            let ids: Vec<u16> = (0..7).map(|_| device.take().unwrap().0).collect();
            device.give_many(ids[4], 0, 5, 5);
            assert_eq!(driver.take_sent().unwrap(), Some(ids[4]));
            assert_eq!((driver.take_sent().unwrap(), driver.in_flight()), (None, 2), "{round}");
            device.give_many(ids[6], 0, 2, 2);
            assert_eq!(driver.take_sent().unwrap(), Some(ids[6]));
            assert_eq!(driver.free(), SIZE);
        }
        for all in [1, 5, 9] {
            for at in 0..all {
                let id = driver.take_id().unwrap();
                driver.add_taken(id, MemoryRange { at, len: 60 });
            }
            driver.publish();
            let ids: Vec<u16> = (0..all).map(|_| device.take().unwrap().0).collect();
            ids.iter().for_each(|id| device.give(*id, 0, 1));
            let last = std::iter::from_fn(|| driver.take_sent().unwrap()).last();
            assert_eq!((last, driver.free()), (ids.last().copied(), SIZE));
        }
        let id = driver.take_id().unwrap();
        driver.add_taken(id, MemoryRange { at: 0, len: 60 });
        driver.publish();
        device.give((id + 1) % SIZE, 0, 1);
        assert!(driver.take_sent().unwrap_err().what.contains("out of order"));
    }
}

// Goal: all descriptors are free after the device used device-readable chains, also if the first
// buffer has only one descriptor.
#[test]
fn sent_chains_return_whole() {
    for (mut driver, mut device) in in_order() {
        let pieces = [1, 2, 3].map(|at| MemoryRange { at, len: 60 });
        for round in 0..20 {
            driver.add(&pieces[..1 + round % 3], 3).unwrap();
            driver.add(&pieces, 3).unwrap();
            driver.publish();
            let found: Vec<Found> = (0..2).map(|_| device.take().unwrap()).collect();
            for (id, pieces) in &found {
                device.give(*id, 0, pieces.len() as u16);
            }
            let sent: Vec<u16> = std::iter::from_fn(|| driver.take_sent().unwrap()).collect();
            assert_eq!(sent.last(), Some(&found[1].0), "round {round}");
            assert_eq!(driver.free(), SIZE, "round {round}");
        }
    }
}

// Goal: the device finds exactly the descriptors that were added, for any previous content of the
// descriptor table. The previous content may be equal, differ in address or length, be
// device-writable, be a chain, or be written by the device.
#[test]
fn descriptors_are_of_this_round() {
    for in_order in [false, true] {
        let region = Arc::new(Region::private(4096, false, None).unwrap());
        let areas = || tables(&region, layout::split::areas(SIZE));
        let mut driver = split_driver(areas(), false, in_order);
        let mut device =
            SplitDevice { areas: areas(), event_idx: false, taken: 0, given: 0, checked: 0 };
        let [desc, ..] = areas();
        let (here, there) =
            (MemoryRange { at: 0x1000, len: 60 }, MemoryRange { at: 0x2000, len: 60 });
        let longer = MemoryRange { at: 0x2000, len: 1514 };
        for piece in [here, here, there, longer, longer, here] {
            for scribble in [None, Some(0u32), Some(2), Some(3)] {
                for _ in 0..SIZE {
                    let id = driver.take_id().unwrap();
                    driver.add_taken(id, piece);
                }
                driver.publish();
                for _ in 0..SIZE {
                    let (id, pieces) = device.take().unwrap();
                    assert_eq!(pieces, [(piece, false)], "after {scribble:?}");
                    device.give(id, 0, 1);
                }
                while driver.take_sent().unwrap().is_some() {}
                if let Some(word) = scribble {
                    (0..u32::from(SIZE))
                        .for_each(|id| desc.word(16 * id + 4 * word).store(!0, Relaxed));
                }
            }
            // Repeat with device-writable descriptors and with chains.
            driver.add(&[here; 4], 2).unwrap();
            driver.add_one(here, false).unwrap();
            driver.publish();
            for count in [4, 1] {
                let (id, pieces) = device.take().unwrap();
                assert_eq!(pieces.len(), count);
                device.give(id, 0, count as u16);
                assert!(driver.take_used().unwrap().is_some());
            }
        }
    }
}

// Goal: a used index that moves backwards is an error after the buffers up to the earlier index are
// taken.
#[test]
fn used_index_backwards_is_detected() {
    for in_order in [false, true] {
        let region = Arc::new(Region::private(4096, false, None).unwrap());
        let areas = || tables(&region, layout::split::areas(SIZE));
        let mut driver = split_driver(areas(), true, in_order);
        (0..8).for_each(|_| {
            assert!(driver.add_one(MemoryRange { at: 0, len: 100 }, false).is_some())
        });
        driver.publish();
        let [_, _, used] = areas();
        for id in 0..4 {
            used.word(4 + 8 * id).store(if in_order { 3 } else { id }, Relaxed);
            used.word(8 + 8 * id).store(10, Relaxed);
        }
        used.half(2).store(4, Release);
        assert!(driver.take_used().unwrap().is_some());
        used.half(2).store(2, Release);
        assert!(driver.arm(1), "there is work");
        (0..3).for_each(|_| assert!(driver.take_used().unwrap().is_some()));
        let broken = driver.take_used().unwrap_err();
        assert_eq!(
            broken.to_string(),
            "queue 7: used index 2 is 65534 ahead, at most 4 are possible"
        );
    }
}
