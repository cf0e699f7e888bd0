use super::plans::{self, PLANS};
use super::world::{MS, Spec, World, scheduler};
use crate::{Enqueued, Handle};

// Goal: a stalled channel that has filled all queues does not affect another channel: every packet
// of the other channel is queued and leaves in order.
#[test]
fn a_full_closed_channel_is_in_nobodys_way() {
    for plan in 0..PLANS {
        let mut world = World::new(plans::any(plan));
        let spec = Spec { priority: Handle::new(1, 1).0, ..Spec::new(3, 1000) };
        world.open = !0b10;
        for _ in 0..1500 {
            world.enqueue(spec.on(1));
        }
        assert!(world.s.len_of(1) > 5, "plan {plan}");
        for round in 0..200 {
            world.now += 5 * MS;
            assert_eq!(world.enqueue(spec.on(0)), Enqueued::Queued, "plan {plan}, {round}");
            let left = world.dequeue(0);
            assert!(left.is_some(), "plan {plan}, {round}");
            assert_eq!(world.s.len_of(0), 0, "plan {plan}");
        }
        assert!(world.s.len_of(1) > 5, "plan {plan}");
        world.finish();
    }
}

// Goal: a full queue drops packets of a closed channel only above its share, in favour of an open
// channel. If all channels are open, the newest packet is dropped, as in the kernel.
#[test]
fn a_closed_channel_keeps_its_share() {
    let mut world = World::new(plans::pfifo(20));
    world.open = !0b10;
    world.fill(20, Spec::new(1, 100).on(1));
    let results: Vec<_> = (0..20).map(|_| world.enqueue(Spec::new(2, 100).on(0))).collect();
    assert_eq!(results.iter().filter(|r| **r == Enqueued::Queued).count(), 10);
    assert_eq!((world.s.len_of(0), world.s.len_of(1)), (10, 10));
    world.open = u64::MAX;
    assert_eq!(world.enqueue(Spec::new(2, 100).on(2)), Enqueued::Dropped);
    world.finish();
}

// Goal: a dequeue for one channel sets aside at most one packet of each other channel; the qdiscs
// keep all other packets.
#[test]
fn one_packet_is_set_aside() {
    let mut world = World::new(plans::pfifo(100));
    world.fill(10, Spec::new(1, 100).on(1));
    world.fill(10, Spec::new(2, 100).on(2));
    world.enqueue(Spec::new(0, 100).on(0));
    assert_eq!(world.dequeue(0).map(|left| left.flow), Some(0));
    assert_eq!(world.s.ahead.len, 2);
    assert_eq!(world.dequeue(0), None);
    assert_eq!((world.s.len_of(1), world.s.len_of(2), world.s.ahead.len), (10, 10, 2));
    world.finish();
}

// Goal: of channels with equal arrivals, the least served gets at least 80 % of the packets of the
// most served.
#[test]
fn no_channel_starves() {
    for plan in 0..PLANS {
        let mut world = World::new(plans::any(plan));
        let spec = Spec { priority: Handle::new(1, 1).0, ..Spec::new(3, 500) };
        let mut served = [0u32; 4];
        for round in 0..2000 {
            // Vary the order of the channels: in a full queue, only the first arrival finds a free
            // position.
            (0..4).for_each(|n| world.fill(1, spec.on((n + round as u16 / 4) % 4)));
            world.now += 2 * MS;
            let channel = round % 4;
            let left = world.dequeue(channel as u16);
            served[channel] += u32::from(left.is_some());
        }
        let least = served.iter().min().unwrap();
        assert!(*least * 10 >= served.iter().max().unwrap() * 8, "plan {plan}: {served:?}");
        world.finish();
    }
}

// Goal: a bypass is possible only while no packet is queued, and only for qdiscs that neither delay
// nor reclassify a single packet.
#[test]
fn bypass_needs_passive_and_empty_qdiscs() {
    let passive = [0, 1, 2, 3, 4, 9, 10, 11, 13];
    for plan in 0..PLANS {
        let mut world = World::new(plans::any(plan));
        assert_eq!(world.s.can_bypass(), passive.contains(&plan), "plan {plan}");
        world.enqueue(Spec { priority: Handle::new(1, 1).0, ..Spec::new(3, 500) });
        assert!(!world.s.can_bypass());
        world.finish();
    }
    let nested = plans::prio(vec![plans::pfifo(1), plans::any(7)]);
    assert!(!scheduler(nested, 7).can_bypass());
    let plan = plans::pfifo(1);
    let stats = plan.stats.clone();
    scheduler(plan, 7).note_bypass(3, 4000);
    assert_eq!((stats.packets.get(), stats.bytes.get()), (3, 4000));
}

// Goal: a channel outside the mask becomes channel 0, so that its packet can leave.
#[test]
fn a_channel_out_of_range_is_the_first() {
    let mut world = World::new(plans::pfifo(10));
    world.enqueue(Spec::new(1, 100).on(64));
    world.enqueue(Spec::new(1, 100).on(u16::MAX));
    assert_eq!((world.s.len_of(0), world.dequeue(0).is_some()), (2, true));
    assert!(world.dequeue(63).is_none());
    assert!(world.dequeue(64).is_none());
    world.finish();
}
