use mqnet_netdev::DropReason;
use mqnet_shmem::Span;
use mqnet_wire::{FlowKeys, Layer};

use super::plans::{self, fq, simple_tbf, small_fq};
use super::world::{Left, MS, SECOND, Spec, World};
use crate::sch::fq_codel::counter;
use crate::{Enqueued, Filters, FqCodel, Handle, Scheduler};

/// Simulates a link that sends a byte in 800 ns (10 Mbit/s), and sources with one packet per
/// period. Returns the packets that the link sent.
fn simulate(world: &mut World, sources: &[(Spec, u64)], time: u64) -> Vec<Left> {
    let end = world.now + time;
    let mut next: Vec<u64> = sources.iter().map(|(_, every)| world.now + every / 3).collect();
    let (mut free, mut left) = (world.now, Vec::new());
    while world.now < end {
        for (next, (spec, every)) in next.iter_mut().zip(sources) {
            if *next <= world.now {
                world.enqueue(*spec);
                *next += every;
            }
        }
        if free <= world.now
            && let Some(packet) = world.dequeue(0)
        {
            free = world.now + u64::from(packet.wire) * 800;
            left.push(packet);
        }
        let busy = if free > world.now { free } else { end };
        world.now = next.iter().copied().fold(busy, u64::min).max(world.now + 1);
    }
    left
}

fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = shares.iter().fold((0., 0.), |(s, q), x| (s + x, q + x * x));
    sum * sum / (shares.len() as f64 * squares)
}

fn shares(left: &[Left], flows: u32) -> Vec<f64> {
    let of = |flow| left.iter().filter(|l| l.flow == flow).map(|l| f64::from(l.wire)).sum();
    (0..flows).map(of).collect()
}

/// Eight flows: flows 1 to 7 send at twice their fair share, flow 0 at ten times the rate of each
/// other flow.
fn greedy() -> Vec<(Spec, u64)> {
    (0..8).map(|n| (Spec::new(n, 1250), if n == 0 { 400_000 } else { 4 * MS })).collect()
}

// Goal: one greedy flow of eight gets no more than the others, unlike in a pfifo.
#[test]
fn a_greedy_flow_gains_nothing() {
    let mut world = World::new(fq(FqCodel::default()));
    let index = jain(&shares(&simulate(&mut world, &greedy(), 20 * SECOND), 8));
    assert!(index >= 0.98, "{index}");
    world.finish();
    let mut world = World::new(plans::pfifo(1000));
    let index = jain(&shares(&simulate(&mut world, &greedy(), 20 * SECOND), 8));
    assert!(index < 0.5, "{index}");
    world.finish();
}

// Goal: flows of different frame lengths share bytes, not packets.
#[test]
fn bytes_are_shared() {
    let mut world = World::new(fq(FqCodel::default()));
    let sources: Vec<_> = (0..4).map(|n| (Spec::new(n, 100 + 400 * n), 200_000)).collect();
    let index = jain(&shares(&simulate(&mut world, &sources, 20 * SECOND), 4));
    assert!(index >= 0.99, "{index}");
    world.finish();
}

// Goal: a packet of a sparse flow waits for at most two frames of other flows. In a pfifo, a packet
// of the same flow waits for the whole queue, more than a second.
#[test]
fn a_sparse_flow_hardly_waits() {
    let sources = [(Spec::new(1, 100), 10 * MS), (Spec::new(2, 1514), MS / 2)];
    let slowest = |plan| {
        let mut world = World::new(plan);
        let left = simulate(&mut world, &sources, 10 * SECOND);
        let sparse: Vec<u64> = left.iter().filter(|l| l.flow == 1).map(|l| l.waited).collect();
        assert!(sparse.len() > 100);
        world.finish();
        sparse.into_iter().max().unwrap()
    };
    let fair = slowest(fq(FqCodel::default()));
    assert!(fair <= 2 * 1514 * 800, "{fair}");
    assert!(slowest(plans::pfifo(1000)) > SECOND);
}

