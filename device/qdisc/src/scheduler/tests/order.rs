use mqnet_netdev::DropReason;
use proptest::prelude::*;

use super::plans;
use super::world::{Spec, World};
use crate::{Enqueued, Fifo, PRIOMAP, Params};

/// Expected band of a priority in a prio with three bands and the handle `1:`.
fn band(priority: u32) -> u8 {
    match (priority >> 16, priority & 0xffff) {
        (1, minor @ 1..=3) => minor as u8 - 1,
        (0, _) => PRIOMAP[(priority & 15) as usize],
        _ => PRIOMAP[0],
    }
}

fn strict(plan: crate::Blueprint, of: fn(u32) -> u8, steps: &[(u32, bool)]) {
    let mut world = World::new(plan);
    let mut waiting: Vec<(u8, u64)> = Vec::new();
    for (id, (priority, serve)) in (1..).zip(steps) {
        world.enqueue(Spec { priority: *priority, ..Spec::new(0, 100) });
        waiting.push((of(*priority), id));
        if *serve {
            let first = *waiting.iter().min().unwrap();
            waiting.retain(|packet| *packet != first);
            assert_eq!(world.dequeue(0).map(|left| left.id), Some(first.1));
        }
    }
    waiting.sort();
    for (_, id) in waiting {
        assert_eq!(world.dequeue(0).map(|left| left.id), Some(id));
    }
    world.finish();
}

fn priorities() -> impl Strategy<Value = u32> {
    prop_oneof![0u32..20, (0u32..6).prop_map(|minor| 1 << 16 | minor), Just(5 << 16 | 2)]
}

proptest! {
    // Goal: the oldest packet of the lowest non-empty band leaves. A priority that is a class id
    // selects the band of the class; an unknown class id selects band priomap[0].
    #[test]
    fn prio_is_strict(steps in prop::collection::vec((priorities(), any::<bool>()), 1..200)) {
        let pfifo = || plans::pfifo(1000);
        strict(plans::prio(vec![pfifo(), pfifo(), pfifo()]), band, &steps);
    }

    // Goal: the oldest packet of the lowest non-empty band of pfifo_fast leaves, and only the low
    // four bits of the priority select the band.
    #[test]
    fn pfifo_fast_is_strict(steps in prop::collection::vec((0u32..40, any::<bool>()), 1..200)) {
        let plan = plans::leaf(Params::PfifoFast(Fifo { limit: 1000 }));
        strict(plan, |priority| PRIOMAP[(priority & 15) as usize], &steps);
    }

    // Goal: pfifo holds at most its limit of packets, and bfifo at most its limit of bytes; the new
    // packet is dropped with the reason `QdiscOverlimit`.
    #[test]
    fn limits_are_exact(limit in 1u32..40, lens in prop::collection::vec(60u32..1515, 1..100)) {
        let mut world = World::new(plans::pfifo(limit));
        for (n, len) in (0..).zip(&lens) {
            let expected = if n < limit { Enqueued::Queued } else { Enqueued::Dropped };
            prop_assert_eq!(world.enqueue(Spec::new(0, *len)), expected);
        }
        world.finish();
        let mut world = World::new(plans::bfifo(limit * 500));
        let (mut bytes, mut drops) = (0, 0);
        for len in &lens {
            let fits = bytes + len <= limit * 500;
            let expected = if fits { Enqueued::Queued } else { Enqueued::Dropped };
            prop_assert_eq!(world.enqueue(Spec::new(0, *len)), expected);
            if fits { bytes += len } else { drops += 1 }
        }
        prop_assert_eq!(world.stats.drops.get(DropReason::QdiscOverlimit), drops);
        world.finish();
    }

    // Goal: backlogged drr classes share in proportion to their quanta for any packet lengths. The
    // rounds (bytes divided by quantum) of two classes differ by at most two, plus one packet.
    #[test]
    fn drr_shares_by_quantum(
        quanta in prop::collection::vec(1u32..6000, 2..5),
        lens in prop::collection::vec(60u32..4000, 5),
        rounds in 200usize..1500,
    ) {
        let classes = (1..).zip(&quanta).map(|(n, q)| (n, *q, plans::pfifo(1000))).collect();
        let mut world = World::new(plans::drr(classes));
        let spec = |n: usize| Spec::new(n as u32, lens[n]).in_class(n as u16 + 1);
        let mut sent = vec![0f64; quanta.len()];
        (0..quanta.len()).for_each(|n| for _ in 0..3 { world.enqueue(spec(n)); });
        let longest = f64::from(*lens.iter().max().unwrap());
        for _ in 0..rounds {
            let left = world.dequeue(0).unwrap();
            sent[left.flow as usize] += f64::from(left.wire);
            world.enqueue(spec(left.flow as usize));
        }
        let turns = |n: usize| sent[n] / f64::from(quanta[n]);
        let slack = |n: usize| 1. + longest / f64::from(quanta[n]);
        for n in 1..quanta.len() {
            let apart = (turns(n) - turns(0)).abs();
            prop_assert!(apart <= 1. + slack(n).max(slack(0)), "{quanta:?} {sent:?}");
        }
        world.finish();
    }
}

// Goal: drr drops and counts packets without a class.
#[test]
fn drr_has_no_default() {
    let plan = plans::any(7);
    let stats = plan.stats.clone();
    let mut world = World::new(plan);
    assert_eq!(world.enqueue(Spec::new(0, 100)), Enqueued::Dropped);
    assert_eq!(world.enqueue(Spec::new(0, 100).in_class(3)), Enqueued::Dropped);
    assert_eq!(world.enqueue(Spec::new(0, 100).in_class(2)), Enqueued::Queued);
    assert_eq!((stats.drops.get(), world.stats.drops.get(DropReason::Filtered)), (2, 2));
    world.finish();
}

// Goal: a drr class with packets only for a closed channel accumulates no deficit. When the class
// can send again, it gets its share without a burst.
#[test]
fn drr_saves_nothing_for_closed_channels() {
    let classes = vec![(1, 1500, plans::pfifo(1000)), (2, 1500, plans::pfifo(1000))];
    let mut world = World::new(plans::drr(classes));
    let first = Spec::new(1, 1000).in_class(1);
    let second = Spec::new(2, 1000).in_class(2);
    world.open = 1;
    world.fill(300, first.on(1));
    world.fill(500, second);
    let served = |world: &mut World, n: u32| {
        let flows = (0..n).filter_map(|_| world.dequeue(0)).map(|left| left.flow);
        flows.filter(|flow| *flow == 1).count()
    };
    assert_eq!(served(&mut world, 300), 0);
    world.fill(200, first);
    let shared = served(&mut world, 100);
    assert!((48..=52).contains(&shared), "{shared}");
    world.open = 0b11;
    let mut of_first = 0;
    for channel in [0, 1].repeat(50) {
        of_first += world.dequeue(channel).filter(|left| left.flow == 1).iter().count();
    }
    assert!((48..=75).contains(&of_first), "{of_first}");
    world.finish();
}
