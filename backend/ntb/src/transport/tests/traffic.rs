use mqnet_netdev::{Armed, FrameMeta, Tx};
use mqnet_shmem::Span;
use mqnet_sysio::epoll::{Epoll, Interest};
use mqnet_wire::VnetHdr;

use super::*;

/// Shapes with one and more windows, parts at odd bytes, and memory in several mappings.
fn shapes() -> Vec<Shape> {
    let small = Shape { size: 64 << 10, mtu: 2048, pairs: 3, ..Shape::default() };
    vec![
        small,
        Shape { windows: 2, pairs: 5, ..small },
        Shape { pairs: 1, cuts: Cuts::Each(4096), ..small },
        // A pair has 299,593 bytes, so parts begin at odd bytes.
        Shape { size: 2 << 20, pairs: 7, mtu: 9216, cuts: Cuts::Each(12288), ..small },
        Shape { pairs: 4, ..Shape::default() },
    ]
}

// Goal: frames cross in both directions, in order and unchanged, over many passes through each
// ring and at any offsets of slots and credit words.
#[test]
fn frames_cross_unchanged_around_all_rings() {
    for shape in shapes() {
        let mut world = World::up(shape, shape.pairs);
        let rounds = 4 * world.kernel.slot_count(0) as u32;
        let most = shape.mtu as usize - 12;
        let largest = usize::from(world.plan().frame_max as u16).min(most);
        for round in 0..rounds {
            for pair in 0..shape.pairs {
                let len = [60, 61, largest, 64 + round as usize % 1400][round as usize % 4];
                let frames = [frame(round, len), frame(round + 1000, 60)];
                assert_eq!(world.send(pair, &frames).unwrap(), 2, "{shape:?}");
                assert_eq!(world.kernel.receive(pair, 64), 2);
                for sent in &frames {
                    assert!(world.kernel.qps[pair].got.pop_front().as_ref() == Some(sent));
                }
                frames.iter().for_each(|frame| world.kernel.send(pair, frame).unwrap());
                assert!(world.receive(pair).unwrap() == frames, "{shape:?} {len}");
            }
        }
        let stats = world.stats(0);
        assert_eq!(stats.rx.packets.get(), u64::from(2 * rounds));
        assert_eq!(stats.tx.packets.get(), u64::from(2 * rounds));
        assert_eq!(stats.tx.copies.get(), u64::from(2 * rounds), "one copy a frame");
    }
}

// Rule: a full ring accepts no frame and loses none, a credit frees slots, and one slot always
// stays free.
#[test]
fn exhausted_credit_is_full() {
    let shape = Shape { size: 64 << 10, mtu: 2048, pairs: 2, ..Shape::default() };
    let mut world = World::up(shape, 2);
    let slots = world.kernel.slot_count(0) as usize;
    let frames: Vec<_> = (0..slots as u32 + 5).map(|n| frame(n, 100)).collect();
    assert_eq!(world.send(0, &frames).unwrap(), slots - 1);
    assert_eq!(world.send(0, &frames[slots - 1..]).unwrap(), 0);
    let Tx::Owning(tx) = &mut world.channels[0].tx else { panic!() };
    assert!(tx.reserve(1519).unwrap().is_none());
    assert!(!tx.is_drained().unwrap());
    assert_eq!(world.kernel.receive(0, 2), 2);
    assert_eq!(world.send(0, &frames[slots - 1..]).unwrap(), 2);
    // A full ring stops the peer's sender in the same way.
    let sent = (0..).take_while(|n| world.kernel.send(0, &frame(*n, 60)).is_ok()).count();
    assert_eq!(sent, slots - 1);
    assert_eq!(world.receive(0).unwrap().len(), slots - 1);
    assert!(world.kernel.send(0, &frame(0, 60)).is_ok());
    world.kernel.receive(0, 100);
    assert_eq!(world.kernel.qps[0].got.len(), slots + 1);
    let Tx::Owning(tx) = &mut world.channels[0].tx else { panic!() };
    assert!(tx.is_drained().unwrap());
}