// Goal: with a sender that reacts to drops as TCP does, the median delay of a bulk flow stays
// within 4 targets, and the link stays busy.
#[test]
fn a_reacting_flow_stands_near_the_target() {
    let mut world = World::new(fq(FqCodel::default()));
    let (mut window, mut waits, mut flying) = (10f64, Vec::new(), 0u64);
    let (mut drops, mut cut) = (0, 0);
    // Acknowledgements arrive 20 ms after a packet has left.
    let mut acks = std::collections::VecDeque::new();
    for tick in 0..20_000 {
        world.now += MS;
        while acks.front().is_some_and(|at| *at <= world.now) {
            acks.pop_front();
            flying -= 1;
            window += 1. / window;
        }
        let dropped = world.stats.drops.total() - drops;
        drops += dropped;
        flying -= dropped;
        if dropped > 0 && tick > cut + 30 {
            (window, cut) = ((window / 2.).max(2.), tick);
        }
        while (flying as f64) < window {
            world.enqueue(Spec::new(1, 1250));
            flying += 1;
        }
        if let Some(left) = world.dequeue(0) {
            waits.push(left.waited);
            acks.push_back(world.now + 20 * MS);
        }
    }
    assert!(waits.len() > 18_500, "{}", waits.len());
    let mut late = waits.split_off(waits.len() / 4);
    late.sort_unstable();
    let median = late[late.len() / 2];
    assert!(median <= 20 * MS, "{median}");
    world.finish();
}

// Goal: above the limit, the fattest flow loses up to half of its packets, at most `drop_batch`,
// and the new packet of another flow is queued.
#[test]
fn the_fattest_flow_pays() {
    for (batch, expected) in [(64, 45), (8, 8)] {
        let plan = fq(FqCodel { drop_batch: batch, ..small_fq(100, 64) });
        let stats = plan.stats.clone();
        let mut world = World::new(plan);
        world.fill(90, Spec::new(1, 1000));
        world.fill(10, Spec::new(2, 60));
        assert_eq!(world.enqueue(Spec::new(2, 60)), Enqueued::Queued);
        assert_eq!(stats.extra[counter::DROP_OVERLIMIT].get(), expected);
        assert_eq!(stats.drops.get(), expected);
        assert_eq!(world.stats.drops.get(DropReason::QdiscOverlimit), expected);
        assert_eq!(u64::from(world.s.len()), 101 - expected);
        world.finish();
    }
}

// Goal: a new packet that exceeds the memory limit and is the only packet of the fattest flow is
// reported as dropped.
#[test]
fn a_lone_large_packet_is_dropped_itself() {
    let plan = fq(FqCodel { memory_limit: 1500, ..FqCodel::default() });
    let stats = plan.stats.clone();
    let mut world = World::new(plan);
    assert_eq!(world.enqueue(Spec::new(1, 1000)), Enqueued::Queued);
    assert_eq!(world.enqueue(Spec::new(2, 1400)), Enqueued::Dropped);
    assert_eq!(stats.extra[counter::DROP_OVERMEMORY].get(), 1);
    assert_eq!(stats.extra[counter::MEMORY_USED].get(), 1024);
    world.finish();
}

