//! Both layouts against a device of a few lines, which follows the same text and no code of ours.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use mqnet_shmem::{Region, Table};
use proptest::prelude::*;

use super::*;
use crate::layout;

const SIZE: u16 = 16;

fn tables(region: &Arc<Region>, areas: [u32; 3]) -> [Table; 3] {
    let mut at = 0;
    areas.map(|len| {
        let table = Table::new(region.clone(), at, len).unwrap();
        at += (len as usize).next_multiple_of(64);
        table
    })
}

/// What a device found: id, and pieces with whether it may write them.
type Found = (u16, Vec<(Piece, bool)>);

trait Device {
    fn take(&mut self) -> Option<Found>;
    fn give(&mut self, id: u16, len: u32, count: u16);
    /// Gives back `buffers` of `count` descriptors in all and names only the last.
    fn give_many(&mut self, last: u16, len: u32, buffers: u16, count: u16);
    /// The driver wants to hear of what was given since the last call.
    fn interrupts(&mut self) -> bool;
    fn want_kicks(&mut self, on: bool);
}

struct SplitDevice {
    areas: [Table; 3],
    event_idx: bool,
    taken: u16,
    given: u16,
    told: u16,
}

impl Device for SplitDevice {
    fn take(&mut self) -> Option<Found> {
        let [desc, avail, _] = &self.areas;
        if avail.half(2).load(Acquire) == self.taken {
            return None;
        }
        let head = avail.half(4 + 2 * u32::from(self.taken % SIZE)).load(Relaxed);
        self.taken = self.taken.wrapping_add(1);
        let (mut id, mut pieces) = (head, Vec::new());
        loop {
            let place = u32::from(id) * 16;
            let flags = desc.half(place + 12).load(Relaxed);
            let piece = Piece {
                at: desc.double(place).load(Relaxed),
                len: desc.word(place + 8).load(Relaxed),
            };
            pieces.push((piece, flags & 2 != 0));
            if flags & 1 == 0 {
                return Some((head, pieces));
            }
            id = desc.half(place + 14).load(Relaxed);
        }
    }

    fn give(&mut self, id: u16, len: u32, _count: u16) {
        let used = &self.areas[2];
        let place = 4 + 8 * u32::from(self.given % SIZE);
        used.word(place).store(id.into(), Relaxed);
        used.word(place + 4).store(len, Relaxed);
        self.given = self.given.wrapping_add(1);
        used.half(2).store(self.given, Release);
    }

    fn give_many(&mut self, last: u16, len: u32, buffers: u16, _count: u16) {
        // The entry stands where the first one's would, and the index moves on behind all.
        let used = &self.areas[2];
        let place = 4 + 8 * u32::from(self.given % SIZE);
        used.word(place).store(last.into(), Relaxed);
        used.word(place + 4).store(len, Relaxed);
        self.given = self.given.wrapping_add(buffers);
        used.half(2).store(self.given, Release);
    }

    fn interrupts(&mut self) -> bool {
        let avail = &self.areas[1];
        let old = std::mem::replace(&mut self.told, self.given);
        if !self.event_idx {
            return old != self.given && avail.half(0).load(Relaxed) & 1 == 0;
        }
        let event = avail.half(4 + 2 * u32::from(SIZE)).load(Relaxed);
        (0..self.given.wrapping_sub(old)).any(|n| old.wrapping_add(n) == event)
    }

    fn want_kicks(&mut self, on: bool) {
        let used = &self.areas[2];
        if !self.event_idx {
            return used.half(0).store(u16::from(!on), Relaxed);
        }
        let event = if on { self.taken } else { self.taken.wrapping_sub(1) };
        used.half(4 + 8 * u32::from(SIZE)).store(event, Relaxed);
    }
}

struct PackedDevice {
    areas: [Table; 3],
    event_idx: bool,
    take: (u16, bool),
    give: (u16, bool),
    /// Places that were used since the driver was told.
    untold: Vec<(u16, bool)>,
}

fn step((at, wrap): (u16, bool), by: u16) -> (u16, bool) {
    if at + by >= SIZE { (at + by - SIZE, !wrap) } else { (at + by, wrap) }
}

impl Device for PackedDevice {
    fn take(&mut self) -> Option<Found> {
        let mut pieces = Vec::new();
        loop {
            let (at, wrap) = self.take;
            let (desc, place) = (&self.areas[0], u32::from(at) * 16);
            let flags = desc.half(place + 14).load(Acquire);
            let there = (flags & 0x80 != 0) == wrap && (flags & 0x8000 != 0) != wrap;
            if !there {
                assert!(pieces.is_empty(), "a part of a chain was shown");
                return None;
            }
            let piece = Piece {
                at: desc.double(place).load(Relaxed),
                len: desc.word(place + 8).load(Relaxed),
            };
            pieces.push((piece, flags & 2 != 0));
            self.take = step(self.take, 1);
            if flags & 1 == 0 {
                return Some((desc.half(place + 12).load(Relaxed), pieces));
            }
        }
    }

