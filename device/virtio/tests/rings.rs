//! Device side of both ring layouts, tested with a simple driver.

use std::collections::VecDeque;

use mqnet_testkit::virtq::{Buf, Driver, Memory, Shape};
use mqnet_virtio::{Broken, DeviceRing, Features, Ring, on_ring, packed, split};
use proptest::prelude::*;

fn features(shape: Shape) -> Features {
    let event = if shape.event_idx { Features::EVENT_IDX } else { Features::default() };
    Features::INDIRECT_DESC.or(event)
}

fn device(memory: &Memory, driver: &Driver, base: u32) -> Ring {
    let shape = driver.shape;
    let tables = driver.tables(memory);
    if shape.packed {
        let ring =
            packed::PackedDeviceQueue::new(3, shape.size, tables, features(shape), base, None);
        Ring::Packed(ring.unwrap())
    } else {
        Ring::Split(split::SplitDeviceQueue::new(3, shape.size, tables, features(shape)).unwrap())
    }
}

/// Base of a ring that was never used.
const FRESH: u32 = 0x8000_8000;

/// A chain as both sides see it: buffers, number of device-readable buffers, and id.
type Seen = (Vec<(u64, u32)>, usize, u16);

/// Reads up to `most` chains without using them.
fn read_chains(ring: &mut Ring, memory: &Memory, most: usize) -> Result<Vec<(Seen, u16)>, Broken> {
    let map = memory.map();
    on_ring!(ring, ring => {
        let (mut place, mut list, mut all) = (ring.place(), Vec::new(), Vec::new());
        while all.len() < most
            && let Some(chain) = ring.chain_at(&mut place, &map, &mut list)?
        {
            let pieces = std::iter::once(&chain.head).chain(chain.more(&list));
            let pieces: Vec<_> = pieces.map(|piece| (piece.addr, piece.len)).collect();
            assert_eq!(usize::from(chain.pieces()), pieces.len());
            assert_eq!(pieces.iter().map(|piece| piece.1).sum::<u32>(), chain.len);
            all.push(((pieces, chain.readable.into(), chain.id), chain.slots));
        }
        Ok(all)
    })
}

fn give_back(ring: &mut Ring, id: u16, slots: u16, len: u32) {
    on_ring!(ring, ring => ring.give_back(id, slots, len));
}

fn publish(ring: &mut Ring) -> bool {
    on_ring!(ring, ring => ring.publish())
}

fn arm(ring: &mut Ring) -> bool {
    on_ring!(ring, ring => ring.arm(ring.place()).unwrap())
}

fn disarm(ring: &mut Ring) {
    on_ring!(ring, ring => ring.disarm());
}

fn base(ring: &Ring) -> u32 {
    on_ring!(ring, ring => ring.base())
}

#[derive(Clone, Debug)]
enum Op {
    /// Adds readable and writable buffers; true: through an indirect table.
    Add(usize, usize, bool),
    Look(usize),
    Use(usize),
    Collect(usize),
    /// Stops the device and resumes with another device.
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0usize..4, 0usize..4, any::<bool>()).prop_map(|(r, w, i)| Op::Add(r, w, i)),
        1 => (0usize..9).prop_map(Op::Look),
        4 => (0usize..9).prop_map(Op::Use),
        4 => (0usize..9).prop_map(Op::Collect),
        1 => Just(Op::Restart),
    ]
}

fn shape() -> impl Strategy<Value = Shape> {
    let packed = (1u16..20).prop_map(|size| (true, size));
    let split = (0u32..5).prop_map(|log| (false, 1 << log));
    (prop_oneof![packed, split], any::<bool>()).prop_map(|((packed, size), event_idx)| Shape {
        packed,
        size,
        event_idx,
    })
}