/// Enqueues an ECN-capable IPv4 packet and returns the result.
fn send_ect(world: &mut World) -> Enqueued {
    let mut packet = world.packet(Spec::new(1, 1000));
    let mut header = [0x45, 2, 3, 232, 0, 0, 64, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let sum = !fold(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let (_, mut place) = world.pool.frag_span_mut(&mut packet.frag).split_at(14);
    place.copy_from(Span::of(&header));
    packet.ip = Some(14);
    world.with(|s, cx| s.enqueue(packet, &FlowKeys::default(), cx))
}

fn fold(bytes: &[u8]) -> u16 {
    let sum: u32 = bytes.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// Serves a standing queue of ECN-capable packets every 2 ms. Returns the packets sent, the packets
/// marked, the counters `ecn_mark` and `ce_mark`, and the drops.
fn marks(set: FqCodel) -> (u64, u64, [u64; 2], u64) {
    let plan = fq(set);
    let stats = plan.stats.clone();
    let mut world = World::new(plan);
    let (mut left, mut marked) = (0, 0);
    for _ in 0..1000 {
        world.now += 2 * MS;
        for _ in 0..if left == 0 { 50 } else { 1 } {
            send_ect(&mut world);
        }
        let packet = world.with(|s, cx| s.dequeue(0, cx)).unwrap();
        let mut header = [0; 34];
        world.pool.frag_span(&packet.frag).read_header(&mut header);
        assert_eq!(fold(&header[14..]), 0xffff, "the checksum of the header");
        marked += u64::from(header[15] & 3 == 3);
        left += 1;
        world.pool.free_frag(packet.frag);
    }
    let drops = world.stats.drops.get(DropReason::Aqm);
    let extra = stats.totals().extra;
    let counted = [extra[counter::ECN_MARK], extra[counter::CE_MARK]];
    world.finish();
    (left, marked, counted, drops)
}

// Goal: CoDel marks ECN-capable packets instead of dropping them, counts each mark, and updates the
// checksum. Without `ecn` CoDel drops them.
#[test]
fn marks_instead_of_drops() {
    let (_, marked, [ecn_mark, ce_mark], drops) = marks(FqCodel::default());
    assert!(marked > 20, "{marked}");
    assert_eq!((ecn_mark, ce_mark, drops), (marked, 0, 0));
    let set = FqCodel { ecn: false, ..FqCodel::default() };
    let (_, marked, [ecn_mark, _], drops) = marks(set);
    assert_eq!((marked, ecn_mark), (0, 0));
    assert!(drops > 5, "{drops}");
}

// Goal: a packet with a delay above `ce_threshold` is marked, even if the delay is below the
// target.
#[test]
fn the_threshold_marks_all() {
    let set = FqCodel { ce_threshold: Some(MS), target: SECOND, ..FqCodel::default() };
    let (left, marked, [ecn_mark, ce_mark], drops) = marks(set);
    assert_eq!((ce_mark, ecn_mark, drops), (marked, 0, 0));
    assert!(marked >= left - 2);
}

// Goal: a flow that became empty long ago starts with a new CoDel state, even if no dequeue found
// the flow empty (its channel was closed). Its first packets are not dropped.
#[test]
fn delays_of_long_ago_are_forgotten() {
    for closed in [false, true] {
        let mut world = World::new(fq(FqCodel::default()));
        // Another flow's packets keep the backlog above the tolerance.
        world.fill(50, Spec::new(2, 1000).on(1));
        world.fill(2, Spec::new(1, 1000));
        world.now += 20 * MS;
        world.open = 0b01;
        assert!(world.dequeue(0).is_some() && world.dequeue(0).is_some());
        if closed {
            world.open = 0;
        } else {
            assert!(world.dequeue(0).is_none());
        }
        world.now += 10 * SECOND;
        world.fill(2, Spec::new(1, 1000));
        world.now += 20 * MS;
        world.open = 0b01;
        assert!(world.dequeue(0).is_some() && world.dequeue(0).is_some());
        assert_eq!(world.stats.drops.total(), 0, "closed: {closed}");
        world.finish();
    }
}

// Goal: a priority that is a class id of the qdisc selects the flow with the minor number. A minor
// number without a flow does not prevent queueing.
#[test]
fn a_priority_names_a_flow() {
    let plan = fq(small_fq(100, 8));
    let stats = plan.stats.clone();
    let mut world = World::new(plan);
    for n in 0..40 {
        world.enqueue(Spec::new(n, 100).in_class(3));
    }
    assert_eq!(stats.extra[counter::NEW_FLOW_COUNT].get(), 1);
    assert_eq!(stats.extra[counter::NEW_FLOWS_LEN].get(), 1);
    let strange = Spec { priority: Handle::new(1, 9).0, ..Spec::new(0, 100) };
    assert_eq!(world.enqueue(strange), Enqueued::Queued);
    assert_eq!(world.dequeue(0).map(|left| left.id), Some(1));
    assert_eq!(stats.extra[counter::MAXPACKET].get(), 100);
    world.finish();
}

// Goal: with an MTU of 64 KiB CoDel detects a standing queue of 20 KB, and never drops a large
// frame without a backlog.
#[test]
fn a_large_mtu_does_not_blind_codel() {
    for (len, standing, drops) in [(1000, 20, true), (60_000, 1, false)] {
        let mut world = World::new(fq(FqCodel::default()));
        let plan = fq(FqCodel::default());
        world.s = Scheduler::new(plan, Filters::default(), 65_549, 7, Layer::Ethernet);
        for _ in 0..200 {
            world.fill(standing - world.s.len(), Spec::new(1, len));
            world.now += 50 * MS;
            world.dequeue(0);
        }
        assert_eq!(world.stats.drops.total() > 0, drops, "{len}");
        world.finish();
    }
}

// Goal: flows share a common rate regardless of their channels: a single flow of channel 0 gets no
// more than each of three flows of channel 1.
#[test]
fn flows_of_all_channels_share() {
    let bucket = simple_tbf(1_250_000, 3000);
    let mut world = World::new(plans::tbf(bucket, Some(fq(FqCodel::default()))));
    let mut got = [0f64; 4];
    while world.now < 11 * SECOND {
        while world.s.len() < 100 {
            (0..4).for_each(|flow| world.fill(1, Spec::new(flow, 1000).on(u16::from(flow > 0))));
        }
        for channel in [0, 1] {
            while let Some(left) = world.dequeue(channel) {
                got[left.flow as usize] += f64::from(left.wire);
            }
        }
        world.now = world.s.next_time().unwrap();
    }
    assert!(jain(&got) >= 0.99, "{got:?}");
    world.finish();
}