    fn give(&mut self, id: u16, len: u32, count: u16) {
        let ((at, wrap), desc) = (self.give, &self.areas[0]);
        let place = u32::from(at) * 16;
        desc.word(place + 8).store(len, Relaxed);
        desc.half(place + 12).store(id, Relaxed);
        desc.half(place + 14).store(if wrap { 0x8080 } else { 0 }, Release);
        self.untold.push(self.give);
        self.give = step(self.give, count);
    }

    fn give_many(&mut self, last: u16, len: u32, _buffers: u16, count: u16) {
        self.give(last, len, count);
    }

    fn interrupts(&mut self) -> bool {
        let places = std::mem::take(&mut self.untold);
        let ours = self.areas[1].word(0).load(Relaxed);
        match ours >> 16 {
            0 => !places.is_empty(),
            1 => false,
            _ => {
                assert!(self.event_idx);
                places.contains(&((ours & 0x7fff) as u16, ours & 0x8000 != 0))
            }
        }
    }

    fn want_kicks(&mut self, on: bool) {
        let asks = match (on, self.event_idx) {
            (false, _) => 1 << 16,
            (true, false) => 0,
            (true, true) => 2 << 16 | u32::from(self.take.0) | u32::from(self.take.1) << 15,
        };
        self.areas[2].word(0).store(asks, Relaxed);
    }
}

type Pair = (Box<dyn DriverQueue>, Box<dyn Device>);

fn split(event_idx: bool, in_order: bool) -> Pair {
    let region = Arc::new(Region::private(4096, false, None).unwrap());
    let areas = || tables(&region, layout::split::areas(SIZE));
    let device = SplitDevice { areas: areas(), event_idx, taken: 0, given: 0, told: 0 };
    (split_driver(areas(), event_idx, in_order), Box::new(device))
}

fn split_driver(areas: [Table; 3], event_idx: bool, in_order: bool) -> Box<dyn DriverQueue> {
    use crate::split::driver::{Driver, InOrder};
    if in_order {
        return Box::new(InOrder::new(7, SIZE, areas, event_idx));
    }
    Box::new(Driver::new(7, SIZE, areas, event_idx))
}

fn packed(event_idx: bool, in_order: bool) -> Pair {
    let region = Arc::new(Region::private(4096, false, None).unwrap());
    let areas = || tables(&region, layout::packed::areas(SIZE));
    let start = (0, true);
    let device =
        PackedDevice { areas: areas(), event_idx, take: start, give: start, untold: Vec::new() };
    (packed_driver(areas(), event_idx, in_order), Box::new(device))
}

fn packed_driver(areas: [Table; 3], event_idx: bool, in_order: bool) -> Box<dyn DriverQueue> {
    use crate::packed::driver::{Driver, InOrder};
    if in_order {
        return Box::new(InOrder::new(7, SIZE, areas, event_idx));
    }
    Box::new(Driver::new(7, SIZE, areas, event_idx))
}

fn all() -> impl Iterator<Item = Pair> {
    let events = [false, true].into_iter();
    events.flat_map(|e| [split(e, false), split(e, true), packed(e, false), packed(e, true)])
}

/// Those whose buffers come back in order.
fn in_order() -> impl Iterator<Item = Pair> {
    all().filter(|(driver, _)| driver.in_order())
}

