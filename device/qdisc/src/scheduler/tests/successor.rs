use super::plans::{self, PLANS, fq, simple_tbf, small_fq};
use super::world::{MS, Spec, World, scheduler};
use crate::{Blueprint, FqCodel, Handle};

fn change(world: &mut World, plan: Blueprint) {
    let old = std::mem::replace(&mut world.s, scheduler(plan, world.now));
    world.with(|s, cx| s.adopt(old, cx));
}

// Goal: repeated changes of a token bucket allow no additional burst.
#[test]
fn tokens_survive_a_change() {
    let plan = || plans::tbf(simple_tbf(1_000_000, 3000), None);
    let mut world = World::new(plan());
    world.fill(100, Spec::new(0, 1000));
    let mut left = 0;
    for _ in 0..100 {
        while world.dequeue(0).is_some() {
            left += 1;
        }
        change(&mut world, plan());
        world.now += MS / 10;
    }
    assert_eq!(left, 3 + 9);
    world.finish();
}

// Goal: a smaller limit of fq_codel takes effect immediately and drops from the fattest flows. A
// larger number of flows moves packets without loss.
#[test]
fn fq_codel_meets_its_new_limit() {
    let mut world = World::new(fq(small_fq(1000, 64)));
    world.fill(300, Spec::new(1, 1000));
    world.fill(10, Spec::new(2, 1000));
    change(&mut world, fq(small_fq(100, 64)));
    assert!(world.s.len() <= 100 && world.s.len() >= 50);
    let before = world.s.len();
    change(&mut world, fq(small_fq(100, 128)));
    assert_eq!(world.s.len(), before);
    let thin = std::iter::from_fn(|| world.dequeue(0)).filter(|left| left.flow == 2).count();
    assert_eq!(thin, 10);
    world.finish();
}

// Goal: CoDel keeps its state: a change does not allow another interval of standing queue.
#[test]
fn codel_goes_on() {
    let drops = |changes: bool| {
        let mut world = World::new(fq(FqCodel::default()));
        world.fill(2000, Spec::new(1, 1000));
        for tick in 0..1000 {
            world.now += MS;
            world.dequeue(0);
            if changes && tick % 50 == 0 {
                change(&mut world, fq(FqCodel { limit: 9999 + tick, ..FqCodel::default() }));
            }
        }
        let drops = world.stats.drops.total();
        world.finish();
        drops
    };
    let undisturbed = drops(false);
    assert!(undisturbed > 10);
    assert_eq!(drops(true), undisturbed);
}

// Goal: each band and class keeps its packets; the packets of a removed class move to another
// class.
#[test]
fn classes_keep_their_packets() {
    let pfifo = || plans::pfifo(100);
    let mut world = World::new(plans::prio(vec![pfifo(), pfifo(), pfifo()]));
    for minor in [3, 2, 1] {
        world.fill(5, Spec::new(minor, 100).in_class(minor as u16));
    }
    change(&mut world, plans::prio(vec![fq(FqCodel::default()), pfifo()]));
    let flows: Vec<u32> = std::iter::from_fn(|| world.dequeue(0)).map(|l| l.flow).collect();
    // Class 1:3 is removed: its packets move to the band of priority 0.
    assert_eq!(flows, [[1; 5], [2; 5], [3; 5]].concat());
    assert_eq!(world.stats.drops.total(), 0);
    world.finish();
}

// Goal: classes of drr keep their order and deficits.
#[test]
fn drr_keeps_turns() {
    let plan = || plans::drr(vec![(1, 1000, plans::pfifo(100)), (2, 1000, plans::pfifo(100))]);
    let mut world = World::new(plan());
    for minor in [2, 1] {
        world.fill(6, Spec::new(minor, 1000).in_class(minor as u16));
    }
    let mut flows = Vec::new();
    while let Some(left) = world.dequeue(0) {
        flows.push(left.flow);
        change(&mut world, plan());
    }
    assert_eq!(flows, [2, 1].repeat(6));
    world.finish();
}

// Goal: packets for channels that are no longer used move to channel 0 and leave there. The rule
// holds for packets in buckets, flows and classes, and for packets set aside.
#[test]
fn no_packet_stays_behind_on_a_channel_that_is_gone() {
    for plan in 0..PLANS {
        let mut world = World::new(plans::any(plan));
        for channel in [3, 0, 3, 2] {
            let spec = Spec { priority: Handle::new(1, 1).0, ..Spec::new(1, 100) };
            world.fill(2, spec.on(channel));
        }
        let _ = world.dequeue(0);
        let before = world.s.len();
        change(&mut world, plans::any(plan));
        world.with(|s, cx| s.set_channels(2, cx));
        world.fill(1, Spec { priority: Handle::new(1, 1).0, ..Spec::new(2, 100) }.on(5));
        let before = before + 1;
        assert_eq!((world.s.len(), world.s.len_of(0)), (before, before), "plan {plan}");
        world.now += 1000 * MS;
        world.open = 0b11;
        let left = std::iter::from_fn(|| world.dequeue(0)).count() as u32;
        assert_eq!(left, before, "plan {plan}");
        world.finish();
    }
}