// Rule: a queue that waits for credit is woken by a timer, without a notification of the peer.
// Arming reports more work as soon as the peer has consumed a slot.
#[test]
fn waiting_for_credit_ends_without_notification() {
    let shape = Shape { size: 64 << 10, mtu: 2048, ..Shape::default() };
    let mut world = World::up(shape, 1);
    let slots = world.kernel.slot_count(0) as usize;
    let frames: Vec<_> = (0..slots as u32).map(|n| frame(n, 100)).collect();
    assert_eq!(world.send(0, &frames).unwrap(), slots - 1);
    let epoll = Epoll::new().unwrap();
    let queue = world.channels[0].tx.queue();
    epoll.add(queue.event().unwrap().fd, Interest::ReadableEdge, 0).unwrap();
    assert_eq!(queue.arm(1518).unwrap(), Armed::Sleep);
    let woken = |epoll: &Epoll| epoll.wait(Some(Duration::from_secs(5)), |_| ()).unwrap();
    assert_eq!(woken(&epoll), 1);
    assert_eq!(world.channels[0].tx.queue().arm(1518).unwrap(), Armed::Sleep);
    assert_eq!(woken(&epoll), 1, "again and again");
    world.kernel.receive(0, 1);
    assert_eq!(world.channels[0].tx.queue().arm(1518).unwrap(), Armed::MoreWork);
}

// Rule: a queue with a full ring repeats its doorbell, so that a peer that missed one continues.
#[test]
fn full_ring_rings_again() {
    let shape = Shape { size: 64 << 10, mtu: 2048, ..Shape::default() };
    let mut world = World::up(shape, 1);
    let slots = world.kernel.slot_count(0) as usize;
    let frames: Vec<_> = (0..slots as u32).map(|n| frame(n, 100)).collect();
    assert_eq!(world.send(0, &frames).unwrap(), slots - 1);
    let rung = |world: &World| {
        let count = |n: &std::sync::atomic::AtomicU64| n.load(std::sync::atomic::Ordering::SeqCst);
        world.board.rung.iter().map(count).sum::<u64>()
    };
    let before = rung(&world);
    for _ in 0..20 {
        assert_eq!(world.channels[0].tx.queue().arm(1518).unwrap(), Armed::Sleep);
    }
    let again = rung(&world) - before;
    assert!((1..20).contains(&again), "{again} doorbells");
}

// Rule: a doorbell wakes a sleeping receiver. If the receiver misses the doorbell, the periodic
// check wakes it.
#[test]
fn sleeping_receiver_is_woken() {
    let mut world = World::up(Shape::default(), 1);
    let epoll = Epoll::new().unwrap();
    let queue = world.channels[0].rx.queue();
    epoll.add(queue.event().unwrap().fd, Interest::ReadableEdge, 0).unwrap();
    epoll.wait(Some(Duration::ZERO), |_| ()).unwrap();
    assert_eq!(queue.arm(0).unwrap(), Armed::Sleep);
    let woken = |epoll: &Epoll| epoll.wait(Some(Duration::ZERO), |_| ()).unwrap();
    world.kernel.send(0, &frame(1, 60)).unwrap();
    assert_eq!(woken(&epoll), 1);
    assert_eq!(world.channels[0].rx.queue().arm(0).unwrap(), Armed::MoreWork);
    assert_eq!(woken(&epoll), 0);
    for _ in 0..11 {
        world.poll();
    }
    assert_eq!(woken(&epoll), 1);
}

// Rule: a flush rings one doorbell for all frames since the last flush, and none without frames.
#[test]
fn doorbells_are_rung_once_a_flush() {
    let mut world = World::up(Shape::default(), 2);
    let rung = |world: &World| world.board.rung[3].load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(rung(&world), 0);
    world.send(1, &[frame(1, 60), frame(2, 60)]).unwrap();
    assert_eq!(rung(&world), 1);
    world.send(1, &[]).unwrap();
    assert_eq!(rung(&world), 1);
    let link = world.board.rung[0].load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(link, 0, "a link event would reset the peer's rings");
}