fn one(len: u32) -> [Piece; 1] {
    [Piece { at: 0x1000, len }]
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

/// Bytes that a device may write.
fn room(pieces: &[(Piece, bool)]) -> u32 {
    pieces.iter().filter(|(_, writes)| *writes).map(|(piece, _)| piece.len).sum()
}

/// Gives buffers back at once; what the driver must find.
fn give_many(
    device: &mut dyn Device,
    buffers: impl ExactSizeIterator<Item = Found>,
) -> Vec<(Used, u16)> {
    let (most, mut count, mut given) = (buffers.len(), 0, Vec::new());
    for (id, pieces) in buffers {
        let (slots, mut len) = (pieces.len() as u16, room(&pieces));
        count += slots;
        if given.len() + 1 == most {
            len /= 2;
            device.give_many(id, len, most as u16, count);
        }
        given.push((Used { id, len }, slots));
    }
    given
}

/// Runs acts on a queue and on a list of what must be in it.
fn run((mut driver, mut device): Pair, acts: &[Act]) {
    let (mut hidden, mut shown) = (VecDeque::new(), VecDeque::new());
    let (mut taken, mut given) = (Vec::new(), VecDeque::new());
    let mut serial = 0u64;
    let mut free = SIZE;
    for act in acts {
        match *act {
            Act::Add(count, readable) => {
                let pieces: Vec<Piece> = (0..count as u64)
                    .map(|n| Piece { at: serial << 8 | n, len: 100 + n as u32 })
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
                given.push_back((Used { id, len }, pieces.len() as u16));
            }
            Act::Give(_) => {}
            // All but the last count as written to the end.
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
    // Goal: whatever the order of adding, publishing, taking, giving back (out of order; in order
    // also several at once) and reaping, either side finds exactly what the other put there, over
    // many rounds of the ring.
    #[test]
    fn both_sides_see_the_same(acts in prop::collection::vec(act(), 1..400)) {
        for pair in all() {
            run(pair, &acts);
        }
    }

    // Goal: bytes that a device writes at random into everything it may write to are found out or
    // harmless: no id comes back that was not out, and none twice.
    #[test]
    fn random_devices_do_no_harm(noise in prop::collection::vec((0..512u32, any::<u32>()), 1..60)) {
        for in_order in [false, true] {
            let region = Arc::new(Region::private(4096, false, None).unwrap());
            let areas = layout::split::areas(SIZE);
            let used = &tables(&region, areas)[2];
            harass(&mut *split_driver(tables(&region, areas), true, in_order), used, &noise);
            let region = Arc::new(Region::private(4096, false, None).unwrap());
            let areas = layout::packed::areas(SIZE);
            let desc = &tables(&region, areas)[0];
            harass(&mut *packed_driver(tables(&region, areas), true, in_order), desc, &noise);
        }
    }
}

fn harass(driver: &mut dyn DriverQueue, memory: &Table, noise: &[(u32, u32)]) {
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

// Goal: an id out of range, one that is not out, one given twice, and more bytes than there is
// room for: each closes the queue, with its number and the numbers that lied.
#[test]
fn lies_are_found() {
    type Lie = fn(&mut dyn Device, u16);
    let cases: [(&str, Lie); 3] = [
        ("buffer 16 used, which", |device, _| device.give(16, 0, 1)),
        ("used, which", |device, id| {
            device.give(id, 0, 1);
            device.give(id, 0, 1);
        }),
        ("of 64 bytes used with 65 bytes", |device, id| device.give(id, 65, 1)),
    ];
    for (words, lie) in cases {
        for (mut driver, mut device) in all() {
            for _ in 0..4 {
                driver.add(&one(64), 0).unwrap();
            }
            driver.publish();
            let (id, _) = device.take().unwrap();
            lie(&mut *device, id);
            let broken = (0..3).find_map(|_| driver.take_used().err()).unwrap();
            assert_eq!(broken.queue, 7);
            assert!(broken.what.contains(words), "{broken}");
        }
    }
}

// Goal: a used index that runs ahead of what was made available is found out.
#[test]
fn an_index_cannot_run_ahead() {
    let region = Arc::new(Region::private(4096, false, None).unwrap());
    let areas = || tables(&region, layout::split::areas(SIZE));
    let mut driver = crate::split::driver::Driver::new(3, SIZE, areas(), false);
    driver.add(&one(8), 0).unwrap();
    driver.publish();
    areas()[2].half(2).store(2, Relaxed);
    let broken = driver.take_used().unwrap_err();
    assert_eq!(broken.to_string(), "queue 3: used index 2 is 2 ahead, 1 are possible");
}

// Goal: a device that asked for a notification gets exactly one, one that did not gets none, and
// nothing is announced twice.
#[test]
fn kicks_come_when_asked_for() {
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

// Goal: what is armed for is announced, when it has come already the arming says so, and while
// nothing is asked for nothing is announced.
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

// Goal: a buffer that is held and added again is found by the device as it was, over many rounds of
// the ring and out of order; a device that gives back one that is held is found out; one that is
// let go is free.
#[test]
fn held_buffers_come_again() {
    for (mut driver, mut device) in all() {
        let piece = |id: u16| Piece { at: 0x1000 + u64::from(id) * 256, len: 200 };
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
                assert_eq!(driver.hold_used().unwrap(), Some(Used { id: *id, len: round }));
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

// Goal: where buffers come in order and one is let go, those after it move up: each is found by the
// device under the id that adding it again has said, and comes back under it; many rounds.
#[test]
fn later_ones_move_up() {
    for (mut driver, mut device) in in_order() {
        let mut pieces: Vec<Piece> = (0..SIZE)
            .map(|n| Piece { at: 0x1000 * u64::from(n), len: 100 + u32::from(n) })
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
                assert_eq!(driver.hold_used().unwrap(), Some(Used { id: *id, len: 7 }));
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

// Goal: of what was only read the device names the last one, and all up to it are free, also over
// the end of the ring; one that was not added yet, or is back already, is found out.
#[test]
fn what_was_sent_comes_back_at_once() {
    for (mut driver, mut device) in in_order() {
        for round in 0..40 {
            for at in 0..7 {
                let id = driver.take_id().unwrap();
                driver.add_taken(id, Piece { at, len: 60 });
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
        let id = driver.take_id().unwrap();
        driver.add_taken(id, Piece { at: 0, len: 60 });
        driver.publish();
        device.give((id + 1) % SIZE, 0, 1);
        assert!(driver.take_sent().unwrap_err().what.contains("not after buffer"));
    }
}