fn bufs(memory: &mut Memory, readable: usize, writable: usize) -> Vec<Buf> {
    let n = (readable + writable).max(1);
    let buf = |i: usize| {
        let len = 1 + (i as u32 * 37) % 90;
        (memory.alloc(len, 1), len, i >= readable)
    };
    (0..n).map(buf).map(|(at, len, write)| Buf { at, len, write }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    // Goal: for any order of operations, the device reads exactly the chains of the driver, in
    // order. The driver gets each chain back once, with its length. Two queues of the test model
    // the chains in each direction.
    #[test]
    fn chains_return_once_in_order(shape in shape(), ops in prop::collection::vec(op(), 1..120)) {
        let mut memory = Memory::new(1 << 20);
        let mut driver = Driver::new(&mut memory, shape);
        let mut ring = device(&memory, &driver, FRESH);
        let (mut there, mut back) = (VecDeque::<Seen>::new(), VecDeque::new());
        for op in ops {
            match op {
                Op::Add(readable, writable, indirect) => {
                    let bufs = bufs(&mut memory, readable, writable);
                    let id = if indirect {
                        driver.add_indirect(&memory, &bufs)
                    } else {
                        driver.add(&bufs)
                    };
                    if let Some(id) = id {
                        let pieces = bufs.iter().map(|buf| (buf.at, buf.len)).collect();
                        let readable = bufs.iter().filter(|buf| !buf.write).count();
                        there.push_back((pieces, readable, id));
                    }
                    driver.publish();
                }
                Op::Look(most) => {
                    let seen = read_chains(&mut ring, &memory, most).unwrap();
                    prop_assert_eq!(seen.len(), most.min(there.len()));
                    for (seen, made) in seen.iter().zip(&there) {
                        prop_assert_eq!(&seen.0, made);
                    }
                }
                Op::Use(most) => {
                    for (i, (seen, slots)) in
                        read_chains(&mut ring, &memory, most).unwrap().into_iter().enumerate()
                    {
                        prop_assert_eq!(Some(seen.clone()), there.pop_front());
                        give_back(&mut ring, seen.2, slots, i as u32 * 3);
                        back.push_back((seen.2, i as u32 * 3));
                    }
                    publish(&mut ring);
                }
                Op::Collect(most) => {
                    for _ in 0..most {
                        prop_assert_eq!(driver.used(), back.pop_front());
                    }
                }
                Op::Restart => {
                    let base = base(&ring);
                    ring = device(&memory, &driver, base);
                }
            }
        }
    }

    // Goal: neither side waits for a notification while the other side has published work, over
    // many rounds of the ring. Without `EVENT_IDX`, a driver that suppresses interrupts receives
    // none.
    #[test]
    fn neither_side_sleeps_with_work(
        shape in shape(),
        start in 0u16..3,
        steps in prop::collection::vec((0u8..4, 1usize..4), 1..300),
    ) {
        let mut memory = Memory::new(1 << 20);
        let mut driver = Driver::new(&mut memory, shape);
        let mut ring = device(&memory, &driver, FRESH);
        let buf = Buf { at: memory.alloc(64, 1), len: 64, write: false };
        let (mut device_sleeps, mut driver_sleeps) = (start == 1, start == 2);
        if device_sleeps {
            prop_assert!(!arm(&mut ring));
        }
        if driver_sleeps {
            prop_assert!(!driver.arm());
        } else {
            driver.disarm();
        }
        for (what, n) in steps {
            match what {
                0 if !driver_sleeps => {
                    let added = (0..n).filter_map(|_| driver.add(&[buf])).count();
                    let told = driver.publish();
                    if device_sleeps && added > 0 {
                        prop_assert!(told, "a sleeping device is notified");
                        device_sleeps = false;
                    }
                }
                1 if !device_sleeps => {
                    disarm(&mut ring);
                    let seen = read_chains(&mut ring, &memory, n).unwrap();
                    for ((_, _, id), slots) in &seen {
                        give_back(&mut ring, *id, *slots, 0);
                    }
                    let told = publish(&mut ring);
                    if !seen.is_empty() {
                        if driver_sleeps {
                            prop_assert!(told, "a sleeping driver is notified");
                            driver_sleeps = false;
                            driver.disarm();
                        } else if !shape.event_idx {
                            prop_assert!(!told, "no notification requested");
                        }
                    }
                }
                2 if !device_sleeps => device_sleeps = !arm(&mut ring),
                3 if !driver_sleeps => {
                    while driver.used().is_some() {}
                    driver_sleeps = !driver.arm();
                    if !driver_sleeps {
                        driver.disarm();
                    }
                }
                _ => {}
            }
            if device_sleeps && driver_sleeps {
                prop_assert!(read_chains(&mut ring, &memory, 1).unwrap().is_empty());
                prop_assert!(driver.used().is_none());
                break;
            }
        }
    }
}

// Goal: a device resumes from any base that it reported, also where 16-bit indexes and the ring
// wrap.
#[test]
fn bases_survive_every_wrap() {
    for (packed, size, laps) in [(false, 4u16, 70_000u32), (true, 3, 50), (true, 1, 20)] {
        let mut memory = Memory::new(1 << 16);
        let shape = Shape { packed, size, event_idx: true };
        let mut driver = Driver::new(&mut memory, shape);
        let mut ring = device(&memory, &driver, FRESH);
        let buf = Buf { at: memory.alloc(64, 1), len: 64, write: true };
        for i in 0..laps {
            let id = driver.add(&[buf]).unwrap();
            driver.publish();
            let seen = read_chains(&mut ring, &memory, 9).unwrap();
            assert_eq!(seen.len(), 1);
            give_back(&mut ring, id, 1, i);
            publish(&mut ring);
            assert_eq!(driver.used(), Some((id, i)));
            if !packed && i % 1000 != 0 {
                continue;
            }
            let base = base(&ring);
            if packed {
                let (at, lap) = ((i + 1) % u32::from(size), (i + 1) / u32::from(size));
                let half = at | u32::from(lap.is_multiple_of(2)) << 15;
                assert_eq!(base, half << 16 | half);
            } else {
                assert_eq!(base, (i + 1) & 0xffff);
            }
            ring = device(&memory, &driver, base);
        }
    }
}

/// Uses all available chains. Returns their number.
fn use_all(ring: &mut Ring, memory: &Memory) -> usize {
    let mut all = 0;
    while on_ring!(&mut *ring, ring => ring.has_chain()).unwrap() {
        let seen = read_chains(ring, memory, 9).unwrap();
        for ((_, _, id), slots) in &seen {
            give_back(ring, *id, *slots, 0);
        }
        publish(ring);
        all += seen.len();
    }
    all
}

// Goal: the device skips descriptors that a VMM marked as used while no device was connected. The
// driver gets every buffer back once, and the next round is normal.
#[test]
fn foreign_used_descriptors_are_skipped() {
    let mut memory = Memory::new(1 << 16);
    let shape = Shape { packed: true, size: 8, event_idx: true };
    let mut driver = Driver::new(&mut memory, shape);
    let buf = Buf { at: memory.alloc(64, 1), len: 64, write: false };
    let add = |driver: &mut Driver, n: usize| {
        assert!((0..n).all(|_| driver.add(&[buf]).is_some()));
        driver.publish();
    };
    let mut ring = device(&memory, &driver, FRESH);
    add(&mut driver, 6);
    assert_eq!(use_all(&mut ring, &memory), 6);
    assert_eq!(std::iter::from_fn(|| driver.used()).count(), 6);
    let stands = base(&ring);
    // Add two descriptors in this round and five in the next round. The VMM's device begins at the
    // start of the next round.
    add(&mut driver, 7);
    let mut vmm = device(&memory, &driver, 0);
    assert_eq!(use_all(&mut vmm, &memory), 5);
    let mut ring = device(&memory, &driver, stands);
    add(&mut driver, 1);
    assert_eq!(use_all(&mut ring, &memory), 3);
    assert_eq!(std::iter::from_fn(|| driver.used()).count(), 8);
    for _ in 0..5 {
        add(&mut driver, 7);
        assert_eq!(use_all(&mut ring, &memory), 7);
        assert_eq!(std::iter::from_fn(|| driver.used()).count(), 7);
    }
}