// Rule: a frame written into a reservation reaches the peer unchanged. A frame that is longer than
// a slot is dropped and counted, and the next frame uses its slot.
#[test]
fn reservations_write_the_peers_memory() {
    for cuts in [Cuts::None, Cuts::Each(4096)] {
        let mut world = World::up(Shape { cuts, ..Shape::default() }, 1);
        for (len, fits) in [(65_524, true), (65_525, false), (60, true), (65_532, false)] {
            let bytes = frame(len, len as usize);
            let Tx::Owning(tx) = &mut world.channels[0].tx else { panic!() };
            let mut room = tx.reserve(65_533).unwrap().unwrap();
            assert_eq!(room.len(), 65_533);
            let mut rest = Span::of(&bytes);
            let mut fill = |room: &mut mqnet_shmem::SpanMut<'_>| {
                rest = rest.skip(room.copy_from(rest));
            };
            fill(&mut room.head);
            fill(&mut room.tail);
            room.more().for_each(|mut piece| fill(&mut piece));
            tx.commit(&FrameMeta { len, hdr: VnetHdr::default() });
            tx.flush().unwrap();
            assert_eq!(world.kernel.receive(0, 9), usize::from(fits), "{len}");
            if fits {
                assert!(world.kernel.qps[0].got.pop_front() == Some(bytes));
            }
        }
        let drops = &world.stats(0).tx.drops;
        assert_eq!(drops.get(mqnet_netdev::DropReason::BufferTooSmall), 2);
    }
}

// Rule: received frames longer than the link's largest frame are dropped and counted, and the other
// frames arrive. Such frames are normal: the guest's default MTU is larger than the link's.
#[test]
fn frames_over_the_mtu_are_dropped() {
    let mut world = World::up(Shape::default(), 1);
    assert_eq!(world.plan().mtu, 1500);
    for (mark, len) in [(1, 60), (2, 1522), (3, 1523), (4, 65_524), (5, 61)] {
        world.kernel.send(0, &frame(mark, len)).unwrap();
    }
    let got = world.receive(0).unwrap();
    assert_eq!(got, [frame(1, 60), frame(2, 1522), frame(5, 61)]);
    assert_eq!(world.stats(0).rx.drops.get(mqnet_netdev::DropReason::TooLong), 2);
    assert_eq!(world.kernel.room(0), world.kernel.slot_count(0) - 1);
}

// Goal: with C channels and more queue pairs, all pairs are received: pair q on channel q mod C.
#[test]
fn few_channels_serve_all_pairs() {
    let mut world = World::new(Shape::default());
    world.partner.channels = 2;
    world.board.link_up();
    world.kernel.open(0..4);
    world.settle(2);
    for round in 0..20 {
        for pair in 0..4 {
            world.kernel.send(pair, &frame(pair as u32 * 100 + round, 60)).unwrap();
        }
        for channel in 0..2 {
            let mut marks: Vec<u32> =
                world.receive(channel).unwrap().iter().map(|f| mark(f)).collect();
            marks.sort_unstable();
            let base = channel as u32 * 100 + round;
            assert_eq!(marks, [base, base + 200]);
        }
    }
}

fn mark(frame: &[u8]) -> u32 {
    u32::from_le_bytes(frame[..4].try_into().unwrap())
}

// Rule: the capabilities have the largest MTU of the kernel's netdev and no offload.
#[test]
fn capabilities_are_those_of_the_wire() {
    let world = World::up(Shape::default(), 3);
    let caps = world.function.caps();
    assert_eq!((caps.channels, caps.wanted, caps.mtu_max), (4, Some(3), 65_510));
    assert_eq!((caps.rx_offloads, caps.tx_offloads), (Offloads::NONE, Offloads::NONE));
    let wide = Caps { mtu: Some(65_510), ..world.partner.clone() };
    assert_eq!(Plan::join(&caps, &wide).unwrap().mtu, 65_510);
}
